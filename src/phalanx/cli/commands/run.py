"""phalanx run"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.options import (
    cluster_options,
    file_options,
    json_option,
    parse_params,
    read_files,
    seconds_of,
    to_option,
    with_target,
)
from phalanx.cli.workspace.base import open_workspace
from phalanx.client.user_defaults import default_backend, default_of
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.launch.file_references import LoadedFiles, Texts
    from phalanx.submission.model import Submission

MOST_RUNS = 100_000  # of one call


@click.command("run")
@file_options
@click.option("--name", help="Name of the run, overriding the file.")
@click.option("--description", help="Description of the run.")
@click.option("--tags", metavar="A,B", help="Tags to add to those of the file.")
@click.option(
    "--project",
    default=lambda: default_of("project"),
    help="Project of the run. `team/vision` is inside of `team`.  [default: that of `phalanx config`, or default]",
)
@click.option(
    "--on",
    "backend",
    metavar="BACKEND",
    help="Backend to run on.  [default: the file's, that of `phalanx config`, or this machine]",
)
@cluster_options
@click.option("--priority", type=int, default=0, show_default=True, help="Higher priorities leave the queue first.")
@click.option("--timeout", metavar="TIME", help='Stop the run after this time: seconds, or "90m", "1d12h".')
@click.option(
    "--after",
    multiple=True,
    metavar="RUN[:END]",
    help="Start when RUN has ended: succeeded (default), failed or done. Repeat it to wait for several runs.",
)
@click.option(
    "--hold",
    metavar="TIME",
    help="After the last failed attempt, keep the allocation this long for `phalanx shell` and `exec`.",
)
@click.option("--strict", is_flag=True, help="Fail if the run requests more than this machine has.")
@click.option("--unchecked", is_flag=True, help="Submit even if the site profile or sbatch predicts a rejection.")
@click.option(
    "--snapshot",
    is_flag=True,
    help="Run from a copy of the code, so that later edits do not affect it; each trial of a group in its own.",
)
@click.option("--build", is_flag=True, help="Run the file's build steps in a virtual environment, which is reused.")
@to_option
@click.option("-d", "--detach", is_flag=True, help="Queue the run, print its id and exit.")
@click.option(
    "--each",
    is_flag=True,
    help="Queue one run for each document of FILES (- is standard input), laid over the files of -f. Implies --detach.",
)
@click.option(
    "--many",
    metavar="PARAMS",
    help='Queue one run for each line of this file: a JSON object of params, such as {"lr": 0.1}. Implies --detach.',
)
@click.option(
    "--times", type=click.IntRange(1, MOST_RUNS), metavar="N", help="Queue the run N times. Implies --detach."
)
@click.argument("each_of", metavar="[FILES | SCRIPT | COMMAND]...", nargs=-1)
@click.option(
    "-l",
    "--log",
    is_flag=True,
    hidden=True,
    expose_value=False,
    help="Polyaxon's flag for streaming logs, which is the default.",
)
@json_option
def command(
    files: tuple[str, ...],
    params: tuple[str, ...],
    name: str | None,
    description: str | None,
    tags: str | None,
    project: str | None,
    backend: str | None,
    priority: int,
    timeout: str | None,
    after: tuple[str, ...],
    hold: str | None,
    strict: bool,
    unchecked: bool,
    snapshot: bool,
    build: bool,
    to: str | None,
    detach: bool,
    each: bool,
    many: str | None,
    times: int | None,
    each_of: tuple[str, ...],
    as_json: bool,
    **cluster: str | None,
) -> None:
    """Run a file on this machine, or on the backend that --on names.

    Streams the output of all replicas, then prints a summary. Ctrl-C stops the run. If the terminal closes, the run
    continues; `phalanx ps` lists it. The exit code is that of the run.

    Fails at once, without queueing, if the cluster cannot be reached from this machine (no `sbatch`, no kubeconfig,
    no response), or if sbatch refuses the job.

    Many runs in one call: `phalanx run --each a.yml b.yml` queues a run for each file, or for each of the documents
    that `---` separates in them; `--many params.jsonl` one for each line of params; `--times 5` five runs of each. It
    prints their ids, one per line, and exits; with --json, one object per run. All are checked first: if a file or line
    has an error, or one of the runs is refused, none is queued. A server checks each run as it is queued, and queues
    the others.

    A script for sbatch (`phalanx run job.sh --on slurm`) runs as it is, with its own #SBATCH lines, and is tracked. A
    command line runs without a file: `phalanx run -- torchrun --nproc-per-node 4 train.py`.

    `--after RUN` (a name or an id) queues the run until RUN has succeeded. If RUN ends in another way, this run ends as
    `upstream_failed` without starting; `phalanx resume` queues it again.

    A `kind: build` file makes a virtual environment that runs with the same build steps reuse, or with --to an image,
    with the builder that the machine has. `build: {ref: RUN}` in another file uses it.

    With PHALANX_SERVER set, or after `phalanx login`, the server runs the file. The current folder is uploaded,
    except files matched by .polyaxonignore and .gitignore.
    """
    from phalanx.cli.run_watch import watch_or_detach
    from phalanx.launch.file_references import load_files
    from phalanx.submission.model import CodeSource, Submission

    values, environment, timeout_s = parse_params(params), dict(os.environ), seconds_of("--timeout", timeout)

    def submission(loaded: LoadedFiles) -> Submission:
        return Submission(
            spec=loaded.spec,
            tree=loaded.tree,
            environment=environment,
            code=CodeSource(Path.cwd(), is_snapshot=snapshot),
            files=loaded.files,
            params=dict(loaded.params),
            name=name,
            description=description,
            tags=tuple(word.strip() for word in (tags or "").split(",") if word.strip()),
            project=project or "default",
            priority=priority,
            timeout_s=timeout_s,
            after=after,
            on=backend or default_backend(loaded.spec.backend),
            cluster=cluster,
            is_strict=strict,
            is_unchecked=unchecked,
            is_built=build,
        )

    last = [*with_target([], to), *_held(hold)]
    if each or many is not None or times is not None:
        from phalanx.cli.many_runs import ManyFiles, queue_runs

        source = ManyFiles(_file_sets(files, each_of, last, is_each=each, many=many), values, many)
        with open_workspace(settled=False, quiet=as_json) as workspace:
            queue_runs(workspace.acts, source, submission, times or 1, as_json=as_json)
        sys.exit(0)
    (texts,) = _file_sets(files, each_of, last)
    loaded = load_files(texts, values)
    with open_workspace(settled=False, quiet=as_json) as workspace:
        run = workspace.acts.prepare(submission(loaded), quiet=as_json, is_watched=not detach)()
        code = watch_or_detach(workspace, run, detach=detach, as_json=as_json)
    sys.exit(code)


def _file_sets(
    files: tuple[str, ...], each_of: tuple[str, ...], last: Texts, *, is_each: bool = False, many: str | None = None
) -> Iterable[Texts]:
    """The names and contents of the files of each run; `last` are laid over all others. Raises CallError."""
    if [*files, *each_of, many].count("-") > 1:
        raise CallError("standard input (-) can be read only once")
    if is_each and not each_of:
        raise CallError("--each needs files: phalanx run --each a.yml b.yml")
    if is_each:
        from phalanx.cli.many_runs import split_files

        first = read_files(files) if files else []
        return ([*texts, *last] for texts in split_files(each_of, first))
    if each_of:
        from phalanx.cli.called_programs import file_of_program

        return [[*(read_files(files) if files else ()), file_of_program(each_of), *last]]
    return [[*read_files(files), *last]]


def _held(hold: str | None) -> Texts:
    """`environment.hold` as a file, as `--hold` sets it. Raises CallError."""
    hold_s = seconds_of("--hold", hold)
    return [] if hold_s is None else [("--hold", json.dumps({"environment": {"hold": hold_s}}).encode())]
