"""Updates the store from what the replicas of a run write: metric summaries, params, tags, artifacts, models.

The files are the truth. Everything here can be repeated from their beginning, with the same result.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.errors import CallError, StoreError, SystemFault
from phalanx.home.home import Home
from phalanx.ingest.tensorboard import EventFileFollower
from phalanx.ingest.wandb import WandbFollower
from phalanx.naming import without_control_characters
from phalanx.spool import JSON, Reader, Record
from phalanx.store import Artifact, Run, Store
from phalanx.store.series.attempts import planned_ranks, replica_order
from phalanx.store.series.compacted import parts_of
from phalanx.store.series.replica_summaries import ReplicaSummaries
from phalanx.working_files import read_working_files

EVERY_S = 1.0  # seconds between two reads of an active run
# Exceptions that a malformed event may cause; it must not block the others.
UNFIT = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, CallError)


class SpooledEvent(NamedTuple):
    at: float
    path: Path  # offset in its file
    content: Mapping[str, Any]


class RunIndexer:
    """Follows one attempt of a run. `is_replay`: what it reads is in no order with the run's statuses, so the time of a
    change is that of its event."""

    def __init__(self, home: Home, store: Store, run: Run, replicas: Iterable[str], *, is_replay: bool = False) -> None:
        self.home = home
        self.store = store
        self.run_id = run.id
        self.attempt = run.attempt
        self.next_at = 0.0
        self.is_replay = is_replay
        self.folder = home.run(run.id).path
        self.ranks = planned_ranks(self.folder)
        names = sorted(replicas, key=self._order)
        self.folders = {name: self.folder / run_paths.attempt_folder(name, run.attempt) for name in names}
        self.progress_since: dict[str, Any] | None = None
        self._begin()

    def _begin(self) -> None:
        """Reset to the state before anything was read."""
        self.is_torn = False  # the TensorBoard files will be truncated
        self.points = {name: self._summaries_of(name) for name in self.folders}
        self.owners: dict[str, str] = {}  # the first replica, in our order, that logged a metric represents it
        self.unstored: dict[str, str] = {}  # metrics with new points, and their owner
        self.events: dict[Path, Reader] = {}
        self.dropped: dict[Path, Mapping[str, int]] = {}  # reasons and counts, by file
        self.boards = EventFileFollower(self.folder, self.attempt, self.folders, is_replay=self.is_replay)
        self.wandb = WandbFollower(self.folder, self.folders)

    def _summaries_of(self, replica: str) -> ReplicaSummaries:
        return ReplicaSummaries(self.folder, replica, self.attempt)

    def _order(self, replica: str) -> tuple[object, ...]:
        return replica_order(replica, self.ranks.get(replica))

    def _own(self, metric: str, replica: str) -> bool:
        """Whether the replica represents a metric that it logged."""
        owner = self.owners.setdefault(metric, replica)
        if self._order(replica) < self._order(owner):
            owner = self.owners[metric] = replica
        return owner == replica

    def run_pass(self, *, is_over: bool = False) -> None:
        """Read new data periodically; read all of it when the run has ended. Raises OSError, StoreError."""
        now = time.monotonic()
        if now < self.next_at and not is_over:
            return
        self._look_for_more()
        faults = []
        for look in (
            self._read_trackers,
            self._follow_boards,
            self._follow_wandb,
            self._take_events,
            self._take_points,
            self._take_files,
        ):
            try:
                look(is_over=is_over)
            except OSError as fault:
                faults.append(fault)
        # Reading a run with many files takes a while: it must not starve other work.
        self.next_at = time.monotonic() + max(EVERY_S, 10 * (time.monotonic() - now))
        if faults:
            raise faults[0]

    def _look_for_more(self) -> None:
        """Processes that a replica started itself write to folders next to it: `worker-0.1`."""
        for name in sorted(os.listdir(self.folder / run_paths.REPLICAS)):
            folder = self.folder / run_paths.attempt_folder(name, self.attempt)
            if name not in self.folders and name.partition(".")[0] in self.folders and folder.is_dir():
                self.folders[name] = folder
                self.points[name] = self._summaries_of(name)

    def close(self) -> None:
        self.boards.close()
        self.wandb.close()

    def _read_trackers(self, *, is_over: bool) -> None:
        """What other tools tracked is in our files from then on."""
        has_files = any((folder / run_paths.WORKING_FILES).exists() for folder in self.folders.values())
        if not is_over or self.is_replay or not has_files:
            return
        from phalanx.ingest.trackers import read_trackers

        found = read_trackers(self.folder, self.attempt, self.folders)
        if found:
            self.store.put_fact(self.run_id, "trackers", found)

    def _take_files(self, *, is_over: bool) -> None:
        """What the run made: in its working folder, and among its outputs what looks like a model."""
        if not is_over:
            return
        from phalanx.insight.left_files import files_fact
        from phalanx.registry.candidates import FACT, find_candidates

        facts = self.store.facts(self.run_id)
        lists = [listed for folder in self.folders.values() if (listed := read_working_files(folder)) is not None]
        news = {
            "files": files_fact(lists, has_trackers="trackers" in facts),
            FACT: find_candidates(self.folder) or None,
        }
        for name, value in news.items():
            if value is not None or facts.get(name) is not None:
                self.store.put_fact(self.run_id, name, value)

    def _follow_boards(self, *, is_over: bool) -> None:
        if self.is_torn:
            self._begin()
        try:
            self.boards.follow(is_over=is_over)
        except OSError:
            self.is_torn = True
            raise

    def _follow_wandb(self, *, is_over: bool) -> None:
        self.wandb.follow(is_over=is_over)

    def _take_points(self, *, is_over: bool) -> None:
        # Other replicas may have logged in earlier attempts, and compacted points are no longer in the files.
        if is_over and (self.is_replay or self.attempt > 1 or self.attempt in parts_of(self.folder)):
            from phalanx.store.series.run_series import RunSeries

            with self.store.summarising(self.run_id):
                self.store.put_summaries(self.run_id, RunSeries(self.folder).summaries())
            return
        self._poll_points()  # most of them, before others have to wait
        if self.unstored:
            with self.store.summarising(self.run_id):
                self._poll_points()
                changed = {metric: self.points[owner].summary(metric) for metric, owner in self.unstored.items()}
                self.store.put_summaries(self.run_id, changed)
            self.unstored = {}

    def _poll_points(self) -> None:
        for name, points in self.points.items():
            self.unstored.update((metric, name) for metric in points.poll() if self._own(metric, name))

    def _take_events(self, *, is_over: bool) -> None:  # noqa: ARG002 - same signature as the others
        """Process events in the order of writing, as far as it is known: so the result does not depend on the reader.
        Raises OSError after all of them."""
        found: list[SpooledEvent] = []
        faults = []
        for path in [path for folder in self.folders.values() for path in _event_files(folder)]:
            reader = self.events.setdefault(path, Reader(path))
            try:
                found += [event for record in reader.poll() if (event := _decoded(path, record)) is not None]
            except OSError as fault:
                faults.append(fault)
        for event in _merged(sorted(found, key=lambda event: event.at)):
            try:
                self._take(event)
            except OSError as fault:
                self.events.pop(event.path, None)  # to be read again
                faults.append(fault)
        if faults:
            raise faults[0]

    def _take(self, event: SpooledEvent) -> None:
        try:
            _TAKERS[str(event.content["kind"])](self, event.path, event.content)
        except StoreError:
            raise
        except (*UNFIT, SystemFault):
            pass

    def _take_params(self, _: Path, event: Mapping[str, Any]) -> None:
        self.store.put_params(self.run_id, dict(event["values"]), reset=bool(event.get("reset")))

    def _take_tags(self, _: Path, event: Mapping[str, Any]) -> None:
        found = self.store.find(self.run_id).tags
        before = _texts(event["set"]) if "set" in event else found
        removed = set(_texts(event.get("remove", [])))
        wanted = dict.fromkeys(tag for tag in (*before, *_texts(event.get("add", []))) if tag not in removed)
        if tuple(wanted) != found:
            self.store.update(self.run_id, tags=wanted, at=self._changed_at(event))

    def _take_labels(self, _: Path, event: Mapping[str, Any]) -> None:
        labels = {
            without_control_characters(name): None if text is None else str(text)
            for name, text in dict(event["values"]).items()
        }
        self.store.put_labels(self.run_id, labels)

    def _take_description(self, _: Path, event: Mapping[str, Any]) -> None:
        known = ("name", "description", "framework", "commit")
        fields: dict[str, Any] = {name: str(event[name]) for name in known if event.get(name) is not None}
        if "name" in fields:
            fields["name"] = without_control_characters(fields["name"])
        self.store.update(self.run_id, **fields, at=self._changed_at(event))

    def _changed_at(self, event: Mapping[str, Any]) -> datetime | None:
        """None: now."""
        at = event.get("at")
        if not self.is_replay or not isinstance(at, int | float) or not 0 <= at <= time.time():
            return None
        return datetime.fromtimestamp(at, UTC)

    def _take_archive(self, _: Path, event: Mapping[str, Any]) -> None:
        """A run that went on afterwards is no longer archived."""
        run = self.store.find(self.run_id)
        archived = bool(event["archived"])
        if self.attempt == max(1, run.attempt) and archived != run.archived:
            self.store.update(self.run_id, archived=archived and run.is_done, at=self._changed_at(event))

    def _take_progress(self, path: Path, event: Mapping[str, Any]) -> None:
        """The progress of the run is that of its first replica. Its start gives the speed."""
        if path.parent == next(iter(self.folders.values())):
            progress = {name: event.get(name) for name in ("at", "done", "total", "label")}
            self.progress_since = self.progress_since or {"at": progress["at"], "done": progress["done"]}
            self.store.put_fact(self.run_id, "progress", {**progress, "since": self.progress_since})

    def _take_invalid(self, _: Path, event: Mapping[str, Any]) -> None:
        self.store.put_fact(self.run_id, "invalid", {"why": str(event.get("why", "")), "attempt": self.attempt})

    def _take_artifact(self, _: Path, event: Mapping[str, Any]) -> None:
        at = datetime.fromtimestamp(event["at"], UTC)
        size = min(max(0, int(event["size"])), 2**63 - 1)
        row = Artifact(self.run_id, str(event["path"]), str(event["type"]), str(event["name"]), size, None, at)
        self.store.put_artifacts(self.run_id, [row])

    def _take_model(self, _: Path, event: Mapping[str, Any]) -> None:
        from phalanx.registry.registry import Registry

        Registry(self.home, self.store).ingest(self.run_id, event)

    def _take_dataset(self, _: Path, event: Mapping[str, Any]) -> None:
        self.store.put_fact(self.run_id, f"dataset {event['name']}", dict(event))

    def _take_dropped(self, path: Path, event: Mapping[str, Any]) -> None:
        """Each process of a replica reports its own."""
        self.dropped[path] = {str(why): int(count) for why, count in event["why"].items()}
        total: Counter[str] = Counter()
        for other, why in self.dropped.items():
            if other.parent == path.parent:
                total.update(why)
        dropped = {"count": sum(total.values()), "why": dict(total)}
        self.store.put_fact(self.run_id, f"dropped {path.parent.parent.name}", dropped)


_TAKERS = {
    "params": RunIndexer._take_params,
    "tags": RunIndexer._take_tags,
    "labels": RunIndexer._take_labels,
    "describe": RunIndexer._take_description,
    "archive": RunIndexer._take_archive,
    "progress": RunIndexer._take_progress,
    "invalid": RunIndexer._take_invalid,
    "artifact": RunIndexer._take_artifact,
    "model": RunIndexer._take_model,
    "dataset": RunIndexer._take_dataset,
    "dropped": RunIndexer._take_dropped,
}
_NAMES = list(_TAKERS)  # a kind that is not a string may be unhashable


def _decoded(path: Path, record: Record) -> SpooledEvent | None:
    """None for events that are not for us: read from the file itself, written by a newer Phalanx, or not an event."""
    try:
        content = record.data() if record.kind == JSON else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("kind") not in _NAMES:
        return None
    at = content.get("at")
    return SpooledEvent(float(at) if isinstance(at, int | float) and abs(at) < 1e18 else 0.0, path, content)


def _merged(events: Iterable[SpooledEvent]) -> list[SpooledEvent]:
    """Merge consecutive label events: a reader must not see a label that is removed again."""
    found: list[SpooledEvent] = []
    for event in events:
        values = event.content.get("values") if event.content["kind"] == "labels" else None
        before = found[-1].content.get("values") if found and found[-1].content["kind"] == "labels" else None
        if isinstance(values, dict) and isinstance(before, dict):
            found[-1] = event._replace(content={**event.content, "values": {**before, **values}})
        else:
            found.append(event)
    return found


def _texts(values: Any) -> list[str]:
    """Raises TypeError for anything but a list."""
    if not isinstance(values, list):
        raise TypeError("not a list")
    return [without_control_characters(str(value)) for value in values]


def _event_files(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if name.endswith(".events")]
    except (FileNotFoundError, NotADirectoryError):
        return []


class RunIndexers:
    """The indexers of all active runs."""

    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.store = store
        self.live: dict[str, RunIndexer] = {}

    def run_pass(self, run: Run, replicas: Iterable[str]) -> None:
        """Unreadable files must not stop the monitoring of the run: the next pass may read them. Raises StoreError."""
        indexer = self.live.get(run.id)
        if indexer is not None and indexer.attempt != run.attempt:
            self._forget(run)
            indexer = None
        try:
            with suppress(OSError):
                if indexer is None:
                    indexer = self.live[run.id] = RunIndexer(self.home, self.store, run, replicas)
                indexer.run_pass()
        except StoreError:
            self._forget(run)  # what was read but not stored is read again
            raise

    def _forget(self, run: Run) -> None:
        indexer = self.live.pop(run.id, None)
        if indexer is not None:
            indexer.close()

    def finish(self, run: Run) -> None:
        """An attempt has ended: store all its data. Unreadable files must not prevent its end from being recorded.
        Raises StoreError."""
        indexer = self.live.get(run.id)
        try:
            if indexer is not None and indexer.attempt == run.attempt:
                with suppress(OSError):
                    indexer.run_pass(is_over=True)
        finally:
            self._forget(run)
