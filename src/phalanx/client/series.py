"""The series of a run on a server, with the reading methods of `phalanx.store.series.run_series.RunSeries`."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from phalanx.client.rows import Row, number_of, summary_of
from phalanx.client.transport import NotFound, Transport, joined
from phalanx.store.series.run_series import Bucket, Series, Spread, Summary

ROUGHLY = 1  # buckets per replica, when only the names of replicas are wanted: there may be hundreds
MOST_BUCKETS = 20_000  # per response of a server


class RemoteSeries:
    """Requests series on demand and caches the responses until `poll`. Not thread-safe."""

    def __init__(self, wire: Transport, run_id: str) -> None:
        self.run_id = run_id
        self._wire = wire
        self._rows: dict[str, Row] | None = None
        self._answers: dict[tuple[Any, ...], dict[str, list[Bucket]]] = {}

    def poll(self) -> bool:
        self._rows = None
        self._answers.clear()
        return True

    def _known(self) -> Mapping[str, Row]:
        if self._rows is None:
            found = self._wire.get(joined("runs", self.run_id, "metrics"))["metrics"]
            self._rows = {str(row["name"]): row for row in found}
        return self._rows

    def names(self) -> list[str]:
        """All metrics."""
        return list(self._known())

    def summaries(self, metrics: Iterable[str] | None = None) -> dict[str, Summary]:
        """Of all metrics, or of some: for each, of the first replica that logged it."""
        known = self._known()
        rows = known if metrics is None else {name: known[name] for name in metrics}
        return {name: summary_of(row) for name, row in rows.items() if row.get("last") is not None}

    def replicas(self, metric: str) -> list[str]:
        """The replicas that logged a metric: the master first, then by rank."""
        names = self._known().get(metric, {}).get("replicas")
        if isinstance(names, list):
            return [str(name) for name in names]
        for question, answer in self._answers.items():
            if question[0] == metric and question[2] is None:
                return list(answer)
        return list(self.buckets(metric, ROUGHLY))

    def series(self, metric: str, replica: str | None = None) -> list[Series]:
        """The surviving line of each replica, or of one."""
        rows = self._ask(metric, buckets=0, replica=replica).get("series", ())
        return [
            Series(
                metric,
                str(row["replica"]),
                row["rank"],
                array("q", row["steps"]),
                array("d", map(float, row["times"])),
                array("d", map(float, row["values"])),
                array("q", row["attempts"]),
            )
            for row in rows
            if replica in (None, row["replica"])
        ]

    def buckets(
        self, metric: str, count: int, replica: str | None = None, first: int | None = None, last: int | None = None
    ) -> dict[str, list[Bucket]]:
        """The surviving line of each replica, or of one, as at most `count` buckets, of the steps from `first` to
        `last`, both included."""
        count = min(max(count, 1), MOST_BUCKETS)
        of_all = self._answers.get((metric, count, None, first, last))
        if of_all is not None and replica is not None:
            return {one: list(found) for one, found in of_all.items() if one == replica}
        question = (metric, count, replica, first, last)
        if question not in self._answers:
            answer = self._ask(metric, buckets=count, replica=replica, first=first, last=last).get("buckets", {})
            self._answers[question] = {one: [_bucket(row) for row in rows] for one, rows in answer.items()}
        return {one: list(found) for one, found in self._answers[question].items()}

    def over_ranks(self, metric: str, count: int | None = None) -> list[Spread]:
        """Mean, minimum and maximum over the replicas, at each step or in each of `count` buckets."""
        answer = self._ask(metric, buckets=min(count or 0, MOST_BUCKETS), over_ranks=True).get("ranks", ())
        return [Spread(*_span(row), row["odd"], row["ranks"]) for row in answer]

    def _ask(self, metric: str, **more: Any) -> dict[str, Any]:
        """Request a metric; an unknown metric has no points, as in a local home."""
        path = joined("runs", self.run_id, "metrics", "series")
        try:
            return dict(self._wire.get(path, name=metric, **more))
        except NotFound:
            if metric in self._known():
                raise
            return {}


def _bucket(row: Row) -> Bucket:
    last = number_of(row["last"])
    return Bucket(*_span(row), float("nan") if last is None else last, row["odd"])


def _span(row: Row) -> tuple[int, int, float, float, int, float | None, float | None, float | None]:
    """The fields that a bucket and a spread share."""
    return (
        row["first_step"],
        row["last_step"],
        float(row["first_time"]),
        float(row["last_time"]),
        row["count"],
        number_of(row["min"]),
        number_of(row["max"]),
        number_of(row["mean"]),
    )
