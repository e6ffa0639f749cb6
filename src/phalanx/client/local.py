"""`phalanx.open()`: reads runs and their series from a home, as plain values, numpy arrays or pandas frames.

import phalanx

for run in phalanx.open().runs("status:succeeded, metric.loss:<0.1"):
    loss = run.series("loss")
    print(run.name, run.params["lr"], run.metrics["loss"], loss.steps[-1], loss.numpy().values.min())
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from phalanx import extras, run_paths
from phalanx.client.run_list import RunList
from phalanx.client.unknown_metric import unknown_metric
from phalanx.errors import CallError

if TYPE_CHECKING:
    from datetime import datetime

    from phalanx.client.groups import HomeGroup
    from phalanx.client.pipelines import HomePipeline
    from phalanx.home.home import Home
    from phalanx.registry.registry import Registry
    from phalanx.store import Artifact, ReplicaRecord, StatusChange, Store, Summary
    from phalanx.store.records import Run as Record
    from phalanx.store.series.run_series import Bucket, RunSeries, Spread
    from phalanx.store.series.run_series import Series as Columns


MEDIA = ("image", "audio", "video")  # events with a file


class MetricLine:
    """One metric of one replica: `steps`, `times`, `values` and `attempts` are arrays of equal length."""

    def __init__(self, columns: Columns) -> None:
        self.metric = columns.metric
        self.replica = columns.replica
        self.rank = columns.rank
        self.steps: Sequence[int] = columns.steps
        self.times: Sequence[float] = columns.times
        self.values: Sequence[float] = columns.values
        self.attempts: Sequence[int] = columns.attempts

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """Steps and values."""
        return zip(self.steps, self.values, strict=True)

    def numpy(self) -> MetricLine:
        """The same with numpy arrays, which share the memory."""
        with extras.needed("pandas", "`numpy()`"):
            import numpy as np

        other = MetricLine.__new__(MetricLine)
        other.metric, other.replica, other.rank = self.metric, self.replica, self.rank
        for name in ("steps", "times", "values", "attempts"):
            setattr(other, name, np.asarray(getattr(self, name)))
        return other

    def pandas(self) -> Any:
        """A data frame with step, time, value and attempt."""
        with extras.needed("pandas", "`pandas()`"):
            import pandas as pd

        columns = {"step": self.steps, "time": self.times, "value": self.values, "attempt": self.attempts}
        frame = pd.DataFrame(columns)
        frame["time"] = pd.to_datetime(frame["time"], unit="s", utc=True)
        return frame

    def __repr__(self) -> str:
        return f"<{self.metric} of {self.replica}: {len(self)} points>"


class LoggedTable(NamedTuple):
    """A table that training recorded."""

    columns: tuple[str, ...]
    rows: list[list[Any]]

    def pandas(self) -> Any:
        with extras.needed("pandas", "`pandas()`"):
            import pandas as pd

        return pd.DataFrame(self.rows, columns=list(self.columns))


class RunReader:
    """One run. The fields of its record are attributes: `id`, `name`, `status`, `params`, `tags`, `created_at` and so
    on; `metrics` has the last value of each metric."""

    id: str
    project: str
    name: str | None
    status: str
    params: Mapping[str, Any]
    tags: tuple[str, ...]
    created_at: datetime

    def __init__(self, home: Home, store: Store, record: Record) -> None:
        self._home = home
        self._store = store
        self._record = record
        self._series: RunSeries | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._record, name)

    @property
    def metrics(self) -> Mapping[str, float]:
        """The last value of each metric."""
        return self._record.summary

    def record(self) -> Record:
        return self._record

    @property
    def folder(self) -> Path:
        return self._home.run(self._record.id).path

    @property
    def all_series(self) -> RunSeries:
        """The reader of all series: buckets, values at a step, mean over ranks."""
        if self._series is None:
            from phalanx.store.series.run_series import RunSeries

            self._series = RunSeries(self.folder)
        return self._series

    def names(self) -> list[str]:
        """The names of its metrics."""
        return self.all_series.names()

    def series(self, metric: str, replica: str | None = None) -> MetricLine:
        """The series of a metric: of a replica, or of the first that logged it. Raises KeyError if there is none."""
        found = self.every_series(metric, replica)
        if not found:
            raise unknown_metric(self._record.id, metric, self.names(), replica)
        return found[0]

    def every_series(self, metric: str, replica: str | None = None) -> list[MetricLine]:
        """The series of all replicas that logged a metric."""
        return [MetricLine(columns) for columns in self.all_series.series(metric, replica)]

    def buckets(self, metric: str, count: int = 1000) -> Mapping[str, list[Bucket]]:
        """The series for charts, downsampled, by replica: buckets keep minimum and maximum, so no spike is lost. Raises
        KeyError for an unknown metric."""
        found = self.all_series.buckets(metric, count)
        if not found:
            raise unknown_metric(self._record.id, metric, self.names())
        return found

    def over_ranks(self, metric: str, count: int | None = None) -> list[Spread]:
        """Mean, minimum and maximum over the replicas. Raises KeyError for an unknown metric."""
        found = self.all_series.over_ranks(metric, count)
        if not found:
            raise unknown_metric(self._record.id, metric, self.names())
        return found

    def summaries(self) -> Mapping[str, Summary]:
        return self._store.summaries(self._record.id)

    def labels(self) -> Mapping[str, str]:
        return self._store.labels(self._record.id)

    def artifacts(self) -> list[Artifact]:
        return self._store.artifacts(self._record.id)

    def replicas(self) -> list[ReplicaRecord]:
        return self._store.replicas(self._record.id)

    def statuses(self) -> list[StatusChange]:
        return self._store.statuses(self._record.id)

    def events(self, kind: str | None = None, name: str | None = None) -> list[dict[str, Any]]:
        """What training recorded besides metrics, in the order of writing: texts, tables, images, alerts and so on. The
        `file` of an image, sound or video is its path."""
        from phalanx.home.tracked_events import read_events

        found = list(read_events(self.folder, () if kind is None else (kind,), name))
        for event in found:
            if event.get("kind") in MEDIA and isinstance(event.get("path"), str):
                attempt = self.folder / run_paths.attempt_folder(event["replica"], event["attempt"])
                event["file"] = attempt / event["path"]
        return found

    def table(self, name: str, step: int | None = None) -> LoggedTable:
        """The last table of that name, or the one at a step. Raises KeyError if there is none."""
        found = [one for kind in ("table", "points") for one in self.events(kind, name)]
        found = [event for event in found if step in (None, event.get("step"))]
        if not found:
            raise KeyError(
                f"run {self._record.id} has no table {name!r}" + ("" if step is None else f" at step {step}")
            )
        return LoggedTable(tuple(found[-1]["columns"]), found[-1]["rows"])

    def children(self) -> list[RunReader]:
        """The runs that were started inside of this one."""
        records = self._store.runs(f"parent:{self._record.id}", "created_at", limit=None)
        return [RunReader(self._home, self._store, record) for record in records]

    def pandas(self) -> Any:
        """All points of all metrics and replicas as one data frame."""
        with extras.needed("pandas", "`pandas()`"):
            import numpy as np
            import pandas as pd

        lines = [line for metric in self.names() for line in self.all_series.series(metric)]
        if not lines:
            return pd.DataFrame()
        lengths = [len(line.values) for line in lines]
        texts = {name: np.array([getattr(line, name) for line in lines], object) for name in ("metric", "replica")}
        columns: dict[str, Any] = {name: np.repeat(column, lengths) for name, column in texts.items()}
        for name in ("steps", "times", "values", "attempts"):
            columns[name[:-1]] = np.concatenate([np.asarray(getattr(line, name)) for line in lines])
        columns["time"] = pd.to_datetime(columns["time"], unit="s", utc=True)
        return pd.DataFrame(columns)

    def __repr__(self) -> str:
        return f"<run {self._record.id} ({self._record.name or 'no name'}): {self._record.status}>"


class HomeReader:
    """The runs of a home. Not thread-safe; `close` it, or use it in a `with`."""

    def __init__(self, home: Home, store: Store) -> None:
        self._home = home
        self._store = store

    def runs(
        self, query: str = "", sort: str = "-created_at", limit: int | None = None, project: str | None = None
    ) -> RunList[RunReader]:
        """The runs that match a query, written as for `phalanx ps -q`; `runs(…).frame()` is a table of them. Archived
        runs are left out unless the query has `archived:true`. Raises CallError for an invalid query."""
        from phalanx.home.stars import OWNER

        records = self._store.runs(query, sort, limit, project=project, unarchived=True, user=OWNER)
        return RunList((RunReader(self._home, self._store, record) for record in records), RunReader.record)

    def run(self, name: str) -> RunReader:
        """The run with an id, a name (the newest of several) or the first characters of an id. Raises CallError if
        there is none, or several ids begin like that."""
        return RunReader(self._home, self._store, self._store.find(name))

    def group(self, name: str) -> HomeGroup:
        """The group with an id, a name or the first characters of an id. Raises CallError if there is none."""
        from phalanx.client.groups import HomeGroup
        from phalanx.scheduler.search.group_report import GroupReport

        return HomeGroup(self._store, GroupReport(self._home, self._store, self._store.find(name)))

    def pipeline(self, name: str) -> HomePipeline:
        """The pipeline with an id, a name or the first characters of an id. Raises CallError if there is none."""
        from phalanx.client.pipelines import HomePipeline
        from phalanx.scheduler.pipelines.report import PipelineReport

        return HomePipeline(self._store, PipelineReport(self._home, self._store, self._store.find(name)))

    def projects(self) -> list[str]:
        return [project for project, _ in self._store.projects()]

    @property
    def models(self) -> Registry:
        from phalanx.registry.registry import Registry

        return Registry(self._home, self._store)

    def pandas(self, query: str = "", sort: str = "-created_at", limit: int | None = None) -> Any:
        """The same as `runs(…).frame()`."""
        return self.runs(query, sort, limit).frame()

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_home(home: str | os.PathLike[str] | None = None) -> HomeReader:
    """Open a home for reading. Raises CallError if there is none, or if it cannot be used."""
    from phalanx.home.home import Home, default_home
    from phalanx.scheduler.runner import schedule_once
    from phalanx.store import Store

    path = default_home() if home is None else Path(home).expanduser().absolute()
    if not (path / "runs").is_dir():
        raise CallError(f"no home in {path}: nothing has been run or tracked there yet")
    found = Home(path)
    store = Store.open(path, os.environ.get("PHALANX_DATABASE"))
    schedule_once(found, store)
    return HomeReader(found, store)
