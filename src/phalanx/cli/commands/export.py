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
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FOLDER",
    help="New folder, or a new zip if it ends in .zip; for `optuna` a new file.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("files", "parquet", "csv", "jsonl", "optuna")),
    default="files",
    show_default=True,
    help="Plain files that `phalanx import` can read, two tables (runs and metrics), or groups as studies of Optuna.",
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
    of all runs and one of all points. A group is exported as its runs; with `optuna`, each group is a study in one
    journal file, which Optuna and optuna-dashboard open.
    """
    from phalanx.exchange.exporter import target_folder
    from phalanx.scheduler.runner import schedule_once

    home, store = open_home()
    with store:
        schedule_once(home, store)
        if form == "optuna":
            _write_studies(home, store, _named(store, runs, project, query), Path(output), as_json=as_json)
            return
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
    """The selected runs; for a group its trials, for a pipeline its ops. Raises CallError."""
    from phalanx.store.kinds import WHOLES
    from phalanx.submission.removal import with_parts

    return [run for run in with_parts(store, _named(store, names, project, query)) if run.kind not in WHOLES]


def _named(store: Store, names: Sequence[str], project: str | None, query: str) -> list[Run]:
    if bool(names) == bool(project or query):
        raise CallError("name runs, or select them with --project or -q, but not both")
    if not names:
        found = store.runs(query, sort="created_at", limit=None, project=project)
        if not found:
            raise CallError("no matching runs: try the same --project and -q with `phalanx ps`")
    else:
        found = [store.find(name) for name in names]
    return found


def _write_studies(home: Home, store: Store, chosen: Sequence[Run], target: Path, *, as_json: bool) -> None:
    """Write groups to a journal file of Optuna. Raises CallError."""
    from phalanx.atomic_files import draft_of
    from phalanx.errors import path_error
    from phalanx.formats.optuna_journal import study_lines
    from phalanx.scheduler.search.group_report import GroupReport
    from phalanx.store.rows import run_row

    groups = [run for run in chosen if run.kind == "group"]
    if not groups:
        raise CallError("the format `optuna` exports groups: `phalanx ps -q kind:group` lists them")
    names = [group.name or group.id for group in groups]
    lines: list[str] = []
    count = 0
    for number, (name, group) in enumerate(zip(names, groups, strict=True)):
        report = GroupReport(home, store, group)
        if report.metric is None:
            raise CallError(f"group {group.id} has no metric to compare: an Optuna study needs one")
        trials = report.with_attempts(store, report.trials())
        unique = name if names.count(name) == 1 else f"{name} {group.id}"
        lines += study_lines(unique, run_row(group), report.settings(), trials, number)
        count += len(trials)
    if target.is_symlink() or target.exists():
        raise CallError(f"{target} already exists: choose a new file with -o")
    try:
        with draft_of(target) as draft:
            Path(draft).write_text("".join(lines), encoding="utf-8")
    except OSError as fault:
        raise path_error(f"cannot write {target}", fault) from None
    if as_json:
        print_json({"ok": True, "output": str(target), "format": "optuna", "groups": [group.id for group in groups]})
        return
    click.echo(f"{len(groups)} group{'s' if len(groups) != 1 else ''}, {count:,} trials: {printable(str(target))}")


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
