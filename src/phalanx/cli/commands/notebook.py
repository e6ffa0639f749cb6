"""phalanx notebook"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import cluster_options, file_options, json_option, parse_params, read_files, seconds_of
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.workspace.base import find_run, open_workspace
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.cli.notebook_access import NotebookAccess
    from phalanx.cli.workspace.home import HomeWorkspace
    from phalanx.store import Run
    from phalanx.submission.model import Submission

LOOK_S = 0.3
LOOK_ELSEWHERE_S = 2.0  # in a pod
PORT = 8888


@click.command("notebook")
@file_options
@click.option("--on", "backend", metavar="BACKEND", help="Backend to run on [default: the file's, or this machine].")
@cluster_options
@click.option("--name", help="Name of the run, overriding the file.")
@click.option("--project", default="default", show_default=True, help="Project of the run.")
@click.option("--idle", metavar="TIME", help="End kernels, and then the notebook, after this time without activity.")
@click.option("--timeout", metavar="TIME", help='Stop the notebook after this time: seconds, or "90m", "1d12h".')
@click.option("--unchecked", is_flag=True, help="Start even if Jupyter is not found, or a rejection is predicted.")
@click.option("--port", type=click.IntRange(1, 65_535), default=PORT, show_default=True, help="Port of your machine.")
@click.option("--reverse", is_flag=True, help="Connect from the node to this machine: for nodes that accept no ssh.")
@click.option("--url", "known", metavar="RUN", help="Print how to reach a notebook that runs, and exit.")
@click.option("-d", "--detach", is_flag=True, help="Queue the notebook, print its id and exit.")
@json_option
def command(
    files: tuple[str, ...],
    params: tuple[str, ...],
    backend: str | None,
    name: str | None,
    project: str,
    idle: str | None,
    timeout: str | None,
    unchecked: bool,
    port: int,
    reverse: bool,
    known: str | None,
    detach: bool,
    as_json: bool,
    **cluster: str | None,
) -> None:
    """Start JupyterLab in this folder as a run, here or on a cluster, and print how to reach it.

    It needs no file; a file of `kind: notebook` can request resources and an environment. Notebooks are saved in this
    folder. JupyterLab must be installed where it runs (`pip install jupyterlab`). It listens on a unix socket or on
    loopback only, and requires a token, which is printed here as part of the address and stored nowhere else.

    The notebook continues when this command has ended: `phalanx notebook --url RUN` prints the address again, and
    `phalanx stop RUN` stops it. Ctrl-C before it has started stops it, too.
    """
    from phalanx.cli.replica_entry import require_this_machine

    require_this_machine("notebook")
    with open_workspace(settled=known is not None, quiet=as_json) as workspace:
        assert workspace.server is None
        if known is not None:
            run = find_run(workspace, known)
        else:
            times = {"idle": seconds_of("--idle", idle), "timeout": seconds_of("--timeout", timeout)}
            submission = _submission(files, params, backend, name, project, times, cluster, unchecked=unchecked)
            create = workspace.acts.prepare(submission, quiet=as_json)
            run = create()
            if detach:
                from phalanx.cli.run_watch import watch_or_detach

                sys.exit(watch_or_detach(workspace, run, detach=True, as_json=as_json))
        access = _reached(workspace, run, port, is_new=known is None, is_reverse=reverse, quiet=as_json)
        run = workspace.rows.find(run.id)
    _print(run, access, as_json=as_json)


def _submission(
    files: tuple[str, ...],
    params: tuple[str, ...],
    backend: str | None,
    name: str | None,
    project: str,
    times: Mapping[str, float | None],
    cluster: Mapping[str, str | None],
    *,
    unchecked: bool,
) -> Submission:
    """Raises SpecErrors, CallError."""
    from phalanx.plan.framework_checks import load
    from phalanx.spec import Kind
    from phalanx.submission.model import CodeSource, Submission

    texts = read_files(files) if files else [("notebook", b"version: 1\nkind: notebook\n")]
    if times["idle"] is not None:
        texts.append(("--idle", json.dumps({"environment": {"idle_timeout": times["idle"]}}).encode()))
    values = parse_params(params)
    loaded, tree = load(texts, values)
    if loaded.kind is not Kind.NOTEBOOK:
        raise CallError(f"{loaded.file} is a file of `kind: {loaded.kind}`: use `phalanx run`, or `kind: notebook`")
    return Submission(
        spec=loaded,
        tree=tree,
        environment=dict(os.environ),
        code=CodeSource(Path.cwd()),
        files=texts,
        params=values,
        name=name,
        project=project,
        timeout_s=times["timeout"],
        on=backend,
        cluster=cluster,
        is_unchecked=unchecked,
    )


def _reached(
    workspace: HomeWorkspace, run: Run, port: int, *, is_new: bool, is_reverse: bool, quiet: bool
) -> NotebookAccess:
    """Wait until the notebook answers. Raises CallError if it has ended."""
    from phalanx.cli.interrupts import stop_on_interrupt
    from phalanx.cli.notebook_access import access_to, find_address

    if run.kind != "notebook":
        raise CallError(f"run {run.id} is of kind {run.kind}, not a notebook")
    if is_new:
        stop_on_interrupt(workspace.home.run(run.id).ask_to_stop)
        if not quiet:
            click.echo(click.style(f"run {run.id}" + (f" ({run.name})" if run.name else ""), bold=True), err=True)
    said = ""
    with workspace.attended() as turn:
        while True:
            turn()
            run = workspace.rows.find(run.id)
            if run.is_done:
                raise CallError(_ended(workspace, run))
            if run.status == "running":
                found = find_address(workspace, run)
                if found is not None:
                    break
            elif not is_new:
                raise CallError(f"notebook {run.id} is not running: it is {run.status} ({run.reason})")
            said = _say_waiting(workspace, run, said, quiet=quiet)
            time.sleep(LOOK_S if run.backend != "kubernetes" else LOOK_ELSEWHERE_S)
    if is_new:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        workspace.acts.leave(run)
    return access_to(workspace, run, found, port, is_reverse=is_reverse)


def _say_waiting(workspace: HomeWorkspace, run: Run, said: str, *, quiet: bool) -> str:
    why = workspace.waits_for(run) or ("starting Jupyter" if run.status == "running" else "")
    if why and why != said and not quiet:
        click.echo(printable(why), err=True)
    return why or said


def _ended(workspace: HomeWorkspace, run: Run) -> str:
    from phalanx.home.attempts import read_ends

    ends = read_ends(workspace.home.run(run.id), run.attempt).values()
    lines = [line for end in ends for line in end.last_lines[-5:]]
    return "\n".join([f"notebook {run.id} has ended: {run.status}: {run.reason}", *lines])


def _print(run: Run, access: NotebookAccess, *, as_json: bool) -> None:
    if as_json:
        steps = [step._asdict() for step in access.steps]
        answer: dict[str, Any] = {"ok": True, "id": run.id, "status": run.status, "url": access.url, "tunnel": steps}
        print_json(answer)
        return
    for step in access.steps:
        click.echo(f"on {step.where}, run and keep running:")
        click.echo(f"  {click.style(printable(step.command), bold=True)}")
    click.echo(f"{'then open' if access.steps else 'open'} {click.style(printable(access.url), bold=True)}")
    click.echo(f"`phalanx stop {run.id}` ends it")
