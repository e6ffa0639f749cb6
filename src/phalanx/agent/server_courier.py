"""Sends what replicas write into their folders to the server of their home, as it grows.

The files are stored here first, so nothing waits for the network: a thread sends new data and retries as long as
the pod exists. The run's token gives access to this attempt only; the training never sees it. Standard library only,
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
LONGEST_TURN_S = 30.0  # between passes while the server is unreachable
LAST_S = 60.0  # timeout for the server at the end of a pod
KEPT_EVERY_S = 60.0  # how often outputs are checked
SETTLED_S = 10.0  # a file not written to for this long is finished


class PendingFile(NamedTuple):
    path: str
    inside: str  # its path in the run's folder on the server
    is_settled: bool


class ServerCourier:
    """`outputs`: the folder whose files are also sent; None when they are stored elsewhere."""

    def __init__(self, post: Uploader, run_id: str, attempt: int, run_folder: str, outputs: str | None) -> None:
        self.post = post
        self.address = f"/api/v1/pods/{run_id}/{attempt}/files"
        self.attempt = attempt
        self.run_folder = run_folder
        self.outputs = outputs
        self.trouble = ""
        self.is_refused = False  # permanently: the server accepts nothing of this attempt
        self.unwanted: dict[str, str] = {}  # files that the server rejected, and why
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
        """Send new data. False when not all was accepted; see `trouble`. Raises nothing."""
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
        """The files to send. Ends come last, after outputs: the server accepts nothing more once all have ended."""
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
        """Raises UploadRefused when the server has closed this attempt, and UploadUnavailable."""
        if name in self.unwanted:
            return
        try:
            self.post.send(path, f"{self.address}/{name}", is_growing=grows)
        except FileNotFoundError:
            pass  # removed in the meantime
        except UploadTargetUnknown as fault:
            self.unwanted[name] = str(fault)
        except UploadRefused as fault:
            if fault.code in (401, 403, 409):
                raise
            self.unwanted[name] = str(fault)  # possibly only this file

    def finish(self, most_s: float = LAST_S, pulse: Callable[[], object] = lambda: None) -> bool:
        """Send everything, ends included, unless `pulse`, which is called meanwhile, asks to stop. False when
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
    """Download the code of the run to a file. Raises UploadRefused, UploadUnavailable."""
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
