"""Queries to a server: runs, their series, logs, events and models."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from phalanx.client import rows
from phalanx.client.groups import RemoteGroup
from phalanx.client.pipelines import RemotePipeline
from phalanx.client.run_lookup import RunLookup
from phalanx.client.series import RemoteSeries
from phalanx.client.transport import ServerUnreachable, joined
from phalanx.client.unknown_metric import unknown_metric

if TYPE_CHECKING:
    from phalanx.client.local import MetricLine as Points
    from phalanx.logs.lines import LogLine
    from phalanx.registry.candidates import Candidate
    from phalanx.store.model_index import Model, ModelEvent, ModelVersion
    from phalanx.store.records import Artifact, ReplicaRecord, Run, StatusChange
    from phalanx.store.series.run_series import Bucket, Spread

LINES = 500  # of a log, in one response
MOST_LINES = 5_000  # per response of a server
MOST_PAGES = 4  # between two checks whether the run has finished
QUICK_S, SLOW_S = 0.3, 2.0  # polling interval of a log: while lines arrive, and after a quiet time
PATIENCE_S = 60.0  # how long following tolerates an unreachable server


class LogPage(NamedTuple):
    """A page of a run's log lines, with cursors at its start and end."""

    lines: list[LogLine]
    rows: int  # the number of lines, or of groups of identical lines if folded
    first: str
    last: str
    at_start: bool
    at_end: bool


def beginning(attempt: int) -> str:
    """The cursor before all lines of an attempt."""
    from phalanx.logs.cursors import Cursor

    return Cursor(attempt, 0, 0, 0, "").text()


class QueryMethods(RunLookup):
    """A part of `Client`."""

    def statuses(self, run: str | Run) -> list[StatusChange]:
        return list(self.details(self._id(run)).statuses)

    def replicas(self, run: str | Run) -> list[ReplicaRecord]:
        """The replicas of the latest attempt, by rank."""
        return list(self.details(self._id(run)).replicas)

    def artifacts(self, run: str | Run) -> list[Artifact]:
        return list(self.details(self._id(run)).artifacts)

    def events(self, run: str | Run, kind: str | None = None, name: str | None = None, limit: int = 1000) -> list[Any]:
        """Tracked data other than metrics: texts, images, sound, histograms, tables, alerts, datasets."""
        path = joined("runs", self._id(run), "events")
        return self._wire.rows(path, "events", limit, kind=kind, name=name)

    def topology(self, run: str | Run, attempt: int | None = None) -> dict[str, Any]:
        """Every replica of an attempt: host, progress, how it ended; and which failed first."""
        return dict(self._wire.get(joined("runs", self._id(run), "topology"), attempt=attempt))

    def use(self, run: str | Run, replica: str | None = None) -> dict[str, Any]:
        """The requested and used resources of a run, or the usage of one replica over time."""
        steps = ("use",) if replica is None else ("use", replica)
        return dict(self._wire.get(joined("runs", self._id(run), *steps)))

    def spec(self, run: str | Run) -> str:
        """The polyaxonfile of a run."""
        return self._wire.text(joined("runs", self._id(run), "spec"))

    def plan(self, run: str | Run) -> dict[str, Any]:
        """Each replica's command, resources, rank and environment."""
        return dict(self._wire.get(joined("runs", self._id(run), "plan")))

    def group(self, group: str | Run) -> RemoteGroup:
        """A group, to read its trials and to change it."""
        return RemoteGroup(self._wire, self._id(group))

    def pipeline(self, pipeline: str | Run) -> RemotePipeline:
        """A pipeline, to read its ops."""
        return RemotePipeline(self._wire, self._id(pipeline))

    def groups(self, project: str | None = None) -> list[Any]:
        return self._wire.rows(joined("groups"), "groups", project=project)

    def queue(self) -> list[Any]:
        """The queued runs in order, with the resources that each requests."""
        return self._wire.rows(joined("queue"), "runs")

    def machine(self) -> dict[str, Any]:
        """The resources of the server's machine, and how much is free."""
        return dict(self._wire.get(joined("machine")))

    # series ------------------------------------------------------------------------------------------------------

    def all_series(self, run: str | Run) -> RemoteSeries:
        """The reader of all series of a run."""
        return RemoteSeries(self._wire, self._id(run))

    def names(self, run: str | Run) -> list[str]:
        """The names of the metrics of a run."""
        return self.all_series(run).names()

    def series(self, run: str | Run, metric: str, replica: str | None = None) -> Points:
        """The series of a metric: of a replica, or of the first that logged it. Raises KeyError if there is none."""
        found = self.every_series(run, metric, replica)
        if not found:
            raise unknown_metric(self._id(run), metric, self.names(run), replica)
        return found[0]

    def every_series(self, run: str | Run, metric: str, replica: str | None = None) -> list[Points]:
        """The series of all replicas that logged a metric."""
        from phalanx.client.local import MetricLine as Points

        return [Points(columns) for columns in self.all_series(run).series(metric, replica)]

    def buckets(self, run: str | Run, metric: str, count: int = 1000) -> dict[str, list[Bucket]]:
        """The series for charts, downsampled, by replica: buckets keep minimum and maximum, so no spike is lost. Raises
        KeyError for an unknown metric."""
        found = self.all_series(run).buckets(metric, count)
        if not found:
            raise unknown_metric(self._id(run), metric, self.names(run))
        return found

    def over_ranks(self, run: str | Run, metric: str, count: int | None = None) -> list[Spread]:
        """Mean, minimum and maximum over the replicas. Raises KeyError for an unknown metric."""
        found = self.all_series(run).over_ranks(metric, count)
        if not found:
            raise unknown_metric(self._id(run), metric, self.names(run))
        return found

    # logs --------------------------------------------------------------------------------------------------------

    def logs(self, run: str | Run, attempt: int | None = None) -> list[dict[str, Any]]:
        """The replicas that have a log, and its size."""
        return list(self._wire.get(joined("runs", self._id(run), "logs"), attempt=attempt)["logs"])

    def log(self, run: str | Run, replica: str, attempt: int | None = None, tail: int | None = None) -> str:
        """The log of one replica; `tail`: only this number of bytes at the end."""
        return self._wire.text(joined("runs", self._id(run), "logs", replica), attempt=attempt, tail=tail)

    def lines(self, run: str | Run, replicas: Sequence[str] = (), attempt: int | None = None) -> Iterator[LogLine]:
        """The log lines of a run's replicas until now, in order of time."""
        run_id = self._id(run)
        number = attempt or max(1, self.status(run_id).attempt)
        after = beginning(number)
        while True:
            page = self.page(run_id, replicas, number, after=after, limit=MOST_LINES)
            yield from page.lines
            if page.at_end or not page.lines:
                return
            after = page.last

    def last_lines(
        self,
        run: str | Run,
        count: int,
        replicas: Sequence[str] = (),
        attempt: int | None = None,
        *,
        fold: bool = False,
    ) -> list[LogLine]:
        """The last `count` lines; with `fold`, identical lines of several replicas count once."""
        run_id, before = self._id(run), None
        found: list[LogLine] = []
        left = count
        while left > 0:
            page = self.page(run_id, replicas, attempt, before=before, limit=min(left, MOST_LINES), fold=fold)
            found = [*page.lines, *found]
            left -= page.rows
            before = page.first
            if page.at_start or not page.lines:
                break
        return found

    def page(  # noqa: PLR0913 - each is a parameter of the query
        self,
        run_id: str,
        replicas: Sequence[str] = (),
        attempt: int | None = None,
        *,
        before: str | None = None,
        after: str | None = None,
        limit: int = LINES,
        fold: bool = False,
    ) -> LogPage:
        """A page of lines before or after a cursor; without one, the last page. With `fold`, `limit` counts groups of
        identical lines, and the page has the lines of all replicas of a group."""
        from phalanx.logs.lines import LogLine

        answer = self._wire.get(
            joined("runs", run_id, "lines"),
            replica=list(replicas) or None,
            attempt=attempt,
            before=before,
            after=after,
            limit=limit,
            fold=fold,
        )
        number, line_rows = int(answer["attempt"]), answer["lines"]
        found = [
            LogLine(float(row["at"]), name, row["rank"] if name == row["replica"] else None, number, row["text"])
            for row in line_rows
            for name in (row.get("replicas") or (row["replica"],))
        ]
        return LogPage(
            found, len(line_rows), answer["first"], answer["last"], bool(answer["at_start"]), bool(answer["at_end"])
        )

    def first_error(self, run: str | Run, attempt: int | None = None) -> dict[str, Any]:
        """The replica that failed first and why, those that failed later, and the lines of its log with the error."""
        return dict(self._wire.get(joined("runs", self._id(run), "first-error"), attempt=attempt))

    def follow(self, run: str | Run, replicas: Sequence[str] = (), attempt: int | None = None) -> Iterator[LogLine]:
        """The log lines as they arrive, until the run finishes. Waits for a server that is temporarily unreachable."""
        follower = RemoteLogFollower(self, self._id(run), replicas, attempt)
        while True:
            is_done = follower.is_done()
            yield from follower.lines()
            if is_done and follower.is_current:
                return
            time.sleep(follower.pause_s)

    # models ------------------------------------------------------------------------------------------------------

    def models(self, text: str = "") -> list[Model]:
        return [rows.model_of(row) for row in self._wire.rows(joined("models"), "models", text=text)]

    def model_candidates(self, limit: int = 20) -> list[Candidate]:
        """Outputs of the newest runs that look like models and are not registered."""
        from phalanx.registry.candidates import Candidate

        found = self._wire.rows(joined("models", "-", "candidates"), "candidates", limit)
        return [rows.record(Candidate, row) for row in found]

    def model(self, name: str) -> tuple[Model, list[ModelVersion], list[ModelEvent]]:
        """A model, its versions and its history."""
        path = joined("models", name)
        answer = self._wire.get(path)
        versions = [rows.version_of(row) for row in self._wire.rows(path, "versions")]
        return rows.model_of(answer), versions, [rows.event_of(row) for row in answer["events"]]


class RemoteLogFollower:
    """Polls the log lines of a run, attempt after attempt, with longer pauses while no lines arrive."""

    def __init__(
        self,
        client: QueryMethods,
        run_id: str,
        replicas: Sequence[str] = (),
        attempt: int | None = None,
        tail: int | None = None,
    ) -> None:
        self.client = client
        self.run_id = run_id
        self.replicas = replicas
        self.wanted = attempt
        self.tail = tail
        self.run: Run | None = None
        self.waits_for: str | None = None
        self.attempt = 0  # the attempt whose lines are read
        self.after = ""
        self.pause_s = QUICK_S
        self.is_current = False  # all existing lines were read
        self.trouble = ""
        self._well = time.monotonic()

    def is_done(self) -> bool:
        """Whether the run has finished. Call it before `lines`, because a finished run writes no more lines. Raises
        ServerUnreachable if the server has been unreachable for too long."""
        try:
            row = self.client.status_row(self.run_id)
        except ServerUnreachable as fault:
            self._bear(fault)
            return False
        self.run, self.waits_for = rows.run_of(row), row.get("waits_for")
        self.trouble, self._well = "", time.monotonic()
        return self.run.is_done or (self.wanted is not None and self.run.attempt > self.wanted)

    def lines(self) -> Iterator[LogLine]:
        """The new lines; the rest of an earlier attempt comes first. The number is limited: `is_current` says whether
        these were all."""
        newest = self.wanted or (self.run.attempt if self.run is not None else 0)
        came, self.is_current = False, False
        try:
            while newest:
                for line in self._rest() if self.attempt else ():
                    came = True
                    yield line
                if newest == self.attempt or (self.attempt and not self.is_current):
                    break
                self.attempt, self.after = newest, beginning(newest)
        except ServerUnreachable as fault:
            self._bear(fault)
            return
        self.is_current = self.is_current or not newest
        self.pause_s = (
            0.0 if not self.is_current else QUICK_S if came else min(SLOW_S, max(QUICK_S, self.pause_s) * 1.3)
        )

    def _rest(self) -> Iterator[LogLine]:
        if self.tail is not None:
            page = self.client.page(self.run_id, self.replicas, self.attempt, limit=max(1, min(self.tail, MOST_LINES)))
            lines = page.lines[len(page.lines) - self.tail :] if self.tail else []
            self.tail = None
            self.after = page.last
            yield from lines
        for _ in range(MOST_PAGES):
            page = self.client.page(self.run_id, self.replicas, self.attempt, after=self.after, limit=MOST_LINES)
            self.after = page.last
            yield from page.lines
            if page.at_end or not page.lines:
                self.is_current = True
                return

    def _bear(self, fault: ServerUnreachable) -> None:
        self.trouble = str(fault)
        self.pause_s = SLOW_S
        if time.monotonic() - self._well > PATIENCE_S:
            raise fault
