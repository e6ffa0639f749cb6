"""Tools that change runs: start, stop, resume, restart. Only with `phalanx mcp --allow-writes`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from phalanx.cli.mcp.file_tools import FILE_NAME, MOST_TEXT, Params, texts_of
from phalanx.cli.mcp.run_tools import opened, opened_run
from phalanx.cli.mcp.tool import Arguments, Document, RunName, RunNames, Tool, fields
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.store import Run

PATIENCE_S = 60.0  # for runs to end after a stop


class StartArguments(Arguments):
    text: Annotated[
        str | None, Field(max_length=MOST_TEXT, description="The text of the polyaxonfile. Default: read `file`.")
    ] = None
    file: Annotated[
        str | None,
        Field(max_length=500, description="Path of the file in the folder in which `phalanx mcp` was started."),
    ] = None
    params: Params
    name: Annotated[str | None, Field(max_length=500, description="Name of the run.")] = None
    project: Annotated[str | None, Field(max_length=500, description="Project of the run.")] = None
    on: Annotated[str | None, Field(description="Backend: `local`, `slurm`, `kubernetes`, `kubeflow`.")] = None
    priority: Annotated[int, Field(description="Higher priorities leave the queue first.")] = 0


def start_run(asked: StartArguments) -> Document:
    from phalanx.cli.run_watch import leave
    from phalanx.client.user_defaults import default_backend, default_of
    from phalanx.launch.file_references import load_files
    from phalanx.submission.model import CodeSource, Submission

    loaded = load_files(_texts(asked), texts_of(asked.params))
    submission = Submission(
        spec=loaded.spec,
        tree=loaded.tree,
        environment=dict(os.environ),
        code=CodeSource(Path.cwd()),
        files=loaded.files,
        params=dict(loaded.params),
        name=asked.name,
        project=asked.project or default_of("project") or "default",
        priority=asked.priority,
        on=asked.on or default_backend(loaded.spec.backend),
    )
    with opened(settled=False) as workspace:
        create = workspace.acts.prepare(submission, quiet=True)
        run = create()
        leave(workspace, run)
        return _document(run)


def _texts(asked: StartArguments) -> list[tuple[str, bytes]]:
    """Raises CallError."""
    from phalanx.cli.options import read_files

    if asked.text is not None and asked.file is not None:
        raise CallError("give `text` or `file`, not both")
    if asked.text is not None:
        return [(FILE_NAME, asked.text.encode())]
    if asked.file is not None and not Path(asked.file).resolve().is_relative_to(Path.cwd()):
        raise CallError(f"`{asked.file}` is outside of {Path.cwd()}, the folder in which `phalanx mcp` was started")
    if asked.file == "-":
        raise CallError("`-` is not a file: give its text as `text`")
    return read_files(() if asked.file is None else (asked.file,))


class StopArguments(Arguments):
    runs: RunNames
    wait: Annotated[bool, Field(description="Wait up to a minute until they have ended.")] = True


def stop_runs(asked: StopArguments) -> Document:
    from phalanx.cli.workspace.base import find_run
    from phalanx.store.rows import run_row

    with opened(settled=False) as workspace:
        runs = [find_run(workspace, name) for name in asked.runs]
        found = workspace.acts.stop(runs, PATIENCE_S if asked.wait else 0, lambda _: None)
    return {"ok": True, "runs": [run_row(run) for run in found]}


class AgainArguments(Arguments):
    run: RunName


def resume_run(asked: AgainArguments) -> Document:
    from phalanx.cli.run_watch import leave

    with opened_run(asked.run, settled=False) as (workspace, found):
        run = workspace.acts.resume(found)
        leave(workspace, run)
        return _document(run)


class RestartArguments(AgainArguments):
    copy_outputs: Annotated[bool, Field(description="Start from a copy of its outputs.")] = False


def restart_run(asked: RestartArguments) -> Document:
    from phalanx.cli.run_watch import leave

    with opened_run(asked.run, settled=False) as (workspace, found):
        run = workspace.acts.clone(found, "copy" if asked.copy_outputs else "restart")
        leave(workspace, run)
        return _document(run)


def _document(run: Run) -> dict[str, Any]:
    from phalanx.store.rows import run_row

    return {"ok": True, **run_row(run)}


_RUN = fields(
    ok="boolean: always true",
    id="string: the id of the run",
    status="string: its status: it is queued, and does not end within this call",
    attempt="integer: its newest attempt",
)
TOOLS = (
    Tool(
        "start_run",
        "Start a run",
        "Queue a run of a polyaxonfile and return its id; it goes on by itself. It runs commands with the rights of "
        "the user or token. The code is that of the folder in which `phalanx mcp` was started. Check the text with "
        "`check_file` first; `show_run` shows the progress.",
        StartArguments,
        start_run,
        _RUN,
        is_change=True,
        is_idempotent=False,
    ),
    Tool(
        "stop_runs",
        "Stop runs",
        "Stop runs, groups or pipelines. Replicas that do not exit in time are killed.",
        StopArguments,
        stop_runs,
        fields(ok="boolean: always true", runs="array: the runs; one that has not ended yet will be stopped"),
        is_change=True,
    ),
    Tool(
        "resume_run",
        "Resume a run",
        "Continue a finished run as its next attempt, with the same outputs. A group runs its failed and stopped "
        "trials again; a pipeline goes on from the ops that did not succeed.",
        AgainArguments,
        resume_run,
        _RUN,
        is_change=True,
        is_idempotent=False,
    ),
    Tool(
        "restart_run",
        "Restart a run",
        "Submit a run again, as a new run with the same file and params.",
        RestartArguments,
        restart_run,
        _RUN,
        is_change=True,
        is_idempotent=False,
    ),
)
