"""The page with 10,000 runs in a real browser: until something is painted, until rows are there, and how it scrolls;
beside a page that has nothing in it, in the same browser."""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from measuring import ROOT, report

sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, Page, StorageState, sync_playwright
from tests.web.browsing import open_browser
from tests.web.homes import fill_many
from tests.web.serving import Served

RUNS = 10_000
ROUNDS = 7
MOST_PAINT_S = 1.0
FRAME_MS = 16.7  # at 60 frames a second
MOST_FRAME_MS = 50.0  # of nineteen in twenty frames: fewer than 20 a second are seen as jerks
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


def renderer_ms(browser: Browser) -> float:
    """The CPU time of the processes that run pages. Unlike the time between frames, it hardly depends on other work."""
    session = browser.new_browser_cdp_session()
    found = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return 1000 * sum(float(one["cpuTime"]) for one in found if one["type"] == "renderer")


def scrolled(browser: Browser, served: Served) -> tuple[list[float], list[float], float]:
    """The time between frames: of a table that stands still, and of one that is scrolled; and the CPU time of such a
    frame."""
    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        page = context.new_page()
        page.goto(f"{served.url}/#token={served.token}")
        page.locator(".runs-name").first.wait_for()
        table = page.get_by_role("table", name="Runs")
        still, before = table.evaluate(STILL), renderer_ms(browser)
        moving = table.evaluate(SCROLL)
        return still, moving, (renderer_ms(browser) - before) / len(moving)


def main() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, sync_playwright() as playwright:
        served = Served(Path(name), lambda place: fill_many(place, RUNS))
        browser = open_browser(playwright)
        try:
            empty, painted, rows = loads(browser, served)
            still, moving, cpu_ms = scrolled(browser, served)
        finally:
            browser.close()
            served.end()
    floor, paint, there = (statistics.median(times) for times in (empty, painted, rows))
    print(
        f"  first paint {paint:.2f} s, first rows {there:.2f} s; an answer of one line is painted after {floor:.2f} s"
    )
    report(f"first paint with {RUNS:,} runs", f"{paint:.2f} s", f"{MOST_PAINT_S:g} s", met=paint <= MOST_PAINT_S)
    report("… until rows are there", f"{there:.2f} s", f"{MOST_PAINT_S:g} s", met=there <= MOST_PAINT_S)
    calm, busy = statistics.median(still), statistics.quantiles(moving, n=20)[-1]
    middle = statistics.median(moving)
    print(f"  between frames: {calm:.1f} ms standing still; scrolling {middle:.1f} ms, p95 {busy:.1f} ms")
    share = f"{cpu_ms:.1f} ms ({cpu_ms / FRAME_MS:.2f}x)"
    report("scrolling, CPU time of a frame at 60 a second", share, f"{FRAME_MS:g} ms", met=cpu_ms <= FRAME_MS)
    report("scrolling, 19 of 20 frames", f"{busy:.0f} ms", f"{MOST_FRAME_MS:g} ms", met=busy <= MOST_FRAME_MS)


if __name__ == "__main__":
    main()
