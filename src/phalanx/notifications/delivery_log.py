"""The deliveries of a run's notifications: what is being sent is recorded before, so that nothing is sent twice.

<run>/notifications    one checksummed record for each change of a delivery's state; only the sender writes it
"""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.spool import JSON, Writer, read


class DeliveryState(StrEnum):
    SENDING = "sending"
    SENT = "sent"
    RETRY = "retry"  # it was certainly not sent, and is tried again
    FAILED = "failed"
    UNKNOWN = "unknown"  # the sender was killed meanwhile: it is not sent again


class Delivery(NamedTuple):
    """The last state of one message to one rule's target. Times are seconds since the epoch."""

    id: str
    event: str
    number: int
    channel: str
    to: str
    state: DeliveryState
    at: float
    tries: int = 1
    why: str = ""
    next_at: float | None = None

    @property
    def is_over(self) -> bool:
        return self.state not in (DeliveryState.SENDING, DeliveryState.RETRY)


class DeliveryLog:
    def __init__(self, run_folder: Path) -> None:
        self.path = run_folder / run_paths.NOTIFICATIONS

    def read(self) -> dict[str, Delivery]:
        """The last state of each delivery, by id, oldest first."""
        found: dict[str, Delivery] = {}
        try:
            records = read(self.path)
        except OSError:
            return found
        for record in records:
            if record.kind == JSON:
                data: dict[str, Any] = record.data()
                known = {name: data[name] for name in Delivery._fields if name in data}
                found[str(data["id"])] = Delivery(**{**known, "state": DeliveryState(data["state"])})
        return found

    def append(self, delivery: Delivery) -> Delivery:
        """Synced to disk. Raises OSError."""
        now = delivery._replace(at=time.time())
        writer = Writer(self.path)
        try:
            writer.append_json({**now._asdict(), "state": str(now.state)})
            writer.sync()
        finally:
            writer.close()
        return now
