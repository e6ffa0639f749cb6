"""How `phalanx run` turns a file into a run: on this machine, with its checks, its builds and its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from phalanx.cli.interrupts import hold_signals
from phalanx.cli.output import print_notes, printable
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.scheduler.home import Home
    from phalanx.spec import Spec
    from phalanx.spec.tree import Node
    from phalanx.store import Run, Store


class Order(NamedTuple):
    """What is to be run, and how. `wishes`: name, description, tags, project, priority, timeout_s."""

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


def submit_here(home: Home, store: Store, order: Order) -> Run:
    """Raises SpecErrors, CallError."""
    from phalanx.scheduler.checking import is_here, refuse_what_cannot_run, unused_here
    from phalanx.scheduler.submitting import submit

    loaded, here = order.loaded, is_here(order.loaded, order.on)
    refuse_what_cannot_run(home.path, loaded, order.on, os.environ, order.wishes.get("cluster") or {})
    if here:
        _warn_of_excess(loaded, strict=order.is_strict)
    elif not order.is_unchecked:
        _refuse_what_the_site_would(loaded, order.tree, order.on or loaded.backend or "native")
    environment = built_here(home, loaded, build=order.is_built) if here else dict(os.environ)
    archive = None if here else built_for_nodes(home, loaded)
    venv = environment.get("VIRTUAL_ENV") if here and environment != dict(os.environ) else None
    hold_signals()
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
        for line in unused_here(loaded) if here else ():
            click.echo(f"note: {printable(line)}", err=True)
    return run


def _warn_of_excess(loaded: Spec, *, strict: bool) -> None:
    """A laptop must be able to rehearse a cluster's file; but nobody shall be surprised."""
    from phalanx.scheduler.checking import excess_of

    beyond = excess_of(loaded)
    if beyond and strict:
        raise CallError(f"the run asks for more than this machine has: {beyond}; without --strict it runs all the same")
    if beyond:
        click.echo(f"{click.style('warning', fg='yellow')}: asks for more than this machine has: {beyond}", err=True)


def _refuse_what_the_site_would(loaded: Spec, tree: Node, backend: str) -> None:
    """Before anything waits in a queue for days. Raises SpecErrors with all faults at once."""
    from phalanx import plan
    from phalanx.cli.check import print_advice, verdict_of
    from phalanx.errors import SpecErrors

    verdict = verdict_of(loaded, plan.make(loaded, "trial"), tree, backend, None)
    if verdict is not None:
        print_advice(verdict, err=True)
        if verdict.errors:
            raise SpecErrors(verdict.errors)


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
