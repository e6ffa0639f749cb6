"""A window of a real browser that notes everything a page must not do."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request, expect

from tests.web.serving import Served

PATIENCE_MS = 20_000
QUIET_S = 0.4
OUTLINE = """
document.addEventListener('securitypolicyviolation', (event) =>
  console.error('refused by the policy: ' + event.violatedDirective + ' ' + event.blockedURI));
"""


def open_browser(playwright: Playwright) -> Browser:
    """Debian's; nothing is downloaded."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path is not None, "there is no chromium: `make test-web` installs it"
    expect.set_options(timeout=PATIENCE_MS)
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-proxy-server"]
    return playwright.chromium.launch(executable_path=path, args=arguments)


class Window:
    """One page, and what it asked for. `faults` is empty as long as all is well."""

    def __init__(self, context: BrowserContext, served: Served) -> None:
        self.context = context
        self.served = served
        self.host = urlsplit(served.url).netloc
        self.faults: list[str] = []
        self.allowed: list[str] = []
        self.asked: list[str] = []
        self.bytes = 0
        context.add_init_script(OUTLINE)
        self.pending: set[Request] = set()
        context.on("request", self._note_request)
        context.on("requestfinished", self._note_end)
        context.on("requestfailed", self._note_end)
        context.on("console", self._note_console)
        context.on("weberror", lambda error: self.faults.append(f"raised {error.error}"))
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self._measure()

    def _note_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        self.asked.append(parts.path + (f"?{parts.query}" if parts.query else ""))
        if not parts.path.endswith("/live"):  # what the server tells by itself never ends
            self.pending.add(request)
        if parts.scheme not in ("data", "blob", "about") and parts.netloc != self.host:
            self.faults.append(f"asked another host: {request.url}")

    def _note_end(self, request: Request) -> None:
        self.pending.discard(request)

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _measure(self) -> None:
        """What comes over the wire, packed as it comes."""
        session = self.context.new_cdp_session(self.page)
        session.send("Network.enable")

        def add(event: dict[str, Any]) -> None:
            self.bytes += int(event["encodedDataLength"])

        session.on("Network.loadingFinished", add)

    def allow(self, pattern: str) -> None:
        """What a test expects to go wrong."""
        self.allowed.append(pattern)

    def unexpected(self) -> list[str]:
        return [fault for fault in self.faults if not any(re.search(pattern, fault) for pattern in self.allowed)]

    def sign_in(self, token: str | None = None) -> None:
        answer = self.context.request.post(
            f"{self.served.url}/api/v1/session", data={"token": token or self.served.token}
        )
        assert answer.ok, answer.text()

    def go(self, path: str) -> Page:
        self.page.goto(f"{self.served.url}{path}", wait_until="domcontentloaded")
        return self.page

    def settle(self) -> None:
        """Wait until the page has had all that it asked for, and asked for nothing more for a while."""
        deadline, since = time.monotonic() + PATIENCE_MS / 1000, time.monotonic()
        while time.monotonic() - since < QUIET_S:
            self.page.wait_for_timeout(20)  # hears what happens meanwhile
            if self.pending:
                since = time.monotonic()
            assert time.monotonic() < deadline, f"still waits for {[request.url for request in self.pending]}"

    def asked_for(self, part: str) -> list[str]:
        return [path for path in self.asked if part in path]


@contextmanager
def window(browser: Browser, served: Served, **options: Any) -> Iterator[Window]:
    """Signed in as the owner. Whatever the page did that no page of ours does fails the test at its end."""
    width, height = options.pop("width", 1400), options.pop("height", 900)
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    try:
        found = Window(context, served)
        found.sign_in()
        yield found
        assert not found.unexpected(), "\n".join(found.unexpected())
    finally:
        context.close()
