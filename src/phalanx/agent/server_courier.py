"""What replicas write into their folders, brought to the server of their home, as it grows.

The files are kept here first, so nothing waits for the network: a thread sends what is new, and tries again as long as
the pod is there. The run's token opens nothing but this attempt; the training never sees it. Standard library only,
Python 3.8+.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from phalanx import run_paths
from phalanx.agent.stdout_courier import attempt_files, is_growing, kept_files
from phalanx.uploads import Uploader, UploadRefused, UploadTargetUnknown, UploadUnavailable, started

TURN_S = 1.0
LONGEST_TURN_S = 30.0  # while the server cannot be reached
LAST_S = 60.0  # how long the end of a pod may wait for the server
KEPT_EVERY_S = 60.0  # how often outputs are looked at
SETTLED_S = 10.0  # a file that was not written to for so long is finished


class PendingFile(NamedTuple):
    path: str
    inside: str  # its place in the run's folder, at home
    is_settled: bool


class ServerCourier:
    """`outputs`: the folder whose files come home, too; None when they are kept elsewhere."""

    def __init__(self, post: Uploader, run_id: str, attempt: int, run_folder: str, outputs: str | None) -> None:
        self.post = post
        self.address = f"/api/v1/pods/{run_id}/{attempt}/files"
        self.attempt = attempt
        self.run_folder = run_folder
        self.outputs = outputs
        self.trouble = ""
        self.is_refused = False  # for good: nothing of this attempt is taken
        self.unwanted: dict[str, str] = {}  # files that the server does not take, and why
        self.kept_at = 0.0
        self.stopped = threading.Event()
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        self.thread = started(self._work, "phalanx-delivering")

    def _work(self) -> None:
        pause_s = TURN_S
        while not self.stopped.wait(pause_s) and not self.is_refused:
            pause_s = TURN_S if self.run_pass() else min(2 * pause_s, LONGEST_TURN_S)

    def run_pass(self, *, is_last: bool = False) -> bool:
        """Send what is new. False when not all of it was taken; `trouble` tells. Raises nothing."""
        self.trouble = ""
        try:
            is_time = time.monotonic() >= self.kept_at
            for name, path, grows in self._files(is_last, is_time):
                self._send(name, path, grows=grows)
            if is_time:
                self.kept_at = time.monotonic() + KEPT_EVERY_S
        except UploadRefused as fault:
            self.trouble, self.is_refused = str(fault), True
        except (UploadUnavailable, OSError, ValueError) as fault:
            self.trouble = str(fault) or type(fault).__name__
        return not self.trouble

    def _files(self, is_last: bool, is_time: bool) -> Iterator[tuple[str, str, bool]]:
        """What the server is to have. Ends last, after outputs: the server takes nothing more once all have ended."""
        ends = []
        for member, name, path in attempt_files(os.path.join(self.run_folder, run_paths.REPLICAS), self.attempt):
            if name == run_paths.END:
                ends.append((f"{member}/{name}", path, False))
            else:
                yield f"{member}/{name}", path, is_growing(name)
        if is_last or is_time:
            for kept in self._kept():
                if is_last or kept.is_settled:
                    yield kept.inside, kept.path, False
        if is_last:
            yield from ends

    def _kept(self) -> Iterator[PendingFile]:
        settled_at = time.time() - SETTLED_S
        for name, path in kept_files(self.run_folder, self.outputs):
            yield PendingFile(path, name, os.stat(path).st_mtime < settled_at)

    def _send(self, name: str, path: str, *, grows: bool) -> None:
        """Raises Refused when the server has done with this attempt, and Unavailable."""
        if name in self.unwanted:
            return
        try:
            self.post.send(path, f"{self.address}/{name}", is_growing=grows)
        except FileNotFoundError:
            pass  # removed meanwhile
        except UploadTargetUnknown as fault:
            self.unwanted[name] = str(fault)
        except UploadRefused as fault:
            if fault.code in (401, 403, 409):
                raise
            self.unwanted[name] = str(fault)  # perhaps one of many

    def finish(self, most_s: float = LAST_S, pulse: Callable[[], object] = lambda: None) -> bool:
        """Everything, ends included, unless `pulse`, which is called meanwhile, says that it is time to go. False when
        the server does not have the ends."""
        self.stopped.set()
        finished = threading.Event()
        until = time.monotonic() + most_s

        def work() -> None:
            if self.thread is not None:
                self.thread.join(most_s)
            pause_s = 0.5
            while not self.is_refused and not self.run_pass(is_last=True) and time.monotonic() < until:
                time.sleep(min(pause_s, max(0.0, until - time.monotonic())))
                pause_s = min(2 * pause_s, 5.0)
            finished.set()

        thread = threading.Thread(target=work, name="phalanx-delivering", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            work()
        while not finished.wait(0.1) and time.monotonic() < until + 0.2:
            if pulse():
                return False
        is_end_unwanted = any(name.endswith(f"/{run_paths.END}") for name in self.unwanted)
        return finished.is_set() and not self.trouble and not is_end_unwanted


def fetch(post: Uploader, run_id: str, attempt: int, target: str, patience_s: float) -> None:
    """The code of the run, as a file. Raises Refused, Unavailable."""
    until = time.monotonic() + patience_s
    pause_s = 1.0
    while True:
        try:
            post.download(f"/api/v1/pods/{run_id}/{attempt}/code", target)
            return
        except UploadUnavailable as fault:
            if isinstance(fault, UploadTargetUnknown) or time.monotonic() + pause_s > until:
                raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 15.0)
