"""What happens beside the training: values read from accelerators, files brought to the disk, signs of life.

Inside a run the agent does the last two, so there the thread is started only for the first. It is a daemon: it cannot
hold the process back. Standard library only, Python 3.8+.
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
PATIENCE_S = 30.0  # how long the end of a training may wait for its accelerator

Waiting = Tuple[Optional[int], float, str, Callable[[], Any]]  # noqa: UP006,UP045 - Python 3.8


class Heartbeat:
    def __init__(self, settle: Callable[[Waiting], None], files: Callable[[], list[int]], beat: str | None) -> None:
        """`settle` writes a value that had to wait, and raises nothing; `files` are the open ones; `beat` is the file
        that says we live."""
        self.settle = settle
        self.files = files
        self.beat = beat
        self.waiting: deque[Waiting] = deque(maxlen=MOST_WAITING)
        self.reading = 0  # values that are being read now
        self.thread = threading.Thread(target=self._work, name="phalanx-tracking", daemon=True)
        self.stopped = threading.Event()

    def start(self) -> None:
        """Raises RuntimeError when there can be no more threads."""
        self.thread.start()

    def put(self, waiting: Waiting) -> bool:
        """False when there are too many: then the oldest one is gone."""
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
            except OSError:  # a full disk or a folder that is gone: the next turn may do better
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
        """Read and write what waits, in its order. Only the thread does it: reading may take for ever."""
        while self.waiting:
            self.reading = 1
            self.settle(self.waiting.popleft())
            self.reading = 0

    def finish(self) -> int:
        """Everything that waits, if it comes in time. Answers how many values did not."""
        self.stopped.set()
        self.thread.join(PATIENCE_S)
        return len(self.waiting) + self.reading if self.thread.is_alive() else len(self.waiting)
