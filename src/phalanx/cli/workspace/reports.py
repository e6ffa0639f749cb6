"""Reports, in the local home or on a server, with the same methods."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from phalanx.errors import CallError, path_error
from phalanx.home.shared_documents import Outdated
from phalanx.reports.records import Report, Reports, choose
from phalanx.submission.checks import check_project

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import Workspace
    from phalanx.client import Client


def reports_of(workspace: Workspace) -> HomeReports | ServerReports:
    if workspace.server is None:
        return HomeReports(workspace.home.path)
    return ServerReports(workspace.client)


class HomeReports:
    """Every method may raise CallError and SystemFault."""

    def __init__(self, home: Path) -> None:
        self.reports = Reports(home)

    def all(self, project: str | None) -> list[Report]:
        return self.reports.all(project)

    def find(self, text: str) -> Report:
        return choose(self.reports.all(), text)

    def create(self, project: str, title: str, text: str) -> Report:
        check_project(project)
        with _stored():
            return self.reports.create(project, title, text, getpass.getuser())

    def change(self, report: Report, title: str, text: str) -> Report:
        with _stored():
            return self.reports.change(report, title, text, getpass.getuser(), report.tag)

    def remove(self, report: Report) -> None:
        with _stored():
            self.reports.remove(report, report.tag)


class ServerReports:
    def __init__(self, client: Client) -> None:
        self.client = client

    def all(self, project: str | None) -> list[Report]:
        return self.client.reports(project)

    def find(self, text: str) -> Report:
        return self.client.report(choose(self.client.reports(), text).id)

    def create(self, project: str, title: str, text: str) -> Report:
        return self.client.create_report(project, title, text)

    def change(self, report: Report, title: str, text: str) -> Report:
        return self.client.change_report(report, title, text)

    def remove(self, report: Report) -> None:
        self.client.delete_report(report)


@contextmanager
def _stored() -> Iterator[None]:
    try:
        yield
    except Outdated:
        raise CallError("someone else has changed this meanwhile: load it again, and repeat your change") from None
    except OSError as fault:
        raise path_error("cannot store the report", fault) from None
