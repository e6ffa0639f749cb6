"""If-Match: a change names the version that it is based on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import Request

from phalanx.home.shared_documents import Outdated
from phalanx.server.http.bodies import disk_refusal
from phalanx.server.http.responses import JsonResponse, RequestError


def version_of(request: Request) -> str:
    """The tag in If-Match. Raises RequestError without one."""
    found = request.headers.get("if-match", "").strip()
    if not found or found == "*":
        hint = "send the ETag of the version that you have changed"
        raise RequestError(428, "the header If-Match is required", hint)
    return found.removeprefix("W/")


@contextmanager
def changing() -> Iterator[None]:
    """Turns what can go wrong into responses."""
    try:
        yield
    except Outdated as newer:
        raise RequestError(
            412, "someone else has changed this meanwhile", "load it again, and repeat your change"
        ).with_headers({"ETag": newer.current}) from None
    except OSError as fault:
        raise disk_refusal(fault) from None


def tagged(content: Any, tag: str, status: int = 200) -> JsonResponse:
    answer = JsonResponse(content, status)
    answer.headers.update({"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization, Cookie"})
    return answer
