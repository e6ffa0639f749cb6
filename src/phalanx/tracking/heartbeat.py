"""The background thread of tracking: reads values from accelerators, syncs files to disk, sends the heartbeat.

Inside a run the agent does the last two, so there the thread starts only for the first. It is a daemon: it cannot
keep the process alive. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import Any, Callable, Optional, Tuple  # noqa: UP035 - Python 3.8

from phalanx.tracking.external_folder import BEAT_S, touch

TURN_S = 0.25
SYNC_S = 0.9
MOST_WAITING = 100_000
PATIENCE_S = 30.0  # timeout for the accelerator at the end of a training

Waiting = Tuple[Optional[int], float, str, Callable[[], Any]]  # noqa: UP006,UP045 - Python 3.8


class Heartbeat:
    def __init__(self, settle: Callable[[Waiting], None], files: Callable[[], list[int]], beat: str | None) -> None:
        """`settle` writes a delayed value and raises nothing; `files` are the open ones; `beat` is the heartbeat
        file."""
        self.settle = settle
        self.files = files
        self.beat = beat
        self.waiting: deque[Waiting] = deque(maxlen=MOST_WAITING)
        self.reading = 0  # values that are being read now
        self.thread = threading.Thread(target=self._work, name="phalanx-tracking", daemon=True)
        self.stopped = threading.Event()

    def start(self) -> None:
        """Raises RuntimeError when no more threads can be started."""
        self.thread.start()

    def put(self, waiting: Waiting) -> bool:
        """False when there are too many: the oldest one is dropped."""
        is_full = len(self.waiting) == self.waiting.maxlen
        self.waiting.append(waiting)
        return not is_full

    def _work(self) -> None:
        synced = time.monotonic()
        beaten = 0.0
        sizes: dict[int, int] = {}
        while not self.stopped.wait(TURN_S):
            try:
                self._drain()
                now = time.monotonic()
                if self.beat is not None and now - beaten > BEAT_S:
                    beaten = now
                    touch(self.beat)
                if now - synced > SYNC_S:
                    synced = now
                    sizes = self._sync(sizes)
            except OSError:  # a full disk or a removed folder: the next pass may succeed
                pass
        self._drain()

    def _sync(self, before: dict[int, int]) -> dict[int, int]:
        found = {}
        for descriptor in self.files():
            size = os.fstat(descriptor).st_size
            if before.get(descriptor) != size:
                os.fsync(descriptor)
            found[descriptor] = size
        return found

    def _drain(self) -> None:
        """Read and write waiting values in order. Only the thread does it: reading may block forever."""
        while self.waiting:
            self.reading = 1
            self.settle(self.waiting.popleft())
            self.reading = 0

    def finish(self) -> int:
        """Write all waiting values, up to a timeout. Returns how many are missing."""
        self.stopped.set()
        self.thread.join(PATIENCE_S)
        return len(self.waiting) + self.reading if self.thread.is_alive() else len(self.waiting)
