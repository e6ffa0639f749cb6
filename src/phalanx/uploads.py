"""Files brought to a server, as they grow or whole, each from where the server's copy ends; twice does no harm.

For whoever sends a run home: a script that is tracked, and the agent of a pod. Standard library only, Python 3.8+.
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
FOREIGN = "does not answer as Phalanx does"


def started(work: Callable[[], None], name: str) -> threading.Thread | None:
    """A thread that goes on with it. Where there can be no more of them, None: all is sent at the end."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


class UploadRefused(Exception):
    """The server said no, and will say so again."""

    def __init__(self, words: str, code: int = 0) -> None:
        super().__init__(words)
        self.code = code


class UploadUnavailable(Exception):
    """The server cannot now."""


class UploadTargetUnknown(UploadUnavailable):
    """The server does not know what this is about, or not any more."""


def _nothing() -> None:
    pass


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The token is for this server, and for none that it names."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Uploader:
    def __init__(self, server: str, token: str, timeout_s: float = TIMEOUT_S, most: int = PIECE) -> None:
        self.server = server.rstrip("/")
        self.token = token
        self.timeout_s = timeout_s
        self.most = most  # bytes in one call
        self.sent: dict[str, int] = {}  # how far files that grow were sent, and when whole ones were written

    def send(self, file: str, address: str, *, is_growing: bool, between: Callable[[], None] = _nothing) -> None:
        """What is new of a file. `between` is called from piece to piece. Raises Refused, Unavailable, OSError."""
        with open(file, "rb") as stream:
            stat = os.fstat(stream.fileno())
            mark = stat.st_size if is_growing else stat.st_mtime_ns  # whole ones are replaced, never changed
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
                tries += offset <= before  # it has less than we thought, once; more often it is none of our servers
                if tries > 3 or offset < 0:
                    raise UploadUnavailable(f"{self.server} does not take {os.path.basename(address)}")
            self.sent[address] = mark

    def call(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        """What the server answers, when that is an object. Raises Refused, Unavailable."""
        kind = "json" if method == "POST" else "octet-stream"
        try:
            with self._open(method, path, body, f"application/{kind}") as answer:
                found = json.loads(answer.read())
        except urllib.error.HTTPError as fault:
            said = _said(fault)
            if fault.code == 409 and isinstance(_object(said).get("size"), int):  # how far it has the file
                return _object(said)
            raise self._fault(fault.code, said) from None
        except urllib.error.URLError as fault:
            raise UploadUnavailable(f"{self.server}: {fault.reason}") from None
        except (OSError, http.client.HTTPException) as fault:
            raise UploadUnavailable(f"{self.server}: {fault or type(fault).__name__}") from None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise UploadUnavailable(f"{self.server} {FOREIGN}")
        return found

    def download(self, path: str, target: str) -> None:
        """What stands there, as a file. Raises Refused, Unavailable."""
        try:
            with self._open("GET", path, None, "application/octet-stream") as answer, open(target, "wb") as stream:
                length = answer.headers.get("Content-Length")
                shutil.copyfileobj(answer, stream)
                if length is not None and stream.tell() != int(length):
                    raise UploadUnavailable(f"{self.server} broke off")
        except urllib.error.HTTPError as fault:
            raise self._fault(fault.code, _said(fault)) from None
        except urllib.error.URLError as fault:
            raise UploadUnavailable(f"{self.server}: {fault.reason}") from None
        except (OSError, http.client.HTTPException) as fault:
            raise UploadUnavailable(f"{self.server}: {fault or type(fault).__name__}") from None

    def _open(self, method: str, path: str, body: bytes | None, kind: str) -> Any:
        """The answer as it comes. Raises what urllib raises."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        request = urllib.request.Request(self.server + path, data=body, headers=headers, method=method)  # noqa: S310 - http(s) only, see `is_server`
        return urllib.request.build_opener(_NoRedirects).open(request, timeout=self.timeout_s)

    def _fault(self, code: int, said: bytes) -> Exception:
        """What a refusal means: whether it is worth another try."""
        words = f"{self.server} answers {code}: {_message(said)}"
        if code == 404:
            return UploadTargetUnknown(words)
        return UploadUnavailable(words) if code >= 500 or code in (408, 429) else UploadRefused(words, code)


def is_server(url: str) -> bool:
    """Whether this is an address as a server's is."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url


def _said(fault: urllib.error.HTTPError) -> bytes:
    with fault:
        try:
            return fault.read()[:10_000]
        except (OSError, http.client.HTTPException):  # the connection broke
            return b""


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
