"""The pace of requests: a client that sends its headers or its body too slowly loses its connection.

Otherwise a client that sends one byte and waits would hold a connection and its slot for ever.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.types import Message, Receive
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from phalanx.server.http.responses import RequestError, encoded

HEADERS_S = 10.0  # from the first byte of a request, or from the connection, to the end of its headers
PAUSE_S = 10.0  # between two pieces of a body
GRACE_S = 10.0  # of waiting, before the rate counts
LEAST_RATE = 2000.0  # bytes per second


class PacedBody:
    """A request's `receive` that gives up on a client that sends too slowly."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._waited_s = 0.0  # for the client alone: the time in which we store what came does not count
        self._size = 0
        self.is_whole = False

    async def receive(self) -> Message:
        """Raises RequestError."""
        if self.is_whole:  # what follows is the end of the connection, which may be far away
            return await self._receive()
        before = time.monotonic()
        try:
            async with asyncio.timeout(PAUSE_S):
                message = await self._receive()
        except TimeoutError:
            raise _too_slow() from None
        self._waited_s += time.monotonic() - before
        self._size += len(message.get("body", b""))
        self.is_whole = message["type"] != "http.request" or not message.get("more_body", False)
        if not self.is_whole and self._waited_s > GRACE_S and self._size < LEAST_RATE * self._waited_s:
            raise _too_slow()
        return message


def _too_slow() -> RequestError:
    hint = f"send at least {LEAST_RATE:,.0f} bytes per second, without pauses of {PAUSE_S:g} s"
    return RequestError(408, "the body of the request arrives too slowly", hint)


class TimedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Closes connections whose request has no end of its headers. uvicorn itself waits for ever."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._end()
        elif self._deadline is None:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own message
        """What cannot be parsed is answered like every other error: uvicorn's answer would be plain text."""
        hint = "is it HTTP, and are its URL and headers shorter than 64 KiB?"
        body = encoded(RequestError(400, "the request cannot be read", hint).body())
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.transport.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        self.transport.close()

    def _begin(self) -> None:
        self._deadline = self.loop.call_later(HEADERS_S, self.transport.close)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
