"""The page with 10,000 runs in a real browser: until something is painted, until rows are there, and how it scrolls;
beside a page that has nothing in it, in the same browser."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from table import ROOT, Beside, Row, at_most

sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, Page, StorageState, sync_playwright
from tests.web.browsing import open_browser
from tests.web.homes import fill_many
from tests.web.serving import Served

RUNS = 10_000
ROUNDS = 7
MOST_PAINT_S = 1.0
FRAME_S = 1 / 60
MOST_FRAME_S = 0.05  # of nineteen in twenty frames: fewer than 20 a second are seen as jerks
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
# Half a screen a frame, as fast as the browser draws: two thousand rows.
SCROLL = """
table => new Promise(done => {
  const gaps = []
  let before = null
  const step = now => {
    if (before !== null) gaps.push(now - before)
    before = now
    table.scrollTop += table.clientHeight / 2
    gaps.length < 200 ? requestAnimationFrame(step) : done(gaps)
  }
  requestAnimationFrame(step)
})
"""
STILL = SCROLL.replace("table.scrollTop += table.clientHeight / 2", "")


def painted_s(page: Page) -> float:
    """After the navigation, by the browser's own clock."""
    while (at := page.evaluate(PAINT)) is None:
        page.wait_for_timeout(5)
    return float(at) / 1000


def signed_in(browser: Browser, served: Served) -> StorageState:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{served.url}/#token={served.token}")
        page.locator(".runs-name").first.wait_for()
        return context.storage_state()


def loads(browser: Browser, served: Served) -> tuple[list[float], list[float], list[float]]:
    """First paint of an answer of one line, of our page, and first rows of that; each in a window of its own."""
    state = signed_in(browser, served)
    empty, painted, rows = [], [], []
    for _ in range(ROUNDS):
        with browser.new_context(storage_state=state) as context:
            bare = context.new_page()
            bare.goto(f"{served.url}/healthz")
            empty.append(painted_s(bare))
        with browser.new_context(storage_state=state) as context:
            page = context.new_page()
            page.goto(f"{served.url}/runs", wait_until="commit")
            page.locator(".runs-name").first.wait_for()
            rows.append(float(page.evaluate("() => performance.now()")) / 1000)
            painted.append(painted_s(page))
    return empty, painted, rows


def renderer_s(browser: Browser) -> float:
    """The CPU time of the processes that run pages. Unlike the time between frames, it hardly depends on other work."""
    session = browser.new_browser_cdp_session()
    found = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return sum(float(one["cpuTime"]) for one in found if one["type"] == "renderer")


def scrolled(browser: Browser, served: Served) -> tuple[list[float], list[float], float]:
    """The time between frames: of a table that stands still, and of one that is scrolled; and the CPU time of such a
    frame."""
    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        page = context.new_page()
        page.goto(f"{served.url}/#token={served.token}")
        page.locator(".runs-name").first.wait_for()
        table = page.get_by_role("table", name="Runs")
        still, before = table.evaluate(STILL), renderer_s(browser)
        moving = table.evaluate(SCROLL)
        return still, moving, (renderer_s(browser) - before) / len(moving)


def page() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, sync_playwright() as playwright:
        served = Served(Path(name), lambda place: fill_many(place, RUNS))
        browser = open_browser(playwright)
        try:
            empty, painted, rows = loads(browser, served)
            still, moving, cpu_s = scrolled(browser, served)
        finally:
            browser.close()
            served.end()
    floor = Beside("one line", statistics.median(empty))
    yield Row(f"first paint, {RUNS:,} runs", statistics.median(painted), "s", floor, aim=at_most(MOST_PAINT_S))
    yield Row(f"first rows, {RUNS:,} runs", statistics.median(rows), "s", floor, aim=at_most(MOST_PAINT_S))
    calm, busy = statistics.median(still) / 1e3, statistics.quantiles(moving, n=20)[-1] / 1e3
    yield Row("scrolling, 19 of 20 frames", busy, "s", Beside("standing still", calm), aim=at_most(MOST_FRAME_S))
    name = "scrolling, CPU time of a frame"
    yield Row(name, cpu_s, "s", Beside("60 frames a second", FRAME_S), aim=at_most(FRAME_S))


PARTS = {"page": page}
