"""Commands in containers, as a kubelet runs them for `kubectl exec`: several streams over one connection, by SPDY/3.1.

Only what kubectl uses of it. Streams come in a known order, so their headers need not be read; an answer with empty
headers is accepted.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
)
SYN_STREAM, SYN_REPLY, RESET, PING, GO_AWAY = 1, 2, 3, 6, 7
LAST = 1  # a flag
CONTROL = 0x80030000  # and the version


class Line(Protocol):
    def sendall(self, data: bytes, /) -> None: ...


class Spdy:
    """The frames of one connection."""

    def __init__(self, line: Line, incoming: IO[bytes]) -> None:
        self.line, self.incoming = line, incoming
        self._guard = threading.Lock()
        self._compressor = zlib.compressobj()

    def read(self) -> tuple[int, int, int, bytes] | None:
        """The type of a control frame or 0, the stream, the flags, and the data."""
        head = self.incoming.read(8)
        if len(head) < 8:
            return None
        first, second = struct.unpack(">II", head)
        data = self.incoming.read(second & 0xFFFFFF)
        if not first & 0x80000000:
            return 0, first, second >> 24, data
        stream = struct.unpack(">I", data[:4])[0] if len(data) >= 4 else 0
        return first & 0xFFFF, stream, second >> 24, data

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


def serve(line: Line, incoming: IO[bytes], container: int, words: Mapping[str, list[str]]) -> None:
    """Run a command in the namespaces of a container, given its first process. `words`: of the request."""
    line.sendall(SWITCHING)
    spdy = Spdy(line, incoming)
    names = ["error", *(each for each in ("input", "output", "error") if words.get(each) == ["1"])]
    names = ["report" if at == 0 else name for at, name in enumerate(names)]
    streams: dict[str, int] = {}
    while len(streams) < len(names):
        frame = spdy.read()
        if frame is None:
            return
        if frame[0] == SYN_STREAM:
            streams[names[len(streams)]] = frame[1]
            spdy.accept(frame[1])
        elif frame[0] == PING:
            spdy.echo(frame[3])
    process = _started(container, words["command"])
    readers = [
        threading.Thread(target=_forward, args=(spdy, streams[name], pipe))
        for name, pipe in (("output", process.stdout), ("error", process.stderr))
        if name in streams
    ]
    for reader in readers:
        reader.start()
    threading.Thread(target=_feed, args=(spdy, streams.get("input"), process), daemon=True).start()
    code = process.wait()
    for reader in readers:
        reader.join()
    spdy.send(streams["report"], json.dumps(_report(code)).encode(), is_last=True)


def _started(container: int, command: list[str]) -> subprocess.Popen[bytes]:
    words = Path(f"/proc/{container}/environ").read_bytes().split(b"\0")
    environment = {name: value for name, _, value in (os.fsdecode(word).partition("=") for word in words if word)}
    status = dict(line.split(":", 1) for line in Path(f"/proc/{container}/status").read_text().splitlines())
    uid, gid = (status[name].split()[0] for name in ("Uid", "Gid"))
    enter = ["nsenter", "-t", str(container), "-m", "-u", "-i", "-n", "-p", "-r", "-w", "-S", uid, "-G", gid, "--"]
    pipe = subprocess.PIPE
    return subprocess.Popen([*enter, *command], env=environment, stdin=pipe, stdout=pipe, stderr=pipe)


def _forward(spdy: Spdy, stream: int, pipe: IO[bytes]) -> None:
    while data := os.read(pipe.fileno(), 65_536):
        spdy.send(stream, data)
    spdy.send(stream, b"", is_last=True)


def _feed(spdy: Spdy, stream: int | None, process: subprocess.Popen[bytes]) -> None:
    """What the client sends, until it is gone."""
    assert process.stdin is not None
    while (frame := spdy.read()) is not None:
        kind, of, flags, data = frame
        if kind == PING:
            spdy.echo(data)
        with suppress(OSError, ValueError):
            if kind == 0 and of == stream:
                process.stdin.write(data)
                process.stdin.flush()
                if flags & LAST:
                    process.stdin.close()


def _report(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: {code}",
        "details": {"causes": causes},
    }
