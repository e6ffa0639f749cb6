"""The page of a group: a real search is watched and changed while it runs; ten thousand trials do not stop the page."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browsing import Window
from tests.web.browsing import window as opened
from tests.web.homes import GROUP, fill_group
from tests.web.serving import Served

LONG_MS = 60_000
MANY = 10_000
LOG = f"{sys.executable} -c 'from phalanx import tracking; tracking.log(loss={{{{ lr }}}} * {{{{ width }}}})'"
WAITS = f"while [ ! -e go ]; do sleep 0.05; done; {LOG}"
FREEZES = """() => { window.longest = 0; new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
}).observe({ type: 'longtask', buffered: true }); }"""


@pytest.fixture(name="served", scope="module")
def served_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("groups"), lambda place: fill_group(place, MANY))
    yield served
    served.end()


def begin(served: Served, command: str, **tuning: Any) -> str:
    matrix = {"lr": {"logspace": "-3:-1:2"}, "width": {"values": [1, 4]}}
    small = {"resources": {"cpu": {"requests": 0.01}}}
    metric = {"name": "loss", "optimization": "minimize"}
    tuning = {"matrix": matrix, "metric": metric, **tuning}
    return served.queued(command, "--name", "probe", kind="group", environment=small, hptuning=tuning)


@pytest.fixture(name="group", scope="module")
def group_fixture(served: Served) -> str:
    """A search that waits for the file `go`."""
    return begin(served, WAITS, concurrency=1)


def toast(page: Page, text: str) -> None:
    expect(page.locator(".toasts")).to_contain_text(text, timeout=LONG_MS)


def test_a_search_is_watched_changed_and_followed_to_its_best_trial(served: Served, window: Window, group: str) -> None:
    page = window.go(f"/runs/{group}")
    page.evaluate("window.isTheSame = true")
    state = page.locator(".group-state")
    expect(state).to_contain_text("0 of 4 trials, 1 running, grid_search, concurrency 1", timeout=LONG_MS)
    page.get_by_role("button", name="Pause").click()
    toast(page, "Paused")
    expect(page.locator(".run-state")).to_contain_text("paused: by")
    page.get_by_label("Concurrency").fill("3")
    page.get_by_role("button", name="Set").click()
    expect(state).to_contain_text("concurrency 3", timeout=LONG_MS)
    page.get_by_role("button", name="Add a point").click()
    dialog = page.get_by_role("dialog", name="Add a point")
    dialog.get_by_label("lr").select_option("0.1")
    dialog.get_by_label("width").select_option("1")
    dialog.get_by_role("button", name="Add", exact=True).click()
    toast(page, "Point added.")
    expect(state).to_contain_text("of 5 trials", timeout=LONG_MS)
    page.get_by_role("button", name="Resume").click()
    toast(page, "Resumed.")
    expect(state).to_contain_text("3 running", timeout=LONG_MS)
    (served.folder / "go").touch()
    expect(page.locator(".run-state")).to_contain_text("succeeded", timeout=LONG_MS)
    expect(page.locator(".group-best")).to_contain_text(re.compile(r"best loss 0\.001.*trial 0"))
    for part in ("History", "Importance", "Parallel axes", "Slices", "Contour"):
        expect(page.get_by_role("region", name=part)).to_be_visible()
    expect(page.get_by_role("region", name="Importance")).to_contain_text("of 5 trials")
    expect(page.get_by_role("img", name="loss of 5 trials in order, with the best so far")).to_be_visible()
    page.get_by_role("link", name="Trials").click()
    table = page.get_by_role("table", name="Trials")
    expect(table.get_by_role("row")).to_have_count(6)
    expect(table.get_by_role("row").nth(1)).to_contain_text(re.compile(r"0\s*reported\s*0\.001"))
    page.get_by_role("link", name="Timeline").click()
    expect(page.get_by_role("region", name="Timeline")).to_contain_text(re.compile("3 slots for .*: running .* idle"))
    assert page.evaluate("window.isTheSame") is True, "nothing of it loaded the page again"


def test_a_viewer_sees_the_search_and_no_way_to_change_it(browser: Browser, served: Served, group: str) -> None:
    answer = served.call("token", "create", "onlooker", "--role", "viewer", "--json")
    with opened(browser, served) as window:
        window.context.clear_cookies()
        window.sign_in(str(answer.data["token"]))
        page = window.go(f"/runs/{group}")
        expect(page.locator(".group-state")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("Pause|Add a point|trials$|^Finish"))).to_have_count(0)


def test_the_trials_of_a_group_are_behind_its_row_which_unfolds(served: Served, window: Window, group: str) -> None:
    page = window.go("/runs")
    names = page.locator(".runs-name")
    expect(names).to_have_text(["probe", "ten-thousand"])
    row = page.get_by_role("row").filter(has_text="probe").first
    expect(row).to_contain_text(re.compile("[1-5] trials?"))
    page.get_by_role("button", name="Show the trials of probe").click()
    expect(page.locator(".runs-row.is-trial")).not_to_have_count(0)
    expect(names.nth(1)).to_have_text(re.compile("probe-[0-4]"))
    page.get_by_role("button", name="Hide the trials of probe").click()
    expect(names).to_have_text(["probe", "ten-thousand"])
    page.goto(f"{served.url}/runs?q=group:{group}")
    expect(names.first).to_have_text(re.compile("probe-[0-4]"))


def test_ten_thousand_trials_are_drawn_without_a_freeze(open_window: Callable[..., Window]) -> None:
    window = open_window()
    window.context.add_init_script(f"({FREEZES})()")
    began = time.monotonic()
    page = window.go(f"/runs/{GROUP}")
    expect(page.get_by_role("img", name=f"loss of {MANY} trials in order, with the best so far")).to_be_visible()
    parallel = page.get_by_role("region", name="Parallel axes")
    parallel.scroll_into_view_if_needed()
    expect(parallel).to_contain_text("of 9,5")
    page.get_by_role("region", name="Contour").scroll_into_view_if_needed()
    expect(page.get_by_role("img", name="loss over lr and layers")).to_be_visible()
    took_s = time.monotonic() - began
    window.settle()
    print(f"\n{MANY} trials: drawn after {took_s:.1f} s, longest task {page.evaluate('window.longest'):.0f} ms")
    assert page.evaluate("window.longest") < 3000
    page.get_by_role("link", name="Trials").click()
    table = page.get_by_role("table", name="Trials")
    expect(table).to_contain_text("reported")
    assert table.get_by_role("row").count() < 100, "only what is seen"
