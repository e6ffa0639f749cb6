"""Responses that the same caller gets again without any work, and 304 for what the client already has.

Every JSON response to GET below REVALIDATED has an ETag, made from its content. A browser keeps the response and asks
with the ETag whether it is still current; the page needs no code for that. Files have an ETag, too.

A response is reused for the same caller, with the same permissions, and the same URL, if it cannot have changed:
* `ResponseCache` made it and has said for how long. All callers with the same permissions share these, unless they are
  about the caller; or
* it depends on nothing but the database (FROM_DATABASE), and that has the same version as before it was made.
Other clients than the one that it was made for also get it a moment later: the longer it took, the longer, so that many
viewers of a slow page do not make it slower. And while `ResponseCache` makes a new one, the previous one is sent.

No change that a client made through this server is older than the response, and no live event about its run.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
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
OTHERS_S = 0.25  # the longest that a response is reused for other clients than the one that it was made for
OTHERS_SHARE = 20.0  # how many times as long as it took
STALE_S = 2.0  # the longest that the previous response is sent while a new one is made
LONGEST_S = 2.0  # a response that depends on the database is made again after this time: queries may be relative to now
MOST_BYTES = 32 << 20
LARGEST = 4 << 20
JSON = b"application/json"


class Asked(NamedTuple):
    """A request, as far as it decides which response it gets."""

    url: Hashable
    personal: Hashable  # the identity
    permissions: Hashable  # equal for identities that may do the same
    client: Hashable  # the connection
    at: float
    changes: float
    version: str | None  # of the database; None while that does not answer

    @property
    def keys(self) -> tuple[Hashable, Hashable]:
        return (self.url, "all", self.permissions), (self.url, "one", self.personal)


class Answer(NamedTuple):
    headers: list[tuple[bytes, bytes]]
    body: bytes
    tag: bytes
    route: Any
    path_params: Mapping[str, Any]
    asked: Asked  # the request that it was made for
    made_at: float
    is_stored: bool  # depends on nothing but the database

    @property
    def until(self) -> float:
        return self.body.until if isinstance(self.body, CachedContent) else float("-inf")

    @property
    def begun_at(self) -> float:
        return self.body.begun_at if isinstance(self.body, CachedContent) else self.asked.at

    @property
    def key(self) -> Hashable:
        is_for_all = isinstance(self.body, CachedContent) and not self.body.is_personal
        return self.asked.keys[0 if is_for_all else 1]


class AnswerCache:
    """The most recently used answers. Used by the event loop only."""

    def __init__(
        self,
        version: Callable[[], Awaitable[str]],
        changes: Callable[[], float],
        most_bytes: int = MOST_BYTES,
        event_at: Callable[[str], float] = lambda _: float("-inf"),
    ) -> None:
        """`event_at`: when clients were last told to fetch again what is about a run."""
        self.version = version
        self.changes = changes
        self.most_bytes = most_bytes
        self.event_at = event_at
        self.being_made: dict[Hashable, int] = {}
        self._kept: OrderedDict[Hashable, Answer] = OrderedDict()
        self._size = 0

    def get(self, asked: Asked) -> Answer | None:
        """An answer that may be sent again."""
        for key in asked.keys:
            found = self._kept.get(key)
            if found is None:
                continue
            if self._is_outdated(found, asked):
                self._drop(key)
            elif self._is_current(found, asked) or (found.until > asked.at - STALE_S and key in self.being_made):
                self._kept.move_to_end(key)
                return found
        return None

    def _is_outdated(self, found: Answer, asked: Asked) -> bool:
        """Whether clients expect to see something that is newer."""
        run_id = str(found.path_params.get("run_id", ""))
        return found.asked.changes != asked.changes or self.event_at(run_id) >= found.begun_at

    def _is_current(self, found: Answer, asked: Asked) -> bool:
        if asked.at < found.until:
            return True
        if found.is_stored:
            is_same = found.asked.version is not None and found.asked.version == asked.version
            return is_same and asked.at - found.made_at < LONGEST_S
        took_s = found.made_at - found.asked.at
        return found.asked.client != asked.client and asked.at - found.made_at < min(OTHERS_S, OTHERS_SHARE * took_s)

    @contextmanager
    def making(self, asked: Asked) -> Iterator[None]:
        for key in asked.keys:
            self.being_made[key] = self.being_made.get(key, 0) + 1
        try:
            yield
        finally:
            for key in asked.keys:
                self.being_made[key] -= 1
                if not self.being_made[key]:
                    del self.being_made[key]

    async def version_now(self) -> str | None:
        """None while the database does not answer: then nothing that depends on it is reused."""
        try:
            return await self.version()
        except StoreError:
            return None

    def put(self, answer: Answer) -> None:
        if len(answer.body) > LARGEST:
            return
        self._drop(answer.key)
        self._kept[answer.key] = answer
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
        asked = Asked(
            (scope["path"], scope["query_string"]),
            identity.cache_key(),
            identity.permissions(),
            scope.get("client"),
            time.monotonic(),
            self.cache.changes(),
            await self.cache.version_now(),
        )
        found = self.cache.get(asked)
        if found is not None:
            scope["route"], scope["path_params"] = found.route, dict(found.path_params)  # for logs and metrics
            await _send(found, scope, send)
            return
        with self.cache.making(asked):
            await self.app(scope, receive, _Reply(self.cache, asked, scope, send).send)


class _Reply:
    """The response of one request: JSON that comes as a whole gets an ETag, and is kept if it may be."""

    def __init__(self, cache: AnswerCache, asked: Asked, scope: Scope, send: Send) -> None:
        self.cache = cache
        self.asked = asked
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
        # Content that was made before this request may be of an older version.
        is_new = not isinstance(body, CachedContent) or body.begun_at >= self.asked.at
        is_stored = is_new and getattr(route, "path", "") in FROM_DATABASE
        path_params = self.scope.get("path_params", {})
        answer = Answer(list(headers.items()), body, tag, route, path_params, self.asked, now, is_stored)
        self.cache.put(answer)
        return answer


async def _send(answer: Answer, scope: Scope, send: Send) -> None:
    if is_known(Headers(scope=scope).get("if-none-match", ""), answer.tag.decode("latin-1")):
        kept = [pair for pair in answer.headers if pair[0] not in (b"content-length", b"content-type")]
        await send({"type": "http.response.start", "status": 304, "headers": kept})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.start", "status": 200, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})
