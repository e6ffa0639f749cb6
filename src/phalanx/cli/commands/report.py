"""phalanx report"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, print_result, printable, table, write_file
from phalanx.cli.workspace.base import open_workspace
from phalanx.errors import CallError, path_error

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import Workspace
    from phalanx.reports.html_file import RunSource
    from phalanx.reports.records import Report

LARGEST_FILE = 4 << 20
HEADING = re.compile(r"\s*?^ {0,3}# +(.+?)(?: +#+)? *$\s*", re.MULTILINE)


@click.group("report")
def command() -> None:
    """List, write and export reports: Markdown with charts and tables of runs.

    REPORT is an id, the first characters of an id, or a title. The page shows a report at /reports/ID.
    """


@command.command("list")
@click.option("--project", help="Only reports of this project.")
@json_option
def list_(project: str | None, as_json: bool) -> None:
    """List reports, the last changed first."""
    from phalanx.cli.workspace.reports import reports_of

    with open_workspace(settled=False, quiet=as_json) as workspace:
        found = reports_of(workspace).all(project)
    if as_json:
        print_json({"ok": True, "reports": [_row(report) for report in found]})
    elif not found:
        click.echo("No reports.")
    else:
        head = ["ID", "PROJECT", "CHANGED", "BY", "TITLE"]
        rows = [(one.id, one.project, _minute(one.updated_at), one.updated_by, one.title) for one in found]
        print_lines(table([head, *([printable(cell) for cell in row] for row in rows)]))


@command.command("show")
@click.argument("report")
@json_option
def show(report: str, as_json: bool) -> None:
    """Print a report as Markdown, or all its fields with --json."""
    with open_workspace(settled=False, quiet=as_json) as workspace:
        found = _found(workspace, report)
    if as_json:
        print_json({"ok": True, "report": found._asdict()})
    else:
        print_lines(map(printable, found.text.splitlines()))


@command.command("create")
@click.argument("file")
@click.option("--project", default="default", show_default=True, help="Project of the report.")
@click.option("--title", help="Title. Default: the heading that the file begins with.")
@json_option
def create(file: str, project: str, title: str | None, as_json: bool) -> None:
    """Create a report from a Markdown file; - reads standard input."""
    from phalanx.cli.workspace.reports import reports_of

    heading, text = _split(_read(file))
    named = title or heading
    if named is None:
        raise CallError("the file does not begin with a heading `# …`: name the report with --title")
    with open_workspace(settled=False, quiet=as_json) as workspace:
        made = reports_of(workspace).create(project, named, text)
    _print("created", made, workspace, as_json=as_json)


@command.command("update")
@click.argument("report")
@click.argument("file")
@click.option("--title", help="Title. Default: the heading that the file begins with, else unchanged.")
@click.option("--version", metavar="TAG", help="Only if this is still the version: `tag` of `report show --json`.")
@json_option
def update(report: str, file: str, title: str | None, version: str | None, as_json: bool) -> None:
    """Replace the text of a report by a Markdown file; - reads standard input."""
    from phalanx.cli.workspace.reports import reports_of

    heading, text = _split(_read(file))
    with open_workspace(settled=False, quiet=as_json) as workspace:
        found = _found(workspace, report)
        based_on = found if version is None else found._replace(tag=version)
        changed = reports_of(workspace).change(based_on, title or heading or found.title, text)
    _print("changed", changed, workspace, as_json=as_json)


@command.command("export")
@click.argument("report")
@click.option("-o", "--output", metavar="FILE", help="Default: the title of the report with .html; - prints it.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@json_option
def export(report: str, output: str | None, force: bool, as_json: bool) -> None:
    """Write a report as one HTML file, with its charts and tables as they are now.

    The file has no scripts and loads nothing, so it can be sent by mail.
    """
    from phalanx.reports.html_file import html_file

    with open_workspace(quiet=as_json) as workspace:
        found = _found(workspace, report)
        text = html_file(found, _source(workspace))
    if output == "-" and not as_json:
        click.echo(text, nl=False)
        return
    path = Path(output if output not in (None, "-") else f"{_file_name(found)}.html")
    write_file(path, text, force=force)
    print_result({"id": found.id, "file": str(path)}, f"wrote {printable(str(path))}", as_json=as_json)


@command.command("rm")
@click.argument("reports", nargs=-1, required=True, metavar="REPORT...")
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
@json_option
def rm(reports: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete reports. Their runs stay."""
    from phalanx.cli.workspace.reports import reports_of

    with open_workspace(settled=False, quiet=as_json) as workspace:
        found = {one.id: one for one in (_found(workspace, text) for text in reports)}
        titles = ", ".join(printable(f"{one.title} ({one.id})") for one in found.values())
        if not yes and not as_json:
            click.confirm(f"delete {titles}?", abort=True)
        for one in found.values():
            reports_of(workspace).remove(one)
    print_result({"deleted": list(found)}, f"deleted {titles}", as_json=as_json)


def _found(workspace: Workspace, text: str) -> Report:
    from phalanx.cli.workspace.reports import reports_of

    return reports_of(workspace).find(text)


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")


def _row(report: Report) -> dict[str, Any]:
    return {name: value for name, value in report._asdict().items() if name not in ("text", "tag")}


def _print(done: str, report: Report, workspace: Workspace, *, as_json: bool) -> None:
    """What was done, and what is wrong with the blocks: the report is stored nevertheless, as on the page."""
    from phalanx.reports.blocks import faults_of

    faults = faults_of(report.text)
    data = {"report": report._asdict(), "faults": faults}
    where = f"{workspace.server}/reports/{report.id}" if workspace.server else report.id
    print_result(data, f"{done} {printable(report.title)}: {where}", as_json=as_json)
    for fault in () if as_json else faults:
        click.echo(f"{click.style('note', fg='yellow')}: {printable(fault)}", err=True)


def _source(workspace: Workspace) -> RunSource:
    from phalanx.reports.html_file import RunSource

    rows = workspace.rows
    return RunSource(
        lambda query, sort, limit, project: rows.runs(query, sort, limit, project=project),
        workspace.series,
        lambda run: dict(rows.summaries(run.id)),
        workspace.server,
    )


def _read(name: str) -> str:
    try:
        data = sys.stdin.buffer.read(LARGEST_FILE) if name == "-" else Path(name).read_bytes()[:LARGEST_FILE]
        return data.decode()
    except UnicodeDecodeError:
        raise CallError(f"{name} is not UTF-8 text") from None
    except ValueError:
        raise CallError(f"{name!r} is not a valid file name") from None
    except OSError as fault:
        raise path_error(f"cannot read {name}", fault) from None


def _split(text: str) -> tuple[str | None, str]:
    """The heading that a text begins with, which is the title of the report, and the rest."""
    found = HEADING.match(text)
    return (None, text) if found is None else (found[1], text[found.end() :])


def _file_name(report: Report) -> str:
    """The title, as far as it can be the name of a file."""
    return re.sub(r"[^\w.-]+", "-", report.title).strip("-.")[:80] or report.id
