"""Agents' measurements of one process in one attempt: CPU, memory, GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.ends import Cause, End, read_end
from phalanx.spool import JSON, Reader


class UsageInterval(NamedTuple):
    """The interval between two samples: average cores in use, and memory at its end."""

    since: float
    until: float
    cores: float
    memory_mib: float

    @property
    def seconds(self) -> float:
        return self.until - self.since


class GpuSample(NamedTuple):
    at: float
    gpu: int  # its index on the machine
    percent: float
    memory_mib: float
    total_mib: float


class ProcessSamples(NamedTuple):
    """One process of a run in one attempt. `cause` is None while it runs; `until` is then its last sign of life."""

    name: str
    started_at: float
    until: float
    cause: Cause | None
    message: str
    cpu_s: float
    memory_mib: float | None  # maximum
    stretches: tuple[UsageInterval, ...]
    gpus: tuple[GpuSample, ...]

    @property
    def seconds(self) -> float:
        return max(0.0, self.until - self.started_at)

    def in_second_half(self) -> ProcessSamples:
        """The same with only those GPU samples that were taken after warm-up."""
        middle = self.started_at + self.seconds / 2
        return self._replace(gpus=tuple(look for look in self.gpus if look.at >= middle))


class _Look(NamedTuple):
    at: float
    cpu_s: float
    memory_mib: float


def recorded(
    name: str, notes: Iterable[Mapping[str, Any]], end: End | None, limit_mib: float | None = None
) -> ProcessSamples | None:
    """One process, from its agent's notes and its end record. None without data. `limit_mib`: the memory limit that its
    agent enforces."""
    looks, gpus, started_at = _looks(notes)
    peak = end.peak if end is not None else {}
    ended = end.ended_at if end is not None else None
    started_at = (end.started_at if end is not None else None) or started_at
    if started_at is None:
        started_at = looks[0].at if looks else None
    if started_at is None or (not looks and "cpu_s" not in peak):
        return None
    until = max(started_at, ended if ended is not None else looks[-1].at if looks else started_at)
    cpu_s = max([peak.get("cpu_s", 0.0), *(look.cpu_s for look in looks)])
    return ProcessSamples(
        name=name,
        started_at=started_at,
        until=until,
        cause=end.cause if end is not None else None,
        message=end.message if end is not None else "",
        cpu_s=cpu_s,
        memory_mib=_peak_memory(peak, looks, limit_mib),
        stretches=_stretches(started_at, until, looks, cpu_s),
        gpus=tuple(gpus),
    )


def _looks(notes: Iterable[Mapping[str, Any]]) -> tuple[list[_Look], list[GpuSample], float | None]:
    """The measurements in order; other records are skipped."""
    looks: list[_Look] = []
    gpus: list[GpuSample] = []
    started_at = None
    for note in notes:
        at, use = _number(note.get("at")), _numbers(note.get("use"))
        if at is None:
            continue
        if started_at is None and "start" in note:
            started_at = at
        if {"cpu_s", "memory_mib"} <= use.keys() and (not looks or at > looks[-1].at):
            looks.append(_Look(at, use["cpu_s"], use["memory_mib"]))
        listed = note.get("gpus")
        rows = map(_numbers, listed if isinstance(listed, list) else ())
        gpus += [
            GpuSample(at, int(row["index"]), row["percent"], row["memory_mib"], row["total_mib"])
            for row in rows
            if {"index", "percent", "memory_mib", "total_mib"} <= row.keys()
        ]
    return looks, gpus, started_at


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _numbers(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        return {}
    return {str(key): number for key, item in value.items() if (number := _number(item)) is not None}


def _peak_memory(peak: Mapping[str, float], looks: Sequence[_Look], limit_mib: float | None) -> float | None:
    """The resident size counts shared memory once per process. Above the limit, the agent measured proportional shares
    instead; below it, only the resident size is known."""
    most = max([peak.get("memory_mib", 0.0), *(look.memory_mib for look in looks)], default=0.0)
    if "fair_mib" in peak and limit_mib is not None:
        below = max((look.memory_mib for look in looks if look.memory_mib <= limit_mib), default=0.0)
        most = min(most, max(peak["fair_mib"], below))
    return most or None


def _stretches(started_at: float, until: float, looks: Sequence[_Look], cpu_s: float) -> tuple[UsageInterval, ...]:
    """Intervals from start to end without a gap. Agents sample periodically and miss the last moments of processes that
    end in between; the kernel's total, known at the end, does not. The excess over what the last interval can hold is
    spread over all of them."""
    points = [_Look(started_at, 0.0, 0.0), *(look for look in looks if started_at < look.at < until)]
    if until > points[-1].at:
        points.append(_Look(until, cpu_s, looks[-1].memory_mib if looks else 0.0))
    raw = [
        UsageInterval(one.at, two.at, max(0.0, two.cpu_s - one.cpu_s) / (two.at - one.at), two.memory_mib)
        for one, two in pairwise(points)
    ]
    if len(raw) < 2:
        return tuple(raw)
    last = raw[-1]
    usual = max(stretch.cores for stretch in raw[:-1])
    if last.cores <= usual:
        return tuple(raw)
    missed = (last.cores - usual) * last.seconds / (until - started_at)
    raw[-1] = last._replace(cores=usual)
    return tuple(stretch._replace(cores=stretch.cores + missed) for stretch in raw)


# reading -------------------------------------------------------------------------------------------------------------

_MEASURED = (b'"use"', b'"start"')


def read_notes(spool: Path, wanted: tuple[bytes, ...] = _MEASURED) -> list[dict[str, Any]]:
    """The agent's notes with measurements; most notes are about the log size, and are skipped without parsing."""
    notes = []
    try:
        for record in Reader(spool).poll():
            if record.kind == JSON and any(word in record.payload for word in wanted):
                note = record.data()
                if isinstance(note, dict):
                    notes.append(note)
    except (OSError, ValueError):
        pass  # as far as it is readable
    return notes


def read_attempts(
    run_folder: Path, name: str, *, with_notes: bool = True, limit_mib: float | None = None
) -> dict[int, ProcessSamples]:
    """All attempts of one process with data. Without notes: only the end records, which is faster."""
    found = {}
    for number, folder in attempt_folders(run_folder / run_paths.REPLICAS / name):
        notes = read_notes(folder / run_paths.SPOOL) if with_notes else []
        known = recorded(name, notes, read_end(folder), limit_mib)
        if known is not None:
            found[number] = known
    return found


def attempt_folders(folder: Path) -> list[tuple[int, Path]]:
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted((number, path) for path in found if (number := run_paths.attempt_number(path.name)) is not None)
