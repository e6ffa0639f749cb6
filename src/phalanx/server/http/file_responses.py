"""Files as responses: streamed, with ranges, and never as something that a browser would execute."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from phalanx.server.http.responses import RequestError

PIECE = 256 << 10
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})\Z", re.ASCII)
# The types that a page may display. Everything else, above all HTML and SVG, is a download.
KINDS = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".flac": "audio/flac",
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".log": "text/plain; charset=utf-8",
}
SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
    "Accept-Ranges": "bytes",
}


def file_answer(stream: BinaryIO, name: str, wanted: str | None, *, kind: str | None = None) -> Response:
    """A file, or the part that a Range header requests. The file may grow meanwhile: only its length at the start is
    sent. The stream is closed at the end. Raises RequestError."""
    status = os.fstat(stream.fileno())
    try:
        first, end = _part(wanted, status.st_size)
    except RequestError:
        stream.close()
        raise
    clean = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").rpartition("/")[2]
    headers = {
        **SAFE,
        "Content-Length": str(end - first),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(clean, safe='')}",
        "ETag": f'"{status.st_mtime_ns:x}-{status.st_size:x}"',
    }
    is_part = (first, end) != (0, status.st_size)
    if is_part:
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{status.st_size}"
    media = kind or KINDS.get(os.path.splitext(clean)[1].lower(), "application/octet-stream")
    return StreamedFile(stream, first, end, 206 if is_part else 200, headers, media)


class StreamedFile(StreamingResponse):
    """Closes the file, and sends 304, if the client has it."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a response
        self, stream: BinaryIO, first: int, end: int, status: int, headers: dict[str, str], media: str
    ) -> None:
        super().__init__(_pieces(stream, first, end), status, headers, media)
        self.stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = Headers(scope=scope).get("if-none-match", "")
        if self.status_code == 200 and is_known(asked, self.headers["etag"]):
            self.stream.close()
            kept = {name: self.headers[name] for name in ("etag", "cache-control", "x-content-type-options")}
            await Response(None, 304, kept)(scope, receive, send)
            return
        await super().__call__(scope, receive, send)


def is_known(header: str, tag: str) -> bool:
    """Whether an If-None-Match header names this ETag; a weak one is as good."""
    known = (one.strip().removeprefix("W/") for one in header.split(","))
    return bool(header) and (header.strip() == "*" or tag.removeprefix("W/") in known)


def _part(wanted: str | None, size: int) -> tuple[int, int]:
    """Start and end of the requested range. A header that cannot be parsed is ignored, as HTTP requires."""
    match = _RANGE.match(wanted.strip()) if wanted else None
    if match is None or not (match[1] or match[2]):
        return 0, size
    if not match[1]:
        return max(0, size - int(match[2])), size
    first, end = int(match[1]), int(match[2]) + 1 if match[2] else size
    if first >= size or end <= first:
        raise RequestError(416, f"the file has {size} bytes")
    return first, min(end, size)


def _pieces(stream: BinaryIO, first: int, end: int) -> Iterator[bytes]:
    """Exactly this many bytes. If the file is truncated meanwhile, the response is aborted, which the client
    detects."""
    with stream:
        while first < end:
            piece = os.pread(stream.fileno(), min(PIECE, end - first), first)
            if not piece:
                raise OSError("the file was truncated while it was sent")
            first += len(piece)
            yield piece
