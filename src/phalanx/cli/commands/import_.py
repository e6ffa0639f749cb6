"""phalanx import"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, printable, table
from phalanx.cli.workspace.open_home import open_home
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.exchange.importer import ImportOutcome
    from phalanx.formats.foreign_run import ImportLosses
    from phalanx.home.home import Home
    from phalanx.store import Store

KINDS = ("mlflow", "tensorboard", "wandb", "optuna", "csv", "phalanx")
PROGRESS_S = 3.0
SHOWN = 50


@click.command("import")
@click.argument("source")
@click.option("--from", "kind", type=click.Choice(KINDS), help="Format of SOURCE. Default: detected.")
@click.option("--project", help="Import into this project. Default: the project of each run.")
@click.option("--run-name", help="Name of the run, for a CSV or JSON table.")
@click.option("--as-new", is_flag=True, help="Give Phalanx runs new ids, even if they exist here already.")
@click.option("--dry-run", is_flag=True, help="List what would be imported; change nothing.")
@json_option
def command(
    source: str,
    kind: str | None,
    project: str | None,
    run_name: str | None,
    as_new: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import runs from other tools or from another Phalanx home.

    SOURCE is an MLflow `mlruns` folder or SQLite database, a folder of TensorBoard logs or W&B offline runs, an
    Optuna SQLite database or journal file, a CSV or JSON file of metrics, or a Phalanx run folder, home, export or
    zip. No code in SOURCE is executed. Runs imported before are skipped; data that cannot be imported is listed.
    """
    from phalanx.exchange import detection
    from phalanx.scheduler.runner import schedule_once

    path = detection.path_of(source)
    chosen = kind or detection.kind_of(path)
    if run_name and chosen != "csv":
        raise CallError("--run-name is only for tables (csv): other sources name their runs")
    if as_new and chosen != "phalanx":
        raise CallError("--as-new is only for Phalanx runs: others always get new ids")
    home, store = open_home()
    with store:
        if not dry_run:
            schedule_once(home, store)
        work = _Work(home, store, project, dry_run=dry_run)
        if chosen == "phalanx":
            work.take_own(path, as_new=as_new)
        else:
            work.take_foreign(path, chosen, run_name)
        if not dry_run:
            schedule_once(home, store)
    if as_json:
        print_json({"ok": True, "kind": chosen, "dry_run": dry_run, **work.as_json()})
    else:
        work.report(dry_run=dry_run)


class _Work:
    def __init__(self, home: Home, store: Store, project: str | None, *, dry_run: bool) -> None:
        from phalanx.formats.foreign_run import ImportLosses

        self.home = home
        self.store = store
        self.project = project
        self.dry_run = dry_run
        self.outcomes: list[ImportOutcome] = []
        self.losses: list[ImportLosses] = [ImportLosses()]
        self.records = 0
        self.printed_at = time.monotonic()

    def progress(self) -> None:
        self.records += 1
        if self.records % 1000 == 0 and time.monotonic() - self.printed_at > PROGRESS_S:
            self.printed_at = time.monotonic()
            click.echo(f"… {len(self.outcomes)} runs, {self.records:,} records", err=True)

    def take_foreign(self, path: Path, kind: str, run_name: str | None) -> None:
        from phalanx.exchange import detection
        from phalanx.exchange.importer import Importer

        importer = Importer(self.home, self.store, self.progress)
        found = detection.find(path, kind, run_name)
        self.losses.append(found.losses)
        take = importer.look if self.dry_run else importer.bring_in
        for run in found.runs:
            self.outcomes.append(take(run, self.project or run.project or "default", self.losses[0]))

    def take_own(self, path: Path, *, as_new: bool) -> None:
        from phalanx.formats import zip_archives

        if path.is_file():
            with tempfile.TemporaryDirectory(prefix=".import-", dir=self.home.path) as unpacked:
                zip_archives.unpack(path, Path(unpacked), self.losses[0])
                self._take_folders(Path(unpacked), as_new=as_new)
        else:
            self._take_folders(path, as_new=as_new)

    def _take_folders(self, path: Path, *, as_new: bool) -> None:
        from phalanx.exchange import phalanx_runs
        from phalanx.formats.safe_files import FileRefused

        importer = phalanx_runs.PhalanxImporter(self.home, self.store, self.progress)
        folders = phalanx_runs.runs_in(path)
        if not folders:
            raise CallError(f"no Phalanx run in {path}: the folder of a run contains `run.json` and `history`")
        for folder in folders:
            try:
                own = phalanx_runs.read(folder)
            except FileRefused as fault:
                self.losses[0].add(str(fault), example=folder.name)
                continue
            if self.dry_run:
                self.outcomes.append(importer.look(own, self.project))
            else:
                self.outcomes.append(importer.bring_in(own, self.project, self.losses[0], as_new=as_new))

    def lost(self) -> list[dict[str, Any]]:
        return [row for losses in self.losses for row in losses.rows()]

    def as_json(self) -> dict[str, Any]:
        return {"runs": [outcome.as_json() for outcome in self.outcomes], "not_carried_over": self.lost()}

    def report(self, *, dry_run: bool) -> None:
        came = [outcome for outcome in self.outcomes if outcome.state != "known"]
        known = [outcome for outcome in self.outcomes if outcome.state == "known"]
        if came:
            rows = [["ID", "NAME", "PROJECT", "STATUS", "WHAT"], *(_row(outcome) for outcome in came[:SHOWN])]
            print_lines(table(rows))
        if len(came) > SHOWN:
            click.echo(f"… and {len(came) - SHOWN} more")
        word = "would be imported" if dry_run else "imported"
        points = sum(outcome.counts.get("points", 0) for outcome in came)
        click.echo(f"{_runs(len(came))} {word}" + (f", with {points:,} points" if points else ""))
        if known:
            click.echo(f"{_runs(len(known))} skipped: imported before, such as {known[0].run_id} ({known[0].source})")
        lost = self.lost()
        if not lost:
            click.echo("all data was imported" if not dry_run else "all data can be imported")
            return
        click.echo("not imported:")
        for row in lost:
            examples = f" ({'; '.join(row['examples'])})" if row["examples"] else ""
            click.echo(printable(f"  {row['count']:,} {row['what']}{examples}"))


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _row(outcome: ImportOutcome) -> list[str]:
    what = ", ".join(f"{count:,} {name}" for name, count in sorted(outcome.counts.items()) if count)
    return [
        outcome.run_id or "-",
        printable(outcome.name)[:40],
        printable(outcome.project)[:30],
        outcome.status or "-",
        what or "-",
    ]
