"""Several streams over one connection, by SPDY/3.1, as kubectl and kubelets speak it for `exec` and `port-forward`.

Only what kubectl uses of it. An answer with empty headers is accepted.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, NamedTuple, Protocol

SYN_STREAM, SYN_REPLY, RESET, PING, GO_AWAY = 1, 2, 3, 6, 7
LAST = 1  # a flag
CONTROL = 0x80030000  # and the version
# The dictionary of the specification, with which headers are compressed: words with their lengths, then plain text.
_WORDS = """options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow
authorization cache-control connection content-base content-encoding content-language content-length content-location
content-md5 content-range content-type date etag expect expires from host if-match if-modified-since if-none-match if-range
if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization range referer
retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method get status
200_OK version HTTP/1.1 url public set-cookie keep-alive origin"""  # noqa: E501
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
_DICTIONARY = (
    b"".join(struct.pack(">I", len(word)) + word.replace("_", " ").encode() for word in _WORDS.split()) + _TEXT.encode()
)


class Line(Protocol):
    def sendall(self, data: bytes, /) -> None: ...


class Frame(NamedTuple):
    """`kind`: the type of a control frame, or 0."""

    kind: int
    stream: int
    flags: int
    data: bytes


class Spdy:
    """The frames of one connection."""

    def __init__(self, line: Line, incoming: IO[bytes]) -> None:
        self.line, self.incoming = line, incoming
        self._guard = threading.Lock()
        self._compressor = zlib.compressobj()
        self._inflater = zlib.decompressobj(zdict=_DICTIONARY)

    def read(self) -> Frame | None:
        head = self.incoming.read(8)
        if len(head) < 8:
            return None
        first, second = struct.unpack(">II", head)
        data = self.incoming.read(second & 0xFFFFFF)
        if not first & 0x80000000:
            return Frame(0, first, second >> 24, data)
        stream = struct.unpack(">I", data[:4])[0] if len(data) >= 4 else 0
        return Frame(first & 0xFFFF, stream, second >> 24, data)

    def headers(self, frame: Frame) -> Mapping[str, str]:
        """Of a new stream. All of them have to be read, in order: they are compressed as one."""
        text = self._inflater.decompress(frame.data[10:])
        (count,), at, found = struct.unpack_from(">I", text), 4, []
        for _ in range(2 * count):
            (length,) = struct.unpack_from(">I", text, at)
            found.append(text[at + 4 : at + 4 + length].decode())
            at += 4 + length
        return dict(zip(found[::2], found[1::2], strict=True))

    def _write(self, first: int, data: bytes, flags: int = 0) -> None:
        with self._guard, suppress(OSError):
            self.line.sendall(struct.pack(">II", first, flags << 24 | len(data)) + data)

    def accept(self, stream: int) -> None:
        with self._guard:
            headers = self._compressor.compress(struct.pack(">I", 0)) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        self._write(CONTROL | SYN_REPLY, struct.pack(">I", stream) + headers)

    def echo(self, data: bytes) -> None:
        self._write(CONTROL | PING, data)

    def send(self, stream: int, data: bytes, *, is_last: bool = False) -> None:
        self._write(stream, data, LAST if is_last else 0)
