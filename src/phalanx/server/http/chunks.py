"""Files that come in pieces: those that grow, and those that are to appear whole."""

from __future__ import annotations

import os
from pathlib import Path

from phalanx.server.http.bodies import disk_refusal, write_all
from phalanx.server.http.responses import JsonResponse, RequestError


def append(target: Path, offset: int, piece: bytes) -> JsonResponse:
    """A piece where it belongs in a file that grows: what is there already is passed over, and after a gap is answered
    how far the file goes. Raises Refusal."""
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
    """Pieces of a file that is to appear whole. The first one begins anew: what an earlier try left may be of another
    content. Raises Refusal."""
    if size is None:
        raise RequestError(400, "of a file that comes in pieces the `size` of the whole is needed")
    draft = target.with_name(f".{target.name[:100]}.{size}.draft")
    if offset == 0:
        draft.unlink(missing_ok=True)
    answer = append(draft, offset, piece)
    there = draft.stat().st_size
    if there > size:
        draft.unlink()
        raise RequestError(400, f"{there} bytes came of a file of {size}")
    if there == size:
        draft.replace(target)
    return answer
