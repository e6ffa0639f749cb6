"""phalanx group"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.group_watch import best_value, number, params_text, progress_line, value_text
from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, print_result, printable, table
from phalanx.cli.render.tables import status_text
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.cli.workspace.home import HomeWorkspace
    from phalanx.store import Run

TAKEN_S = 30.0  # limit for a busy scheduler to take a request
WITHOUT_N = ("pbt",)  # its population does not grow


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
    with _opened(group) as (workspace, found, search):
        rows = _rows(workspace, found, search)
        reason = found.reason
    if as_json:
        print_json(
            {"ok": True, "id": found.id, "status": found.status, "reason": reason, **search, "rungs": _rungs(rows)}
        )
        return
    click.echo(click.style(f"group {found.id}", bold=True) + (f" ({printable(found.name)})" if found.name else ""))
    click.echo(f"  status       {status_text(found.status)}: {printable(found.reason)}")
    repeats = search.get("repeats", 1)
    each = f", {repeats} runs of each trial" if repeats > 1 else ""
    algorithm, concurrency = search.get("algorithm", "not started"), search.get("concurrency", 1)
    click.echo(f"  search       {algorithm}, {concurrency} at a time{each}")
    click.echo(f"  trials       {progress_line(found, {**search, 'best': None})}")
    if search.get("best"):
        best = search["best"]
        params = next(row["params"] for row in rows if row["trial"] == best["trial"])
        click.echo(
            f"  best         trial {best['trial']}, run {best['run']}: {best_value(search)}  {params_text(params)}"
        )
    rungs = _rungs(rows)
    if len(rungs) > 1:
        click.echo("")
        head = ["BRACKET", "RUNG", "RESOURCE", "TRIALS", "ENDED"]
        print_lines(table([head, *([number(row[name.lower()]) for name in head] for row in rungs)]))


@command.command("trials")
@click.argument("group")
@click.option("-s", "--sort", type=click.Choice(["trial", "value"]), default="trial", show_default=True)
@json_option
def trials(group: str, sort: str, as_json: bool) -> None:
    """List the trials of a group: their runs, params and values, and why they ended."""
    with _opened(group) as (workspace, found, search):
        rows = _rows(workspace, found, search)
    if sort == "value":
        best_first = _ranked(found, rows, search)
        rows = [*best_first, *(row for row in rows if row not in best_first)]
    if as_json:
        print_json({"ok": True, "id": found.id, "trials": rows})
        return
    print_lines(_table(rows, search) if rows else ["No trials yet."])


@command.command("best")
@click.argument("group")
@click.option("-n", "--limit", type=click.IntRange(1), default=1, show_default=True, help="Number of trials.")
@json_option
def best(group: str, limit: int, as_json: bool) -> None:
    """Show the best trials of a group."""
    with _opened(group) as (workspace, found, search):
        rows = _ranked(found, _rows(workspace, found, search), search)[:limit]
    if as_json:
        print_json({"ok": True, "id": found.id, "metric": search.get("metric"), "trials": rows})
        return
    print_lines(_table(rows, search) if rows else ["No trial has a value yet."])


@command.command("stop")
@click.argument("group")
@click.option("--pending", is_flag=True, help="Start no more trials, but let those that run end.")
@json_option
def stop(group: str, pending: bool, as_json: bool) -> None:
    """Stop a group and its running trials."""
    with _opened(group, is_active=True) as (workspace, found, _):
        if pending:
            after = _ask(workspace, found, "finish")
        else:
            (after,) = workspace.acts.stop([found], 60.0, lambda _: None)
    _print(after, as_json=as_json)


@command.command("pause")
@click.argument("group")
@json_option
def pause(group: str, as_json: bool) -> None:
    """Start no more trials until `phalanx group resume`. Running trials go on."""
    with _opened(group, is_active=True) as (workspace, found, _):
        after = _ask(workspace, found, "pause")
    _print(after, as_json=as_json)


@command.command("resume")
@click.argument("group")
@json_option
def resume(group: str, as_json: bool) -> None:
    """Continue a paused group. One that has ended runs what failed or was stopped again, and goes on."""
    with _opened(group) as (workspace, found, _):
        if found.is_done:
            after = workspace.acts.resume(found)
            workspace.acts.leave(after)
        else:
            after = _ask(workspace, found, "continue")
    _print(after, as_json=as_json)


@command.command("set")
@click.argument("group")
@click.argument("setting", metavar="concurrency=N")
@json_option
def set_(group: str, setting: str, as_json: bool) -> None:
    """Change how many trials run at a time."""
    name, _, text = setting.partition("=")
    if name != "concurrency" or not text.isdecimal() or not int(text):
        raise CallError(f"{setting!r}: write `concurrency=N`, with N at least 1")
    with _opened(group, is_active=True) as (workspace, found, _):
        after = _ask(workspace, found, "concurrency", n=int(text))
    _print(after, as_json=as_json)


@command.command("add")
@click.argument("group")
@click.argument("params", nargs=-1, required=True, metavar="NAME=VALUE...")
@json_option
def add(group: str, params: tuple[str, ...], as_json: bool) -> None:
    """Try a point of your own, in addition to those of the search. Params that you leave out are drawn at random."""
    from phalanx.submission.clone import spec_of

    point = dict(_param(text) for text in params)
    with _opened(group) as (workspace, found, _):
        search = spec_of(workspace.home, found).search
        names = [dimension.name for dimension in search.matrix] if search is not None else []
        unknown = [name for name in point if name not in names]
        if unknown:
            raise CallError(f"`{unknown[0]}` is not in the matrix of the group: write {', '.join(names)}")
        after = _ask(workspace, found, "add", params=point)
    _print(after, as_json=as_json)


@command.command("extend")
@click.argument("group")
@click.option("--n", "total", type=click.IntRange(1), required=True, help="Number of trials in total.")
@json_option
def extend(group: str, total: int, as_json: bool) -> None:
    """Change the number of trials in total, also of a group that has ended."""
    with _opened(group) as (workspace, found, search):
        if search.get("algorithm") in WITHOUT_N:
            raise CallError(f"the population of {search['algorithm']} does not grow: start another group")
        after = _ask(workspace, found, "extend", n=total)
    _print(after, as_json=as_json)


@contextmanager
def _opened(name: str, *, is_active: bool = False) -> Iterator[tuple[HomeWorkspace, Run, Mapping[str, Any]]]:
    """The workspace, the group and the fact on its search. Raises CallError if it is no group."""
    from phalanx.cli.workspace.home import HomeWorkspace

    with closing(HomeWorkspace()) as workspace:
        found = workspace.rows.find(name)
        if found.kind != "group":
            raise CallError(f"run {found.id} is no group, but a run of kind {found.kind}")
        if is_active and found.is_done:
            raise CallError(f"group {found.id} has ended: {found.status}: {found.reason}")
        yield workspace, found, workspace.rows.facts(found.id).get("search") or {}


def _ask(workspace: HomeWorkspace, group: Run, what: str, **fields: Any) -> Run:
    """Leave a request, and wait until a scheduler, here or in another process, has taken it."""
    from phalanx.home.group_folder import GroupFolder
    from phalanx.submission.resume import queue_resume

    folder = GroupFolder(workspace.home.run(group.id).path)
    folder.ask(what, **fields)
    if group.is_done:
        queue_resume(workspace.home, group, dict(os.environ))
    deadline = time.monotonic() + TAKEN_S
    with workspace.attended() as turn:
        while True:
            turn()
            if not folder.requests():
                return workspace.rows.find(group.id)
            if time.monotonic() > deadline:
                raise CallError(f"the scheduler has not taken the request for group {group.id}: see `phalanx doctor`")
            time.sleep(0.05)


def _print(group: Run, *, as_json: bool) -> None:
    text = f"group {group.id}: {group.status}: {printable(group.reason)}"
    print_result({"id": group.id, "status": group.status, "reason": group.reason}, text, as_json=as_json)


def _rows(workspace: HomeWorkspace, group: Run, search: Mapping[str, Any]) -> list[dict[str, Any]]:
    from phalanx.scheduler.group_state import read_state, trial_rows

    return trial_rows(group.id, read_state(workspace.home, group, search))


def _ranked(group: Run, rows: list[dict[str, Any]], search: Mapping[str, Any]) -> list[dict[str, Any]]:
    from phalanx.scheduler.group_state import ranked
    from phalanx.tune.model import Metric

    if not search.get("metric"):
        raise CallError(f"group {group.id} compares no metric: write `hptuning.metric: {{name: …}}` in its file")
    return ranked(rows, Metric(**search["metric"]))


def _rungs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many trials reached each rung, and how many ended there."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for row in rows:
        for rung in range(row["rung"] + 1):
            empty = {"bracket": row["bracket"], "rung": rung, "resource": "-", "trials": 0, "ended": 0}
            one = found.setdefault((row["bracket"], rung), empty)
            one["trials"] += 1
            one["ended"] += rung < row["rung"] or row["state"] != "running"
            if rung == row["rung"] and row["resource"] is not None:
                one["resource"] = row["resource"]
    return [found[key] for key in sorted(found)]


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


def _param(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CallError(f"{text!r}: write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
