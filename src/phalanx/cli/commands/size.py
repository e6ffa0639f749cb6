"""phalanx size"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from phalanx.cli.commands.advise import MARK, copy_fault, copy_name, write_copy
from phalanx.cli.options import file_options, json_option, parse_params, read_files
from phalanx.cli.render.output import print_json, print_lines, printable
from phalanx.errors import CallError


@click.command("size")
@file_options
@click.option(
    "--try",
    "tries",
    multiple=True,
    metavar="WHAT=A,B,…",
    help="Values to try: cpu=1,2,4, memory=1Gi,2Gi or gpu=0,1 (per replica), or workers=1,2,4. Repeatable; all "
    "combinations are tried.",
)
@click.option("--for", "duration", default="60s", show_default=True, metavar="TIME", help="Duration of each trial.")
@click.option("--metric", metavar="NAME", help="Metric to use as speed, such as samples per second; higher is better.")
@click.option(
    "--within",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.9,
    show_default=True,
    help="Fraction of the best speed that is fast enough.",
)
@click.option(
    "--role",
    type=click.Choice(["master", "worker", "ps"]),
    help="Role whose resources are varied. Default: master and workers.",
)
@click.option(
    "--on",
    "backend",
    metavar="BACKEND",
    help="Backend of the trials. Default: the file's `backend`, else this machine.",
)
@click.option("--project", default="default", show_default=True, help="Project of the trials.")
@click.option("--build", is_flag=True, help="Run the file's build steps first, like `phalanx run --build`.")
@click.option("--apply", "is_applied", is_flag=True, help="Write a copy of the file with the recommended resources.")
@click.option("-o", "--output", metavar="FILE", help="File to write. Implies --apply.  [default: NAME.advised.yml]")
@click.option("--force", is_flag=True, help="Overwrite a copy written by an earlier --apply.")
@json_option
def command(
    files: tuple[str, ...],
    params: tuple[str, ...],
    tries: tuple[str, ...],
    duration: str,
    metric: str | None,
    within: float,
    role: str | None,
    backend: str | None,
    project: str,
    build: bool,
    is_applied: bool,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Run a file briefly with different resources and recommend the cheapest that are nearly as fast as the best.

    Trials are normal runs (`phalanx ps -q tags:sizing`). They run one after another and are stopped after --for. Their
    speed is measured in the second half: tracked steps per second, or the mean of --metric. Without tracking it is the
    total time of a program that finishes, else the rate of its output lines. GPUs count as most expensive, then cores,
    then memory. On this machine, a trial is pinned to the requested number of cores.

    Ctrl-C ends the current trial and prints the results so far.
    """
    from phalanx.cli import size_trials
    from phalanx.insight.sizing_report import SizingReport

    asked = size_trials.request_of(
        read_files(files),
        parse_params(params),
        tries=tries,
        duration=duration,
        project=project,
        backend=backend,
        build=build,
        role=role,
    )
    attempts, left_out = size_trials.sized_files(asked)
    target = None
    if is_applied or output is not None:
        target = Path(output) if output is not None else copy_name(asked.name)
        fault = copy_fault(target, force=force)
        if fault:
            raise CallError(fault)
    trials, interrupted = size_trials.try_all(asked, attempts, left_out, quiet=as_json)
    found = SizingReport(trials, within, metric, [one.choice for one in attempts[len(trials) :]])
    document = attempts[found.verdict.chosen].document if found.verdict is not None else None
    if document is None:
        target = None
    if document is not None and target is not None:
        write_copy(target, document, f"{MARK}, from trials of {asked.name}", force=force)
    if as_json:
        print_json(size_trials.result_data(found, document, left_out, target))
    else:
        print_lines(size_trials.result_lines(found, document))
        if target is not None:
            click.echo(f"\nwritten to {printable(str(target))}")
    code = 130 if interrupted else 0 if document is not None else 1
    sys.exit(code)
