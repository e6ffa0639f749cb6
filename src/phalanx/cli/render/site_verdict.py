"""What a site profile says of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from phalanx.cli.render.output import printable
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.errors import Note
    from phalanx.plan import Plan
    from phalanx.spec import Spec
    from phalanx.spec.tree import Node
    from phalanx.submission.checks import SiteVerdict

SLURM = "slurm"


def print_advice(notes: Iterable[Note], *, err: bool = False) -> None:
    for note in notes:
        where = f"{note.place.file}:{note.place.line}: " if note.place.line else ""
        path = f"{note.path}: " if note.path else ""
        click.echo(f"{click.style('advice', fg='cyan')}: {printable(f'{where}{path}{note.message}')}", err=err)


def verdict_of(
    loaded: Spec, made: Plan | None, tree: Node, backend: str | None, name: str | None
) -> SiteVerdict | None:
    if backend is None:
        if name is not None:
            raise CallError("--site goes with --on slurm")
        return None
    if name is not None and backend != SLURM:
        raise CallError("--site goes with --on slurm")
    import os

    from phalanx.home.home import default_home
    from phalanx.submission.checks import backend_verdict

    plans = list(_plans(loaded, made))
    return backend_verdict(plans, tree, backend, home=default_home(), environment=os.environ, site=name)


def _plans(loaded: Spec, made: Plan | None) -> Iterator[tuple[str, Plan]]:
    """The run, or each op of a pipeline."""
    if made is not None:
        yield "", made
        return
    from phalanx.cli.render.plan_summary import plan_of

    for op in loaded.pipeline.ops if loaded.pipeline is not None else ():
        inner = plan_of(op.spec) if op.spec is not None else None
        if inner is not None:
            yield f"op {op.name}: ", inner
