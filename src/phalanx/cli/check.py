"""phalanx check"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.files import file_options, json_option, parse_params, read_files
from phalanx.cli.output import FILE_IS_WRONG, answering, print_errors, print_json, print_notes, printable
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.plan import Plan
    from phalanx.scheduler.checking import Verdict
    from phalanx.spec import Spec
    from phalanx.spec.tree import Node

SLURM = "slurm"


def _complete_backend(*_: Any) -> list[str]:
    from phalanx.backends import names

    return list(names())


def _complete_site(*_: Any) -> list[str]:
    from phalanx.cli.site import complete_site

    return complete_site()


@click.command("check")
@file_options
@click.option(
    "--on",
    "backend",
    metavar="BACKEND",
    help="Also say what this backend would refuse, punish or start late: with slurm, by the profile of the site; with "
    "kubernetes, as most clusters are.",
    shell_complete=_complete_backend,
)
@click.option(
    "--site",
    metavar="NAME",
    help="The profile of the site, by name or file; for --on slurm.",
    shell_complete=_complete_site,
)
@json_option
def command(
    files: tuple[str, ...], params: tuple[str, ...], backend: str | None, site: str | None, as_json: bool
) -> None:
    """Say everything that is wrong with a file, or what it means.

    Exit code 0: the file is fine. 1: it is not. 2: the call is wrong.
    """
    with answering(as_json=as_json):
        from phalanx.cli.summary import all_notes, plan_of, summarise

        loaded, tree = load_with_tree(files, params)
        made = plan_of(loaded)
        verdict = verdict_of(loaded, made, tree, backend, site)
        summary = summarise(loaded, made)
        if as_json:
            print_json({**summary, **verdict.as_json()} if verdict is not None else summary)
        else:
            print_notes(all_notes(loaded, made))
            if verdict is not None:
                _print_verdict(verdict)
            if verdict is None or not verdict.errors:
                _print_summary(loaded, made, summary)
    if verdict is not None and verdict.errors:
        sys.exit(FILE_IS_WRONG)


def load_with_tree(files: tuple[str, ...], params: tuple[str, ...]) -> tuple[Spec, Node]:
    """The spec, and the tree that it was read from: it knows where everything stands."""
    from phalanx.plan.inspecting import load

    return load(read_files(files), parse_params(params))


def _print_summary(loaded: Spec, made: Plan | None, summary: dict[str, Any]) -> None:
    from phalanx.cli.summary import replicas_text, resources_text

    name = f" `{loaded.name}`" if loaded.name else ""
    framework = f", {loaded.framework}" if loaded.framework else ""
    fine = click.style("ok", fg="green", bold=True)
    click.echo(f"{fine}: {printable(f'{loaded.file}: {loaded.kind}{name}{framework}')}")
    if loaded.search is not None:
        view = summary["search"]
        size = f": {view['size']} experiment{'s' if view['size'] != 1 else ''}" if view["size"] else ""
        over = ", ".join(view["matrix"])
        click.echo(printable(f"  search     {view['algorithm']} over {over}{size}"))
    if loaded.pipeline is not None:
        click.echo(f"  ops        {', '.join(summary['ops'])}")
    if made is not None:
        click.echo(f"  replicas   {replicas_text(made.roles)}")
        click.echo(f"  resources  {resources_text(made.totals)}")
    if summary["command"]:
        click.echo(f"  command    {printable(summary['command'])}")
    if loaded.params:
        click.echo(f"  params     {printable(', '.join(f'{key}={value}' for key, value in summary['params'].items()))}")


def print_advice(verdict: Verdict, *, err: bool = False) -> None:
    for note in verdict.notes:
        where = f"{note.place.file}:{note.place.line}: " if note.place.line else ""
        path = f"{note.path}: " if note.path else ""
        click.echo(f"{click.style('advice', fg='cyan')}: {printable(f'{where}{path}{note.message}')}", err=err)


def _print_verdict(verdict: Verdict) -> None:
    print_advice(verdict)
    if verdict.errors:
        print_errors(verdict.errors)
    if verdict.site is None:
        click.echo(
            f"{click.style('note', fg='yellow')}: no profile of a site is known: `phalanx site init` on the "
            "cluster writes one, --site names another"
        )
    elif not verdict.errors:
        dated = f", as of {verdict.site.date}" if verdict.site.date else ""
        click.echo(printable(f"{verdict.site.title or verdict.site.name}{dated}: nothing that would be refused"))


def verdict_of(loaded: Spec, made: Plan | None, tree: Node, backend: str | None, name: str | None) -> Verdict | None:
    if backend is None:
        if name is not None:
            raise CallError("--site goes with --on slurm")
        return None
    from phalanx.backends import find

    there = find(backend)
    if backend != SLURM:
        if name is not None:
            raise CallError("--site goes with --on slurm")
        if not there.shares_files:
            _refuse_what_cannot_be_rendered(backend, loaded, made)
        return None
    import os

    from phalanx.scheduler.checking import judged
    from phalanx.scheduler.home import default_home

    return judged(list(_plans(loaded, made)), tree, name, default_home(), os.environ)


def _refuse_what_cannot_be_rendered(on: str, loaded: Spec, made: Plan | None) -> None:
    """By a cluster as most are: nobody is asked. Raises SpecErrors."""
    from phalanx.backends import find
    from phalanx.errors import Place, SpecError, SpecErrors
    from phalanx.scheduler.home import default_home
    from phalanx.scheduler.submitting import place_of

    faults = []
    for prefix, one in _plans(loaded, made):
        try:
            there = find(place_of(one, on))
            there.render(one, there.place(default_home(), one))
        except CallError as fault:
            faults += [SpecError(Place(loaded.file), "", f"{prefix}{line}") for line in str(fault).splitlines()]
    if faults:
        raise SpecErrors(faults)


def _plans(loaded: Spec, made: Plan | None) -> Iterator[tuple[str, Plan]]:
    """The run, or each op of a pipeline."""
    if made is not None:
        yield "", made
        return
    from phalanx.cli.summary import plan_of

    for op in loaded.pipeline.ops if loaded.pipeline is not None else ():
        inner = plan_of(op.spec) if op.spec is not None else None
        if inner is not None:
            yield f"op {op.name}: ", inner
