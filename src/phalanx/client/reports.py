"""Reports of a server: `client.reports()`, and changes of them."""

from __future__ import annotations

from typing import Any

from phalanx.client.run_lookup import RunLookup
from phalanx.client.transport import joined
from phalanx.reports.records import Report


class ReportMethods(RunLookup):
    """A part of `Client`."""

    def reports(self, project: str | None = None) -> list[Report]:
        """Reports without their texts, the last changed first."""
        return [_report(row) for row in self._wire.rows(joined("reports"), "reports", project=project)]

    def report(self, report_id: str) -> Report:
        """A report with its text. Raises NotFound."""
        return _report(self._wire.get(joined("reports", report_id)))

    def create_report(self, project: str, title: str, text: str) -> Report:
        return _report(self._wire.send("POST", joined("reports"), {"project": project, "title": title, "text": text}))

    def change_report(self, report: Report, title: str, text: str) -> Report:
        """Replace the title and the text of the version that `report` has: raises RequestRefused with status 412 if
        someone changed it meanwhile."""
        body = {"title": title, "text": text}
        return _report(self._wire.send_version("PUT", joined("reports", report.id), report.tag, body))

    def delete_report(self, report: Report) -> None:
        self._wire.send_version("DELETE", joined("reports", report.id), report.tag)


def _report(row: dict[str, Any]) -> Report:
    return Report(**{name: str(row.get(name) or "") for name in Report._fields})
