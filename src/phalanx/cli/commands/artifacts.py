"""phalanx artifacts"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, printable, table
from phalanx.cli.render.progress import bytes_text
from phalanx.cli.workspace.base import find_run, open_workspace
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.store import Artifact

MOST = 1000

SharedContent = Mapping[str, Sequence[str]] | None  # digest -> runs with that content; None if unknown


@click.command("artifacts")
@click.argument("run", required=False)
@click.option("--project", help="List artifacts of all runs of this project.")
@json_option
def command(run: str | None, project: str | None, as_json: bool) -> None:
    """List the artifacts and models that a run or project logged, and other runs with the same content."""
    if (run is None) == (project is None):
        raise CallError("name either a run or a --project")
    with open_workspace(quiet=as_json) as workspace:
        if run is not None:
            found = workspace.rows.artifacts(find_run(workspace, run).id)
        else:
            found = workspace.artifacts_of(str(project), MOST + 1)
        shared = workspace.runs_with_content(found)
    more, found = len(found) > MOST and project is not None, found[:MOST] if project is not None else found
    if as_json:
        print_json({"ok": True, "artifacts": [artifact_row(row, shared) for row in found], "more": more})
        return
    if not found:
        click.echo("No artifacts. Training code logs one with `phalanx.tracking.artifact(path)`.")
        return
    head = ["RUN", "TYPE", "NAME", "SIZE", "SHA-256", *(["ALSO IN"] if shared is not None else [])]
    print_lines(table([head, *(_row(row, shared) for row in found)]))
    if more:
        click.echo(f"only the first {MOST} are listed: name a run to see all of its artifacts")


def _others(artifact: Artifact, shared: SharedContent) -> list[str] | None:
    """The other runs with the same content; None if unknown."""
    if shared is None:
        return None
    return [run for run in shared.get(artifact.digest or "", []) if run != artifact.run_id]


def artifact_row(artifact: Artifact, shared: SharedContent) -> dict[str, Any]:
    return {**artifact._asdict(), "at": artifact.at.isoformat(), "also_in": _others(artifact, shared)}


def _row(artifact: Artifact, shared: SharedContent) -> list[str]:
    cells = [
        artifact.run_id,
        printable(artifact.type),
        printable(artifact.name),
        bytes_text(artifact.size),
        (artifact.digest or "-")[:12],
    ]
    others = _others(artifact, shared)
    if others is None:
        return cells
    more = f", and {len(others) - 3} more" if len(others) > 3 else ""
    return [*cells, ", ".join(others[:3]) + more or "-"]
