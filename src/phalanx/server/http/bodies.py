"""Request bodies: bounded in memory, or streamed into a draft file next to their destination.

A body must arrive at the pace of `body_pace`, and nothing scarce is reserved before it is there.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from phalanx.server.http.responses import RequestError, busy

MAX_JSON = 20 << 20  # an MLflow dataset profile alone may have 16 MiB
MAX_PIECE = 16 << 20
MAX_FILE = 1 << 40
SPARE_BYTES = 64 << 20  # bytes of disk that uploads must leave free
GATHERED = 1 << 20


class BodyMemory:
    """Bytes of bodies that are in memory. They count as they arrive: who announces many has none of them yet."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self._by_key: dict[str, int] = {}

    def take(self, key: str, size: int) -> None:
        """Raises RequestError. What was taken must be given back."""
        own = self._by_key.get(key, 0)
        if self.used + size > self.most or own + size > half(self.most):
            raise busy()
        self.used += size
        self._by_key[key] = own + size

    def give_back(self, key: str, size: int) -> None:
        self.used -= size
        left = self._by_key.pop(key, 0) - size
        if left:
            self._by_key[key] = left


def half(most: int) -> int:
    """The share of one caller in what all callers have."""
    return max(1, most // 2)


async def bounded(request: Request, most: int) -> bytes:
    """Raises RequestError, as early as possible, when the body is larger, or when too much is in memory."""
    state = request.scope["state"]
    if "body" in state:
        return bytes(state["body"])
    _check_length(request, most)
    memory: BodyMemory = request.app.state.traffic.memory
    key: str = state["key"]
    pieces: list[bytes] = []
    size = 0
    state["leaving"].append(lambda: memory.give_back(key, size))
    async for piece in request.stream():
        if size + len(piece) > most:
            raise RequestError(413, f"the body exceeds the limit of {most:,} bytes")
        memory.take(key, len(piece))
        size += len(piece)
        pieces.append(piece)
    state["body"] = b"".join(pieces)
    return bytes(state["body"])


def _check_length(request: Request, most: int) -> None:
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        raise RequestError(400, "the Content-Length header is not a number")
    if int(length[:30]) > most:
        raise RequestError(413, f"the body exceeds the limit of {most:,} bytes")


async def json_bytes(request: Request) -> bytes:
    """The raw body. The thread that needs it parses it: parsing a large text here would block all requests."""
    return await bounded(request, MAX_JSON)


JsonBody = Annotated[bytes, Depends(json_bytes)]


def json_object(body: bytes) -> dict[str, Any]:
    """Raises RequestError for anything but an object."""
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise RequestError(400, "the body is not a JSON object")
    return found


async def stream_into(request: Request, target: Path, most: int = MAX_FILE) -> int:
    """Store the body as a file, completely or not at all. Returns its size. Raises RequestError."""
    _check_length(request, most)
    draft = target.with_name(f".{secrets.token_hex(8)}.draft")
    try:
        size = await _fill(request.stream(), draft, most)
        length = request.headers.get("content-length")
        if length is not None and int(length) != size:
            raise RequestError(400, f"received {size:,} bytes, but Content-Length is {int(length[:30]):,}")
        await run_in_threadpool(os.replace, draft, target)
    except ClientDisconnect:
        raise RequestError(400, "the body is incomplete") from None
    except OSError as fault:
        raise disk_refusal(fault) from None
    finally:
        await run_in_threadpool(draft.unlink, missing_ok=True)
    return size


async def _fill(pieces: AsyncIterator[bytes], draft: Path, most: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = await run_in_threadpool(os.open, draft, flags, 0o600)
    size, waiting = 0, bytearray()
    try:
        async for piece in pieces:
            size += len(piece)
            waiting += piece
            if size > most:
                raise RequestError(413, f"the file exceeds the limit of {most:,} bytes")
            if len(waiting) >= GATHERED:
                await run_in_threadpool(write_all, descriptor, bytes(waiting), draft.parent)
                waiting.clear()
        await run_in_threadpool(write_all, descriptor, bytes(waiting), draft.parent)
    finally:
        os.close(descriptor)
    return size


def write_all(descriptor: int, data: bytes, folder: Path) -> None:
    """Raises RequestError when the disk would become full, OSError when the disk fails."""
    if shutil.disk_usage(folder).free < SPARE_BYTES + len(data):
        raise RequestError(507, f"the disk of {folder} is full", "remove unneeded runs with `phalanx rm`")
    while data:
        data = data[os.write(descriptor, data) :]


def disk_refusal(fault: OSError) -> RequestError:
    return RequestError(507, f"cannot store this: {(fault.strerror or str(fault)).lower()}")
