"""What containers said: kept line by line with its time, and read again as a kubelet serves it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

LONGEST = 16 * 1024  # a longer line is kept in pieces
LOOK_S = 0.05


class Asked(NamedTuple):
    """The options of a request for logs."""

    follow: bool = False
    timestamps: bool = False
    since: datetime | None = None
    tail: int | None = None
    limit: int | None = None


class Writer:
    """Takes the two streams of one container, and keeps them in one file, in the order they came."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def take(self, stream: BinaryIO) -> None:
        thread = threading.Thread(target=self._pump, args=(stream,), daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self, patience_s: float = 2.0) -> None:
        """When both streams have ended, or whoever holds them does not let go."""
        for thread in self._threads:
            thread.join(patience_s)
        with self._lock:
            self._file.close()

    @property
    def is_closed(self) -> bool:
        """All that was said is in the file."""
        return self._file.closed

    def _pump(self, stream: BinaryIO) -> None:
        with stream:
            while piece := stream.readline(LONGEST):
                now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "000Z")
                mark = b"F" if piece.endswith(b"\n") else b"P"
                text = piece.removesuffix(b"\n")
                if mark == b"F":
                    text = text.removesuffix(b"\r")  # as containerd does
                with self._lock:
                    if self._file.closed:
                        return
                    self._file.write(b"%s %s %s\n" % (now.encode(), mark, text))
                    self._file.flush()


def shown(path: Path, asked: Asked, is_over: Callable[[], bool]) -> Iterator[bytes]:
    """The log as it is served. Pieces of a long line have each their own time, as kubelets have it."""
    left = asked.limit
    with path.open("rb") as file:
        records = _followed(file, is_over) if asked.follow else file
        if asked.tail is not None and not asked.follow:
            records = deque(file, maxlen=asked.tail)  # type: ignore[assignment]
        for record in records:
            piece = _rendered(record, asked)
            if left is not None:
                piece = piece[:left]
                left -= len(piece)
            if piece:
                yield piece
            if left == 0:
                return


def _rendered(record: bytes, asked: Asked) -> bytes:
    when, mark, text = record.removesuffix(b"\n").split(b" ", 2)
    if asked.since is not None and moment(when.decode()) < asked.since:
        return b""
    return (when + b" " if asked.timestamps else b"") + text + (b"\n" if mark == b"F" else b"")


def _followed(file: BinaryIO, is_over: Callable[[], bool]) -> Iterator[bytes]:
    kept = b""
    while True:
        last = is_over()  # before reading: what came until then is read
        while piece := file.readline():
            kept += piece
            if kept.endswith(b"\n"):
                yield kept
                kept = b""
        if last:
            return
        time.sleep(LOOK_S)


def moment(text: str) -> datetime:
    """Of RFC 3339, with any number of digits."""
    whole, dot, rest = text.removesuffix("Z").partition(".")
    digits = "".join(c for c in rest if c.isdigit())[:6]
    plain = f"{whole}.{digits:0<6}" if dot else whole
    found = datetime.fromisoformat(plain)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
