"""A run that somebody else executes, as far as the gatherer knows it: replicas that write, and what the store says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from phalanx.home.home import Home
from phalanx.ingest import external_runs
from phalanx.ingest.indexer import RunIndexer
from phalanx.spool import PointWriter, Writer
from phalanx.store import Run, Store
from phalanx.store.series.run_series import RunSeries


class Gathered:
    def __init__(self, folder: Path, replicas: Iterable[str] = ("master-0",)) -> None:
        self.home = Home(folder / "home")
        self.store = Store.open(self.home.path)
        self.replicas = tuple(replicas)
        run, _ = external_runs.create(self.home, project="default", source="test", tags=["given"], params={"seed": 1})
        self.run = external_runs.adopt(self.home, self.store, run.id)
        self.folder = self.home.run(run.id).path
        self.gatherer = self.new_gatherer()

    def new_gatherer(self, attempt: int = 1) -> RunIndexer:
        """Another scheduler takes over; nobody tells it anything."""
        self.run = self.run._replace(attempt=attempt)
        for name in self.replicas:
            self.attempt(name).mkdir(parents=True, exist_ok=True)
        self.gatherer = RunIndexer(self.home, self.store, self.run, self.replicas)
        return self.gatherer

    def attempt(self, replica: str = "master-0") -> Path:
        return self.folder / "replicas" / replica / f"attempt-{self.run.attempt}"

    @property
    def outputs(self) -> Path:
        return self.folder / "outputs"

    def turn(self, *, is_over: bool = False) -> Gathered:
        self.gatherer.next_at = self.gatherer.boards.look_at = 0.0
        self.gatherer.run_pass(is_over=is_over)
        return self

    def record(self, *events: Any, replica: str = "master-0", writer: str = "client-1") -> None:
        spool = Writer(self.attempt(replica) / f"{writer}.events")
        for event in events:
            spool.append_json({"at": 1.7e9, **event} if isinstance(event, Mapping) else event)
        spool.close()

    def log(
        self, name: str, *values: float, replica: str = "master-0", writer: str = "client-1", at: float = 1.7e9
    ) -> None:
        points = PointWriter(self.attempt(replica) / f"{writer}.points")
        for value in values:
            points.add(None, at, {name: value})
        points.close()

    # looking -----------------------------------------------------------------------------------------------------

    def found(self) -> Run:
        return self.store.find(self.run.id)

    def facts(self) -> dict[str, Any]:
        return self.store.facts(self.run.id)

    def everything(self) -> Any:
        """All that the store says of the run, but when it was changed."""
        run = self.found()._replace(updated_at=self.run.created_at)
        store, run_id = self.store, self.run.id
        return run, store.summaries(run_id), store.labels(run_id), store.facts(run_id), store.artifacts(run_id)

    def points(self, name: str, replica: str = "master-0") -> list[tuple[int, float]]:
        lines = RunSeries(self.folder).series(name, replica)
        return [point for line in lines for point in zip(line.steps, line.values, strict=True)]

    def names(self) -> list[str]:
        return RunSeries(self.folder).names()

    def close(self) -> None:
        self.gatherer.close()
        self.store.close()
