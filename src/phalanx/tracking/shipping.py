"""A run's folder brought to a server, as it grows.

The folder is kept here first (`<home>/outbox`), so nothing waits for the network: a thread sends what is new, and what
is not delivered when the process ends is delivered by `phalanx sync`. Files grow or appear whole; each is sent from
where the server's copy ends; sending twice does no harm. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from phalanx.tracking.folders import REPLICA, attempt_folder
from phalanx.tracking.recording import say
from phalanx.tracking.values import told

TURN_S = 1.0
LONGEST_TURN_S = 30.0  # while the server cannot be reached
PIECE = 4 << 20
TIMEOUT_S = 10.0
LAST_S = 15.0  # how long the end of a training may wait for the server
BEAT_S = 10.0
FOREIGN = "does not answer as Phalanx does"
GROWING = (".points", ".events")
ATTEMPT = f"replicas/{REPLICA}/attempt-1"


class Refused(Exception):
    """The server said no, and will say so again."""


class Unavailable(Exception):
    """The server cannot now."""


class Shipper:
    def __init__(self, server: str, token: str, run_folder: str) -> None:
        self.server = server.rstrip("/")
        self.token = token
        self.run_folder = run_folder
        self.run_id = os.path.basename(run_folder)
        self.sent: dict[str, int] = {}
        self.is_known = False
        self.trouble = ""
        self.is_refused = False  # the trouble is not one that passes
        self.is_said = False
        self.beaten = 0.0
        self.stopped = threading.Event()
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        """Where there can be no more threads, all is sent at the end."""
        thread = threading.Thread(target=self._work, name="phalanx-shipping", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return
        self.thread = thread

    def _work(self) -> None:
        pause_s = TURN_S
        while not self.stopped.wait(pause_s):
            pause_s = TURN_S if self.turn() else min(2 * pause_s, LONGEST_TURN_S)
            if self.is_refused and not self.is_said:
                self.is_said = True
                say(f"{self.trouble}; the run is kept in {self.run_folder}, and `phalanx sync` sends it")

    def turn(self) -> bool:
        """Send what is new. False when the server could not be reached, or refused; `trouble` tells. Raises nothing."""
        self.trouble, self.is_refused = "", False
        try:
            self._introduce()
            for path, inside in self._files():
                try:
                    self._send(path, inside)
                except Refused as fault:  # one file that the server does not want: it may want the others
                    self.trouble, self.is_refused = told(fault), True
            self._beat()
        except Exception as fault:  # noqa: BLE001 - whatever stands there instead of a server, training is not hurt
            self.trouble, self.is_refused = told(fault), isinstance(fault, Refused)
        return not self.trouble

    def finish(self, patience_s: float | None = None) -> bool:
        """Everything, and how it ended. Removes the folder once the server has all of it. Raises nothing."""
        self.stopped.set()
        if self.thread is not None:
            self.thread.join(TIMEOUT_S)
        patience_s = LAST_S if patience_s is None else patience_s
        until = time.monotonic() + patience_s
        while not (self.turn() and self._tell_end()):
            if self.is_refused:  # perhaps one file of many: the end may be wanted
                trouble = self.trouble
                self._tell_end()
                self.trouble = trouble
                return False
            if time.monotonic() > until:
                return False
            time.sleep(min(1.0, patience_s / 10))
        shutil.rmtree(self.run_folder, ignore_errors=True)
        try:
            os.unlink(os.path.join(os.path.dirname(os.path.dirname(self.run_folder)), "arrivals", self.run_id))
        except OSError:
            pass
        return True

    def _introduce(self) -> None:
        if not self.is_known:
            with open(os.path.join(self.run_folder, "run.json"), "rb") as stream:
                run = json.load(stream)
            wanted = ("id", "project", "name", "description", "tags", "params", "user", "created_at")
            about = json.dumps({name: run.get(name) for name in wanted}).encode()
            if self._call("POST", "/api/v1/runs", about).get("id") != self.run_id:
                raise Unavailable(f"{self.server} {FOREIGN}")
            self.is_known = True

    def _beat(self) -> None:
        if time.monotonic() - self.beaten > BEAT_S:
            self.beaten = time.monotonic()
            self._call("POST", f"/api/v1/runs/{self.run_id}/beat", b"{}")

    def _tell_end(self) -> bool:
        try:
            with open(os.path.join(attempt_folder(self.run_folder), "end.json"), "rb") as stream:
                end = json.load(stream)
        except (OSError, ValueError):
            end = {"cause": "error", "message": "its process ended without a word", "ended_at": None}
        status = {"finished": "succeeded", "stopped": "stopped"}.get(end["cause"], "failed")
        words = {"status": status, "reason": end["message"], "at": end["ended_at"]}
        try:
            self._call("POST", f"/api/v1/runs/{self.run_id}/finish", json.dumps(words).encode())
        except Exception as fault:  # noqa: BLE001 - see `turn`
            self.trouble, self.is_refused = told(fault), isinstance(fault, Refused)
            return False
        return True

    def _files(self) -> Iterator[tuple[str, str]]:
        """What the server is to have: each file, and its place in the run's folder."""
        attempt = attempt_folder(self.run_folder)
        for name in sorted(os.listdir(attempt)):
            if name.endswith(GROWING):
                yield os.path.join(attempt, name), f"{ATTEMPT}/{name}"
        for base in ("artifacts", "models", f"{ATTEMPT}/media"):
            for folder, _, names in os.walk(os.path.join(self.run_folder, base)):
                for name in sorted(names):
                    if not name.startswith("."):
                        path = os.path.join(folder, name)
                        yield path, os.path.relpath(path, self.run_folder)

    def _send(self, path: str, inside: str) -> None:
        with open(path, "rb") as stream:
            stat = os.fstat(stream.fileno())
            is_growing = inside.endswith(GROWING) and os.path.dirname(inside) == ATTEMPT
            mark = stat.st_size if is_growing else stat.st_mtime_ns  # whole ones are replaced, never changed
            if self.sent.get(inside) == mark:
                return
            offset = self.sent.get(inside, 0) if is_growing else 0
            tries = 0
            while offset < stat.st_size or not is_growing:
                stream.seek(offset)
                piece = stream.read(min(PIECE, stat.st_size - offset))
                query = f"offset={offset}"
                if not is_growing:
                    query += f"&whole={1 if len(piece) == stat.st_size else 0}&size={stat.st_size}"
                answer = self._call(
                    "PUT", f"/api/v1/runs/{self.run_id}/files/{urllib.parse.quote(inside)}?{query}", piece
                )
                if not isinstance(answer.get("size"), int):
                    raise Unavailable(f"{self.server} {FOREIGN}")
                before, offset = offset, answer["size"]
                if offset >= stat.st_size:
                    break
                self._beat()
                tries += offset <= before  # it has less than we thought, once; more often it is none of our servers
                if tries > 3 or offset < 0:
                    raise Unavailable(f"{self.server} does not take {inside}")
            self.sent[inside] = mark

    def _call(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/octet-stream"}
        if method == "POST":
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self.server + path, data=body, headers=headers, method=method)  # noqa: S310 - http(s) only, see `server_url`
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - as above
                found = json.loads(answer.read())
        except urllib.error.HTTPError as fault:
            with fault:
                body = fault.read()[:10_000]
            if fault.code == 409 and isinstance(_object(body).get("size"), int):  # how far it has the file
                return _object(body)
            if fault.code == 404:  # it does not know the run, any more
                self.is_known = False
                self.sent.clear()
            is_passing = fault.code >= 500 or fault.code in (404, 408, 429)
            kind = Unavailable if is_passing else Refused
            raise kind(f"{self.server} answers {fault.code}: {_message(body)}") from None
        except urllib.error.URLError as fault:
            raise Unavailable(f"{self.server}: {fault.reason}") from None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise Unavailable(f"{self.server} {FOREIGN}")
        return found


def _object(body: bytes) -> dict[str, Any]:
    """Nothing when it is not one."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")


def server_url(given: str | None) -> str | None:
    """Raises ValueError for anything but http and https."""
    url = given or os.environ.get("PHALANX_SERVER")
    if not url:
        return None
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        raise ValueError(f"a server's address is like http://host:8000, not {url[:100]!r}")
    return url


def token(home: str) -> str:
    """PHALANX_TOKEN, or the one that a server of this home left there."""
    named = os.environ.get("PHALANX_TOKEN")
    if named:
        return named
    try:
        with open(os.path.join(home, "token"), encoding="ascii") as stream:
            return stream.read().strip()
    except (OSError, ValueError):
        return ""
