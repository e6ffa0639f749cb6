"""Serves the web page: the built files of `web/`, unchanged. No user content is served under these paths.

Only files that were in the folder when it was last listed are sent: a requested name is looked up among them and never
becomes part of a path.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from phalanx.server.http.responses import RequestError

FOLDER = Path(__file__).with_name("page")
INDEX = "index.html"
# The page's own routes. The page resolves them itself, so all of them get its index.
ADDRESSES = (
    "/",
    "/runs",
    "/runs/{rest:path}",
    "/compare",
    "/queue",
    "/models",
    "/models/{rest:path}",
    "/projects",
    "/reports",
    "/reports/{rest:path}",
    "/login",
    "/help",
)
FILES = ("/assets/{path:path}", "/favicon.svg", "/favicon.ico")
SMALLEST_PACKED = 1024  # bytes: compressing less saves nothing
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".jpg": "image/jpeg",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
}
PACKED = (".css", ".html", ".js", ".json", ".map", ".svg", ".txt")
CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "media-src 'self'",
        "connect-src 'self'",
        "font-src 'self'",
        "frame-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Vary": "Accept-Encoding",
}
FOREVER = "public, max-age=31536000, immutable"  # an asset's name contains the hash of its content
NOT_BUILT = b"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Phalanx</title>
<h1>Phalanx is here, its page is not</h1>
<p>The server works, also for the command line and for MLflow's clients; only the page was not built.</p>
<ul>
<li>In a clone of the repository: <code>make page</code> builds it, with Node 20 or newer when that is installed.</li>
<li>Elsewhere: <code>pip install phalanx</code> brings it built.</li>
</ul>
<p>Then load this page again.</p>
</html>
"""


class PageFile(NamedTuple):
    """One file of the page, as it is sent."""

    kind: str
    content: bytes
    packed: bytes | None
    tag: str


class StaticPage:
    """The built page. After a rebuild, the next request gets the new one."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._mark: tuple[object, ...] | None = None
        self._files: dict[str, PageFile] = {}

    def file(self, name: str) -> PageFile | None:
        """A file by its name below the folder, with slashes."""
        with self._lock:
            mark = self._marked()
            if mark != self._mark:
                self._files = self._read() if mark else {}
                self._mark = mark
            return self._files.get(name)

    def _marked(self) -> tuple[object, ...] | None:
        """Changes when the page is rebuilt; None while it is not built. The times of two changes can be the same, but
        not the names of assets."""
        try:
            found = (self.folder / INDEX).stat()
            assets = sorted(os.listdir(self.folder / "assets")) if (self.folder / "assets").is_dir() else []
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino, *assets)

    def _read(self) -> dict[str, PageFile]:
        found = {}
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = Path(folder, name)
                if path.suffix in KINDS and not path.is_symlink():
                    with suppress(FileNotFoundError):  # a rebuild is in progress; it will be read again
                        found[path.relative_to(self.folder).as_posix()] = _file(path)
        return found


def _file(path: Path) -> PageFile:
    content = path.read_bytes()
    packed = None
    if path.suffix in PACKED and len(content) >= SMALLEST_PACKED:
        packed = gzip.compress(content, mtime=0)
    return PageFile(KINDS[path.suffix], content, packed, f'W/"{hashlib.sha256(content).hexdigest()[:32]}"')


router = APIRouter(include_in_schema=False)


def show(request: Request) -> Response:
    """The page, at one of its own routes."""
    found = _page_of(request).file(INDEX)
    if found is None:
        return Response(NOT_BUILT, 200, {**HEADERS, "Cache-Control": "no-store"}, KINDS[".html"])
    return _answer(request, found, "no-cache")


def send(request: Request) -> Response:
    """One of the page's files. Raises RequestError."""
    name = request.url.path.removeprefix("/")
    found = _page_of(request).file(name)
    if found is None:
        raise RequestError(404, "the page has no such file", "reload the page: it may have been rebuilt")
    return _answer(request, found, FOREVER if name.startswith("assets/") else "no-cache")


for _address in ADDRESSES:
    router.add_api_route(_address, show, methods=["GET", "HEAD"], name=f"page {_address}")
for _address in FILES:
    router.add_api_route(_address, send, methods=["GET", "HEAD"], name=f"page {_address}")


def not_found(request: Request) -> Response | None:
    """For a browser at an unknown path: the page, which shows the error. None for programs."""
    if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
        return None
    answer = show(request)
    answer.status_code = 404
    del answer.headers["ETag"]
    return answer


def _page_of(request: Request) -> StaticPage:
    found: StaticPage = request.app.state.page
    return found


def _answer(request: Request, file: PageFile, caching: str) -> Response:
    headers = {**HEADERS, "Cache-Control": caching, "ETag": file.tag}
    known = request.headers.get("if-none-match", "")
    if file.tag.removeprefix("W/") in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return Response(None, 304, headers)
    if file.packed is not None and _takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(file.packed, 200, {**headers, "Content-Encoding": "gzip"}, file.kind)
    return Response(file.content, 200, headers, file.kind)


def _takes_gzip(header: str) -> bool:
    for one in header.lower().split(","):
        name, _, weight = one.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
