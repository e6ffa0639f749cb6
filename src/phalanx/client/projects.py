"""Projects of a server, and the code of its runs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from phalanx.client.run_lookup import RunLookup
from phalanx.client.transport import joined
from phalanx.errors import path_error
from phalanx.home.projects import ProjectDetails, ProjectSummary

if TYPE_CHECKING:
    from phalanx.artifacts.code_record import CodeRecord
    from phalanx.store.records import Run

PIECE = 256 << 10


class ProjectMethods(RunLookup):
    """A part of `Client`."""

    def project_summaries(self) -> list[ProjectSummary]:
        """The projects that the caller may see, by name."""
        return [_summary(row) for row in self._wire.rows(joined("projects"), "projects")]

    def project(self, name: str) -> ProjectDetails:
        row = self._wire.get(_address(name))
        return ProjectDetails(_summary(row), tuple(row["nested"]), dict(row["statuses"]))

    def create_project(self, name: str, description: str = "") -> ProjectSummary:
        return _summary(self._wire.send("POST", joined("projects"), {"name": name, "description": description}))

    def describe_project(self, name: str, description: str) -> ProjectSummary:
        return _summary(self._wire.send("PATCH", _address(name), {"description": description}))

    def remove_project(self, name: str) -> None:
        """Remove a project that has no runs."""
        self._wire.send("DELETE", _address(name))

    def retention_plan(self, project: str | None = None) -> dict[str, Any]:
        """What the retention of the server would remove. For admins."""
        return dict(self._wire.get(joined("retention"), project=project))

    def apply_retention(self, project: str | None = None) -> dict[str, Any]:
        """Remove it: `freed` bytes, and `troubles`. For admins."""
        return dict(self._wire.send("POST", joined("retention"), {"project": project}))

    def code(self, run: str | Run) -> CodeRecord:
        """The git commit and uncommitted changes of a run's code, and the files of its snapshot."""
        from phalanx.artifacts.code_record import CodeFile, CodeRecord

        place = joined("runs", self._id(run), "code")
        about = self._wire.get(place, limit=1)
        git = {name: about[name] for name in ("commit", "branch", "dirty", "diff")} if about["commit"] else None
        rows = self._wire.rows(place, "files")
        files = tuple(CodeFile(str(row["path"]), int(row["size"])) for row in rows)
        return CodeRecord(about["folder"], git, bool(about["has_snapshot"]), files)

    def download_code(self, run: str | Run, target: str | Path) -> None:
        """The snapshot of a run's code, as a tar.gz. Raises CallError."""
        import httpx

        with self._wire.stream(joined("runs", self._id(run), "code", "archive")) as response:
            try:
                with Path(target).open("wb") as file:
                    for piece in response.iter_raw(PIECE):
                        file.write(piece)
            except httpx.HTTPError as fault:
                raise self._wire.failed(fault) from None
            except OSError as fault:
                raise path_error(f"cannot write {target}", fault) from None


def _address(name: str) -> str:
    return f"{joined('projects')}/{quote(name, safe='/')}"


def _summary(row: dict[str, Any]) -> ProjectSummary:
    created = datetime.fromisoformat(row["created"]).timestamp() if row.get("created") else None
    runs, active, total = (int(row.get(name) or 0) for name in ("runs", "active", "total"))
    words = str(row.get("description") or "")
    return ProjectSummary(str(row["name"]), words, runs, active, total, row.get("user"), created)
