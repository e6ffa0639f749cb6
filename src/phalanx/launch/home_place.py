"""The home of this machine as a place for runs: see `phalanx.launch.places`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import finalize

from phalanx import run_paths
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.launch.places import CallRecord, FailedReplica, no_key, warn_caller
from phalanx.scheduler.runner import schedule_once, start_background
from phalanx.store import Store
from phalanx.tracking.calls import sealed_files

if TYPE_CHECKING:
    from phalanx.store import Run
    from phalanx.submission.model import Remark, Submission

SCHEDULE_S = 1.0  # how often a waiting process makes sure that a scheduler runs


class HomePlace:
    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.store = Store.open(path, os.environ.get("PHALANX_DATABASE"))
        self._scheduled_at = float("-inf")
        finalize(self, self.store.close)  # when its thread ends

    def submit(self, submission: Submission) -> Run:
        from phalanx.submission.dependencies import with_dependencies
        from phalanx.submission.submit import submit

        run = submit(self.home, self.store, with_dependencies(submission, self.store.find), _warn)
        start_background(self.home)
        self._record_provenance(run)
        return run

    def _record_provenance(self, run: Run) -> None:
        from phalanx.submission.git import git_state
        from phalanx.submission.provenance import record

        with suppress(CallError):
            record(self.home, run, self.home.environment(run.id), sys.argv, cache(git_state))

    def find(self, text: str) -> Run:
        return self.store.find(text)

    def look(self, run_id: str) -> Run | None:
        self._schedule()
        return None if self.store.status_of(run_id) is None else self.store.find(run_id)

    def trials(self, group_id: str) -> list[Run]:
        self._schedule()
        return self.store.runs(f"group:{group_id}", "created_at", limit=None)

    def _schedule(self) -> None:
        if time.monotonic() - self._scheduled_at > SCHEDULE_S:
            schedule_once(self.home, self.store)
            self._scheduled_at = time.monotonic()

    def stop(self, run: Run) -> None:
        self.home.run(run.id).ask_to_stop("canceled from Python")
        self._scheduled_at = float("-inf")

    def spec(self, run: Run) -> str:
        try:
            return (self.home.run(run.id).path / run_paths.SPEC).read_text(encoding="utf-8")
        except OSError:
            return ""

    def call_record(self, run: Run, digest: str) -> CallRecord:
        folder = self.home.run(run.id).path
        places = [folder / sealed_files.FOLDER / sealed_files.call_name(digest)]
        if run.group is not None:
            places.append(self.home.run(run.group).path / sealed_files.FOLDER / sealed_files.call_name(digest))
        places.append(folder / run_paths.CODE / sealed_files.code_name(digest))
        for path in places:
            with suppress(OSError, sealed_files.UntrustedFile):
                found = sealed_files.decode_call(sealed_files.read_regular(str(path)), digest)
                return CallRecord(found.key, len(found.calls))
        raise no_key(run.id)

    def read(self, run: Run, path: str) -> bytes | None:
        from phalanx.artifacts.downloads import open_output

        try:
            stream, _ = open_output(self.home, run.id, path)
        except CallError:
            return None
        with stream:
            return stream.read()

    def ranks(self, run: Run) -> list[int]:
        from phalanx.logs.replica_logs import log_sources

        found = [source.rank for source in log_sources(self.home.run(run.id).path)]
        return sorted(rank for rank in found if rank is not None)

    def failure(self, run: Run) -> FailedReplica | None:
        from phalanx.insight.run_failures import read_failures

        failures = read_failures(self.home.run(run.id), run.attempt, self.store.facts(run.id))
        if not failures:
            return None
        first = failures[0]
        hosts = {replica.name: replica.host for replica in self.store.replicas(run.id)}
        return FailedReplica(first.replica, first.rank, hosts.get(first.replica), first.message)

    def lines(self, run: Run, tail: int | None, rank: int | None) -> list[str]:
        from phalanx.logs.merge import merged
        from phalanx.logs.replica_logs import ReplicaLog, log_sources

        if not run.attempt:
            return []
        folder = self.home.run(run.id).path
        sources = [source for source in log_sources(folder) if rank in (None, source.rank)]
        found = [line.text for line in merged(ReplicaLog(folder, one, run.attempt, tail).lines() for one in sources)]
        return found if tail is None else found[-tail:]

    def metrics(self, run: Run) -> list[str]:
        return list(run.summary)

    def values(self, run: Run, metric: str, count: int) -> Sequence[float]:
        from phalanx.store.series.run_series import RunSeries

        buckets = RunSeries(self.home.run(run.id).path).buckets(metric, count)
        return [bucket.last for bucket in next(iter(buckets.values()), [])]


def _warn(remark: Remark) -> None:
    from phalanx.submission.model import RemarkKind

    if remark.kind in (RemarkKind.WARNING, RemarkKind.ADVICE):
        text = remark.about if isinstance(remark.about, str) else remark.about.message
        warn_caller(text)
