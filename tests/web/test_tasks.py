"""Twelve tasks of every day, and how many clicks each takes. A task begins where people are when they think of it."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from phalanx.store import Store
from tests.boards.programs import install
from tests.web.browsing import Window
from tests.web.clicks import at_most
from tests.web.homes import fill_sweep
from tests.web.serving import Served

FAILS = "test $PHALANX_REPLICA != worker-3 || { echo 'ValueError: a bad batch' >&2; exit 1; }; echo fine; sleep 30"
FIVE = {"replicas": {"n_workers": 4}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Its server finds a program that is called like TensorBoard."""
    base = tmp_path_factory.mktemp("tasks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{install(base / 'bin')}{os.pathsep}{os.environ['PATH']}")
        found = Served(base, fill_sweep)
    yield found
    found.end()


@pytest.fixture(scope="module")
def failed(served: Served) -> str:
    return served.ran(FAILS, "--name", "broken", "--project", "broken", framework="plain", environment=FIVE)


def listed(window: Window, rows: int = 12) -> Page:
    page = window.go("/runs?project=sweep")
    expect(page.locator(".runs-row")).to_have_count(rows)
    return page


def test_the_best_run_is_one_click_away(served: Served, window: Window) -> None:
    page = listed(window)
    with at_most(window, 1):
        page.get_by_role("columnheader", name="accuracy").get_by_role("button").click()
        page.wait_for_url(re.compile("sort="))
    with Store.open(served.home) as store:
        best = max(store.runs(project="sweep", limit=None), key=lambda run: float(run.summary["accuracy"]))
    expect(page.locator(".runs-name").first).to_have_text(str(best.name))


@pytest.mark.usefixtures("failed")
def test_why_a_run_failed_is_two_clicks_away(window: Window) -> None:
    page = window.go("/runs")
    with at_most(window, 2):
        page.get_by_role("button", name="Failed").click()
        page.get_by_role("link", name="broken").click()
        cause = page.get_by_role("region", name="First failure")
        expect(cause).to_contain_text("worker-3 (rank 4) failed first")
        expect(cause).to_contain_text("ValueError: a bad batch")


def test_the_learning_rates_of_three_runs_are_four_clicks_away(window: Window) -> None:
    page = listed(window)
    with at_most(window, 4):
        for number in (1, 5, 9):
            page.get_by_label(f"Select sweep-{number}", exact=True).click()
        page.get_by_role("toolbar").get_by_role("button", name="Compare").click()
        expect(page.get_by_role("heading", name="Compare 3 runs")).to_be_visible()
        main = page.get_by_role("main")
        for number, rate in ((1, "0.003"), (5, "0.01"), (9, "0.001")):
            expect(main.get_by_role("button", name=re.compile(rf"^sweep-{number} .*\blr {rate}\b"))).to_be_visible()


def test_ten_runs_are_overlaid_with_three_clicks(window: Window) -> None:
    page = listed(window)
    with at_most(window, 3):
        page.get_by_label("Select sweep-11", exact=True).click()
        page.get_by_label("Select sweep-2", exact=True).click(modifiers=["Shift"])
        page.get_by_role("toolbar").get_by_role("button", name="Compare").click()
        expect(page.get_by_role("heading", name="Compare 10 runs")).to_be_visible()
        expect(page.locator(".chart").first).to_be_visible()


def test_the_error_of_a_worker_is_one_click_away(failed: str, window: Window) -> None:
    page = window.go(f"/runs/{failed}")
    cell = page.get_by_role("region", name="Replicas").get_by_role("button", name=re.compile(r"worker-3\b"))
    expect(cell).to_be_visible()
    with at_most(window, 1):
        cell.click()
        panel = page.get_by_role("dialog").or_(page.get_by_role("complementary"))
        expect(panel.get_by_text("ValueError: a bad batch").first).to_be_visible()


def test_a_model_is_downloaded_with_three_clicks(served: Served, window: Window) -> None:
    maker = served.ran("echo weights > $PHALANX_OUTPUTS/w.pt", "--project", "models")
    assert served.call("models", "register", maker, "outputs/w.pt", "--name", "net").code == 0
    page = listed(window)
    with at_most(window, 3):
        page.get_by_role("navigation").get_by_role("link", name="Models").click()
        page.get_by_role("link", name="net").click()
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
    assert download.value.path().read_text() == "weights\n"


def test_a_run_is_stopped_with_two_clicks(served: Served, window: Window) -> None:
    run_id = served.queued("sleep 60", "--project", "stop")
    served.until(run_id, "running")
    page = window.go(f"/runs/{run_id}")
    expect(page.locator(".run-state")).to_contain_text("running")
    with at_most(window, 2):
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        expect(page.locator(".run-state")).to_contain_text("stopped", timeout=40_000)
    served.until(run_id, "stopped")


def test_a_link_to_a_zoom_needs_no_click(window: Window) -> None:
    page = window.go("/runs/sweep000/charts")
    over = page.locator(".chart .u-over").first
    over.wait_for()
    box = over.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=5)
    page.mouse.up()
    with at_most(window, 0):
        page.wait_for_url(re.compile("steps="))
        zoomed = page.locator(".chart").first.get_attribute("aria-label")
    other = window.context.new_page()
    other.goto(page.url)
    expect(other.locator(".chart").first).to_be_visible()
    assert other.locator(".chart").first.get_attribute("aria-label") == zoomed


def test_runs_are_grouped_by_learning_rate_over_seeds_with_two_clicks(window: Window) -> None:
    page = listed(window)
    with at_most(window, 2):
        page.get_by_role("button", name="Group runs").click()
        page.get_by_role("checkbox", name=re.compile("^lr")).click()
        expect(page.locator(".runs-row.is-group")).to_have_count(3)
        expect(page.locator(".runs-row.is-group").first).to_contain_text("4 runs")


def test_large_runs_of_the_last_hour_are_one_query(served: Served, window: Window) -> None:
    with Store.open(served.home) as store, store.transaction():
        run, now = store.find("sweep000"), datetime.now(UTC)
        for name, age, gpus in (("large", 0, 8.0), ("large-old", 3, 8.0), ("small", 0, 2.0)):
            at = now - timedelta(hours=age)
            store.add(run._replace(id=f"x{name}", name=name, project="gpus", created_at=at, gpus=gpus))
    page = window.go("/runs?project=gpus")
    expect(page.locator(".runs-row")).to_have_count(3)
    with at_most(window, 0):
        page.keyboard.press("/")
        page.keyboard.type("created_at:>1h, gpus:>2")
        page.keyboard.press("Enter")
        expect(page.locator(".runs-name")).to_have_text(["large"])


def test_tensorboard_is_two_clicks_away(window: Window) -> None:
    window.allow("asked another host: http|favicon")
    page = listed(window)
    with at_most(window, 2):
        page.get_by_label("Select sweep-3", exact=True).click()
        with page.context.expect_page() as opened:
            page.get_by_role("toolbar").get_by_role("button", name="TensorBoard").click()
    expect(opened.value.locator("body")).to_contain_text('"logdir"')


def test_a_table_is_exported_with_two_clicks(window: Window) -> None:
    page = listed(window)
    with at_most(window, 2):
        page.get_by_role("button", name="More").click()
        with page.expect_download() as download:
            page.get_by_text("Export CSV").click()
    rows = list(csv.DictReader(download.value.path().read_text().splitlines()))
    assert len(rows) == 12
    assert {row["name"] for row in rows} == {f"sweep-{number}" for number in range(12)}
