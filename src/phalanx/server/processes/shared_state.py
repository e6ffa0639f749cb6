"""Memory that the processes of one server share: counters, and small records by key.

It is made before the processes are forked and vanishes with the last of them. Each process writes only its own counters
and reads those of all. A process that replaces a killed one continues its counters.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from phalanx.locks import locked

RECORD_BYTES = 512 << 10  # of each process; untouched pages take no memory
TABLE_PLACES = 1 << 14
FAILURE_TIMES = 50
CONTENT_PLACES = 64
EVENT_PLACES = 1 << 12
LARGEST_CONTENT = 1 << 20  # bytes
MAKING_S = 1.0  # after this time, a process that makes a response counts as stuck
NUMBER_BYTES = 8
_HEAD = struct.Struct("<II")  # of a counter: the length of its name in bytes, and how many numbers follow it
_MARK_BYTES = 16


class Gauge(IntEnum):
    """The numbers that every process has, by their place."""

    END = 0  # of the counters, in bytes
    PID = 1
    CHANGES = 2  # requests that changed something, other than the values that a run logs
    WRITES = 3  # requests that wrote anything
    UNDER_WAY = 4  # requests
    LISTENERS = 5
    SCHEDULING = 6


class ProcessRecord:
    """The gauges and counters of one process. Only this process writes them, one thread at a time."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, RECORD_BYTES)
        self._numbers = memoryview(self._memory).cast("d")
        self._places: dict[str, int] = {}
        self[Gauge.END] = len(Gauge) * NUMBER_BYTES

    def __getitem__(self, gauge: Gauge) -> float:
        return self._numbers[gauge]

    def __setitem__(self, gauge: Gauge, value: float) -> None:
        self._numbers[gauge] = value

    def begin(self) -> None:
        """This process takes the record over, perhaps from one that was killed."""
        self.clear_gauges()
        self[Gauge.PID] = os.getpid()
        self._places = {name: place for name, place, _ in self._counters()}

    def clear_gauges(self) -> None:
        """The process is gone, and what it had under way with it."""
        for gauge in (Gauge.PID, Gauge.UNDER_WAY, Gauge.LISTENERS, Gauge.SCHEDULING):
            self[gauge] = 0

    def add(self, name: str, size: int, amounts: Mapping[int, float]) -> None:
        """Add to some of the numbers of a counter that has `size` of them. When the memory is full, new counters are
        left out."""
        first = self._places.get(name)
        if first is None:
            first = self._places[name] = self._make(name, size)
        if first:
            for place, amount in amounts.items():
                self._numbers[first + place] += amount

    def _make(self, name: str, size: int) -> int:
        text = name.encode()
        start = int(self[Gauge.END])
        first = -(-(start + _HEAD.size + len(text)) // NUMBER_BYTES)
        end = (first + size) * NUMBER_BYTES
        if end > RECORD_BYTES:
            return 0
        _HEAD.pack_into(self._memory, start, len(text), size)
        self._memory[start + _HEAD.size : start + _HEAD.size + len(text)] = text
        self[Gauge.END] = end  # last: others read up to here
        return first

    def counters(self) -> dict[str, list[float]]:
        return {name: list(map(float, self._numbers[first : first + size])) for name, first, size in self._counters()}

    def _counters(self) -> Iterator[tuple[str, int, int]]:
        start = len(Gauge) * NUMBER_BYTES
        while start < int(self[Gauge.END]):
            length, size = _HEAD.unpack_from(self._memory, start)
            text = self._memory[start + _HEAD.size : start + _HEAD.size + length]
            first = -(-(start + _HEAD.size + length) // NUMBER_BYTES)
            yield text.decode(), first, size
            start = (first + size) * NUMBER_BYTES


class SharedTable:
    """Records of one size by key. Keys with the same place overwrite each other, so a record may be forgotten; which
    keys those are cannot be guessed."""

    def __init__(self, form: str, places: int = TABLE_PLACES) -> None:
        self._form = struct.Struct(form)
        self._size = _MARK_BYTES + self._form.size
        self._secret = secrets.token_bytes(16)
        self._places = places
        self._memory = mmap.mmap(-1, places * self._size)

    @property
    def size_bytes(self) -> int:
        return len(self._memory)

    def get(self, key: str) -> tuple[float, ...] | None:
        start, mark = self._place(key)
        if self._memory[start : start + _MARK_BYTES] != mark:
            return None
        return self._form.unpack_from(self._memory, start + _MARK_BYTES)

    def put(self, key: str, *numbers: float) -> None:
        start, mark = self._place(key)
        self._memory[start : start + self._size] = mark + self._form.pack(*numbers)

    def remove(self, key: str) -> None:
        if self.get(key) is not None:
            start, _ = self._place(key)
            self._memory[start : start + _MARK_BYTES] = bytes(_MARK_BYTES)

    def _place(self, key: str) -> tuple[int, bytes]:
        mark = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_MARK_BYTES, key=self._secret).digest()
        return int.from_bytes(mark[:8], "little") % self._places * self._size, mark


class SharedContent(NamedTuple):
    content: bytes
    made_at: float
    for_s: float  # how long it may be reused
    changes: float  # `SharedState.changes` when it was begun
    begun_at: float


class SharedContents:
    """Responses that took long to make, for the other processes. No locks: what two processes write to the same place
    at once, or a killed one leaves half-written, has a wrong checksum and counts as absent."""

    _HEAD = struct.Struct(f"<{_MARK_BYTES}sIIdddd")  # digest of the key, length, checksum, the numbers

    def __init__(self, places: int = CONTENT_PLACES, largest: int = LARGEST_CONTENT) -> None:
        self._size = self._HEAD.size + largest
        self._places = places
        self._largest = largest
        self._memory = mmap.mmap(-1, places * self._size)
        self._makers = SharedTable("<dd")

    def get(self, key: str) -> SharedContent | None:
        mark = blake2b(key.encode("utf-8", "surrogateescape"), digest_size=_MARK_BYTES).digest()
        start = self._start(mark)
        found, length, checksum, *numbers = self._HEAD.unpack_from(self._memory, start)
        if found != mark or length > self._largest:
            return None
        content = self._memory[start + self._HEAD.size : start + self._HEAD.size + length]
        return SharedContent(content, *numbers) if zlib.crc32(content) == checksum else None

    def put(self, key: str, made: SharedContent) -> None:
        self._makers.remove(key)
        if len(made.content) > self._largest:
            return
        mark = blake2b(key.encode("utf-8", "surrogateescape"), digest_size=_MARK_BYTES).digest()
        start = self._start(mark)
        first = start + self._HEAD.size
        self._memory[first : first + len(made.content)] = made.content
        checksum = zlib.crc32(made.content)
        self._HEAD.pack_into(self._memory, start, mark, len(made.content), checksum, *made[1:])

    def _start(self, mark: bytes) -> int:
        return int.from_bytes(mark[:8], "little") % self._places * self._size

    def is_being_made(self, key: str) -> bool:
        """Whether another process makes this content now."""
        pid, until = self._makers.get(key) or (0.0, 0.0)
        return time.monotonic() < until and int(pid) != os.getpid()

    def make(self, key: str) -> None:
        """This process makes this content now."""
        self._makers.put(key, os.getpid(), time.monotonic() + MAKING_S)


class SharedState:
    """All that the processes of one server share. `processes`: how many have a record; `lock`: a lock file, if there
    are several."""

    def __init__(self, processes: int = 1, lock: Path | None = None) -> None:
        self.records = [ProcessRecord() for _ in range(processes)]
        self.own = self.records[0]
        self.own.begin()
        self.tokens = SharedTable("<dd")  # token buckets: what is left, and when that was counted
        self.failures = SharedTable(f"<{1 + FAILURE_TIMES}d", 1 << 13)  # wrong passwords: how many, and when
        self.contents = SharedContents() if processes > 1 else None
        self.events = SharedTable("<d", EVENT_PLACES)  # when clients were last told to fetch again, by run
        self._lock = lock

    def begin(self, number: int) -> None:
        """This process is the one with this number, from 0 on."""
        self.own = self.records[number]
        self.own.begin()

    def changes(self) -> float:
        """Grows with every change that a client made through any of the processes."""
        return sum(record[Gauge.CHANGES] for record in self.records)

    def writes(self) -> float:
        return sum(record[Gauge.WRITES] for record in self.records)

    def note_write(self, *, is_change: bool) -> None:
        """For the event loop of this process, before the client gets its response."""
        self.own[Gauge.WRITES] += 1
        if is_change:
            self.own[Gauge.CHANGES] += 1

    def note_event(self, run_id: str) -> None:
        """Before clients are told that a run has changed, or the list of runs (an empty id)."""
        self.events.put(run_id, time.monotonic())

    def event_at(self, run_id: str) -> float:
        found = self.events.get(run_id)
        return found[0] if found is not None else float("-inf")

    def alone(self) -> AbstractContextManager[object]:
        """Mutual exclusion of the processes. Raises OSError."""
        return locked(self._lock) if self._lock is not None else nullcontext()
