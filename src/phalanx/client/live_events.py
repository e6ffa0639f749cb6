"""What a server tells by itself: events as they happen (server-sent events)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from phalanx.client.transport import ServerUnreachable, Transport

QUIET_S = 45.0  # the server says something at least three times as often
PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
PATIENCE_S = 60.0


class LiveEvent(NamedTuple):
    """`run`, `gone`, `points`, `log`, `replicas`: that something changed, and where to look."""

    kind: str
    data: Any


def listen(wire: Transport, path: str) -> Iterator[LiveEvent]:
    """Events without end. Asks again when the connection breaks; gives up when nobody answers for a minute."""
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
    """Events of a stream; comments, and what is no JSON, are passed over."""
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
