"""phalanx run"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from phalanx.cli.options import cluster_options, file_options, json_option, parse_params, read_files
from phalanx.cli.workspace.base import open_workspace
from phalanx.errors import CallError


@click.command("run")
@file_options
@click.option("--name", help="Name of the run, overriding the file.")
@click.option("--description", help="Description of the run.")
@click.option("--tags", metavar="A,B", help="Tags to add to those of the file.")
@click.option("--project", default="default", show_default=True, help="Project of the run.")
@click.option("--on", "backend", metavar="BACKEND", help="Backend to run on [default: the file's, or this machine].")
@cluster_options
@click.option("--priority", type=int, default=0, show_default=True, help="Higher priorities leave the queue first.")
@click.option("--timeout", metavar="TIME", help='Stop the run after this time: seconds, or "90m", "1d12h".')
@click.option("--strict", is_flag=True, help="Fail if the run requests more than this machine has.")
@click.option("--unchecked", is_flag=True, help="Submit even if the site profile or sbatch predicts a rejection.")
@click.option("--snapshot", is_flag=True, help="Run from a copy of the code, so that later edits do not affect it.")
@click.option("--build", is_flag=True, help="Run the file's build steps in a virtual environment, which is reused.")
@click.option("-d", "--detach", is_flag=True, help="Queue the run, print its id and exit.")
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
    project: str,
    backend: str | None,
    priority: int,
    timeout: str | None,
    strict: bool,
    unchecked: bool,
    snapshot: bool,
    build: bool,
    detach: bool,
    as_json: bool,
    **cluster: str | None,
) -> None:
    """Run a file on this machine, or on the backend that --on names.

    Streams the output of all replicas, then prints a summary. Ctrl-C stops the run. If the terminal closes, the run
    continues; `phalanx ps` lists it. The exit code is that of the run.

    Fails at once, without queueing, if the cluster cannot be reached from this machine (no `sbatch`, no kubeconfig,
    no response), or if sbatch refuses the job.

    With PHALANX_SERVER set, or after `phalanx login`, the server runs the file. The current folder is uploaded,
    except files matched by .polyaxonignore and .gitignore.
    """
    from phalanx.cli.run_watch import watch_or_detach
    from phalanx.plan.framework_checks import load
    from phalanx.submission.model import CodeSource, Submission

    texts, values = read_files(files), parse_params(params)
    loaded, tree = load(texts, values)
    submission = Submission(
        spec=loaded,
        tree=tree,
        environment=dict(os.environ),
        code=CodeSource(Path.cwd(), is_snapshot=snapshot),
        files=texts,
        params=values,
        name=name,
        description=description,
        tags=tuple(word.strip() for word in (tags or "").split(",") if word.strip()),
        project=project,
        priority=priority,
        timeout_s=_seconds(timeout),
        on=backend,
        cluster=cluster,
        is_strict=strict,
        is_unchecked=unchecked,
        is_built=build,
    )
    with open_workspace(settled=False, quiet=as_json) as workspace:
        run = workspace.acts.submit(submission, quiet=as_json)
        code = watch_or_detach(workspace, run, detach=detach, as_json=as_json)
    sys.exit(code)


def _seconds(timeout: str | None) -> float | None:
    from phalanx.spec.quantities import seconds

    found = seconds(timeout) if timeout is not None else None
    if timeout is not None and found is None:
        raise CallError(f'--timeout {timeout!r}: expected seconds, or a duration such as "90m" or "1d12h"')
    return found
