"""Chunked uploads of files: those that grow, and those that must appear complete."""

from __future__ import annotations

import os
from pathlib import Path

from phalanx.server.http.bodies import disk_refusal, write_all
from phalanx.server.http.responses import JsonResponse, RequestError


def append(target: Path, offset: int, piece: bytes) -> JsonResponse:
    """Write a chunk at its offset in a growing file. Bytes that are already there are skipped; a gap is answered with
    the current length. Raises RequestError."""
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise disk_refusal(fault) from None
    try:
        there = os.fstat(descriptor).st_size
        if offset > there:
            return JsonResponse({"size": there, "error": {"message": f"the file ends at {there}"}}, 409)
        write_all(descriptor, piece[there - offset :], target.parent)
        return JsonResponse({"size": max(there, offset + len(piece))})
    except OSError as fault:
        raise disk_refusal(fault) from None
    finally:
        os.close(descriptor)


def assemble(target: Path, offset: int, piece: bytes, size: int | None) -> JsonResponse:
    """Collect chunks of a file that must appear complete. The first chunk discards what an earlier attempt left, which
    may have other content. Raises RequestError."""
    if size is None:
        raise RequestError(400, "a chunked upload needs `size`, the size of the whole file")
    draft = target.with_name(f".{target.name[:100]}.{size}.draft")
    if offset == 0:
        draft.unlink(missing_ok=True)
    answer = append(draft, offset, piece)
    there = draft.stat().st_size
    if there > size:
        draft.unlink()
        raise RequestError(400, f"received {there} bytes of a file of {size}")
    if there == size:
        draft.replace(target)
    return answer
