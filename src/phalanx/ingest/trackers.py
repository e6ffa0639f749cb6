"""Reads the files that other tracking tools wrote into the working folder of a run, when an attempt has ended.

MLflow's `mlruns` and database, and W&B's offline runs become points, params and artifacts of the run, in our own files:
`trackers.points` and `trackers.events`. The events are written last: where they are, nothing is read again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from phalanx.ends import read_end
from phalanx.errors import CallError
from phalanx.formats import mlflow_files, mlflow_sqlite, wandb_runs
from phalanx.formats.foreign_run import (
    Ending,
    ForeignEvent,
    ForeignFile,
    ForeignImage,
    ForeignLog,
    ForeignRun,
    ImportLosses,
    Points,
    Record,
)
from phalanx.ingest.run_import import RunImport, records_of
from phalanx.ingest.tensorboard import working_folder
from phalanx.working_files import SHARED, WorkingFile, merged, read_working_files

NAME = "trackers"
ENDINGS = (".points", ".events")
DRAFT = ".draft"  # until everything is read
MOST_RUNS = 50  # a script makes one, or one for each fold
DATABASES = (".db", ".sqlite", ".sqlite3")
WANDB = ".wandb"


class ToolRun(NamedTuple):
    """A run of another tool in the working folder."""

    tool: str
    run: ForeignRun


def read_trackers(run_folder: Path, attempt: int, replicas: Mapping[str, Path]) -> list[dict[str, str]]:
    """Read what the attempt tracked with other tools; returns what was read. Raises OSError."""
    first = next(iter(replicas.values()))
    if (first / f"{NAME}.events").exists():
        return []
    lists = [listed for folder in replicas.values() if (listed := read_working_files(folder)) is not None]
    working = working_folder(run_folder, attempt) if any(listed.is_final for listed in lists) else None
    if working is None:
        return []
    files = [file for file in merged(lists).files if file.state != SHARED]
    ends = [end for folder in replicas.values() if (end := read_end(folder)) is not None]
    began = min((end.started_at for end in ends if end.started_at is not None), default=0.0)
    found = list(islice(_runs(working, files, began), MOST_RUNS))
    if not found:
        return []
    for ending in ENDINGS:
        (first / f"{NAME}{ending}{DRAFT}").unlink(missing_ok=True)
    with RunImport(first, began, ImportLosses(), NAME, DRAFT) as sink:
        for number, tracked in enumerate(found):
            for record in _records(tracked.run, began, f"{tracked.run.name}/" if number else ""):
                sink.take(record)
    for ending in ENDINGS:
        os.rename(first / f"{NAME}{ending}{DRAFT}", first / f"{NAME}{ending}")
    return [{"tool": tracked.tool, "name": tracked.run.name, "source": tracked.run.source} for tracked in found]


def _runs(working: Path, files: list[WorkingFile], since: float) -> Iterator[ToolRun]:
    """In the order of their start within each store. A damaged store must not hide the others."""
    stores: dict[str, set[str]] = {}
    for file in files:
        inside = PurePosixPath(file.path)
        if inside.name == "meta.yaml" and len(inside.parts) > 3:  # <store>/<experiment>/<run>/meta.yaml
            stores.setdefault(str(inside.parents[2]), set()).add(inside.parts[-2])
    for store, ids in sorted(stores.items()):
        if mlflow_files.is_store(working / store):
            yield from _tracked("mlflow", mlflow_files.find(working / store, ids).runs)
    for file in files:
        path = working / file.path
        with suppress(CallError, OSError):
            if file.path.endswith(DATABASES) and mlflow_sqlite.is_database(path):
                yield from _tracked("mlflow", mlflow_sqlite.find(path, since - 1.0).runs)
            elif file.path.endswith(WANDB) and not path.is_symlink():
                yield from _tracked("wandb", wandb_runs.find(path).runs)


def _tracked(tool: str, runs: Iterator[ForeignRun]) -> Iterator[ToolRun]:
    found = sorted(islice(runs, MOST_RUNS), key=lambda run: run.started or 0.0)
    return (ToolRun(tool, run) for run in found)


def _records(run: ForeignRun, began: float, prefix: str) -> Iterator[Record]:
    """The first run of a script is the run itself: its names stay. How it ended and what it printed is known."""
    at = run.started or began
    if run.params:
        yield ForeignEvent("params", at, {"values": {f"{prefix}{name}": value for name, value in run.params.items()}})
    if run.labels and not prefix:
        yield ForeignEvent("labels", at, {"values": dict(run.labels)})
    with suppress(CallError):
        for record in records_of(run, ImportLosses()):
            if isinstance(record, Points):
                yield record._replace(values={f"{prefix}{name}": value for name, value in record.values.items()})
            elif isinstance(record, ForeignFile | ForeignImage):
                yield record._replace(name=f"{prefix}{record.name}")
            elif not isinstance(record, Ending | ForeignLog):
                yield record
