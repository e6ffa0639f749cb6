"""The server's log: caller, request, result and duration of every request, and errors. Never what was sent: no headers,
no queries, no bodies."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

FORMATS = ("text", "json")


class ServerLog:
    """Log lines for the operator, on standard error."""

    def __init__(self, form: str = "text", *, access: bool = False, stream: TextIO | None = None) -> None:
        self.form = form
        self.has_access = access
        self.stream = stream

    def trouble(self, message: str, **fields: Any) -> None:
        self._write("error", message, fields)

    def access(self, **fields: Any) -> None:
        """One finished request."""
        if self.has_access:
            line = "{method} {path} {status} {ms:.1f} ms {who} {id}".format_map(fields)
            self._write("access", line, fields)

    def _write(self, kind: str, message: str, fields: dict[str, Any]) -> None:
        now = datetime.now(UTC)
        if self.form == "json":
            head = {"at": now.isoformat(timespec="milliseconds"), "kind": kind}
            line = json.dumps({**head, **({} if kind == "access" else {"message": message}), **fields})
        else:
            line = f"{now:%F %T} {plain(message)}"
        print(line, file=self.stream or sys.stderr, flush=True)


def plain(text: str) -> str:
    """One line, regardless of line breaks in the request."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


class UvicornLogHandler(logging.Handler):
    """Uvicorn's messages, in the same format."""

    def __init__(self, log: ServerLog) -> None:
        super().__init__(logging.ERROR)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        fault = record.exc_info[1] if record.exc_info else None
        self.log.trouble(record.getMessage() + (f" {type(fault).__name__}: {fault}" if fault else ""))
