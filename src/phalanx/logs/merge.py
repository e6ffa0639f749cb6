"""Merges several logs by time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from phalanx.logs.lines import LogLine


def merged(logs: Iterable[Iterable[LogLine]]) -> Iterator[LogLine]:
    """The lines of all logs in order of time. Reads ahead at most one line of each log."""
    return heapq.merge(*logs, key=lambda line: line.at)


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=_order))


def _order(name: str) -> tuple[str, int]:
    role, _, index = name.rpartition("-")
    return (role, int(index)) if index.isdigit() else (name, -1)
