"""phalanx doctor"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from phalanx.cli.files import cluster_options, json_option
from phalanx.cli.output import FILE_IS_WRONG, answering, print_json, printable
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.scheduler.home import Home
    from phalanx.store import Store


@click.command("doctor")
@click.option("--rebuild", is_flag=True, help="Make the database again from the folders of the runs.")
@click.option("--on", "backend", metavar="BACKEND", help="Check a cluster instead: kubernetes, or kubeflow.")
@cluster_options
@json_option
def command(rebuild: bool, backend: str | None, as_json: bool, **cluster: str | None) -> None:
    """Check a home: its folders, its database, and whether the two agree.

    The folders are the truth: --rebuild makes the database again from them.

    With --on kubernetes it looks at the cluster that kubectl would use: versions, operators, queues, GPUs, quotas, and
    what we may do there.
    """
    with answering(as_json=as_json):
        if backend is not None:
            if rebuild:
                raise CallError("--rebuild is about a home: leave --on out")
            _check_cluster(backend, cluster, as_json=as_json)
        if named := [f"--{name}" for name, value in cluster.items() if value is not None]:
            raise CallError(f"{', '.join(named)} is about a cluster: add --on kubernetes")
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


def _check_cluster(backend: str, options: dict[str, str | None], *, as_json: bool) -> NoReturn:
    from phalanx.cli.clusters import judged, say, surveyed

    found, trial = surveyed(backend, options)
    problems, notes = judged(found, trial, backend)
    if as_json:
        print_json({"ok": not problems, "cluster": found.as_json(), "problems": problems, "notes": notes})
    else:
        say(found, problems, notes)
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
