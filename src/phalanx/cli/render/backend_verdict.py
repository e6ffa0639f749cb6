"""What a backend says of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import click

from phalanx.cli.render.output import printable
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.errors import Note
    from phalanx.plan import Plan
    from phalanx.spec import Spec
    from phalanx.spec.tree import Node
    from phalanx.submission.checks import BackendVerdict
    from phalanx.submission.earlier_times import EarlierTimes
    from phalanx.submission.trial_jobs import TrialJobs


def print_advice(notes: Iterable[Note], *, err: bool = False) -> None:
    for note in notes:
        where = f"{note.place.file}:{note.place.line}: " if note.place.line else ""
        path = f"{note.path}: " if note.path else ""
        click.echo(f"{click.style('advice', fg='cyan')}: {printable(f'{where}{path}{note.message}')}", err=err)


def print_note(verdict: BackendVerdict) -> None:
    """What the file was judged by, unless something would be refused."""
    for review in verdict.reviews:
        if review.note is not None and (review.is_warning or not verdict.errors):
            label = f"{click.style('note', fg='yellow')}: " if review.is_warning else ""
            click.echo(f"{label}{printable(review.note)}")


def verdict_of(
    loaded: Spec, made: Plan | None, tree: Node, backend: str | None, site: str | None = None
) -> BackendVerdict | None:
    """What a backend says of a file; None without one. Raises CallError, SpecErrors."""
    if backend is None:
        if site is not None:
            raise CallError("--site needs --on slurm")
        return None
    import os

    from phalanx.backends import find
    from phalanx.home.home import default_home
    from phalanx.submission.checks import review

    if site is not None and "site" not in find(backend).options:
        raise CallError("--site needs --on slurm")
    options = {"site": site}
    return review(backend, _plans(loaded, made), tree, home=default_home(), environment=os.environ, options=options)


def jobs_on_slurm(
    loaded: Spec, made: Plan, options: Mapping[str, str | None], earlier: EarlierTimes | None
) -> tuple[TrialJobs, Plan]:
    """How the trials of a group become jobs, which is also printed to stderr, and the plan that is submitted. Raises
    CallError, SpecErrors."""
    import os

    from phalanx.backends import find
    from phalanx.home.home import default_home
    from phalanx.submission.allocation import jobs_of_group, unshared_python

    home = default_home()
    site = find("slurm").target(home, made, options=options)
    jobs, submitted = jobs_of_group(home, loaded, made, site, os.environ, earlier)
    click.echo(f"{click.style('note', fg='yellow')}: {printable(jobs.words)}", err=True)
    unshared = unshared_python(home) if jobs.is_packed else None
    if unshared is not None:
        click.echo(f"{click.style('warning', fg='yellow')}: {printable(unshared)}", err=True)
    return jobs, submitted


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
