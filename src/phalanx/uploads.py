"""Uploads of growing and whole files to a server. Each upload resumes where the server's copy ends, and is idempotent.

Used by tracked scripts and by the agent of a pod. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

PIECE = 4 << 20
TIMEOUT_S = 10.0
FOREIGN = "does not respond like a Phalanx server"


def started(work: Callable[[], None], name: str) -> threading.Thread | None:
    """Start a background thread. None if no thread can be started: then everything is sent at the end."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


class UploadRefused(Exception):
    """The server refused the upload permanently."""

    def __init__(self, words: str, code: int = 0) -> None:
        super().__init__(words)
        self.code = code


class UploadUnavailable(Exception):
    """The server cannot take the upload now."""


class ServerAway(UploadUnavailable):
    """Nothing answers at the address of the server."""


class UploadTargetUnknown(UploadUnavailable):
    """The server does not know the target, or no longer."""


def _nothing() -> None:
    pass


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, because the token must not go to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Uploader:
    def __init__(self, server: str, token: str, timeout_s: float = TIMEOUT_S, most: int = PIECE) -> None:
        self.server = server.rstrip("/")
        self.token = token
        self.timeout_s = timeout_s
        self.most = most  # bytes per request
        self.sent: dict[str, int] = {}  # the sent size of growing files, the modification time of whole ones

    def send(self, file: str, address: str, *, is_growing: bool, between: Callable[[], None] = _nothing) -> None:
        """Send what is new in a file. `between` is called between pieces. Raises UploadRefused, UploadUnavailable,
        OSError."""
        with open(file, "rb") as stream:
            stat = os.fstat(stream.fileno())
            mark = stat.st_size if is_growing else stat.st_mtime_ns  # whole files are replaced, never modified
            if self.sent.get(address) == mark:
                return
            offset = self.sent.get(address, 0) if is_growing else 0
            tries = 0
            while offset < stat.st_size or not is_growing:
                stream.seek(offset)
                piece = stream.read(min(self.most, stat.st_size - offset))
                query = f"offset={offset}"
                if not is_growing:
                    query += f"&whole={1 if len(piece) == stat.st_size else 0}&size={stat.st_size}"
                answer = self.call("PUT", f"{urllib.parse.quote(address)}?{query}", piece)
                if not isinstance(answer.get("size"), int):
                    raise UploadUnavailable(f"{self.server} {FOREIGN}")
                before, offset = offset, answer["size"]
                if offset >= stat.st_size:
                    break
                between()
                tries += (
                    offset <= before
                )  # the server's copy may be shorter once; if more often, it is not a Phalanx server
                if tries > 3 or offset < 0:
                    raise UploadUnavailable(f"{self.server} does not accept {os.path.basename(address)}")
            self.sent[address] = mark

    def call(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        """Send a request and return its JSON object. Raises UploadRefused, UploadUnavailable."""
        kind = "json" if method == "POST" else "octet-stream"
        try:
            with self._open(method, path, body, f"application/{kind}") as answer:
                found = json.loads(answer.read())
        except urllib.error.HTTPError as fault:
            body = _body(fault)
            if fault.code == 409 and isinstance(_object(body).get("size"), int):  # the size of the server's copy
                return _object(body)
            raise self._fault(fault.code, body) from None
        except urllib.error.URLError as fault:
            raise ServerAway(f"{self.server}: {fault.reason}") from None
        except (OSError, http.client.HTTPException) as fault:
            raise ServerAway(f"{self.server}: {fault or type(fault).__name__}") from None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise UploadUnavailable(f"{self.server} {FOREIGN}")
        return found

    def download(self, path: str, target: str) -> None:
        """Download to a file. Raises UploadRefused, UploadUnavailable."""
        try:
            with self._open("GET", path, None, "application/octet-stream") as answer, open(target, "wb") as stream:
                length = answer.headers.get("Content-Length")
                shutil.copyfileobj(answer, stream)
                if length is not None and stream.tell() != int(length):
                    raise UploadUnavailable(f"{self.server} closed the connection too early")
        except urllib.error.HTTPError as fault:
            raise self._fault(fault.code, _body(fault)) from None
        except urllib.error.URLError as fault:
            raise UploadUnavailable(f"{self.server}: {fault.reason}") from None
        except (OSError, http.client.HTTPException) as fault:
            raise UploadUnavailable(f"{self.server}: {fault or type(fault).__name__}") from None

    def _open(self, method: str, path: str, body: bytes | None, kind: str) -> Any:
        """The response as a stream. Raises what urllib raises."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        request = urllib.request.Request(self.server + path, data=body, headers=headers, method=method)  # noqa: S310 - http(s) only, see `is_server`
        return urllib.request.build_opener(_NoRedirects).open(request, timeout=self.timeout_s)

    def _fault(self, code: int, body: bytes) -> Exception:
        """The error for a response status: says whether a retry may help."""
        words = f"{self.server} responded with {code}: {_message(body)}"
        if code == 404:
            return UploadTargetUnknown(words)
        return UploadUnavailable(words) if code >= 500 or code in (408, 429) else UploadRefused(words, code)


def is_server(url: str) -> bool:
    """Whether a URL can be the address of a server."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url


def _body(fault: urllib.error.HTTPError) -> bytes:
    with fault:
        try:
            return fault.read()[:10_000]
        except (OSError, http.client.HTTPException):  # the connection broke
            return b""


def _object(body: bytes) -> dict[str, Any]:
    """A JSON object; empty if the body is something else."""
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
