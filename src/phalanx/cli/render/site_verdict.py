"""The check of a file against a site profile or backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from phalanx.cli.render.output import printable
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.plan import Plan
    from phalanx.spec import Spec
    from phalanx.spec.tree import Node
    from phalanx.submission.checks import SiteVerdict

SLURM = "slurm"


def print_advice(verdict: SiteVerdict, *, err: bool = False) -> None:
    for note in verdict.notes:
        where = f"{note.place.file}:{note.place.line}: " if note.place.line else ""
        path = f"{note.path}: " if note.path else ""
        click.echo(f"{click.style('advice', fg='cyan')}: {printable(f'{where}{path}{note.message}')}", err=err)


def verdict_of(
    loaded: Spec, made: Plan | None, tree: Node, backend: str | None, name: str | None
) -> SiteVerdict | None:
    if backend is None:
        if name is not None:
            raise CallError("--site needs --on slurm")
        return None
    from phalanx.backends import find

    there = find(backend)
    if backend != SLURM:
        if name is not None:
            raise CallError("--site needs --on slurm")
        if not there.shares_files:
            _refuse_what_cannot_be_rendered(backend, loaded, made)
        return None
    import os

    from phalanx.home.home import default_home
    from phalanx.submission.checks import check_site

    return check_site(list(_plans(loaded, made)), tree, name, default_home(), os.environ)


def _refuse_what_cannot_be_rendered(on: str, loaded: Spec, made: Plan | None) -> None:
    """Check against the rules of most clusters, without connecting to one. Raises SpecErrors."""
    from phalanx.backends import find
    from phalanx.errors import Location, SpecError, SpecErrors
    from phalanx.home.home import default_home
    from phalanx.submission.submit import backend_of

    faults = []
    for prefix, one in _plans(loaded, made):
        try:
            there = find(backend_of(one, on))
            there.render(one, there.target(default_home(), one))
        except CallError as fault:
            faults += [SpecError(Location(loaded.file), "", f"{prefix}{line}") for line in str(fault).splitlines()]
    if faults:
        raise SpecErrors(faults)


def _plans(loaded: Spec, made: Plan | None) -> Iterator[tuple[str, Plan]]:
    """The plan of the run, or of each op of a pipeline."""
    if made is not None:
        yield "", made
        return
    from phalanx.cli.render.plan_summary import plan_of

    for op in loaded.pipeline.ops if loaded.pipeline is not None else ():
        inner = plan_of(op.spec) if op.spec is not None else None
        if inner is not None:
            yield f"op {op.name}: ", inner
