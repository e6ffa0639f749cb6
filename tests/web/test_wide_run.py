"""A run of 512 replicas with 202 metrics and a big log: its page asks for what is seen, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.web.browsing import Window
from tests.web.homes import WIDE, fill_wide
from tests.web.serving import Served

MOST_BYTES = 1_200_000
MOST_REQUESTS = 40
LONG_MS = 40_000


@pytest.fixture(name="served", scope="module")
def served_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("wide"), lambda place: fill_wide(place, 512, 202, points=120, lines=2000))
    yield served
    served.end()


def replicas(page: Page) -> Locator:
    return page.get_by_role("region", name="Replicas")


def test_the_strip_of_512_replicas_is_there_in_seconds_and_for_few_bytes(served: Served, window: Window) -> None:
    page = window.go(f"/runs/{WIDE}")
    expect(replicas(page)).to_contain_text("512 replicas", timeout=8000)
    expect(replicas(page).locator("button[data-place]")).to_have_count(512)
    expect(replicas(page)).to_contain_text("1 failed")
    expect(page.get_by_role("region", name="First failure")).to_contain_text("a bad batch")
    window.settle()
    print(f"\nrun page of 512 replicas: {window.bytes} bytes, {len(window.asked)} requests")
    assert window.bytes < MOST_BYTES
    assert len(window.asked) < MOST_REQUESTS


def test_only_charts_that_are_seen_are_asked_for(served: Served, window: Window) -> None:
    page = window.go(f"/runs/{WIDE}/charts")
    page.locator(".chart .u-over").first.wait_for(timeout=LONG_MS)
    window.settle()
    asked = {name for path in window.asked_for("/chart?") for name in re.findall(r"name=([^&]+)", path)}
    assert 0 < len(asked) < 60, "of 202 metrics"
    assert window.bytes < 2 * MOST_BYTES


def test_the_end_of_a_big_log_is_there_and_what_comes_before_it_is_scrolled_to(served: Served, window: Window) -> None:
    page = window.go(f"/runs/{WIDE}/logs")
    log = page.get_by_role("region", name="Log")
    expect(log.locator(".log-line").first).to_be_visible(timeout=LONG_MS)
    window.settle()
    before = len(window.asked_for("/lines?"))
    assert window.bytes < 2 * MOST_BYTES
    log.evaluate("box => box.scrollTop = 0")
    page.wait_for_function(
        "() => performance.getEntriesByType('resource').filter(one => one.name.includes('before=')).length > 0"
    )
    assert len(window.asked_for("/lines?")) > before
