"""What can be asked of a server about runs: lists, one run, what it tracked and what it said."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from phalanx.client import rows
from phalanx.client.run_lookup import PAGE, RunLookup
from phalanx.client.series import RemoteSeries
from phalanx.client.transport import ServerUnreachable, joined

if TYPE_CHECKING:
    from phalanx.client.local import MetricLine as Points
    from phalanx.logs.lines import LogLine
    from phalanx.store.model_index import Model, ModelEvent, ModelVersion
    from phalanx.store.records import Artifact, ReplicaRecord, Run, StatusChange
    from phalanx.store.series.run_series import Bucket, Spread

MOST_LINES = 5_000  # that a server gives at a time
MOST_PAGES = 4  # between two looks at whether the run is over
QUICK_S, SLOW_S = 0.3, 2.0  # between two looks at a log: while lines come, and when it has been quiet
PATIENCE_S = 60.0  # how long following bears with a server that is away


class LogPage(NamedTuple):
    """Some lines of a run's logs, and where they begin and end."""

    lines: list[LogLine]
    rows: int  # how many groups of lines that are, when they are folded
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
        """Of the newest attempt, by rank."""
        return list(self.details(self._id(run)).replicas)

    def artifacts(self, run: str | Run) -> list[Artifact]:
        return list(self.details(self._id(run)).artifacts)

    def events(self, run: str | Run, kind: str | None = None, name: str | None = None, limit: int = 1000) -> list[Any]:
        """What was tracked beside metrics: texts, images, histograms, tables, datasets."""
        path = joined("runs", self._id(run), "events")
        return list(self._wire.get(path, kind=kind, name=name, limit=limit)["events"])

    def topology(self, run: str | Run, attempt: int | None = None) -> dict[str, Any]:
        """Every replica of an attempt: where it is, how far, how it ended; and who failed first."""
        return dict(self._wire.get(joined("runs", self._id(run), "topology"), attempt=attempt))

    def use(self, run: str | Run, replica: str | None = None) -> dict[str, Any]:
        """What a run asked for and used; or what one of its replicas did over time."""
        steps = ("use",) if replica is None else ("use", replica)
        return dict(self._wire.get(joined("runs", self._id(run), *steps)))

    def spec(self, run: str | Run) -> str:
        """The file that a run was made of."""
        return self._wire.text(joined("runs", self._id(run), "spec"))

    def plan(self, run: str | Run) -> dict[str, Any]:
        """Who runs what, with which resources, rank and environment."""
        return dict(self._wire.get(joined("runs", self._id(run), "plan")))

    def groups(self, project: str | None = None) -> list[Any]:
        return list(self._wire.get(joined("groups"), project=project)["groups"])

    def queue(self) -> list[Any]:
        """The runs that wait, in their order, and what each asks for."""
        return list(self._wire.get(joined("queue"))["runs"])

    def machine(self) -> dict[str, Any]:
        """What the server's machine has, and what of it is free."""
        return dict(self._wire.get(joined("machine")))

    # series ------------------------------------------------------------------------------------------------------

    def all_series(self, run: str | Run) -> RemoteSeries:
        """Everything that can be asked of a run's series."""
        return RemoteSeries(self._wire, self._id(run))

    def names(self, run: str | Run) -> list[str]:
        """The metrics of a run."""
        return self.all_series(run).names()

    def series(self, run: str | Run, metric: str, replica: str | None = None) -> Points:
        """The line of a metric: of a replica, or of the first that logged it. Raises KeyError when there is none."""
        found = self.every_series(run, metric, replica)
        if not found:
            raise KeyError(f"run {self._id(run)} has no metric {metric!r}" + (f" of {replica}" if replica else ""))
        return found[0]

    def every_series(self, run: str | Run, metric: str, replica: str | None = None) -> list[Points]:
        """The lines of all replicas that logged a metric."""
        from phalanx.client.local import MetricLine as Points

        return [Points(columns) for columns in self.all_series(run).series(metric, replica)]

    def buckets(self, run: str | Run, metric: str, count: int = 1000) -> dict[str, list[Bucket]]:
        """For charts, by replica: no spike is left out."""
        return self.all_series(run).buckets(metric, count)

    def over_ranks(self, run: str | Run, metric: str, count: int | None = None) -> list[Spread]:
        return self.all_series(run).over_ranks(metric, count)

    # logs --------------------------------------------------------------------------------------------------------

    def logs(self, run: str | Run, attempt: int | None = None) -> list[dict[str, Any]]:
        """Which replicas have a log, and of which size."""
        return list(self._wire.get(joined("runs", self._id(run), "logs"), attempt=attempt)["logs"])

    def log(self, run: str | Run, replica: str, attempt: int | None = None, tail: int | None = None) -> str:
        """What one replica printed; with `tail` only so many bytes at the end."""
        return self._wire.text(joined("runs", self._id(run), "logs", replica), attempt=attempt, tail=tail)

    def lines(self, run: str | Run, replicas: Sequence[str] = (), attempt: int | None = None) -> Iterator[LogLine]:
        """What the replicas of a run printed until now, in the order of time."""
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
        """The last so many of them; with `fold`, what many replicas said counts as one."""
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
        limit: int = PAGE,
        fold: bool = False,
    ) -> LogPage:
        """Some lines before or after a cursor; without one the last there are. With `fold` as many groups of lines that
        many said: each with all who did."""
        from phalanx.logs.lines import LogLine

        told = self._wire.get(
            joined("runs", run_id, "lines"),
            replica=list(replicas) or None,
            attempt=attempt,
            before=before,
            after=after,
            limit=limit,
            fold=fold,
        )
        number, told_lines = int(told["attempt"]), told["lines"]
        found = [
            LogLine(float(row["at"]), name, row["rank"] if name == row["replica"] else None, number, row["text"])
            for row in told_lines
            for name in (row.get("replicas") or (row["replica"],))
        ]
        return LogPage(
            found, len(told_lines), told["first"], told["last"], bool(told["at_start"]), bool(told["at_end"])
        )

    def first_error(self, run: str | Run, attempt: int | None = None) -> dict[str, Any]:
        """Who failed first and why, who after it, and the lines of its log that tell."""
        return dict(self._wire.get(joined("runs", self._id(run), "first-error"), attempt=attempt))

    def follow(self, run: str | Run, replicas: Sequence[str] = (), attempt: int | None = None) -> Iterator[LogLine]:
        """The same, going on until the run is over. A server that is away for a while is waited for."""
        follower = RemoteLogFollower(self, self._id(run), replicas, attempt)
        while True:
            is_done = follower.is_done()
            yield from follower.lines()
            if is_done and follower.is_current:
                return
            time.sleep(follower.pause_s)

    # models ------------------------------------------------------------------------------------------------------

    def models(self, text: str = "") -> list[Model]:
        found: list[Model] = []
        while True:
            page = self._wire.get(joined("models"), text=text, limit=PAGE, offset=len(found))["models"]
            found += [rows.model_of(row) for row in page]
            if len(page) < PAGE:
                return found

    def model(self, name: str) -> tuple[Model, list[ModelVersion], list[ModelEvent]]:
        """A model, its versions, and what was done to it."""
        told = self._wire.get(joined("models", name))
        versions = [rows.version_of(row) for row in told["versions"]]
        return rows.model_of(told), versions, [rows.event_of(row) for row in told["events"]]


class RemoteLogFollower:
    """The lines of a run as they come, attempt after attempt, with ever longer pauses while nothing comes."""

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
        self.attempt = 0  # whose lines are read
        self.after = ""
        self.pause_s = QUICK_S
        self.is_current = False  # all lines that there were have come
        self.trouble = ""
        self._well = time.monotonic()

    def is_done(self) -> bool:
        """To be asked before the lines are: those of a run that is over are all there. Raises Unreachable when the
        server has been away for too long."""
        try:
            row = self.client.status_row(self.run_id)
        except ServerUnreachable as fault:
            self._bear(fault)
            return False
        self.run, self.waits_for = rows.run_of(row), row.get("waits_for")
        self.trouble, self._well = "", time.monotonic()
        return self.run.is_done or (self.wanted is not None and self.run.attempt > self.wanted)

    def lines(self) -> Iterator[LogLine]:
        """Those that came since; the rest of an earlier attempt first. Of very many only the first: `is_current` tells
        whether that was all."""
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
