"""phalanx doctor"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from phalanx.cli.installation import Part, version_line
from phalanx.cli.options import cluster_options, json_option
from phalanx.cli.render.diagnosis import print_diagnosis
from phalanx.cli.render.output import FILE_IS_WRONG, print_json, print_lines, printable, table
from phalanx.cli.workspace.open_home import open_home
from phalanx.errors import CallError, SpecErrors, SystemFault

if TYPE_CHECKING:
    from phalanx.home.home import Home
    from phalanx.store import Store

RECENT_S = 7 * 86_400.0


@click.command("doctor")
@click.option("--rebuild", is_flag=True, help="Rebuild the database from the run folders.")
@click.option("--on", "backend", metavar="BACKEND", help="Check a backend and its cluster instead.")
@cluster_options
@json_option
def command(rebuild: bool, backend: str | None, as_json: bool, **cluster: str | None) -> None:
    """Check the installation and the home: its run folders, its database, and whether they agree.

    Lists missing extras and tools, what needs them and how to install them. They are optional and not counted as
    problems.

    The run folders are the source of truth: --rebuild recreates the database from them.

    With --on it looks at a backend: whether jobs can be submitted from here. With --on kubernetes, that is the cluster
    that kubectl would use: versions, operators, queues, GPUs, quotas, and what we may do there.
    """
    if backend is not None:
        if rebuild:
            raise CallError("--rebuild works on a home and cannot be combined with --on")
        _check_cluster(backend, cluster, as_json=as_json)
    if named := [f"--{name}" for name, value in cluster.items() if value is not None]:
        raise CallError(f"{', '.join(named)} needs --on kubernetes")
    from phalanx.cli import installation
    from phalanx.home.home import default_home

    found = list(installation.parts(default_home()))
    if not as_json:
        _show_installed(found)
    checked, problems = _check_home(rebuild=rebuild)
    if as_json:
        answer = {"ok": not problems, **checked, "problems": problems}
        print_json({**answer, "installed": installation.as_json(found)})
    else:
        _show_home(checked, problems)
    sys.exit(FILE_IS_WRONG if problems else 0)


def _show_installed(found: list[Part]) -> None:
    click.echo(printable(version_line()))
    print_lines(table([["", part.name, printable(part.words())] for part in found]))


def _check_home(*, rebuild: bool) -> tuple[dict[str, Any], list[str]]:
    """Facts about the home, and its problems; failure to open it is a problem. Raises CallError, StoreError."""
    from phalanx.home.home import default_home
    from phalanx.ingest.rebuild import rebuild_store
    from phalanx.registry.registry import Registry

    rebuilt = {"rebuilt": rebuild_store()} if rebuild else {}
    try:
        home, store = open_home()
    except (CallError, SystemFault) as fault:
        return {"home": str(default_home()), "runs": None, **rebuilt}, [str(fault)]
    with store:
        problems = [
            *store.check(),
            *_disagreements(home, store),
            *_open_doors(home),
            *_unreachable_storage(),
            *Registry(home, store).check(),
            *_settings(home),
        ]
        return {"home": str(home.path), "runs": len(store.ids()), **rebuilt}, problems


def _settings(home: Home) -> list[str]:
    """Errors of config.yml, and notifications that were not sent in the last days."""
    from phalanx.notifications.sender import last_trouble
    from phalanx.settings.home_settings import read_home_settings

    try:
        read_home_settings(home.path)
        problems = []
    except SpecErrors as fault:
        problems = [str(error) for error in fault.errors]
    except (CallError, SystemFault) as fault:
        problems = [str(fault)]
    last = last_trouble(home.path)
    if last is not None and time.time() - float(str(last.get("at") or 0)) < RECENT_S:
        about = f"run {last['run']}: {last.get('channel')} to {last.get('to')}: " if last.get("run") else ""
        problems.append(f"a notification was not sent: {about}{last.get('why')}")
    return problems


def _show_home(checked: Mapping[str, Any], problems: Sequence[str]) -> None:
    again = f", {checked['rebuilt']} rebuilt" if "rebuilt" in checked else ""
    is_open = checked["runs"] is not None
    click.echo(f"home {checked['home']}: {checked['runs']} runs{again}" if is_open else f"home {checked['home']}")
    for problem in problems:
        click.echo(f"{click.style('problem', fg='red')}: {printable(problem)}")
    if not problems:
        click.echo("no problems found")
    elif is_open:
        click.echo(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}; --rebuild repairs the database")


def _check_cluster(backend: str, options: dict[str, str | None], *, as_json: bool) -> NoReturn:
    from phalanx import backends
    from phalanx.home.home import default_home

    place = backends.find(backend)
    if foreign := [f"--{name}" for name, value in options.items() if value is not None and name not in place.options]:
        raise CallError(f"{', '.join(foreign)}: not for --on {backend}")
    found = place.diagnose(default_home(), os.environ, options)
    if as_json:
        report = {"cluster": found.data, "problems": list(found.problems), "notes": list(found.notes)}
        print_json({"ok": not found.problems, **report})
    else:
        print_diagnosis(found)
    sys.exit(FILE_IS_WRONG if found.problems else 0)


def _disagreements(home: Home, store: Store) -> list[str]:
    """Differences between the database and the run folders."""
    folders, rows = set(home.run_ids()), store.ids()
    found = [f"run {run_id} has a folder but is not in the database" for run_id in sorted(folders - rows)]
    found += [f"run {run_id} is in the database but has no folder" for run_id in sorted(rows - folders)]
    for run_id in sorted(folders & rows):
        history, stored = home.run(run_id).history(), store.find(run_id).status
        if history and stored != history[-1].status:
            found.append(f"run {run_id} is {stored} in the database but {history[-1].status} in its folder")
    return found


def _unreachable_storage() -> list[str]:
    """The storage for background uploads of outputs, if it cannot be reached."""
    from phalanx.artifacts.remote import require_storage
    from phalanx.scheduler.post_run import URL

    try:
        if url := os.environ.get(URL):
            require_storage(url)
    except (CallError, SystemFault) as fault:
        return [f"{URL}: {fault}"]
    return []


def _open_doors(home: Home) -> list[str]:
    return [
        f"other users can read {path}: run `chmod go= {path}`"
        for path in (home.path, home.runs)
        if path.stat().st_mode & 0o077
    ]
