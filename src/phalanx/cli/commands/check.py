"""phalanx check"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from phalanx.cli.options import complete_backend, complete_site, file_options, json_option, parse_params, read_files
from phalanx.cli.render.backend_verdict import jobs_on_slurm, print_advice, print_note, verdict_of
from phalanx.cli.render.output import FILE_IS_WRONG, print_errors, print_json, print_notes, printable

if TYPE_CHECKING:
    from phalanx.launch.file_references import Texts
    from phalanx.plan import Plan
    from phalanx.spec import Spec
    from phalanx.spec.tree import Node
    from phalanx.submission.checks import BackendVerdict


@click.command("check")
@file_options
@click.option(
    "--on",
    "backend",
    metavar="BACKEND",
    help="Also report what this backend would reject, penalize or delay: slurm by the site profile, the wheelhouse and "
    "`sbatch --test-only`, kubernetes by the rules of most clusters.",
    shell_complete=complete_backend,
)
@click.option(
    "--site",
    metavar="NAME",
    help="Site profile for --on slurm: a name or a file.",
    shell_complete=complete_site,
)
@json_option
def command(
    files: tuple[str, ...], params: tuple[str, ...], backend: str | None, site: str | None, as_json: bool
) -> None:
    """Validate a file: list all errors, or summarize what would run.

    If the file requests GPUs that its last runs hardly used, advice says so.

    Exit codes: 0 valid file, 1 invalid file, 2 invalid call.
    """
    from phalanx.cli.render.plan_summary import all_notes

    checked = check_files(read_files(files), parse_params(params), backend, site)
    loaded, made, summary, verdict = checked
    if as_json:
        print_json(checked.as_json())
    else:
        print_notes(all_notes(loaded, made))
        if verdict is not None:
            _print_verdict(verdict)
        if verdict is None or not verdict.errors:
            _print_summary(loaded, made, summary)
    if verdict is not None and verdict.errors:
        sys.exit(FILE_IS_WRONG)


class CheckedFile(NamedTuple):
    """A valid file, its plan, its summary, and what a backend or earlier runs say about it."""

    spec: Spec
    plan: Plan | None
    summary: dict[str, Any]
    verdict: BackendVerdict | None

    def as_json(self) -> dict[str, Any]:
        return {**self.summary, **self.verdict.as_json()} if self.verdict is not None else self.summary


def check_files(texts: Texts, params: Mapping[str, str], backend: str | None, site: str | None) -> CheckedFile:
    """Raises SpecErrors with all errors of the files, CallError."""
    from phalanx.cli.earlier_runs import earlier_runs
    from phalanx.cli.render.plan_summary import plan_of, summarise
    from phalanx.launch.file_references import load_files

    loaded, tree, _, _ = load_files(texts, params)
    made = plan_of(loaded)
    jobs, submitted = None, made
    if loaded.search is not None and made is not None and backend == "slurm":
        jobs, submitted = jobs_on_slurm(loaded, made, {"site": site}, earlier_runs(loaded, made))
    verdict = _with_gpu_history(verdict_of(loaded, submitted, tree, backend, site), loaded, made, tree)
    return CheckedFile(loaded, made, summarise(loaded, made, jobs), verdict)


def _print_summary(loaded: Spec, made: Plan | None, summary: dict[str, Any]) -> None:
    from phalanx.cli.render.plan_summary import params_text, replicas_text, resources_text

    name = f" `{loaded.name}`" if loaded.name else ""
    framework = f", {loaded.framework}" if loaded.framework else ""
    fine = click.style("ok", fg="green", bold=True)
    click.echo(f"{fine}: {printable(f'{loaded.file}: {loaded.kind}{name}{framework}')}")
    if loaded.search is not None:
        view = summary["search"]
        size = f": {view['size']} experiment{'s' if view['size'] != 1 else ''}" if view["size"] else ""
        size += f", each {loaded.search.repeats} times" if loaded.search.repeats > 1 else ""
        over = ", ".join(view["matrix"])
        click.echo(printable(f"  search     {view['algorithm']} over {over}{size}"))
    if loaded.pipeline is not None:
        click.echo(f"  ops        {', '.join(summary['ops'])}")
        if summary["schedule"] is not None:
            fields = ", ".join(f"{name} {value}" for name, value in summary["schedule"].items() if name != "kind")
            click.echo(printable(f"  schedule   {fields}; {summary['schedule_note']}"))
    if made is not None:
        click.echo(f"  replicas   {replicas_text(made.roles)}")
        click.echo(f"  resources  {resources_text(made.totals)}")
    if summary["command"]:
        click.echo(f"  command    {printable(summary['command'])}")
    if loaded.params:
        click.echo(f"  params     {printable(', '.join(params_text(loaded)))}")


def _print_verdict(verdict: BackendVerdict) -> None:
    print_advice(verdict.notes)
    if verdict.errors:
        print_errors(verdict.errors)
    print_note(verdict)


def _with_gpu_history(
    verdict: BackendVerdict | None, loaded: Spec, made: Plan | None, tree: Node
) -> BackendVerdict | None:
    """The same with advice from earlier runs of the file in the home of this machine, if it requests GPUs."""
    gpus = made.totals.gpu if made is not None else None
    if made is None or gpus is None or not (gpus.requests or gpus.limits):
        return verdict
    from pathlib import Path

    from phalanx.cli.workspace.base import selected_server
    from phalanx.cli.workspace.open_home import open_home
    from phalanx.errors import CallError, SystemFault
    from phalanx.home.home import default_home
    from phalanx.submission.checks import BackendVerdict, gpu_history

    if selected_server() is not None or not default_home().is_dir():
        return verdict
    try:
        home, store = open_home()
        with store:
            review = gpu_history(home, store, loaded, made, Path.cwd())
    except (CallError, SystemFault):  # a check does not need the home
        return verdict
    return BackendVerdict([*(verdict.reviews if verdict is not None else ()), review], tree)
