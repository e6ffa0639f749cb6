"""Imports a run of another tool into a home: a run folder like any other, with copied files."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.errors import path_error
from phalanx.formats import plain_values
from phalanx.formats.foreign_run import (
    Ending,
    ForeignRun,
    ImportLosses,
    Points,
)
from phalanx.home.home import Home
from phalanx.ingest import external_runs
from phalanx.ingest.run_import import RunImport, record_word, records_of
from phalanx.store import Run, Store

SOURCE = "phalanx.source"  # the label with the source of a run
PATIENCE_S = 3600.0  # an import without activity for this long was killed


class ImportOutcome(NamedTuple):
    """What became of a run: `imported`, `known` (it was there already), or `found` (nothing was to be written)."""

    state: str
    source: str
    name: str
    project: str
    run_id: str | None
    status: str | None
    counts: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "counts": dict(self.counts)}


def remove(home: Home, store: Store, run_id: str) -> None:
    folder = home.run(run_id).path
    grave = folder.with_name(f".removed-{run_id}")
    if folder.exists():
        folder.rename(grave)  # removed in one step, so that no part of it is adopted
    store.delete(run_id)
    shutil.rmtree(grave, ignore_errors=True)


class Importer:
    """Imports runs into a home. `on_progress` is called for every record."""

    def __init__(self, home: Home, store: Store, on_progress: Callable[[], None] = lambda: None) -> None:
        self.home = home
        self.store = store
        self.on_progress = on_progress
        self.known = store.labelled(SOURCE)  # the runs that were imported before, by source

    def look(self, run: ForeignRun, project: str, losses: ImportLosses) -> ImportOutcome:
        """What an import would do, without writing anything. Raises CallError."""
        counts: Counter[str] = Counter()
        status = "succeeded"
        for record in records_of(run, losses):
            self.on_progress()
            if isinstance(record, Ending):
                status = record.status
            else:
                counts[record_word(record)] += len(record.values) if isinstance(record, Points) else 1
        return ImportOutcome("found", run.source, run.name, project, None, status, counts)

    def bring_in(self, run: ForeignRun, project: str, losses: ImportLosses) -> ImportOutcome:
        """Import a run completely, or not at all on an error. Raises CallError."""
        source = plain_values.name(run.source)
        before = self.known.get(source)
        if before is not None and not self._is_unfinished(before):
            return ImportOutcome("known", run.source, run.name, project, before, None, {})
        if before is not None:
            remove(self.home, self.store, before)
        made, attempt = self._create(run, project)
        try:
            with ExitStack() as undo:
                undo.callback(remove, self.home, self.store, made.id)
                (attempt / run_paths.IMPORT_MARK).touch(mode=0o600)
                with RunImport(attempt, made.created_at.timestamp(), losses) as sink:
                    for record in records_of(run, losses):
                        sink.take(record)
                        self.on_progress()
                ending = sink.ending
                at = max(ending.at or sink.last, made.created_at.timestamp())
                external_runs.finish(self.home, made.id, ending.status, ending.reason, at)
                external_runs.adopt(self.home, self.store, made.id)
                (attempt / run_paths.IMPORT_MARK).unlink()
                undo.pop_all()
        except OSError as fault:
            raise path_error(f"{run.name} ({run.source}) cannot be imported", fault) from None
        self.known[source] = made.id
        return ImportOutcome("imported", run.source, run.name, project, made.id, ending.status, sink.counts)

    def _is_unfinished(self, run_id: str) -> bool:
        return any(self.home.run(run_id).path.glob(f"{run_paths.ATTEMPT_FOLDERS}/{run_paths.IMPORT_MARK}"))

    def _create(self, run: ForeignRun, project: str) -> tuple[Run, Path]:
        labels = {plain_values.name(name): plain_values.text(text) for name, text in run.labels.items()}
        return external_runs.create(
            self.home,
            project=plain_values.name(project),
            source=f"imported from {run.source.partition(':')[0]}",
            name=plain_values.name(run.name),
            description=plain_values.text(run.description) or None,
            tags=[plain_values.name(tag) for tag in run.tags if tag],
            params={plain_values.name(name): plain_values.value(value) for name, value in run.params.items()},
            labels={**labels, SOURCE: plain_values.name(run.source)},
            created_at=run.started,
            user=plain_values.name(run.user) if run.user else None,
            patience_s=PATIENCE_S,
        )
