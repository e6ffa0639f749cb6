"""Responses that the same caller gets again without any work, and 304 for what the client already has.

Every JSON response to GET below REVALIDATED has an ETag, made from its content. A browser keeps the response and asks
with the ETag whether it is still current; the page needs no code for that. Files have an ETag, too.

A response is reused for the same caller, with the same permissions, and the same URL, if it cannot have changed:
* `ResponseCache` made it and has said for how long, or
* it depends on nothing but the database (FROM_DATABASE), and that has the same version as before it was made.
No change that a client made through this server is older than the response.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phalanx.errors import StoreError
from phalanx.server.http.file_responses import is_known
from phalanx.server.http.response_cache import CachedContent

V1 = "/api/v1"
# Routes whose response is made from the database alone, and does not contain the name of the caller.
FROM_DATABASE = frozenset((f"{V1}/runs", f"{V1}/runs/{{run_id}}", f"{V1}/groups"))
REVALIDATED = tuple(f"{V1}/{name}" for name in ("runs", "projects", "groups", "charts", "compare", "queue", "models"))
NEVER_STORED = (f"{V1}/runs/{{run_id}}/environment/{{replica}}",)  # may hold secrets
LONGEST_S = 2.0  # a response that depends on the database is made again after this time: queries may be relative to now
MOST_BYTES = 32 << 20
LARGEST = 4 << 20
JSON = b"application/json"


class Answer(NamedTuple):
    headers: list[tuple[bytes, bytes]]
    body: bytes
    tag: bytes
    route: Any
    path_params: Mapping[str, Any]
    changes: float
    version: str | None  # of the database, if the answer depends on nothing else
    made_at: float
    until: float


class AnswerCache:
    """The most recently used answers. Used by the event loop only."""

    def __init__(
        self,
        version: Callable[[], Awaitable[str]],
        changes: Callable[[], float],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.version = version
        self.changes = changes
        self.most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, Answer] = OrderedDict()
        self._size = 0

    async def get(self, key: Hashable) -> Answer | None:
        """An answer that is still current."""
        found = self._kept.get(key)
        if found is None:
            return None
        now = time.monotonic()
        is_current = found.changes == self.changes() and (
            now < found.until
            or (
                found.version is not None
                and now - found.made_at < LONGEST_S
                and found.version == await self.version_now()
            )
        )
        if is_current and key in self._kept:
            self._kept.move_to_end(key)
            return found
        self._drop(key)
        return None

    async def version_now(self) -> str | None:
        """None while the database does not answer: then nothing that depends on it is reused."""
        try:
            return await self.version()
        except StoreError:
            return None

    def put(self, key: Hashable, answer: Answer) -> None:
        if len(answer.body) > LARGEST:
            return
        self._drop(key)
        self._kept[key] = answer
        self._size += len(answer.body)
        while self._size > self.most_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Hashable) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._size -= len(found.body)

    def __len__(self) -> int:
        return len(self._kept)


class AnswerCacheMiddleware:
    """Inside of the one that authenticates callers."""

    def __init__(self, app: ASGIApp, cache: AnswerCache) -> None:
        self.app = app
        self.cache = cache

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identity = scope["state"]["claim"].identity if scope["type"] == "http" else None
        if identity is None or scope["method"] != "GET" or not scope["path"].startswith(REVALIDATED):
            await self.app(scope, receive, send)
            return
        key = (scope["path"], scope["query_string"], identity.cache_key())
        found = await self.cache.get(key)
        if found is not None:
            scope["route"], scope["path_params"] = found.route, dict(found.path_params)  # for logs and metrics
            await _send(found, scope, send)
            return
        changes, version = self.cache.changes(), await self.cache.version_now()
        await self.app(scope, receive, _Reply(self.cache, key, changes, version, scope, send).send)


class _Reply:
    """The response of one request: JSON that comes as a whole gets an ETag, and is kept if it may be."""

    def __init__(  # noqa: PLR0913, PLR0917 - what is known of a request
        self, cache: AnswerCache, key: Hashable, changes: float, version: str | None, scope: Scope, send: Send
    ) -> None:
        self.cache = cache
        self.key = key
        self.changes = changes
        self.version = version
        self.scope = scope
        self._send = send
        self._start: Message | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and self._is_for_all(message):
            self._start = message  # until the whole body is here
        elif self._start is not None:
            start, self._start = self._start, None
            if message.get("more_body", False):
                await self._send(start)
                await self._send(message)
            else:
                await _send(self._kept(start, message.get("body", b"")), self.scope, self._send)
        else:
            await self._send(message)

    def _is_for_all(self, start: Message) -> bool:
        template = getattr(self.scope.get("route"), "path", "")
        headers = dict(start.get("headers", ()))
        is_json = headers.get(b"content-type", b"").startswith(JSON)
        return start["status"] == 200 and is_json and b"set-cookie" not in headers and template not in NEVER_STORED

    def _kept(self, start: Message, body: bytes) -> Answer:
        now = time.monotonic()
        headers = dict(start["headers"])
        tag = headers.get(b"etag") or b'"%s"' % blake2b(body, digest_size=16).hexdigest().encode()
        headers |= {b"etag": tag, b"cache-control": b"private, no-cache", b"vary": b"Authorization, Cookie"}
        route = self.scope.get("route")
        is_stored = getattr(route, "path", "") in FROM_DATABASE
        until = body.until if isinstance(body, CachedContent) else now
        version = self.version if is_stored else None
        answer = Answer(
            list(headers.items()),
            body,
            tag,
            route,
            self.scope.get("path_params", {}),
            self.changes,
            version,
            now,
            until,
        )
        if version is not None or until > now:
            self.cache.put(self.key, answer)
        return answer


async def _send(answer: Answer, scope: Scope, send: Send) -> None:
    if is_known(Headers(scope=scope).get("if-none-match", ""), answer.tag.decode("latin-1")):
        kept = [pair for pair in answer.headers if pair[0] not in (b"content-length", b"content-type")]
        await send({"type": "http.response.start", "status": 304, "headers": kept})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.start", "status": 200, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})
