"""Counts every request, logs it if enabled, and ends streams at shutdown."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phalanx.server.ops.access_log import ServerLog, plain
from phalanx.server.ops.metrics import OTHER, Metrics
from phalanx.server.processes.shared_state import Gauge, SharedState

LONGEST_PATH = 200
REQUEST_ID = "X-Request-ID"
_FIT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z", re.ASCII)


class Streams:
    """The open live streams. Used only by the event loop's thread."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.is_ending = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def add(self, task: asyncio.Task[Any] | None) -> None:
        if task is not None:
            self._tasks.add(task)
            self.metrics.gauge(Gauge.LISTENERS, len(self._tasks))
            if self.is_ending:
                task.cancel()

    def forget(self, task: asyncio.Task[Any] | None) -> None:
        if task is not None:
            self._tasks.discard(task)
            self.metrics.gauge(Gauge.LISTENERS, len(self._tasks))

    def end(self) -> None:
        self.is_ending = True
        for task in self._tasks:
            task.cancel()


class RequestStats:
    """The server's counters, its log, and the streams it must end. `is_open`: the metrics need no token."""

    def __init__(
        self,
        log_format: str = "text",
        *,
        access: bool = False,
        is_open: bool = False,
        shared: SharedState | None = None,
    ) -> None:
        self.metrics = Metrics(shared)
        self.log = ServerLog(log_format, access=access)
        self.streams = Streams(self.metrics)
        self.is_open = is_open


class RequestStatsMiddleware:
    """The outermost middleware, so that it sees the result of every request. At shutdown it ends live streams, which
    would never end by themselves."""

    def __init__(self, app: ASGIApp, counting: RequestStats) -> None:
        self.app = app
        self.metrics = counting.metrics
        self.log = counting.log
        self.streams = counting.streams
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asked = _Asked(scope, send, self.streams)
        scope["state"]["log"] = self.log
        self._under_way += 1  # only the event loop's thread counts here
        self.metrics.gauge(Gauge.UNDER_WAY, self._under_way)
        try:
            await self.app(scope, receive, asked.send)
        except asyncio.CancelledError:
            if not (asked.is_live and self.streams.is_ending):
                raise
            await asked.end()
        finally:
            self._under_way -= 1
            self.metrics.gauge(Gauge.UNDER_WAY, self._under_way)
            self.streams.forget(asked.task)
            self._note(asked)

    def _note(self, asked: _Asked) -> None:
        scope, seconds = asked.scope, asked.seconds()
        route = getattr(scope.get("route"), "path", OTHER)
        self.metrics.request(scope["method"], route, asked.status, seconds)
        claim = scope.get("state", {}).get("claim")
        identity = getattr(claim, "identity", None)
        self.log.access(
            id=asked.id,
            who=identity.name if identity else "-",
            method=plain(scope["method"])[:20],
            path=quote(scope["path"][:LONGEST_PATH], errors="replace"),
            route=route,
            status=asked.status,
            ms=round(seconds * 1000, 1),
        )


class _Asked:
    """One request and the status of its response."""

    def __init__(self, scope: Scope, send: Send, streams: Streams) -> None:
        given = Headers(scope=scope).get(REQUEST_ID, "")
        self.id = given if _FIT_ID.match(given) else secrets.token_hex(8)
        self.scope = scope
        self.status = 500  # a request that is never answered counts as an error
        self.is_live = False
        self.task = asyncio.current_task()
        self._send = send
        self._streams = streams
        self._began = time.monotonic()
        self._took: float | None = None
        scope.setdefault("state", {})["request_id"] = self.id

    def seconds(self) -> float:
        """Seconds until the response was complete; for a stream, until it started."""
        return self._took if self._took is not None else time.monotonic() - self._began

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers[REQUEST_ID] = self.id
            if headers.get("content-type", "").startswith("text/event-stream"):
                self.is_live = True
                self._took = time.monotonic() - self._began
                self._streams.add(self.task)
        await self._send(message)

    async def end(self) -> None:
        if self.task is not None:
            self.task.uncancel()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
