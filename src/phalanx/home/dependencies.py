"""Dependencies of a run: the runs that must end before its first attempt, and how.

They are a file of the run's folder, written when the run is submitted. The store indexes those that are still open.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.atomic_files import read_json
from phalanx.home.run_folder import RunFolder
from phalanx.store import DONE, Run


class RequiredEnd(StrEnum):
    """How the other run must end."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DONE = "done"

    def holds(self, status: str | None) -> bool | None:
        """Whether a status fulfils the condition; False if it never will be, None while the run goes on. A run that
        does not exist any more has the status None. A run whose own dependency failed has failed, too."""
        if self is RequiredEnd.DONE:
            return True if status is None or status in DONE else None
        if status is None:
            return False
        fulfilling = ("succeeded",) if self is RequiredEnd.SUCCEEDED else ("failed", "upstream_failed")
        return status in fulfilling if status in DONE else None


_VERBS = {RequiredEnd.SUCCEEDED: "succeed", RequiredEnd.FAILED: "fail", RequiredEnd.DONE: "end"}


class Dependency(NamedTuple):
    run_id: str  # of the other run
    condition: RequiredEnd
    name: str | None = None  # of the other run, for people
    is_build: bool = False  # it makes what this run needs: `build.ref`

    @classmethod
    def on(cls, run: Run, condition: RequiredEnd) -> Dependency:
        return cls(run.id, condition, run.name)

    @classmethod
    def on_build(cls, run_id: str, name: str | None) -> Dependency:
        return cls(run_id, RequiredEnd.SUCCEEDED, name, is_build=True)

    @property
    def words(self) -> str:
        return self.label if self.is_build else f"{self.label} to {self.verb}"

    @property
    def verb(self) -> str:
        return _VERBS[self.condition]

    @property
    def label(self) -> str:
        kind = "build" if self.is_build else "run"
        return f"{kind} {self.run_id}" + (f" ({self.name})" if self.name else "")


def waiting_words(dependencies: Iterable[Dependency]) -> str:
    """What a run with these open dependencies waits for."""
    return f"waits for {', '.join(dependency.words for dependency in dependencies)}"


def encode(dependencies: Iterable[Dependency]) -> bytes:
    return json.dumps([dependency._asdict() for dependency in dependencies], indent=1).encode()


def read_dependencies(folder: RunFolder) -> list[Dependency]:
    """All dependencies that a run was submitted with; empty if there are none, or the file is damaged."""
    found = read_json(folder.path / run_paths.AFTER)
    try:
        return [_decode(item) for item in found or ()]
    except (TypeError, ValueError, LookupError):
        return []


def has_started(folder: RunFolder) -> bool:
    """Whether a run has ever started, so that it does not wait again."""
    return any(change.status in ("starting", "running") for change in folder.history())


def _decode(item: dict[str, Any]) -> Dependency:
    return Dependency(
        str(item["run_id"]), RequiredEnd(item["condition"]), item.get("name"), item.get("is_build") is True
    )
