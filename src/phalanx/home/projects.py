"""Projects: the records of those that were created on purpose, and summaries of all.

<home>/projects.json    names, descriptions and creators

A project needs no record: it is there when it has runs. `team/vision` is nested in `team`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from phalanx.errors import CallError, disk_fault
from phalanx.home.home import Home
from phalanx.home.record_file import RecordFile
from phalanx.naming import has_control_characters
from phalanx.store import Store
from phalanx.store.project_scope import ProjectScope, enclosing_projects
from phalanx.store.statuses import Status

ALL = "*"
LONGEST_NAME = 400
LONGEST_DESCRIPTION = 10_000
MOST = 10_000


class ProjectRecord(NamedTuple):
    name: str
    description: str
    user: str
    created: float  # seconds since the epoch


class ProjectSummary(NamedTuple):
    """`runs` and `active` count those of the project alone, `total` also those of nested ones."""

    name: str
    description: str
    runs: int
    active: int
    total: int
    user: str | None = None
    created: float | None = None


class ProjectDetails(NamedTuple):
    summary: ProjectSummary
    nested: tuple[str, ...]
    statuses: Mapping[str, int]  # of the runs of the project and the nested ones


def check_new_name(name: str) -> None:
    """Raises CallError for a name that cannot be created: `team/vision` is one, `team//vision` is none."""
    steps = name.split("/")
    if name == ALL or any(not step.strip() or step != step.strip() or step in (".", "..") for step in steps):
        raise CallError(
            f"`{name[:100]}` is no project name: write one such as `vision`, or `team/vision` inside of `team`"
        )
    if len(name) > LONGEST_NAME or has_control_characters(name):
        raise CallError(f"a project name has 1 to {LONGEST_NAME} characters without line breaks")


class Projects:
    def __init__(self, home: Home, store: Store) -> None:
        self.store = store
        self.kept: RecordFile[tuple[ProjectRecord, ...]] = RecordFile(
            home.path / "projects.json", "projects", lambda rows: tuple(map(_decoded, rows)), ()
        )

    def list(self, scope: ProjectScope | None = None) -> list[ProjectSummary]:
        """The projects of a scope, by name, with those that only contain others. Raises SystemFault."""
        counts, active = dict(self.store.projects(scope)), self.store.active_by_project()
        records = {record.name: record for record in self.kept.rows() if scope is None or record.name in scope}
        names = {above for name in (*counts, *records) for above in enclosing_projects(name)}
        shown = sorted(name for name in names if name and (scope is None or name in scope))
        totals: dict[str, int] = {}
        for name, count in counts.items():
            for above in enclosing_projects(name):
                totals[above] = totals.get(above, 0) + count
        return [
            _summary(name, records.get(name), counts.get(name, 0), active.get(name, 0), totals.get(name, 0))
            for name in shown
        ]

    def show(self, name: str) -> ProjectDetails:
        """Raises CallError when there is no such project."""
        inside = self.list(ProjectScope([name]))
        if not inside:
            raise CallError(f"there is no project `{name[:100]}`: `phalanx projects` lists all")
        counts = ((status, self.store.count(f"status:{status}", name)) for status in Status)
        (mine,) = (one for one in inside if one.name == name)
        nested = tuple(one.name for one in inside if one.name != name)
        return ProjectDetails(mine, nested, {status.value: count for status, count in counts if count})

    def create(self, name: str, description: str, user: str) -> ProjectSummary:
        """Raises CallError if it exists, SystemFault when the disk refuses."""
        check_new_name(name)
        if self.store.count("", [name]):
            raise CallError(f"project `{name}` already exists: `phalanx projects describe` changes its description")
        return self._put(name, description, user, is_new=True)

    def describe(self, name: str, description: str, user: str) -> ProjectSummary:
        """Replace the description of a project that exists. Raises CallError."""
        self.show(name)
        return self._put(name, description, user, is_new=False)

    def _put(self, name: str, description: str, user: str, *, is_new: bool) -> ProjectSummary:
        if len(description) > LONGEST_DESCRIPTION or "\0" in description:
            raise CallError(f"a description has at most {LONGEST_DESCRIPTION:,} characters, without NUL")
        try:
            with self.kept.alone():
                before = {record.name: record for record in self.kept.rows()}
                if is_new and name in before:
                    raise CallError(f"project `{name}` already exists")
                if len(before) >= MOST:
                    raise CallError(f"there are already {MOST:,} projects")
                made = before.get(name) or ProjectRecord(name, "", user, time.time())
                before[name] = made._replace(description=description)
                self.kept.write([record._asdict() for record in before.values()])
        except OSError as fault:
            raise disk_fault(f"cannot write {self.kept.path}", fault) from None
        return next(one for one in self.list(ProjectScope([name])) if one.name == name)

    def remove(self, name: str) -> None:
        """Forget a project without runs. Raises CallError."""
        found = self.show(name)
        if found.summary.total:
            raise CallError(f"project `{name}` has {found.summary.total:,} runs: delete them first, or add --runs")
        try:
            with self.kept.alone():
                kept = [record for record in self.kept.rows() if record.name not in ProjectScope([name])]
                self.kept.write([record._asdict() for record in kept])
        except OSError as fault:
            raise disk_fault(f"cannot write {self.kept.path}", fault) from None


def summary_row(found: ProjectSummary) -> dict[str, Any]:
    """As JSON, with the time as text."""
    created = None if found.created is None else datetime.fromtimestamp(found.created, UTC).isoformat()
    return {**found._asdict(), "created": created}


def details_row(found: ProjectDetails) -> dict[str, Any]:
    return {**summary_row(found.summary), "nested": list(found.nested), "statuses": dict(found.statuses)}


def _summary(name: str, record: ProjectRecord | None, runs: int, active: int, total: int) -> ProjectSummary:
    if record is None:
        return ProjectSummary(name, "", runs, active, total)
    return ProjectSummary(name, record.description, runs, active, total, record.user, record.created)


def _decoded(row: Mapping[str, Any]) -> ProjectRecord:
    return ProjectRecord(str(row["name"]), str(row["description"]), str(row["user"]), float(row["created"]))
