"""The queue on the page: why each run waits, priority, stop."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.web.browsing import Window
from tests.web.serving import Served

ALL_CPUS = {"resources": {"cpu": {"requests": 10_000}}}
LONG_MS = 60_000


def test_waiting_runs_say_why_and_editors_change_their_order_and_stop_them(
    served: Served, open_window: Callable[..., Window]
) -> None:
    blocker = served.queued("while :; do sleep 0.05; done", "--name", "blocker", environment=ALL_CPUS)
    served.until(blocker, "running")
    _, second = (served.queued("true", "--name", name) for name in ("first", "second"))
    window = open_window()
    page = window.go("/queue")
    waiting = page.locator(".queue-row")
    row = waiting.filter(has_text="second")
    expect(waiting.filter(has_text="first")).to_contain_text("waits for free resources on this machine: requests 1 CPU")
    expect(row).to_contain_text("waits for 1 run ahead in the queue")
    said = served.call("show", second).out
    assert "waiting    waits for 1 run ahead in the queue" in said  # the same words
    page.get_by_role("button", name="Raise priority of second").click()
    expect(row).to_contain_text("priority 1")
    expect(row).to_contain_text("waits for free resources on this machine")
    expect(row.get_by_title("Position in the queue")).to_have_text("1")
    page.get_by_role("button", name="Lower priority of second").click()
    expect(row).to_contain_text("priority 0")
    page.get_by_role("button", name="Stop second").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(row).to_have_count(0, timeout=LONG_MS)

    token = served.call("token", "create", "watcher", "--role", "viewer", "--json").out
    watcher = open_window()
    watcher.sign_in(re.search(r'"token": "([^"]+)"', token)[1])  # type: ignore[index]
    page = watcher.go("/queue")
    expect(page.locator(".queue-row").filter(has_text="first")).to_contain_text("priority 0")
    assert page.get_by_role("button", name=re.compile("priority of|^Stop ")).count() == 0

    page = window.go(f"/runs/{blocker}")  # two clicks from its page
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.locator(".run-state")).to_contain_text("stopped", timeout=LONG_MS)
