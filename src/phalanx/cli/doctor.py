"""phalanx doctor"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import FILE_IS_WRONG, answering, print_json, printable

if TYPE_CHECKING:
    from phalanx.scheduler.home import Home
    from phalanx.store import Store


@click.command("doctor")
@click.option("--rebuild", is_flag=True, help="Make the database again from the folders of the runs.")
@json_option
def command(rebuild: bool, as_json: bool) -> None:
    """Check a home: its folders, its database, and whether the two agree.

    The folders are the truth: --rebuild makes the database again from them.
    """
    with answering(as_json=as_json):
        from phalanx.cli.homes import open_home
        from phalanx.scheduler.rebuilding import rebuild_store
        from phalanx.scheduler.registry import Registry

        if rebuild:
            rebuilt = rebuild_store()
        home, store = open_home()
        with store:
            problems = [
                *store.check(),
                *_disagreements(home, store),
                *_open_doors(home),
                *Registry(home, store).check(),
            ]
            count = len(store.ids())
        if as_json:
            answer = {"ok": not problems, "home": str(home.path), "runs": count, "problems": problems}
            print_json({**answer, "rebuilt": rebuilt} if rebuild else answer)
        else:
            click.echo(f"home {home.path}: {count} runs" + (f", {rebuilt} of them read again" if rebuild else ""))
            for problem in problems:
                click.echo(f"{click.style('problem', fg='red')}: {printable(problem)}")
            click.echo("all is well" if not problems else f"{len(problems)} problems; --rebuild mends the database")
    sys.exit(FILE_IS_WRONG if problems else 0)


def _disagreements(home: Home, store: Store) -> list[str]:
    """Where the database says something else than the folders."""
    folders, rows = set(home.run_ids()), store.ids()
    found = [f"run {run_id} has a folder and no row" for run_id in sorted(folders - rows)]
    found += [f"run {run_id} has a row and no folder" for run_id in sorted(rows - folders)]
    for run_id in sorted(folders & rows):
        history, said = home.run(run_id).history(), store.find(run_id).status
        if history and said != history[-1].status:
            found.append(f"run {run_id} is {said} in the database, {history[-1].status} in its folder")
    return found


def _open_doors(home: Home) -> list[str]:
    return [f"{path} can be read by others" for path in (home.path, home.runs) if _others_may_read(path)]


def _others_may_read(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o077)
