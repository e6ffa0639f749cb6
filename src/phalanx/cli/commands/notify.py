"""phalanx notify"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import file_options, json_option, load
from phalanx.cli.render.output import print_json, print_lines, printable, table
from phalanx.cli.workspace.base import find_run, open_workspace, require_local_home
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.home.home import Home
    from phalanx.spec.model import NotifyRule


@click.command("notify")
@click.argument("run", required=False)
@click.option("--test", "is_test", is_flag=True, help="Send a test message now, to all whom the rules name.")
@click.option("--project", default="default", show_default=True, help="With --test: also use the rules of a project.")
@file_options
@json_option
def command(
    run: str | None, is_test: bool, project: str, files: tuple[str, ...], params: tuple[str, ...], as_json: bool
) -> None:
    """Show the notifications of a run, or test the rules: `phalanx notify --test`.

    The rules are those of `notify` in the file, and of config.yml in the home. --test uses those of the home, and of a
    file named with -f.
    """
    if is_test == (run is not None):
        raise CallError("name a run, or write --test")
    if run is not None:
        _show(run, as_json=as_json)
        return
    require_local_home("`notify --test` works")
    spec = load(files, params) if files or params else None
    _test(spec.notify if spec is not None else (), project, as_json=as_json)


def _show(name: str, *, as_json: bool) -> None:
    with open_workspace(quiet=as_json) as workspace:
        run = find_run(workspace, name)
        rows = workspace.rows.facts(run.id).get("notifications") or []
    if as_json:
        print_json({"ok": True, "run": run.id, "notifications": rows})
    elif rows:
        print_lines(notification_lines(rows))
    else:
        click.echo(f"nobody was told of run {run.id}: `notify` in its file, or in config.yml of the home, names people")


def notification_lines(rows: list[dict[str, Any]]) -> list[str]:
    """A table of deliveries, also for `phalanx show`."""
    cells = [["EVENT", "BY", "TO", "STATE", "TRIES", "WHY"]]
    for row in rows:
        why = printable(str(row.get("why") or ""))[:200]
        cells.append([row["event"], row["channel"], printable(row["to"]), row["state"], str(row["tries"]), why])
    return table(cells)


def _test(own: tuple[NotifyRule, ...], project: str, *, as_json: bool) -> None:
    """Send a test to each rule, and say what became of it. Raises CallError, SpecErrors."""
    from phalanx.home.home import Home, default_home
    from phalanx.notifications.channels import send, shown_target
    from phalanx.notifications.dispatch import NotSent
    from phalanx.notifications.run_rules import FileRules, rules_of
    from phalanx.settings.home_settings import read_home_settings

    home = Home(default_home())
    settings = read_home_settings(home.path)
    run = _example(project)
    rules = [one.rule for one in rules_of(run, FileRules(own), settings)]
    if not rules:
        raise CallError(f"there are no rules: write `notify` into {home.path / 'config.yml'}, or name a file with -f")
    results = []
    for rule in rules:
        why = ""
        try:
            send(home.path, settings, rule, _dispatch(home, run))
        except NotSent as fault:
            why = str(fault)
        to = shown_target(rule)
        results.append({"by": rule.channel, "to": to, "ok": not why, "why": why})
    is_ok = all(row["ok"] for row in results)
    if as_json:
        print_json({"ok": is_ok, "results": results})
    else:
        words = [["BY", "TO", "RESULT"]]
        words += [[str(row["by"]), printable(str(row["to"])), printable(str(row["why"])) or "sent"] for row in results]
        print_lines(table(words))
    if not is_ok:
        click.get_current_context().exit(2)


def _example(project: str) -> Any:
    from datetime import UTC, datetime

    from phalanx.store import Run

    now = datetime.now(UTC)
    fields = dict.fromkeys(Run._fields) | {"id": "test", "project": project, "kind": "experiment", "name": "test"}
    fields |= {"backend": "native", "user": "test", "status": "succeeded", "reason": "a test", "attempt": 1}
    fields |= {"priority": 0, "created_at": now, "updated_at": now, "tags": (), "params": {}, "summary": {}}
    return Run(**fields)  # type: ignore[arg-type]


def _dispatch(home: Home, run: Any) -> Any:
    from phalanx.notifications.dispatch import Dispatch
    from phalanx.notifications.message import Happening, message
    from phalanx.spec.model import NotifyEvent

    words = "this is a test of `phalanx notify --test`"
    happened = Happening(NotifyEvent.SUCCEEDED, 1, words)
    return Dispatch(f"test-{time.time_ns()}", message(run, happened), home.path)
