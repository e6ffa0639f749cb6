"""Commands in containers, as a kubelet runs them for `kubectl exec`. Streams come in a known order."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.kubernetes.spdy import LAST, PING, SYN_STREAM, Line, Spdy

SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
)


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
        if frame.kind == SYN_STREAM:
            streams[names[len(streams)]] = frame.stream
            spdy.accept(frame.stream)
        elif frame.kind == PING:
            spdy.echo(frame.data)
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
