"""A home with a real `phalanx serve` over it."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.cli.homes import Place, ended, wait_for


class Served(Place):
    """A home, a folder to work in, and a server in a process of its own."""

    def __init__(self, base: Path, fill: Callable[[Place], object] = lambda _: None, *options: str) -> None:
        """`fill` makes runs before there is a server; `options` are those of `serve`."""
        super().__init__(base)
        fill(self)
        self.server = self.start("serve", "--port", "0", "--json", *options)
        assert self.server.stdout is not None
        announced = json.loads(self.server.stdout.readline() or "{}")
        assert announced.get("ok"), self.server.stderr.read() if self.server.stderr else announced
        self.url = str(announced["url"])
        wait_for((self.home / "token").exists)
        self.token = (self.home / "token").read_text().strip()

    def end(self) -> None:
        """The server, and everyone else who works for this home."""
        self.server.send_signal(signal.SIGTERM)
        ended(self.server)
        while pids := self.processes():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def ask(self, path: str, method: str = "GET", body: Any = None, token: str | None = None) -> tuple[int, Any]:
        """The answer of the API, as any program gets it."""
        request = urllib.request.Request(f"{self.url}/api/v1{path}", method=method)
        request.add_header("Authorization", f"Bearer {token or self.token}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.loads(refusal.read() or b"null")
