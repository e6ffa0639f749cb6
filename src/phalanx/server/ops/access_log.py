"""What the server writes down: of every request who, what, how it ended and how long it took; and what went wrong.
Never what was sent: no headers, no queries, no bodies.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

FORMATS = ("text", "json")


class ServerLog:
    """Lines for whoever runs the server, on standard error."""

    def __init__(self, form: str = "text", *, access: bool = False, stream: TextIO | None = None) -> None:
        self.form = form
        self.has_access = access
        self.stream = stream

    def trouble(self, message: str, **fields: Any) -> None:
        self._write("error", message, fields)

    def access(self, **fields: Any) -> None:
        """One request that is over."""
        if self.has_access:
            told = "{method} {path} {status} {ms:.1f} ms {who} {id}".format_map(fields)
            self._write("access", told, fields)

    def _write(self, kind: str, message: str, fields: dict[str, Any]) -> None:
        now = datetime.now(UTC)
        if self.form == "json":
            head = {"at": now.isoformat(timespec="milliseconds"), "kind": kind}
            line = json.dumps({**head, **({} if kind == "access" else {"message": message}), **fields})
        else:
            line = f"{now:%F %T} {plain(message)}"
        print(line, file=self.stream or sys.stderr, flush=True)


def plain(text: str) -> str:
    """One line, whatever somebody sent."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


class UvicornLogHandler(logging.Handler):
    """What uvicorn has to say, in the form of everything else."""

    def __init__(self, log: ServerLog) -> None:
        super().__init__(logging.ERROR)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        fault = record.exc_info[1] if record.exc_info else None
        self.log.trouble(record.getMessage() + (f" {type(fault).__name__}: {fault}" if fault else ""))
