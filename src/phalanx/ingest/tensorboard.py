"""Reads TensorBoard event files in a run's outputs, and those that it makes in its working folder, while they grow.

Their data becomes points and events like any other, in our own files: `tensorboard.points` and `tensorboard.events`.
After the data, a note there records how far each file was read: a reader that continues after a kill truncates
everything behind the last note, so nothing is lost or duplicated. Only the scheduler writes.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx import run_paths
from phalanx.atomic_files import make_private, read_json, write_atomic
from phalanx.ingest.event_file_owners import EventFileOwners, FileOwner, rank_in_path
from phalanx.path_patterns import is_event_file
from phalanx.spool import JSON, PointWriter, Reader, Record, Writer, frame
from phalanx.store.series.attempts import planned_ranks
from phalanx.working_files import SHARED, read_working_files

if TYPE_CHECKING:
    from phalanx.formats.tfevents import EventFileReader, ImageSummary

NAME = "tensorboard"
LOOK_S = 2.0  # seconds between two searches for new files
WAIT_S = 10.0  # how long a file waits for an agent that knows its writer
MOST_ENTRIES = 20_000  # outputs to scan: datasets are written there, too
BUDGET = 4 << 20  # bytes read in one pass: the scheduler has other runs
LONGEST_TEXT = 1 << 20
IMAGES_KEPT = 200  # images of one name: there may be many, and they are large
PARTS = frozenset(["train", "training", "val", "valid", "validation", "test", "eval", "evaluation", "dev"])


class EventFileFollower:
    """`is_replay`: the working folder of the replicas is ignored: other programs have used it since."""

    def __init__(
        self, run_folder: Path, attempt: int, replicas: Mapping[str, Path], *, is_replay: bool = False
    ) -> None:
        self.run_folder = run_folder
        self.outputs = run_folder / run_paths.OUTPUTS
        self.is_replay = is_replay
        self.attempt = attempt
        self.replicas = replicas
        self.writers = EventFileOwners(replicas, planned_ranks(run_folder))
        self.owners: dict[str, FileOwner] = {}  # of each file that is read
        self.waiting: dict[str, float] = {}  # files without an owner, and since when
        self.look_at = 0.0
        self.followers: dict[str, EventFileReader] = {}
        self.converters: dict[str, EventFileConverter] = {}
        self.first_folder: str | None = None
        later = (folder.parent / run_paths.attempt_name(attempt + 1) for folder in replicas.values())
        self.is_past = any(folder.exists() for folder in later)  # then new outputs do not belong to this attempt

    def follow(self, *, is_over: bool = False) -> None:
        """Read new data, a bounded part of it unless the run has ended. Raises OSError when it cannot be stored; then
        it it is read again."""
        if self.is_past:
            return
        try:
            if time.monotonic() >= self.look_at or is_over:
                self._look(is_over=is_over)
                self.look_at = time.monotonic() + LOOK_S
            for inside, follower in self.followers.items():
                self._read(inside, follower, to_the_end=is_over)
        except OSError:
            self.close()
            raise

    def _read(self, inside: str, follower: EventFileReader, *, to_the_end: bool) -> None:
        converter = self._converter(inside)
        while True:
            before = follower.offset
            for item in follower.poll(BUDGET):
                converter.keep(self._name(inside, item.tag), item)
            if follower.offset == before:
                return
            converter.note(inside, follower.offset, self.first_folder or "")
            if not to_the_end:
                return

    def close(self) -> None:
        """Continue from the last notes."""
        for converter in self.converters.values():
            converter.close()
        self.converters.clear()
        self.followers.clear()
        self.look_at = 0.0

    def _look(self, *, is_over: bool) -> None:
        from phalanx.formats.tfevents import EventFileReader

        listed = {} if self.is_replay else event_files_of(self.run_folder, self.attempt, self.replicas)
        # A file that was collected has the same path among the outputs, and is the same file.
        places = {**{inside: self.outputs / inside for inside in self._files()}, **listed}
        new = sorted(places.keys() - self.followers.keys())
        may_say_more = self.writers.poll() if new else False
        for inside in new:
            since = self.waiting.setdefault(inside, time.monotonic())
            is_last = is_over or not may_say_more or time.monotonic() - since > WAIT_S
            owner = self._owner(inside, places[inside]) or (self._first_replica() if is_last else None)
            if owner is not None:
                self.owners[inside] = owner
        found = [inside for inside in new if inside in self.owners]
        if found and self.first_folder is None:
            self.first_folder = self._first(found)
        for inside in found:
            offset = self._converter(inside).read_to.get(inside, 0)
            self.followers[inside] = EventFileReader(places[inside], offset)

    def _owner(self, inside: str, path: Path) -> FileOwner | None:
        """The replica that the file was assigned to before; else whose process writes it; else that is named in its
        path, by its name or rank. None when it is unknown."""
        for name in self.replicas:
            if inside in self._converter_of(name).read_to:
                return FileOwner(name, self.writers.ranks.get(name))
        steps = Path(inside).parts[:-1]
        named = (name for name in map(_replica_name, steps) if name in self.replicas)
        ranked = (self.writers.of_rank(rank) for rank in map(rank_in_path, steps) if rank is not None)
        owner = self.writers.of(path)
        if owner is None:
            owner = next((FileOwner(name, self.writers.ranks.get(name)) for name in named), None)
        return owner or next(ranked, None)

    def _first_replica(self) -> FileOwner:
        name = next(iter(self.replicas))
        return FileOwner(name, self.writers.ranks.get(name))

    def _first(self, found: list[str]) -> str:
        """The folder whose tags get no prefix: the first one; among several, the topmost."""
        known = [self._converter_of(replica).first_folder for replica in self.replicas]
        folders = [self._split(inside)[0] for inside in found]
        return next(
            (folder for folder in known if folder is not None), min(folders, key=lambda one: len(Path(one).parts))
        )

    def _files(self) -> Iterator[str]:
        entries = 0
        for folder, _, names in os.walk(self.outputs):
            for name in names:
                path = os.path.join(folder, name)
                if is_event_file(name) and os.path.isfile(path):  # opening a pipe would block forever
                    yield os.path.relpath(path, self.outputs)
            entries += len(names) + 1
            if entries > MOST_ENTRIES:
                return

    def _converter(self, inside: str) -> EventFileConverter:
        return self._converter_of(self.owners[inside].replica)

    def _converter_of(self, replica: str) -> EventFileConverter:
        if replica not in self.converters:
            folder = self.replicas.get(replica)
            if folder is None:  # a process that a replica started
                folder = self.run_folder / run_paths.attempt_folder(replica, self.attempt)
                make_private(folder, self.run_folder)
            self.converters[replica] = EventFileConverter(folder, self.attempt)
        return self.converters[replica]

    def _split(self, inside: str) -> tuple[str, str]:
        """Its folder, as a prefix that names the part of the training. Without the replica's name or rank: replicas use
        the same tags, and their data is already separate."""
        replica, rank = self.owners[inside]
        steps = [
            step
            for step in Path(inside).parts[:-1]
            if _replica_name(step) != replica and (rank is None or rank_in_path(step) != rank)
        ]
        part = steps.pop() if steps and steps[-1].lower() in PARTS else ""
        return "/".join(steps), part

    def _name(self, inside: str, tag: str) -> str:
        """`train` and `validation` next to each other have the same tags; later folders are something else."""
        folder, part = self._split(inside)
        name = f"{part}/{tag}" if part else tag
        return name if folder == self.first_folder else f"{folder or '.'}/{name}"


def event_files_of(run_folder: Path, attempt: int, replicas: Mapping[str, Path]) -> dict[str, Path]:
    """The event files that a run makes in its working folder, by their path in it. Its agents list them."""
    lists = [listed for folder in replicas.values() if (listed := read_working_files(folder)) is not None]
    working = working_folder(run_folder, attempt) if lists else None
    if working is None:
        return {}
    files = (file for listed in lists for file in listed.files if is_event_file(file.path) and file.state != SHARED)
    found = {file.path: working / file.path for file in files}
    return {inside: path for inside, path in found.items() if path.is_file() and not path.is_symlink()}


def working_folder(run_folder: Path, attempt: int) -> Path | None:
    """The folder in which the replicas of an attempt run, if this machine can see it. Only the facts say so: they do
    not come from a pod, unlike the lists."""
    facts = read_json(run_folder / run_paths.facts_file(attempt))
    working = facts.get("working") if isinstance(facts, dict) and "pod" not in facts else None
    return Path(working) if isinstance(working, str) and os.path.isdir(working) else None


def _replica_name(step: str) -> str:
    """TensorFlow calls the master `chief`."""
    return "master-0" if step == "chief-0" else step


class EventFileConverter:
    """Writes for one replica."""

    def __init__(self, folder: Path, attempt: int) -> None:
        self.folder = folder
        self.points_file = folder / f"{NAME}.points"
        self.events_file = folder / f"{NAME}.events"
        self.images: Counter[str] = Counter()
        self.points: PointWriter | None = None
        self.events: Writer | None = None
        self.first_folder: str | None = None  # the first folder seen in the run
        # Files of an earlier attempt are still among the outputs; their data is already stored.
        earlier = [folder.parent / run_paths.attempt_name(number) / f"{NAME}.events" for number in range(1, attempt)]
        self.read_to: dict[str, int] = {}
        for path in earlier:
            for record in Reader(path).poll():
                self._take_note(_content(record))
        self._cut()

    def _take_note(self, event: Mapping[str, Any]) -> int | None:
        """The number of bytes of points; None when it is not a note."""
        if event.get("kind") != NAME:
            return None
        try:
            file, offset, points = str(event["file"]), int(event["offset"]), int(event["points"])
            self.first_folder = str(event["first"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        self.read_to[file] = max(0, offset)
        return max(0, points)

    def _cut(self) -> None:
        """Truncate to the last note: everything behind it will be read again."""
        points_size = events_size = kept = position = 0
        images: list[str] = []
        reader = Reader(self.events_file)
        for seen, record in enumerate(reader.poll(), 1):
            event = _content(record)
            position += len(frame(record.kind, record.payload))
            if event.get("kind") == "image":
                images.append(str(event.get("name")))
            size = self._take_note(event)
            if size is not None:
                points_size, events_size, kept = size, position, seen
                self.images.update(images)
                images.clear()
        if self.points_file.exists() and self.points_file.stat().st_size > points_size:
            os.truncate(self.points_file, points_size)
        if reader.skipped_bytes:  # the disk was full once: then lengths no longer show where a record starts
            records = islice(Reader(self.events_file).poll(), kept)
            write_atomic(self.events_file, b"".join(frame(record.kind, record.payload) for record in records))
        elif self.events_file.exists() and self.events_file.stat().st_size > events_size:
            os.truncate(self.events_file, events_size)

    def keep(self, name: str, item: Any) -> None:
        from phalanx.formats.tfevents import HistogramSummary, HparamsSummary, ImageSummary, ScalarSummary, TextSummary

        if isinstance(item, ScalarSummary):
            if self.points is None:
                self.points = PointWriter(self.points_file)
            self.points.add(max(item.step, -(2**62)), item.time, {name[:500]: item.value})
            return
        fields: dict[str, Any] = {"at": item.time, "name": name, "step": item.step}
        if isinstance(item, TextSummary):
            self._note({**fields, "kind": "text", "text": item.text[:LONGEST_TEXT]})
        elif isinstance(item, HistogramSummary):
            self._note({**fields, "kind": "histogram", "edges": item.edges, "counts": item.counts})
        elif isinstance(item, HparamsSummary):
            self._note({"at": item.time, "kind": "params", "values": item.values})
        elif isinstance(item, ImageSummary):
            self._keep_image(fields, item)

    def _keep_image(self, fields: dict[str, Any], item: ImageSummary) -> None:
        self.images[fields["name"]] += 1
        count = self.images[fields["name"]]
        if count > IMAGES_KEPT:
            return
        ending = {b"\x89P": ".png", b"\xff\xd8": ".jpg", b"GI": ".gif"}.get(item.data[:2], "")
        media = self.folder / run_paths.MEDIA
        media.mkdir(mode=0o700, exist_ok=True)
        inside = f"media/{NAME}-{item.step}-{list(self.images).index(fields['name'])}-{count}{ending}"
        descriptor = os.open(self.folder / inside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(item.data)
        self._note({**fields, "kind": "image", "path": inside})

    def note(self, inside: str, offset: int, first_folder: str) -> None:
        """Record how far a file was read, after all its data."""
        size = self.points_file.stat().st_size if self.points_file.exists() else 0
        read = {"file": inside, "offset": offset, "points": size, "first": first_folder}
        self._note({"at": time.time(), "kind": NAME, **read})
        self.read_to[inside] = offset

    def _note(self, event: dict[str, Any]) -> None:
        if self.events is None:
            self.events = Writer(self.events_file)
        with suppress(ValueError):  # a record of more than 16 MiB
            self.events.append_json(event)

    def close(self) -> None:
        for writer in (self.points, self.events):
            if writer is not None:
                writer.close()
        self.points = self.events = None


def _content(record: Record) -> dict[str, Any]:
    """Empty for what is not an event."""
    try:
        found = record.data() if record.kind == JSON else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
