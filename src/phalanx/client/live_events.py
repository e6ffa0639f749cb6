"""Live events of a server (server-sent events)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from phalanx.client.transport import ServerUnreachable, Transport

QUIET_S = 45.0  # the server sends something at least three times as often
PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
PATIENCE_S = 60.0


class LiveEvent(NamedTuple):
    """A change: `kind` is `run`, `gone`, `points`, `log` or `replicas`; `data` says what to fetch."""

    kind: str
    data: Any


def listen(wire: Transport, path: str) -> Iterator[LiveEvent]:
    """Endless events. Reconnects when the connection breaks; gives up after a minute without a response."""
    import httpx

    pause_s, well = PAUSE_S, time.monotonic()
    while True:
        try:
            with wire.stream(path, {"Accept": "text/event-stream"}) as response:
                for event in parsed(response.iter_lines()):
                    pause_s, well = PAUSE_S, time.monotonic()
                    yield event
                well = time.monotonic()
        except (httpx.HTTPError, ServerUnreachable) as fault:
            if time.monotonic() - well > PATIENCE_S:
                raise (wire.failed(fault) if isinstance(fault, httpx.HTTPError) else fault) from None
        time.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)


def parsed(lines: Iterable[str]) -> Iterator[LiveEvent]:
    """The events of a stream; comments and invalid JSON are skipped."""
    kind, data = "message", list[str]()
    for line in lines:
        if not line:
            if data:
                with suppress(ValueError):
                    yield LiveEvent(kind, json.loads("\n".join(data)))
            kind, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
