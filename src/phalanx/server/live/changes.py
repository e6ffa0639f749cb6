"""What has changed since the last look: runs, by the store, and the files of a run that somebody looks at."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from phalanx.ends import END_FILE
from phalanx.store import Run, Store
from phalanx.store.run_lists import RunStamp
from phalanx.store.series.points import SUFFIX

LATE_S = 30.0  # what is written down with an older time than this is found by other means
Stamp = tuple[str, int, datetime]


class Changes(NamedTuple):
    runs: list[RunStamp]
    gone: list[RunStamp]  # as they were when last seen


class RunChanges:
    """All runs of a store. Between two looks only what may have changed is asked for: runs that are not over, those
    that changed lately, and those that were added; and when there are fewer than there should be, which are gone."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known = {one.id: one for one in store.seen_after(0)}
        self.last_key = max((one.key for one in self.known.values()), default=0)
        self.active = {one.id for one in store.seen_active()}

    def look(self) -> Changes:
        since = datetime.now(UTC) - timedelta(seconds=LATE_S)
        active = self.store.seen_active()
        seen = {one.id: one for one in (*self.store.seen_since(since), *self.store.seen_after(self.last_key), *active)}
        over = self.active - {one.id for one in active} - seen.keys()
        seen |= {one.id: one for one in self.store.seen_of(over)}
        self.active = {one.id for one in active}
        changed = [one for one in seen.values() if _stamp(one) != _stamp(self.known.get(one.id))]
        self.known |= {one.id: one for one in changed}
        self.last_key = max([self.last_key, *(one.key for one in changed)])
        return Changes(changed, self._gone())

    def _gone(self) -> list[RunStamp]:
        """Counting is quick; asking for all ids is not."""
        if self.store.count() == len(self.known):
            return []
        there = self.store.ids()
        gone = [one for run_id, one in self.known.items() if run_id not in there]
        for one in gone:
            del self.known[one.id]
        return gone


def _stamp(seen: RunStamp | None) -> Stamp | None:
    return (seen.status, seen.attempt, seen.updated_at) if seen is not None else None


class RefreshHints(NamedTuple):
    """What somebody who looks at a run should fetch again."""

    points: bool = False
    logs: tuple[str, ...] = ()  # the replicas whose logs have grown
    replicas: bool = False


class FolderChanges:
    """The files that the replicas of one attempt write."""

    def __init__(self, run_folder: Path) -> None:
        self.run_folder = run_folder
        self.attempt = 0
        self.points = self.ends = 0
        self.logs: dict[str, int] = {}

    def look(self, run: Run) -> RefreshHints:
        points = ends = 0
        logs: dict[str, int] = {}
        attempt = max(1, run.attempt)
        for name, entry in self._files(attempt):
            try:
                size = entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue
            if entry.name == "log":
                logs[name] = size
            elif entry.name.endswith((SUFFIX, ".events")):
                points += size
            elif entry.name in ("agent.json", END_FILE):
                ends += 1
        is_other = attempt != self.attempt
        grown = tuple(name for name, size in logs.items() if size != self.logs.get(name, 0))
        found = RefreshHints(is_other or points != self.points, grown, is_other or ends != self.ends)
        self.attempt, self.points, self.ends, self.logs = attempt, points, ends, logs
        return found

    def _files(self, attempt: int) -> Iterable[tuple[str, os.DirEntry[str]]]:
        try:
            names = os.listdir(self.run_folder / "replicas")
        except OSError:
            return
        for name in names:
            try:
                with os.scandir(self.run_folder / "replicas" / name / f"attempt-{attempt}") as entries:
                    for entry in entries:
                        yield name, entry
            except OSError:
                continue
