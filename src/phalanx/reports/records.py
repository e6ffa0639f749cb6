"""The reports of a home: one file each, which the server and the command line change."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.errors import CallError
from phalanx.home.shared_documents import MISSING, SharedDocument, SharedDocuments
from phalanx.naming import has_control_characters

FOLDER = "reports"
MOST_REPORTS = 10_000
LONGEST_TITLE = 200
LONGEST_TEXT = 200_000
SHORTEST_PREFIX = 3


class Report(NamedTuple):
    """`tag` is its version: a change names the one that it is based on."""

    id: str
    project: str
    title: str
    text: str
    created_at: str
    created_by: str
    updated_at: str
    updated_by: str
    tag: str


class Reports:
    def __init__(self, home: Path) -> None:
        self.documents = SharedDocuments(home / FOLDER)

    def all(self, project: str | None = None) -> list[Report]:
        """The last changed first."""
        found = [report for name in self.documents.names() if (report := self.find(name)) is not None]
        shown = [report for report in found if project in (None, report.project)]
        return sorted(shown, key=lambda report: (report.updated_at, report.id), reverse=True)

    def find(self, report_id: str) -> Report | None:
        """Raises SystemFault when its file is damaged."""
        found = self.documents.read(report_id)
        return None if found is None else _report(report_id, found)

    def create(self, project: str, title: str, text: str, user: str) -> Report:
        """Raises CallError; OSError when it cannot be stored."""
        check_content(title, text)
        if len(self.documents.names()) >= MOST_REPORTS:
            raise CallError(f"there are {MOST_REPORTS:,} reports already: delete some first")
        report_id, at = secrets.token_hex(5), _now()
        made = {"version": 1, "project": project, "created_at": at, "created_by": user}
        return self._write(report_id, made, title, text, user, MISSING)

    def change(self, report: Report, title: str, text: str, user: str, based_on: str) -> Report:
        """Raises Outdated if someone changed it meanwhile; CallError; OSError."""
        check_content(title, text)
        kept = self.documents.read(report.id)
        return self._write(report.id, {} if kept is None else kept.value, title, text, user, based_on)

    def remove(self, report: Report, based_on: str) -> None:
        """Raises Outdated, OSError."""
        self.documents.remove(report.id, based_on)

    def _write(  # noqa: PLR0913, PLR0917 - the parts of a report
        self, report_id: str, kept: dict[str, Any], title: str, text: str, user: str, based_on: str
    ) -> Report:
        value = {**kept, "title": title.strip(), "text": text, "updated_at": _now(), "updated_by": user}
        return _report(report_id, self.documents.write(report_id, value, based_on))


def check_content(title: str, text: str) -> None:
    """Raises CallError, which names all faults."""
    faults = []
    if not title.strip():
        faults.append("the title is empty")
    if len(title) > LONGEST_TITLE:
        faults.append(f"the title has {len(title):,} characters; at most {LONGEST_TITLE} are allowed")
    if has_control_characters(title):
        faults.append("the title must not contain line breaks or other control characters")
    if len(text) > LONGEST_TEXT:
        faults.append(f"the text has {len(text):,} characters; at most {LONGEST_TEXT:,} are allowed")
    if faults:
        raise CallError("; ".join(faults))


def choose(reports: Sequence[Report], text: str) -> Report:
    """The report that a user means: an id, the first characters of one, or a title. Raises CallError."""
    for wanted in (
        [one for one in reports if one.id == text],
        [one for one in reports if one.title == text],
        [one for one in reports if len(text) >= SHORTEST_PREFIX and one.id.startswith(text)],
    ):
        if len(wanted) == 1:
            return wanted[0]
        if wanted:
            ids = ", ".join(one.id for one in wanted[:5])
            raise CallError(f"{len(wanted)} reports match `{text[:100]}`: use an id, such as {ids}")
    raise CallError(f"there is no report `{text[:100]}`: `phalanx report list` lists all")


def _report(report_id: str, found: SharedDocument) -> Report:
    fields = {name: str(found.value.get(name, "")) for name in Report._fields if name not in ("id", "tag")}
    return Report(id=report_id, tag=found.tag, **fields)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
