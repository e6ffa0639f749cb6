"""A group and its trials for Python: `phalanx.Client().group(…)` of a server, `phalanx.open().group(…)` of a home.

import phalanx

group = phalanx.open().group("search")
print(group.status, group.best()[0].params)
print(group.frame().sort_values("value"))
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from phalanx import extras
from phalanx.client.rows import number_of, record
from phalanx.client.summary_view import SummaryView
from phalanx.client.transport import Transport, joined

if TYPE_CHECKING:
    from phalanx.scheduler.search.group_report import GroupReport
    from phalanx.store import Store


Row = Mapping[str, Any]


class GroupTrial(NamedTuple):
    """One point of a search. `run` is its run; with `repeat`, `runs` are all of them, `value` is their mean and
    `interval` the 95 % interval of that. `state`: running, reported, failed, invalid or stopped. `values`: rung,
    resource and value of each rung that it reported. `why`: why it ended; `decision`: why it was started."""

    trial: int
    run: str
    runs: list[str]
    state: str
    status: str | None
    params: Mapping[str, Any]
    value: float | None
    interval: tuple[float, float] | None
    bracket: int
    rung: int
    resource: float | None
    values: list[Row]
    why: str
    decision: str
    added: bool
    attempts: list[Row]


class TrialList(list[GroupTrial]):
    """Trials that can become a table."""

    def frame(self) -> Any:
        """A data frame with one row per trial: `trial`, `run`, `state`, `value`, `low` and `high` (the interval),
        `bracket`, `rung`, `resource`, `why`, and `params.*`."""
        with extras.needed("pandas", "`frame()`"):
            import pandas as pd

        return pd.DataFrame([_frame_row(trial) for trial in self])


def _frame_row(trial: GroupTrial) -> dict[str, Any]:
    low, high = trial.interval or (None, None)
    row = {name: getattr(trial, name) for name in ("trial", "run", "state", "value")}
    row |= {"low": low, "high": high}
    row |= {name: getattr(trial, name) for name in ("bracket", "rung", "resource", "why")}
    return row | {f"params.{name}": value for name, value in trial.params.items()}


def trial_of(row: Row) -> GroupTrial:
    interval = row.get("interval")
    values = [{**one, "value": number_of(one["value"])} for one in row.get("values") or ()]
    return record(
        GroupTrial,
        row,
        value=number_of(row["value"]),
        interval=(float(interval[0]), float(interval[1])) if interval else None,
        values=values,
        runs=list(row.get("runs") or [row["run"]]),
        attempts=list(row.get("attempts") or ()),
    )


class Group(SummaryView):
    """A group as it was when it was read; `refresh` reads it again. The fields of `summary` are attributes: `id`,
    `name`, `status`, `reason`, `algorithm`, `metric`, `concurrency`, `total`, `paused`, `rungs` and so on; `counts`
    has the number of trials by state."""

    algorithm: str
    concurrency: int

    @property
    def counts(self) -> Mapping[str, int]:
        return dict(self.summary.get("trials") or {})

    def trials(self, sort: str = "trial") -> TrialList:
        """All trials, by `trial` or by `value`: best first, those without one last. `trials().frame()` is a table."""
        return TrialList(map(trial_of, self.rows(sort)))

    def best(self, n: int = 1) -> TrialList:
        """The best trials. Raises CallError if the search compares no metric."""
        return TrialList(map(trial_of, with_value(self.rows("value", n))))

    def frame(self) -> Any:
        """The same as `trials().frame()`."""
        return self.trials().frame()

    @abstractmethod
    def rows(self, sort: str = "trial", limit: int | None = None) -> list[dict[str, Any]]:
        """The trials as rows of the REST API."""

    def __repr__(self) -> str:
        return f"<group {self.id}: {self.algorithm}, {self.status}>"


def with_value(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that have one which is a number."""
    return [row for row in rows if row["value"] is not None and not math.isnan(float(row["value"]))]


class HomeGroup(Group):
    """A group of a home, for reading."""

    def __init__(self, store: Store, report: GroupReport) -> None:
        super().__init__(report.summary())
        self._store, self._report = store, report

    def rows(self, sort: str = "trial", limit: int | None = None) -> list[dict[str, Any]]:
        return self._report.with_attempts(self._store, self._report.sorted_trials(sort)[:limit])

    def refresh(self) -> None:
        self._report.update(self._store, self._store.find(self.id))
        self.summary = self._report.summary()


class RemoteGroup(Group):
    """A group of a server, and changes of it: each waits a moment until the scheduler has taken it. Every method may
    raise RequestRefused and ServerUnreachable."""

    def __init__(self, wire: Transport, group_id: str) -> None:
        self._wire, self._path = wire, joined("groups", group_id)
        super().__init__(wire.get(self._path))

    def rows(self, sort: str = "trial", limit: int | None = None) -> list[dict[str, Any]]:
        return self._wire.rows(f"{self._path}/trials", "trials", limit, sort=sort)

    def refresh(self) -> None:
        self.summary = self._wire.get(self._path)

    def pause(self) -> None:
        """Start no more trials. Those that run go on."""
        self._change("pause")

    def resume(self) -> None:
        """Continue after a pause. A group that has ended runs what failed or was stopped again, and goes on."""
        self._change("resume")

    def finish(self) -> None:
        """Start no more trials, and end when those that run have ended."""
        self._change("finish")

    def set_concurrency(self, n: int) -> None:
        """How many runs there are at a time."""
        self._change("concurrency", {"n": n})

    def extend(self, n: int) -> None:
        """The number of trials in total, also of a group that has ended."""
        self._change("extend", {"n": n})

    def add(self, params: Mapping[str, Any]) -> None:
        """Try a point in addition to those of the search. Params that it leaves out are drawn at random."""
        self._change("points", {"params": dict(params)})

    def _change(self, verb: str, body: Any = None) -> None:
        self.summary = {**self.summary, **self._wire.send("POST", f"{self._path}/{verb}", body)}
