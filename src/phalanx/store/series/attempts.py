"""The points of one attempt of a run, from its compacted parts and from the files of its replicas."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import NamedTuple

from phalanx import run_paths
from phalanx.errors import disk_fault
from phalanx.spool import JSON, split
from phalanx.store.records import Summary
from phalanx.store.series.compacted import CompactedPart, checksum_of, parts_of
from phalanx.store.series.points import LAST_STEP, Columns, PointFile, point_files
from phalanx.store.series.strands import After, MemoryStrand, MergedStrand, Strand, in_line, summary_of_line, within
from phalanx.store.series.summaries import FIRST_STEP
from phalanx.stored_plan import PlanDamaged, read_plan

FIRST_ROLES = ("master", "chief")
POLLS = 20  # retries: compaction may remove files while they are listed, once per attempt
POINT_BYTES, SERIES_BYTES = 24, 800  # in memory
EVENTS_READ = 1 << 16  # the event with the rank is at the beginning of its file


class PointSource(NamedTuple):
    """A file of points."""

    replica: str
    path: Path

    @property
    def name(self) -> str:
        return f"{self.replica}/{self.path.name}"


class AttemptPoints:
    """Follows one attempt. If a part has consumed a file, only bytes appended since then count."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.parts: dict[int, CompactedPart] = {}
        self.files: dict[PointSource, PointFile] = {}
        self._by_replica: dict[str, list[PointFile]] = {}
        self._ranks: dict[str, int] = {}
        self._merged: dict[tuple[str, str], MergedStrand] = {}

    def poll(self, sources: Iterable[PointSource], leaves: Mapping[int, Path]) -> bool:
        """Returns whether anything is new. List the sources before the leaves: points are removed after their leaves
        exist. Raises FileNotFoundError when a source is gone: then list again."""
        listed = sorted(sources)
        changed = self._open(leaves, {source.name for source in listed})
        for gone in self.files.keys() - set(listed):
            del self.files[gone]
            changed = True
        for source in listed:
            changed |= self._follow(source)
        self._by_replica = {}
        for source in listed:
            self._by_replica.setdefault(source.replica, []).append(self.files[source])
        return changed

    def _open(self, leaves: Mapping[int, Path], listed: Set[str]) -> bool:
        """A part without its points does not count while the points are still in files."""
        opened = False
        for number in leaves.keys() - self.parts.keys():
            part = CompactedPart.open(leaves[number])
            if part is not None and (part.is_complete() or not part.consumed.keys() & listed):
                self.parts[number] = part
                for source in [source for source in self.files if source.name in part.consumed]:
                    del self.files[source]
                self._merged.clear()
                opened = True
        return opened

    def _follow(self, source: PointSource) -> bool:
        file = self.files.get(source)
        if file is None:
            file = PointFile(source.path, self._consumed(source))
        try:
            grown = file.poll() > 0
        except FileNotFoundError:
            raise
        except OSError as fault:
            raise disk_fault(f"{source.path} cannot be read", fault) from None
        self.files[source] = file
        if grown and source.replica not in self._ranks:
            rank = rank_in(source.path.with_suffix(".events"))
            if rank is not None:
                self._ranks[source.replica] = rank
        return grown

    def _consumed(self, source: PointSource) -> int:
        """How many bytes of a file are in the parts. A new file of the same name is not the consumed one."""
        known = [part.consumed[source.name] for part in self.parts.values() if source.name in part.consumed]
        return max((one.read for one in known if checksum_of(source.path, 0, one.read) == one.checksum), default=0)

    def series(self) -> Iterator[tuple[str, str]]:
        """Metric and replica of every series with points; may contain duplicates."""
        for part in self.parts.values():
            yield from part.series()
        yield from self.fresh_series()

    def known(self) -> tuple[object, ...]:
        """Unchanged while no series is added and no rank changes."""
        fresh = {
            source: (id(file), sum(1 for columns in file.metrics.values() if columns.values))
            for source, file in self.files.items()
        }
        return tuple(sorted(self.parts)), fresh, dict(self._ranks)

    def fresh_series(self) -> Iterator[tuple[str, str]]:
        """The series with points that are not compacted."""
        for source, file in self.files.items():
            for metric, columns in file.metrics.items():
                if columns.values:
                    yield metric, source.replica

    def skipped_bytes(self) -> int:
        """How many bytes of the files were damaged."""
        compacted = sum(part.skipped_bytes for part in self.parts.values())
        return compacted + sum(file.skipped_bytes for file in self.files.values())

    def stamp(self) -> tuple[object, ...]:
        """A stamp of all data as last read."""
        files = sorted((source.name, file.stamp) for source, file in self.files.items())
        return self.number, sorted(part.stamp for part in self.parts.values()), files

    def held_bytes(self) -> int:
        """Approximate memory use in bytes."""
        held = sum(part.held_bytes() for part in self.parts.values())
        for file in self.files.values():
            held += sum(SERIES_BYTES + POINT_BYTES * len(columns) for columns in file.metrics.values())
        return held

    def ranks(self) -> dict[str, int]:
        """The ranks that replicas reported themselves."""
        found = {name: rank for part in self.parts.values() for name, rank in part.replicas if rank is not None}
        return {**found, **self._ranks}

    def strands(self, metric: str, replica: str, after: After) -> list[Strand]:
        """The line of one series; `after` returns its largest step in earlier attempts."""
        compacted = self._compacted(metric, replica)
        fresh = self.fresh(metric, replica, after)
        return in_line([*compacted, fresh] if fresh else compacted)

    def fresh(self, metric: str, replica: str, after: After) -> MemoryStrand | None:
        """The part of a series that is not compacted. Missing steps continue the count of the compacted part."""
        columns = self._columns(metric, replica)
        if not columns:
            return None
        compacted = self._compacted(metric, replica)
        merged = self._merged.get((metric, replica))
        if merged is None or list(map(id, merged.sources)) != list(map(id, columns)):
            merged = self._merged[metric, replica] = MergedStrand(columns, self.number)
        return merged.grow(after, max((strand.total().high_step for strand in compacted), default=None))

    def _compacted(self, metric: str, replica: str) -> list[Strand]:
        found = (self.parts[number].strand(metric, replica) for number in sorted(self.parts))
        return [strand for strand in found if strand is not None]

    def _columns(self, metric: str, replica: str) -> list[Columns]:
        found = (file.metrics.get(metric) for file in self._by_replica.get(replica, ()))
        return [columns for columns in found if columns is not None and columns.values]


class PointHistory:
    """All attempts of a run, or those before one; of all replicas, or only one."""

    def __init__(self, run_folder: Path, before: int | None = None, only: str | None = None) -> None:
        self.run_folder = run_folder
        self.before = before
        self.only = only
        self.each: dict[int, AttemptPoints] = {}
        self._polled = False

    def poll(self) -> bool:
        """Returns whether anything is new."""
        self._polled = True
        changed = False
        for left in reversed(range(POLLS)):
            try:
                return self._poll() or changed
            except FileNotFoundError:  # compacted since it was listed
                changed = True
                if not left:
                    raise
        return changed

    def _poll(self) -> bool:
        sources = sources_of(self.run_folder, self.only)  # before the leaves: see `AttemptPoints.poll`
        leaves = parts_of(self.run_folder)
        changed = False
        for number in sorted(sources.keys() | leaves.keys() | self.each.keys()):
            if self.before is None or number < self.before:
                attempt = self.each.setdefault(number, AttemptPoints(number))
                changed |= attempt.poll(sources.get(number, ()), leaves.get(number, {}))
        return changed

    def lines(self, metric: str, replica: str) -> list[list[Strand]]:
        """The line of each attempt that logged the series, in order."""
        found: list[list[Strand]] = []
        for number in sorted(self.each):
            strands = self.each[number].strands(metric, replica, partial(_largest_step, found))
            if strands:
                found.append(strands)
        return found

    def largest_step(self, metric: str, replica: str) -> int | None:
        """The largest step of the latest attempt that logged the series. Read lazily: it is rarely needed."""
        self._poll_once()
        return _largest_step(self.lines(metric, replica))

    def summary(self, metric: str, replica: str, below: int) -> Summary | None:
        """Of the points that survive an attempt whose smallest step is `below`."""
        self._poll_once()
        return summary_of_line(surviving(self.lines(metric, replica), below - 1, roughly=True))

    def _poll_once(self) -> None:
        if not self._polled:
            self.poll()


def _largest_step(lines: Sequence[Sequence[Strand]]) -> int | None:
    return max(strand.total().high_step for strand in lines[-1]) if lines else None


def surviving(lines: Sequence[Sequence[Strand]], end: int = LAST_STEP, *, roughly: bool = False) -> list[Strand]:
    """The line that is left of the lines of several attempts: what no later attempt logged again, up to a step."""
    if len(lines) == 1 and end == LAST_STEP:
        return list(lines[0])
    return [
        part
        for line, own in zip(lines, line_ends(lines), strict=True)
        for strand in line
        for part in within(strand, FIRST_STEP, min(own, end), roughly=roughly)
    ]


def line_ends(lines: Sequence[Sequence[Strand]]) -> list[int]:
    """The last step of each attempt's line that no later attempt logged again."""
    ends = []
    end = LAST_STEP
    for line in reversed(lines):
        ends.append(end)
        end = min(end, *(strand.total().low_step - 1 for strand in line))
    return ends[::-1]


def sources_of(run_folder: Path, only: str | None = None) -> dict[int, list[PointSource]]:
    """All point files of a run or of one replica, by attempt."""
    found: dict[int, list[PointSource]] = {}
    base = run_folder / run_paths.REPLICAS
    for replica in _names(base) if only is None else [only]:
        for attempt in _names(base / replica):
            number = run_paths.attempt_number(attempt)
            if number is not None and replica.isprintable():
                folder = base / replica / attempt
                found.setdefault(number, []).extend(PointSource(replica, folder / name) for name in point_files(folder))
    return found


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def rank_in(events: Path) -> int | None:
    """The rank that a writer recorded when it opened its files."""
    try:
        with open(events, "rb") as stream:
            records = split(stream.read(EVENTS_READ))[0]
    except OSError:
        return None
    for record in records:
        try:
            event = record.data() if record.kind == JSON else None
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("kind") == "open" and isinstance(event.get("rank"), int):
            return int(event["rank"])
    return None


def planned_ranks(run_folder: Path) -> dict[str, int]:
    try:
        return {one.name: one.rank for one in read_plan(run_folder).replicas if one.rank is not None}
    except (OSError, PlanDamaged):
        return {}


def replica_order(replica: str, rank: int | None) -> tuple[bool, bool, int, str, int, str]:
    """Sort key: the master first, then by rank, then those without a rank by name."""
    role, _, index = replica.rpartition("-")
    first, _, local = index.partition(".")
    number = int(first) if first.isdecimal() else 0
    is_first = role in FIRST_ROLES and not local
    return not is_first, rank is None, rank or 0, role, number, replica
