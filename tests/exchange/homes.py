"""A home to import into, and what came into it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from phalanx.exchange.importer import Importer, ImportOutcome
from phalanx.formats.foreign_run import Ending, ForeignEvent, ForeignFile, ForeignRun, ImportLosses, Points, Record
from phalanx.home.home import Home
from phalanx.spool import Reader
from phalanx.store import Store
from phalanx.store.series.run_series import RunSeries


class Target:
    def __init__(self, base: Path) -> None:
        self.home = Home(base / "home")
        self.store = Store.open(self.home.path)
        self.losses = ImportLosses()

    def close(self) -> None:
        self.store.close()

    def bring_in(self, run: ForeignRun) -> ImportOutcome:
        return Importer(self.home, self.store).bring_in(run, run.project or "default", self.losses)

    def run_folder(self, run_id: str | None) -> Path:
        assert run_id is not None
        return self.home.run(run_id).path

    def attempt(self, run_id: str | None) -> Path:
        return self.run_folder(run_id) / "replicas" / "master-0" / "attempt-1"

    def points(self, run_id: str | None, metric: str) -> list[tuple[int, float]]:
        (line,) = RunSeries(self.run_folder(run_id)).series(metric)
        return list(zip(line.steps, line.values, strict=True))

    def events(self, run_id: str | None, kind: str) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.attempt(run_id).glob("*.events")):
            found += [record.data() for record in Reader(path).poll()]
        return [event for event in found if event["kind"] == kind]

    def labels(self, run_id: str | None) -> dict[str, str]:
        return {name: text for event in self.events(run_id, "labels") for name, text in event["values"].items()}

    def end(self, run_id: str | None) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.attempt(run_id) / "end.json").read_bytes())
        return found

    @property
    def lost(self) -> dict[str, int]:
        return {what: count for what, count in self.losses.counts.items() if count}


def collected(run: ForeignRun, losses: ImportLosses | None = None) -> list[Record]:
    return list(run.read(losses if losses is not None else ImportLosses()))


def series(records: Iterable[Record]) -> dict[str, list[tuple[int | None, float]]]:
    found: dict[str, list[tuple[int | None, float]]] = {}
    for record in records:
        if isinstance(record, Points):
            for name, value in record.values.items():
                found.setdefault(name, []).append((record.step, value))
    return found


def events(records: Iterable[Record], kind: str) -> list[dict[str, Any]]:
    return [dict(record.data) for record in records if isinstance(record, ForeignEvent) and record.kind == kind]


def file_names(records: Iterable[Record]) -> list[str]:
    return [record.name for record in records if isinstance(record, ForeignFile)]


def ending(records: Iterable[Record]) -> Ending:
    (found,) = [record for record in records if isinstance(record, Ending)]
    return found
