"""phalanx run"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.files import file_options, json_option
from phalanx.cli.output import answering, print_notes, printable
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.scheduler.home import Home
    from phalanx.spec import Spec
    from phalanx.spec.tree import Node


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
@click.option("--unchecked", is_flag=True, help="Submit also what the profile of the site says it would refuse.")
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
    unchecked: bool,
    snapshot: bool,
    build: bool,
    detach: bool,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Run a file: on this machine, or where --on says.

    The output of every replica streams by with its name; at the end stands what happened. Ctrl-C stops the run;
    a closed terminal does not: it goes on, and `phalanx ps` finds it. The exit code follows the run.
    """
    with answering(as_json=as_json):
        from phalanx.cli.attending import hold_signals, see_through
        from phalanx.cli.check import load_with_tree
        from phalanx.cli.homes import open_home
        from phalanx.scheduler.submitting import submit

        loaded, tree = load_with_tree(files, params)
        refuse_what_cannot_run(loaded, backend)
        home, store = open_home()
        if is_here(loaded, backend):
            _warn_of_excess(loaded, strict=strict)
        elif not unchecked:
            _refuse_what_the_site_would(loaded, tree, backend or loaded.backend or "native")
        with store:
            here = is_here(loaded, backend)
            environment = built_here(home, loaded, build=build) if here else dict(os.environ)
            archive = None if here else built_for_nodes(home, loaded)
            venv = environment.get("VIRTUAL_ENV") if here and environment != dict(os.environ) else None
            hold_signals()
            run, made = submit(
                home,
                store,
                loaded,
                working=Path.cwd(),
                environment=environment,
                wishes={**_wishes(wishes), "on": backend, "venv": venv, "archive": archive},
                snapshot=snapshot,
            )
            if not as_json:
                print_notes((*loaded.notes, *made.notes), err=True)
                for line in unused_here(loaded) if is_here(loaded, backend) else ():
                    click.echo(f"note: {printable(line)}", err=True)
            code = see_through(home, store, run, detach=detach, as_json=as_json)
    sys.exit(code)


def is_here(loaded: Spec, backend: str | None) -> bool:
    """Whether its replicas are processes of this machine."""
    from phalanx.scheduler.places import LOCAL

    return (backend or loaded.backend or "native") in LOCAL


def refuse_what_cannot_run(loaded: Spec, backend: str | None) -> None:
    from phalanx.spec import Kind

    if loaded.kind in (Kind.GROUP, Kind.PIPELINE):
        raise CallError(f"a {loaded.kind} is many runs, which `run` cannot start yet; `phalanx plan` shows its first")
    from phalanx.scheduler.places import LOCAL

    place = backend or loaded.backend or "native"
    if place not in LOCAL:
        from phalanx import backends

        if place not in backends.names():
            known = ", ".join(backends.names())
            raise CallError(f"runs cannot start on `{place}` yet: --on names one of {known}")
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


def _refuse_what_the_site_would(loaded: Spec, tree: Node, backend: str) -> None:
    """Before anything waits in a queue for days. Raises SpecErrors with all faults at once."""
    from phalanx import plan
    from phalanx.cli.check import verdict_of
    from phalanx.errors import SpecErrors

    verdict = verdict_of(loaded, plan.make(loaded, "trial"), tree, backend, None)
    if verdict is not None:
        verdict.print_advice(err=True)
        if verdict.errors:
            raise SpecErrors(verdict.errors)


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


def built_here(home: Home, loaded: Spec, *, build: bool) -> dict[str, str]:
    """The environment to run in on this machine: the user's own, or the one that the file asks for."""
    from phalanx.scheduler import builds

    environment = dict(os.environ)
    if loaded.build is not None and loaded.build.build_steps and not build:
        click.echo("note: the build steps are not run; --build runs them in a virtual environment", err=True)
    if loaded.environment.python.modules:
        click.echo("note: `environment.python.modules` are not loaded here: load them in this shell", err=True)
    wanted = builds.Wanted.by(loaded, with_steps=build)
    if wanted is None:
        return builds.existing(loaded.environment.python, environment) or environment
    return builds.ready(wanted, Path.cwd(), environment, home.path / "builds", _say)


def built_for_nodes(home: Home, loaded: Spec) -> Path | None:
    """The environment of a run elsewhere, where the file wants it to be made here."""
    from phalanx.scheduler import builds

    wanted = builds.Wanted.by(loaded, with_steps=True)
    if wanted is None or loaded.environment.python.build_on != "login":
        return None
    return builds.archived(wanted, Path.cwd(), dict(os.environ), home.path / "builds", _say)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _wishes(options: dict[str, Any]) -> dict[str, Any]:
    from phalanx.spec.quantities import seconds

    timeout = options.pop("timeout")
    options["timeout_s"] = seconds(timeout) if timeout is not None else None
    if timeout is not None and options["timeout_s"] is None:
        raise CallError(f'--timeout {timeout!r}: write seconds, or a time such as "90m" or "1d12h"')
    options["tags"] = tuple(word.strip() for word in (options["tags"] or "").split(",") if word.strip())
    return options
