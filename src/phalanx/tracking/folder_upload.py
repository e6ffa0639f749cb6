"""Uploads a run's folder to a server as it grows.

The folder is stored locally first (`<home>/outbox`), so nothing waits for the network: a thread sends new data, and
`phalanx sync` sends what is missing when the process ends. Files grow or appear whole; each is sent from
where the server's copy ends; sending twice is harmless. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from typing import Any

from phalanx import run_paths
from phalanx.atomic_files import write_atomic
from phalanx.ends import read_end, status_of
from phalanx.tracking.external_folder import REPLICA, attempt_folder
from phalanx.tracking.notices import warn
from phalanx.tracking.run_request import MUST, NEVER
from phalanx.tracking.values import error_text
from phalanx.uploads import (
    FOREIGN,
    PIECE,
    TIMEOUT_S,
    ServerAway,
    Uploader,
    UploadRefused,
    UploadTargetUnknown,
    UploadUnavailable,
    is_server,
    started,
)

TURN_S = 1.0
LONGEST_TURN_S = 30.0  # between passes while the server is unreachable
LAST_S = 15.0  # timeout for the server at the end of a training
AWAY_S = 2.0  # the same while nothing answers: `phalanx sync` sends the run later
BEAT_S = 10.0
GROWING = (".points", ".events")
ATTEMPT = run_paths.attempt_folder(REPLICA, 1)
OUTBOX = "outbox"  # the folder of a home for runs that a server is to get


class FolderUploader:
    def __init__(self, server: str, token: str, run_folder: str) -> None:
        self.post = Uploader(server, token, TIMEOUT_S, PIECE)
        self.run_folder = run_folder
        self.run_id = os.path.basename(run_folder).partition(".")[0]
        self.attempt = 1  # on the server
        self.is_known = False
        self.trouble = ""
        self.is_refused = False  # the error is permanent
        self.is_away = False  # nothing answers
        self.is_said = False
        self.beaten = 0.0
        self.stopped = threading.Event()
        self.thread: threading.Thread | None = None

    @property
    def page(self) -> str:
        return f"{self.post.server}/runs/{self.run_id}"

    def start(self) -> None:
        """Send in the background. The folder says where to, for `phalanx sync`."""
        about = json.dumps({"server": self.post.server}).encode()
        try:
            write_atomic(os.path.join(self.run_folder, run_paths.UPLOAD), about, sync=False)
        except OSError:
            pass  # a full disk: then `phalanx sync` asks
        self.thread = started(self._work, "phalanx-shipping")

    def _work(self) -> None:
        pause_s = TURN_S
        while not self.stopped.wait(pause_s):
            pause_s = TURN_S if self.turn() else min(2 * pause_s, LONGEST_TURN_S)
            if self.is_refused and not self.is_said:
                self.is_said = True
                warn(f"{self.trouble}; the run is stored in {self.run_folder}; send it with `phalanx sync`")

    def turn(self) -> bool:
        """Send new data. False when the server was unreachable or refused it; see `trouble`. Raises nothing."""
        self.trouble, self.is_refused, self.is_away = "", False, False
        try:
            self._introduce()
            for path, inside in self._files():
                try:
                    self._send(path, inside)
                except UploadRefused as fault:  # the server refused one file; it may accept the others
                    self.trouble, self.is_refused = error_text(fault), True
            self._beat()
        except (UploadRefused, UploadUnavailable, OSError, ValueError) as fault:
            self._note(fault)
        return not self.trouble

    def _note(self, fault: Exception) -> None:
        self.trouble, self.is_refused = error_text(fault), isinstance(fault, UploadRefused)
        self.is_away = isinstance(fault, ServerAway)
        if isinstance(fault, UploadTargetUnknown):  # the server does not know the run (any more)
            self.is_known = False
            self.post.sent.clear()

    def finish(self, patience_s: float | None = None) -> bool:
        """Send everything and the end. Removes the folder once the server has all of it. Raises nothing."""
        self.stopped.set()
        patience_s = LAST_S if patience_s is None else patience_s
        began = time.monotonic()
        if not self.is_known:  # it has not answered yet
            self.post.timeout_s = min(self.post.timeout_s, AWAY_S)
        if self.thread is not None:
            self.thread.join(TIMEOUT_S if self.is_known else AWAY_S)
            if self.thread.is_alive():
                self.trouble = self.trouble or f"{self.post.server} does not answer"
                return False
        while not (self.turn() and self._report_end()):
            if self.is_refused:  # possibly only one file: the end may be accepted
                trouble = self.trouble
                self._report_end()
                self.trouble = trouble
                return False
            if time.monotonic() - began > (min(AWAY_S, patience_s) if self.is_away else patience_s):
                return False
            time.sleep(min(1.0, patience_s / 10))
        shutil.rmtree(self.run_folder, ignore_errors=True)
        try:
            os.unlink(os.path.join(os.path.dirname(os.path.dirname(self.run_folder)), "arrivals", self.run_id))
        except OSError:
            pass
        return True

    def _introduce(self) -> None:
        """Create the run on the server, or continue the one with its id: the server answers which attempt this is."""
        if self.is_known:
            return None
        with open(os.path.join(self.run_folder, run_paths.RUN), "rb") as stream:
            run = json.load(stream)
        with open(os.path.join(attempt_folder(self.run_folder), run_paths.AGENT), "rb") as stream:
            watcher = json.load(stream)
        session, resume = watcher.get("session"), watcher.get("resume")
        fields = ("project", "name", "description", "tags", "params", "user", "created_at", "group")
        about = {**{name: run.get(name) for name in fields}, "session": session, "resume": resume or NEVER}
        try:
            answer = self._call("/api/v1/runs", json.dumps({"id": self.run_id, **about}).encode())
        except UploadRefused as fault:
            if resume != NEVER or fault.code != 409 or self.run_id == session:
                raise
            warn(f"run {self.run_id} exists and resume is `never`; this is run {session}")
            self.run_id = session
            return self._introduce()
        if answer.get("id") != self.run_id:
            raise UploadUnavailable(f"{self.post.server} {FOREIGN}")
        attempt = answer.get("attempt")
        self.attempt = attempt if isinstance(attempt, int) and attempt > 0 else 1
        self.is_known = True
        self.post.timeout_s = TIMEOUT_S
        if resume == MUST and self.attempt == 1:
            warn(f"there was no run {self.run_id} to resume on {self.post.server}; it is started now")
        return None

    def _beat(self) -> None:
        if time.monotonic() - self.beaten > BEAT_S:
            self.beaten = time.monotonic()
            self._call(f"/api/v1/runs/{self.run_id}/beat", b"{}")

    def _report_end(self) -> bool:
        end = read_end(attempt_folder(self.run_folder))
        words: dict[str, Any] = {"status": "failed", "reason": "its process ended without a word", "at": None}
        if end is not None:
            words = {"status": status_of(end.cause), "reason": end.message, "at": end.ended_at}
        words["attempt"] = self.attempt
        try:
            self._call(f"/api/v1/runs/{self.run_id}/finish", json.dumps(words).encode())
        except (UploadRefused, UploadUnavailable) as fault:
            self._note(fault)
            return False
        return True

    def _files(self) -> Iterator[tuple[str, str]]:
        """The files to send, each with its path in the run's folder."""
        attempt = attempt_folder(self.run_folder)
        for name in sorted(os.listdir(attempt)):
            if name.endswith(GROWING):
                yield os.path.join(attempt, name), f"{ATTEMPT}/{name}"
        for base in (run_paths.ARTIFACTS, run_paths.MODELS, f"{ATTEMPT}/{run_paths.MEDIA}"):
            for folder, _, names in os.walk(os.path.join(self.run_folder, base)):
                for name in sorted(names):
                    if not name.startswith("."):
                        path = os.path.join(folder, name)
                        yield path, os.path.relpath(path, self.run_folder)

    def _send(self, path: str, inside: str) -> None:
        is_growing = inside.endswith(GROWING) and os.path.dirname(inside) == ATTEMPT
        if inside.startswith(f"{ATTEMPT}/"):
            inside = f"{run_paths.attempt_folder(REPLICA, self.attempt)}{inside[len(ATTEMPT) :]}"
        address = f"/api/v1/runs/{self.run_id}/files/{inside}"
        self.post.send(path, address, is_growing=is_growing, between=self._beat)

    def _call(self, path: str, body: bytes) -> dict[str, Any]:
        return self.post.call("POST", path, body)


def server_url(given: str | None) -> str | None:
    """Raises ValueError for anything but http and https."""
    url = given or os.environ.get("PHALANX_SERVER")
    if not url:
        return None
    if not is_server(url):
        raise ValueError(f"a server URL looks like http://host:8000, not {url[:100]!r}")
    return url


def token(home: str) -> str:
    """PHALANX_TOKEN, or the token that a server of this home stored there."""
    named = os.environ.get("PHALANX_TOKEN")
    if named:
        return named
    try:
        with open(os.path.join(home, "token"), encoding="ascii") as stream:
            return stream.read().strip()
    except (OSError, ValueError):
        return ""
