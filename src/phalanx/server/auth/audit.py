"""The audit log: changes, and rejected authentication attempts.

<home>/audit.log      one JSON object per line; audit.log.1 and so on are older files

A line contains no bodies, no tokens and no query strings.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

from phalanx.locks import locked
from phalanx.server.auth.identities import Identity
from phalanx.server.auth.rate_limits import TokenBuckets, network_of

LARGEST = 16 << 20
KEPT = 4  # number of older files
LONGEST_TARGET = 300
TAIL = 1 << 20  # bytes per read, from the end


class Audit:
    def __init__(self, home: Path, largest: int = LARGEST) -> None:
        self.path = home / "audit.log"
        self.largest = largest
        self._lock = threading.Lock()
        self._refusals = TokenBuckets(rate=1.0, burst=50.0)
        self._left_out = 0
        self._is_reported = False

    def note(
        self,
        caller: Identity | None,
        action: str,
        target: str,
        outcome: str | int,
        address: str | None = None,
        **about: str | None,
    ) -> None:
        """Write one complete line. `caller`: None if unknown; `address`: the client address, if it differs from the
        peer's; `about`: `run`, `made` (a new run), `count` (of new runs), and `who` and `kind` of a sign-in."""
        row = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "who": caller.name if caller is not None else None,
            "kind": caller.kind if caller is not None else None,
            "from": address or (caller.address if caller is not None else None),
            "action": action,
            "target": target[:LONGEST_TARGET],
            "outcome": outcome,
            **{name: text[:LONGEST_TARGET] for name, text in about.items() if text},
        }
        with self._lock:
            if self._left_out:
                row["left_out"], self._left_out = self._left_out, 0
            self._write(json.dumps(row).encode() + b"\n")

    def note_refusal(
        self, caller: Identity | None, action: str, target: str, status: int, address: str, **about: str | None
    ) -> None:
        """Limit repeated rejections, so that they do not push other entries out of the log."""
        with self._lock:
            is_too_much = self._refusals.wait_s(network_of(address)) > 0
            self._left_out += is_too_much
        if not is_too_much:
            self.note(caller, action, target, status, address, **about)

    def last(self, limit: int, offset: int = 0) -> list[dict[str, Any]]:
        """Newest first, without the newest `offset` entries."""
        found: list[dict[str, Any]] = []
        lines = chain.from_iterable(map(_lines_from_end, self._files()))
        for line in islice(lines, offset, offset + limit):
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def count(self) -> int:
        """How many entries there are in all files."""
        return sum(map(_line_count, self._files()))

    def _files(self) -> tuple[Path, ...]:
        return (self.path, *(self._older(number) for number in range(1, KEPT + 1)))

    def _older(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _write(self, line: bytes) -> None:
        """A full disk must not stop the server from answering: the error is logged once."""
        try:
            self._turn_over(len(line))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self.path, flags, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
            self._is_reported = False
        except OSError as fault:
            if not self._is_reported:
                print(f"phalanx serve: {self.path} cannot be written: {fault.strerror or fault}", file=sys.stderr)
            self._is_reported = True

    def _turn_over(self, size: int) -> None:
        """One of the home's servers rotates; the others find it already done."""
        if not self._is_full(size):
            return
        with locked(self.path.with_suffix(".lock")):
            if self._is_full(size):
                for number in range(KEPT, 0, -1):
                    before = self._older(number - 1) if number > 1 else self.path
                    with suppress(FileNotFoundError):
                        before.replace(self._older(number))

    def _is_full(self, size: int) -> bool:
        try:
            return self.path.stat().st_size + size > self.largest
        except FileNotFoundError:
            return False


def _line_count(path: Path) -> int:
    try:
        with path.open("rb") as stream:
            return sum(block.count(b"\n") for block in iter(lambda: stream.read(TAIL), b""))
    except OSError:
        return 0


def _lines_from_end(path: Path) -> Iterator[bytes]:
    """The lines of a file, last first, read in blocks."""
    try:
        stream = path.open("rb")
    except OSError:
        return
    with stream:
        end, rest = stream.seek(0, os.SEEK_END), b""
        while end > 0:
            begin = max(0, end - TAIL)
            stream.seek(begin)
            first, *lines = (stream.read(end - begin) + rest).split(b"\n")
            yield from (line for line in reversed(lines) if line)
            end, rest = begin, first
        if rest:
            yield rest
