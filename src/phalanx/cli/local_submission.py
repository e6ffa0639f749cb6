"""Submission of a run by `phalanx run` to a local home: checks, builds and environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from phalanx.cli.interrupts import defer_signals
from phalanx.cli.render.output import print_notes, printable
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.home.home import Home
    from phalanx.spec import Spec
    from phalanx.spec.tree import Node
    from phalanx.store import Run, Store


class RunRequest(NamedTuple):
    """What to run, and how. `wishes`: name, description, tags, project, priority, timeout_s."""

    texts: Sequence[tuple[str, bytes]]
    params: Mapping[str, str]
    loaded: Spec
    tree: Node
    on: str | None
    wishes: Mapping[str, Any]
    is_strict: bool
    is_unchecked: bool
    is_snapshot: bool
    is_built: bool
    is_quiet: bool


def submit_local(home: Home, store: Store, order: RunRequest) -> Run:
    """Raises SpecErrors, CallError."""
    from phalanx.submission.checks import check_runnable, ignored_fields, runs_locally
    from phalanx.submission.submit import submit

    loaded, here = order.loaded, runs_locally(order.loaded, order.on)
    check_runnable(home.path, loaded, order.on, os.environ, order.wishes.get("cluster") or {})
    if here:
        _warn_of_excess(loaded, strict=order.is_strict)
    elif not order.is_unchecked:
        _refuse_what_the_site_would(loaded, order.tree, order.on or loaded.backend or "native")
    environment = local_virtualenv(home, loaded, build=order.is_built) if here else dict(os.environ)
    archive = None if here else packed_virtualenv(home, loaded)
    venv = environment.get("VIRTUAL_ENV") if here and environment != dict(os.environ) else None
    defer_signals()
    run, made = submit(
        home,
        store,
        loaded,
        working=Path.cwd(),
        environment=environment,
        wishes={**order.wishes, "on": order.on, "venv": venv, "archive": archive},
        snapshot=order.is_snapshot,
    )
    if not order.is_quiet:
        print_notes((*loaded.notes, *made.notes), err=True)
        for line in ignored_fields(loaded) if here else ():
            click.echo(f"note: {printable(line)}", err=True)
    return run


def _warn_of_excess(loaded: Spec, *, strict: bool) -> None:
    """Warn only, because a laptop must be able to try out a file written for a cluster; refuse with --strict."""
    from phalanx.submission.checks import capacity_excess

    beyond = capacity_excess(loaded)
    if beyond and strict:
        raise CallError(f"the run requests more than this machine has: {beyond}; without --strict it runs anyway")
    if beyond:
        click.echo(f"{click.style('warning', fg='yellow')}: requests more than this machine has: {beyond}", err=True)


def _refuse_what_the_site_would(loaded: Spec, tree: Node, backend: str) -> None:
    """Fail now rather than after days in a queue. Raises SpecErrors with all errors at once."""
    from phalanx import plan
    from phalanx.cli.render.site_verdict import print_advice, verdict_of
    from phalanx.errors import SpecErrors

    verdict = verdict_of(loaded, plan.make(loaded, "trial"), tree, backend, None)
    if verdict is not None:
        print_advice(verdict, err=True)
        if verdict.errors:
            raise SpecErrors(verdict.errors)


def local_virtualenv(home: Home, loaded: Spec, *, build: bool) -> dict[str, str]:
    """The environment variables of a run on this machine: the user's, or those of the file's virtual environment."""
    from phalanx.submission import virtualenvs

    environment = dict(os.environ)
    if loaded.build is not None and loaded.build.build_steps and not build:
        click.echo("note: the build steps are skipped; --build runs them in a virtual environment", err=True)
    if loaded.environment.python.modules:
        click.echo("note: `environment.python.modules` are ignored on this machine: load them in this shell", err=True)
    wanted = virtualenvs.VirtualenvSpec.by(loaded, with_steps=build)
    if wanted is None:
        return virtualenvs.existing_python(loaded.environment.python, environment) or environment
    return virtualenvs.ensure(wanted, Path.cwd(), environment, home.path / "builds", _say)


def packed_virtualenv(home: Home, loaded: Spec) -> Path | None:
    """The archived virtual environment of a run on a cluster, if the file wants it built on this machine."""
    from phalanx.submission import virtualenvs

    wanted = virtualenvs.VirtualenvSpec.by(loaded, with_steps=True)
    if wanted is None or loaded.environment.python.build_on != "login":
        return None
    return virtualenvs.packed(wanted, Path.cwd(), dict(os.environ), home.path / "builds", _say)


def _say(text: str) -> None:
    click.echo(text, err=True)
