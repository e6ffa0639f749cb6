"""Bodies of requests: bounded in memory, or streamed into a draft beside their place."""

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

from phalanx.server.http.responses import RequestError

MAX_JSON = 20 << 20  # MLflow's profile of a dataset alone may have 16 MiB
MAX_PIECE = 16 << 20
MAX_FILE = 1 << 40
SPARE_BYTES = 64 << 20  # of the disk, which nobody who sends files may take
GATHERED = 1 << 20


async def bounded(request: Request, most: int) -> bytes:
    """Raises Refusal, as early as can be known, when it is more."""
    _check_length(request, most)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise RequestError(413, f"a body may have {most:,} bytes here")
        pieces.append(piece)
    return b"".join(pieces)


def _check_length(request: Request, most: int) -> None:
    told = request.headers.get("content-length", "0")
    if not told.isascii() or not told.isdigit():
        raise RequestError(400, "the Content-Length is not a number")
    if int(told[:30]) > most:
        raise RequestError(413, f"a body may have {most:,} bytes here")


async def json_bytes(request: Request) -> bytes:
    """Read here, parsed by the thread that needs it: a large text must not hold up everybody else."""
    return await bounded(request, MAX_JSON)


JsonBody = Annotated[bytes, Depends(json_bytes)]


def json_object(body: bytes) -> dict[str, Any]:
    """Raises Refusal for anything that is not an object."""
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise RequestError(400, "the body is not a JSON object")
    return found


async def stream_into(request: Request, target: Path, most: int = MAX_FILE) -> int:
    """The body as a file, there completely or not at all. Answers its size. Raises Refusal."""
    _check_length(request, most)
    draft = target.with_name(f".{secrets.token_hex(8)}.draft")
    try:
        size = await _fill(request.stream(), draft, most)
        told = request.headers.get("content-length")
        if told is not None and int(told) != size:
            raise RequestError(400, f"{size:,} bytes came, and {int(told[:30]):,} were announced")
        await run_in_threadpool(os.replace, draft, target)
    except ClientDisconnect:
        raise RequestError(400, "the body was cut short") from None
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
                raise RequestError(413, f"a file may have {most:,} bytes here")
            if len(waiting) >= GATHERED:
                await run_in_threadpool(write_all, descriptor, bytes(waiting), draft.parent)
                waiting.clear()
        await run_in_threadpool(write_all, descriptor, bytes(waiting), draft.parent)
    finally:
        os.close(descriptor)
    return size


def write_all(descriptor: int, data: bytes, folder: Path) -> None:
    """Raises Refusal when that would take the last of the disk, OSError when the disk refuses."""
    if shutil.disk_usage(folder).free < SPARE_BYTES + len(data):
        raise RequestError(507, f"the disk of {folder} is full", "remove runs that are not needed with `phalanx rm`")
    while data:
        data = data[os.write(descriptor, data) :]


def disk_refusal(fault: OSError) -> RequestError:
    return RequestError(507, f"this cannot be kept: {(fault.strerror or str(fault)).lower()}")
