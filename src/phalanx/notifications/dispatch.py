"""One message to send, the error when it was not, and the secrets that sending needs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from phalanx.notifications.message import Message

LONGEST_ERROR = 500
LARGEST_SECRET = 64 << 10


class NotSent(Exception):
    """The message was not sent. `may_retry`: nobody can have got it, and a later try may succeed."""

    def __init__(self, why: str, *, may_retry: bool) -> None:
        super().__init__(why[:LONGEST_ERROR])
        self.may_retry = may_retry


class Dispatch(NamedTuple):
    """One message to send. `id` is the same for every try of the same message."""

    id: str
    message: Message
    working: Path | None = None

    @property
    def body(self) -> bytes:
        return json.dumps({"id": self.id, **self.message.data}, default=str).encode()


def read_secret(file: str | None, variable: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """A secret from a file or an environment variable; None if neither is named. Raises NotSent, without the secret."""
    if file is not None:
        try:
            with Path(file).expanduser().open("rb") as stream:
                return stream.read(LARGEST_SECRET).decode("utf-8").strip()
        except (OSError, UnicodeDecodeError) as fault:
            raise NotSent(f"cannot read {file}: {getattr(fault, 'strerror', None) or fault}", may_retry=False) from None
    if variable is not None:
        found = environment.get(variable)
        if not found:
            raise NotSent(f"the environment variable {variable} is not set where runs are scheduled", may_retry=False)
        return found
    return None
