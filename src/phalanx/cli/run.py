"""phalanx run"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.files import file_options, json_option, load
from phalanx.cli.output import answering, print_notes, printable
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.scheduler.home import Home
    from phalanx.spec import Spec

HERE = ("native", "local")


@click.command("run")
@file_options
@click.option("--name", help="A name for the run; wins over the file's.")
@click.option("--description", help="What it is about.")
@click.option("--tags", metavar="A,B", help="Further tags.")
@click.option("--project", default="default", show_default=True, help="The project it belongs to.")
@click.option("--on", "backend", metavar="BACKEND", help="Where to run it; this machine unless said.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher ones leave the queue first.")
@click.option("--timeout", metavar="TIME", help='How long it may take: seconds, or "90m", "1d12h".')
@click.option("--strict", is_flag=True, help="Refuse a run that asks for more than this machine has.")
@click.option("--snapshot", is_flag=True, help="Run from a copy of the code, so that later changes do not reach it.")
@click.option("--build", is_flag=True, help="Run the file's build steps in a virtual environment, kept for next time.")
@click.option("-d", "--detach", is_flag=True, help="Queue it, print its id and return.")
@click.option(
    "-l", "--log", is_flag=True, hidden=True, help="Polyaxon's flag for streaming logs, which is the default."
)
@json_option
def command(
    files: tuple[str, ...],
    params: tuple[str, ...],
    backend: str | None,
    strict: bool,
    snapshot: bool,
    build: bool,
    detach: bool,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Run a file on this machine: the whole topology starts here.

    The output of every replica streams by with its name; at the end stands what happened. Ctrl-C stops the run;
    a closed terminal does not: it goes on, and `phalanx ps` finds it. The exit code follows the run.
    """
    with answering(as_json=as_json):
        from phalanx.cli.attending import hold_signals, see_through
        from phalanx.cli.homes import open_home
        from phalanx.scheduler.submitting import submit

        loaded = load(files, params)
        _refuse_what_cannot_run(loaded, backend)
        _warn_of_excess(loaded, strict=strict)
        home, store = open_home()
        with store:
            environment = _built(home, loaded, build=build)
            hold_signals()
            run, made = submit(
                home,
                store,
                loaded,
                working=Path.cwd(),
                environment=environment,
                wishes={**_wishes(wishes), "venv": environment.get("VIRTUAL_ENV") if build else None},
                snapshot=snapshot,
            )
            if not as_json:
                print_notes((*loaded.notes, *made.notes), err=True)
                for line in unused_here(loaded):
                    click.echo(f"note: {printable(line)}", err=True)
            code = see_through(home, store, run, detach=detach, as_json=as_json)
    sys.exit(code)


def _refuse_what_cannot_run(loaded: Spec, backend: str | None) -> None:
    from phalanx.spec import Kind

    if loaded.kind in (Kind.GROUP, Kind.PIPELINE):
        raise CallError(f"a {loaded.kind} is many runs, which `run` cannot start yet; `phalanx plan` shows its first")
    place = backend or loaded.backend or "native"
    if place not in (*HERE, "mpi", "notebook", "lab"):
        raise CallError(f"runs start on this machine only, not on `{place}`: --on local runs it here")
    if loaded.command is None and loaded.kind in (Kind.EXPERIMENT, Kind.JOB):
        raise CallError("nothing to run: the file has no `run: {cmd: ...}`")


def _warn_of_excess(loaded: Spec, *, strict: bool) -> None:
    """A laptop must be able to rehearse a cluster's file; but nobody shall be surprised."""
    from phalanx import plan
    from phalanx.plan.encoding import document
    from phalanx.scheduler.machine import asked_by, excess, this_machine

    beyond = excess(asked_by(document(plan.make(loaded, "trial"))), this_machine()[0])
    if beyond and strict:
        raise CallError(f"the run asks for more than this machine has: {beyond}; without --strict it runs all the same")
    if beyond:
        click.echo(f"{click.style('warning', fg='yellow')}: asks for more than this machine has: {beyond}", err=True)


def unused_here(loaded: Spec) -> list[str]:
    """What the file asks for that this machine does not give: a run must not rely on it in silence."""
    told = []
    build, settings = loaded.build, loaded.environment.settings
    if build is not None and (build.image or build.dockerfile):
        told.append(f"runs in the environment of this shell, not in the image of `{build.image or build.dockerfile}`")
    if build is not None:
        named = [name for name in ("ref", "commit", "branch") if getattr(build, name)]
        told += [f"`build.{name}` is not used on this machine: the code is that of this folder" for name in named]
    missing = ("secret_refs", "config_map_refs", "data_refs", "artifact_refs")
    told += [f"`environment.{name}` is not available on this machine" for name in missing if getattr(settings, name)]
    if loaded.environment.outputs is not None:
        told.append("`environment.outputs` is not available on this machine")
    return told


def _built(home: Home, loaded: Spec, *, build: bool) -> dict[str, str]:
    """The environment to run in: the user's own, or that of the build."""
    environment = dict(os.environ)
    if loaded.build is None or not loaded.build.build_steps:
        return environment
    if not build:
        click.echo("note: the build steps are not run; --build runs them in a virtual environment", err=True)
        return environment
    from phalanx.scheduler import builds

    return builds.ready(
        loaded.build, Path.cwd(), environment, home.path / "builds", lambda text: click.echo(text, err=True)
    )


def _wishes(options: dict[str, Any]) -> dict[str, Any]:
    from phalanx.spec.quantities import seconds

    timeout = options.pop("timeout")
    options["timeout_s"] = seconds(timeout) if timeout is not None else None
    if timeout is not None and options["timeout_s"] is None:
        raise CallError(f'--timeout {timeout!r}: write seconds, or a time such as "90m" or "1d12h"')
    options["tags"] = tuple(word.strip() for word in (options["tags"] or "").split(",") if word.strip())
    return options
