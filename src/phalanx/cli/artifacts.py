"""phalanx artifacts"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import answering, print_json, printable, table
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.store import Artifact

MOST = 1000


@click.command("artifacts")
@click.argument("run", required=False)
@click.option("--project", help="Those of all runs of a project.")
@json_option
def command(run: str | None, project: str | None, as_json: bool) -> None:
    """List what runs kept on purpose, and which other runs have the same content."""
    with answering(as_json=as_json):
        from phalanx.cli.homes import open_home
        from phalanx.scheduler.serving import settle
        from phalanx.store.models import ModelIndex

        if (run is None) == (project is None):
            raise CallError("say which run, or which --project")
        home, store = open_home()
        with store:
            settle(home, store)
            index = ModelIndex(store)
            if run is not None:
                found = store.artifacts(store.find(run).id)
            else:
                found = index.project_artifacts(str(project), limit=MOST + 1)
            sharers = index.runs_with(row.digest for row in found if row.digest is not None)
        more, found = len(found) > MOST and project is not None, found[:MOST] if project is not None else found
        if as_json:
            print_json({"ok": True, "artifacts": [artifact_row(row, sharers) for row in found], "more": more})
            return
        if not found:
            click.echo("no artifacts: training code keeps one with `phalanx.tracking.artifact(path)`")
            return
        for line in table(
            [["RUN", "TYPE", "NAME", "SIZE", "SHA-256", "ALSO IN"], *(_row(row, sharers) for row in found)]
        ):
            click.echo(line)
        if more:
            click.echo(f"and more than these {MOST}: name a run")


def _others(artifact: Artifact, sharers: dict[str, list[str]]) -> list[str]:
    return [run for run in sharers.get(artifact.digest or "", []) if run != artifact.run_id]


def artifact_row(artifact: Artifact, sharers: dict[str, list[str]]) -> dict[str, Any]:
    return {**artifact._asdict(), "at": artifact.at.isoformat(), "also_in": _others(artifact, sharers)}


def _row(artifact: Artifact, sharers: dict[str, list[str]]) -> list[str]:
    from phalanx.cli.outputs import bytes_text

    others = _others(artifact, sharers)
    return [
        artifact.run_id,
        printable(artifact.type),
        printable(artifact.name),
        bytes_text(artifact.size),
        (artifact.digest or "-")[:12],
        ", ".join(others[:3]) + (f", and {len(others) - 3} more" if len(others) > 3 else "") or "-",
    ]
