"""phalanx group"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.group_watch import best_value, number, params_text, progress_line, value_text
from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, print_result, printable, table
from phalanx.cli.render.tables import status_text
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import Workspace
    from phalanx.store import Run


@click.group("group")
def command() -> None:
    """Show and change a group: a search over params, started by `phalanx run` of a file with `kind: group`.

    GROUP is an id, the first characters of an id, or a name. Other verbs accept a group, too: `stop`, `resume` (runs
    what failed again and goes on), `rm`, `compare`; `phalanx ps -q group:ID` lists its runs.
    """


@command.command("show")
@click.argument("group")
@json_option
def show(group: str, as_json: bool) -> None:
    """Show the progress, the best trial and the rungs of a group."""
    with _opened(group) as (workspace, found):
        search = workspace.group(found).summary
    if as_json:
        print_json({"ok": True, **search})
        return
    click.echo(click.style(f"group {found.id}", bold=True) + (f" ({printable(found.name)})" if found.name else ""))
    click.echo(f"  status       {status_text(found.status)}: {printable(found.reason)}")
    repeats = search.get("repeats", 1)
    each = f", {repeats} runs of each trial" if repeats > 1 else ""
    algorithm, concurrency = search.get("algorithm", "not started"), search.get("concurrency", 1)
    click.echo(f"  search       {algorithm}, {concurrency} at a time{each}")
    click.echo(f"  trials       {progress_line(found, {**search, 'best': None})}")
    if search.get("best"):
        best, value = search["best"], best_value(search)
        params = params_text(best.get("params", {}))
        click.echo(f"  best         trial {best['trial']}, run {best['run']}: {value}  {params}")
    if len(search["rungs"]) > 1:
        click.echo("")
        head = ["BRACKET", "RUNG", "RESOURCE", "TRIALS", "ENDED"]
        print_lines(table([head, *([_cell(row[name.lower()]) for name in head] for row in search["rungs"])]))


@command.command("trials")
@click.argument("group")
@click.option("-s", "--sort", type=click.Choice(["trial", "value"]), default="trial", show_default=True)
@json_option
def trials(group: str, sort: str, as_json: bool) -> None:
    """List the trials of a group: their runs, params and values, and why they ended."""
    with _opened(group) as (workspace, found):
        view = workspace.group(found)
        rows = view.rows(sort)
    if as_json:
        print_json({"ok": True, "id": found.id, "trials": rows})
        return
    print_lines(_table(rows, view.summary) if rows else ["No trials yet."])


@command.command("best")
@click.argument("group")
@click.option("-n", "--limit", type=click.IntRange(1), default=1, show_default=True, help="Number of trials.")
@json_option
def best(group: str, limit: int, as_json: bool) -> None:
    """Show the best trials of a group."""
    from phalanx.client.groups import with_value

    with _opened(group) as (workspace, found):
        view = workspace.group(found)
        rows = with_value(view.rows("value", limit))
    if as_json:
        print_json({"ok": True, "id": found.id, "metric": view.summary.get("metric"), "trials": rows})
        return
    print_lines(_table(rows, view.summary) if rows else ["No trial has a value yet."])


@command.command("stop")
@click.argument("group")
@click.option("--pending", is_flag=True, help="Start no more trials, but let those that run end.")
@json_option
def stop(group: str, pending: bool, as_json: bool) -> None:
    """Stop a group and its running trials."""
    with _opened(group) as (workspace, found):
        if pending:
            after = workspace.change_group(found, "finish")
        elif found.is_done:
            raise CallError(f"group {found.id} has ended: {found.status}: {found.reason}")
        else:
            (after,) = workspace.acts.stop([found], 60.0, lambda _: None)
    _print(after, as_json=as_json)


@command.command("pause")
@click.argument("group")
@json_option
def pause(group: str, as_json: bool) -> None:
    """Start no more trials until `phalanx group resume`. Running trials go on."""
    _change(group, "pause", as_json=as_json)


@command.command("resume")
@click.argument("group")
@json_option
def resume(group: str, as_json: bool) -> None:
    """Continue a paused group. One that has ended runs what failed or was stopped again, and goes on."""
    _change(group, "resume", as_json=as_json)


@command.command("set")
@click.argument("group")
@click.argument("setting", metavar="concurrency=N")
@json_option
def set_(group: str, setting: str, as_json: bool) -> None:
    """Change how many runs of trials there are at a time."""
    name, _, text = setting.partition("=")
    if name != "concurrency" or not text.isdecimal() or not int(text):
        raise CallError(f"{setting!r}: write `concurrency=N`, with N at least 1")
    _change(group, "set_concurrency", int(text), as_json=as_json)


@command.command("add")
@click.argument("group")
@click.argument("params", nargs=-1, required=True, metavar="NAME=VALUE...")
@json_option
def add(group: str, params: tuple[str, ...], as_json: bool) -> None:
    """Try a point of your own, in addition to those of the search. Params that you leave out are drawn at random."""
    point = dict(_param(text) for text in params)
    _change(group, "add", point, as_json=as_json)


@command.command("extend")
@click.argument("group")
@click.option("--n", "total", type=click.IntRange(1), required=True, help="Number of trials in total.")
@json_option
def extend(group: str, total: int, as_json: bool) -> None:
    """Change the number of trials in total, also of a group that has ended."""
    _change(group, "extend", total, as_json=as_json)


@contextmanager
def _opened(name: str) -> Iterator[tuple[Workspace, Run]]:
    """The workspace and the group. Raises CallError if it is no group."""
    from phalanx.cli.workspace.base import find_run, open_workspace
    from phalanx.submission.group_requests import require_group

    with open_workspace() as workspace:
        found = find_run(workspace, name)
        require_group(found)
        yield workspace, found


def _change(name: str, verb: str, *args: Any, as_json: bool) -> None:
    with _opened(name) as (workspace, found):
        after = workspace.change_group(found, verb, *args)
    _print(after, as_json=as_json)


def _print(group: Run, *, as_json: bool) -> None:
    text = f"group {group.id}: {group.status}: {printable(group.reason)}"
    print_result({"id": group.id, "status": group.status, "reason": group.reason}, text, as_json=as_json)


def _table(rows: list[Any], search: Mapping[str, Any]) -> list[str]:
    metric = (search.get("metric") or {}).get("name")
    head = ["TRIAL", "RUN", "STATE", "RUNG", printable(metric or "value").upper(), "PARAMS", "WHY"]
    lines = [
        [
            str(row["trial"]),
            row["run"],
            row["state"],
            str(row["rung"]),
            "-" if row["value"] is None else value_text(row),
            params_text(row["params"]),
            printable(row["why"]),
        ]
        for row in rows
    ]
    return table([head, *lines])


def _cell(value: Any) -> str:
    return "-" if value is None else number(value)


def _param(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CallError(f"{text!r}: write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
