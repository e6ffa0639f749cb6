"""phalanx export"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.workspace.open_home import open_home
from phalanx.errors import CallError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from phalanx.home.home import Home
    from phalanx.store import Run, Store

PROGRESS_S = 3.0


@click.command("export")
@click.argument("runs", nargs=-1)
@click.option("--project", help="Export all runs of this project.")
@click.option("-q", "--query", default="", metavar="QUERY", help='Export matching runs, such as "metric.loss:<0.1".')
@click.option("-o", "--output", required=True, metavar="FOLDER", help="New folder, or a new zip if it ends in .zip.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("files", "parquet", "csv", "jsonl")),
    default="files",
    show_default=True,
    help="Plain files that `phalanx import` can read, or two tables: runs and metrics.",
)
@click.option(
    "--artifacts/--no-artifacts",
    default=True,
    help="Include artifacts, models, outputs, images and code (format `files` only).  [default: artifacts]",
)
@json_option
def command(
    runs: tuple[str, ...],
    project: str | None,
    query: str,
    output: str,
    form: str,
    artifacts: bool,
    as_json: bool,
) -> None:
    """Export runs as plain files or tables.

    The format `files` writes one folder per run: run.json, params.json, metrics/*.csv, events.jsonl, logs and
    artifacts. It leaves out environment variables, and `phalanx import` can read it. The other formats write one table
    of all runs and one of all points. A group is exported as its runs.
    """
    from phalanx.exchange.exporter import target_folder
    from phalanx.scheduler.runner import schedule_once

    home, store = open_home()
    with store:
        schedule_once(home, store)
        chosen = _chosen(store, runs, project, query)
        with target_folder(Path(output)) as folder:
            done = _write(home, store, chosen, folder, form, with_files=artifacts)
    if as_json:
        print_json({"ok": True, "output": output, "format": form, **done})
        return
    click.echo(f"{len(chosen)} run{'s' if len(chosen) != 1 else ''}, {done['points']:,} points: {printable(output)}")
    for row in done["not_carried_over"]:
        examples = f" ({'; '.join(row['examples'])})" if row["examples"] else ""
        click.echo(printable(f"left out: {row['count']:,} {row['what']}{examples}"))


def _chosen(store: Store, names: Sequence[str], project: str | None, query: str) -> list[Run]:
    """The selected runs; for a group its trials. Raises CallError."""
    from phalanx.submission.removal import with_trials

    if bool(names) == bool(project or query):
        raise CallError("name runs, or select them with --project or -q, but not both")
    if not names:
        found = store.runs(query, sort="created_at", limit=None, project=project)
        if not found:
            raise CallError("no matching runs: try the same --project and -q with `phalanx ps`")
    else:
        found = [store.find(name) for name in names]
    return [run for run in with_trials(store, found) if run.kind != "group"]


def _write(
    home: Home, store: Store, runs: Sequence[Run], folder: Path, form: str, *, with_files: bool
) -> dict[str, Any]:
    from phalanx.exchange import table_files
    from phalanx.exchange.exporter import Exporter

    if form != "files":
        points = table_files.write(home, store, runs, folder, form)
        return {"runs": [run.id for run in runs], "points": points, "files": 2, "bytes": 0, "not_carried_over": []}
    exporter = Exporter(home, store, with_files=with_files, on_progress=_progress())
    exporter.write(runs, folder)
    return {
        "runs": [run.id for run in runs],
        "points": exporter.counts["points"],
        "files": exporter.counts["files"],
        "bytes": exporter.counts["bytes"],
        "not_carried_over": exporter.losses.rows(),
    }


def _progress() -> Callable[[], None]:
    count, printed_at = 0, time.monotonic()

    def count_file() -> None:
        nonlocal count, printed_at
        count += 1
        if time.monotonic() - printed_at > PROGRESS_S:
            printed_at = time.monotonic()
            click.echo(f"… {count:,} files", err=True)

    return count_file
