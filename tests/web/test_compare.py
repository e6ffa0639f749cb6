"""Runs beside each other, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.web.browsing import Window
from tests.web.homes import fill_sweep
from tests.web.serving import Served

FIFTY = 50


@pytest.fixture(scope="module", autouse=True)
def sweep(served: Served) -> list[str]:
    return fill_sweep(served, FIFTY)


def chosen(runs: list[str], *more: str) -> str:
    return "/compare?" + "&".join([*(f"run={run}" for run in runs), *more])


def table_rows(page: Page) -> list[str]:
    found = page.get_by_role("region", name="Differences").get_by_role("rowheader").all_inner_texts()
    return [text.split("\n")[0].strip() for text in found]


def test_without_runs_the_page_says_how_to_choose_them(window: Window) -> None:
    page = window.go("/compare")
    expect(page.get_by_role("heading", name="No runs to compare yet")).to_be_visible()
    page.get_by_label("Query").fill("project:sweep")
    page.get_by_label("Sort").fill("metric.loss")
    page.get_by_label("Limit").fill("5")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Compare 5 runs")).to_be_visible()
    assert "q=project:sweep" in page.url
    assert "limit=5" in page.url


def test_two_runs_show_what_differs_and_on_request_what_does_not(window: Window, sweep: list[str]) -> None:
    page = window.go(chosen(sweep[:2], "view=differences"))
    expect(page.get_by_role("heading", name="Compare 2 runs")).to_be_visible()
    page.get_by_role("rowheader", name="lr").wait_for()
    assert "epochs" not in table_rows(page)
    page.get_by_label("Only differences").uncheck()
    page.get_by_role("rowheader", name="epochs").wait_for()
    assert "all=1" in page.url
    page.reload()
    page.get_by_role("rowheader", name="epochs").wait_for()


def test_the_best_value_is_marked_and_others_are_reported_against_a_baseline(window: Window, sweep: list[str]) -> None:
    page = window.go(chosen(sweep[:3], "view=differences"))
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="loss"))
    expect(row.get_by_text("best")).to_have_count(1)
    expect(row.get_by_role("cell").nth(1)).to_contain_text("best")
    row.get_by_role("button", name=re.compile("Change$")).click()
    expect(row.get_by_role("cell").nth(1)).not_to_contain_text("best")
    page.get_by_role("button", name="Baseline").first.click()
    expect(row.get_by_role("cell").nth(1)).to_contain_text("%")
    assert f"base={sweep[0]}" in page.url


def test_runs_are_grouped_by_a_param_into_means_and_the_address_keeps_it(window: Window, sweep: list[str]) -> None:
    page = window.go(chosen(sweep[:12]))
    legend = page.get_by_role("region", name="Runs")
    expect(legend.get_by_role("listitem")).to_have_count(12)
    page.locator(".chart .u-over").first.wait_for()
    page.get_by_role("button", name=re.compile("^Group by")).click()
    page.get_by_role("checkbox", name="optimizer").check()
    page.keyboard.press("Escape")
    groups = page.get_by_role("region", name="Groups of runs")
    expect(groups.get_by_role("listitem")).to_have_count(2)
    expect(groups).to_contain_text("optimizer adam")
    assert "by=optimizer" in page.url
    expect(page.get_by_role("img", name=re.compile(r"optimizer adam \(6\)")).first).to_be_visible()
    page.reload()
    expect(page.get_by_role("region", name="Groups of runs").get_by_role("listitem")).to_have_count(2)


def test_a_run_that_is_switched_off_is_gone_from_charts_and_table(window: Window, sweep: list[str]) -> None:
    page = window.go(chosen(sweep[:2]))
    page.locator(".chart .u-over").first.wait_for()
    switch = page.get_by_role("region", name="Runs").get_by_role("button", name=re.compile("^sweep-1 "))
    expect(switch).to_have_attribute("aria-pressed", "true")
    switch.click()
    expect(switch).to_have_attribute("aria-pressed", "false")
    assert f"off={sweep[1]}" in page.url
    page.get_by_role("link", name="Differences").click()
    expect(page.get_by_role("region", name="Differences").get_by_role("columnheader")).to_have_count(2)


def test_fifty_runs_need_one_request_for_a_screen_of_charts(window: Window) -> None:
    page = window.go("/compare?q=project:sweep&sort=metric.loss")
    expect(page.get_by_role("heading", name="Compare 50 runs")).to_be_visible()
    page.locator(".chart .u-over").nth(1).wait_for()
    window.settle()
    assert len(window.asked_for("/api/v1/charts?")) == 1
    assert len(window.asked_for("/api/v1/compare?")) == 0
    page.get_by_role("link", name="Differences").click()
    page.get_by_role("rowheader", name="lr").wait_for()
    assert len(window.asked_for("/api/v1/compare?")) == 1


def test_drawing_over_an_axis_filters_the_runs_everywhere(window: Window) -> None:
    page = window.go("/compare?q=project:sweep&view=parallel")
    expect(page.locator(".parallel-run")).to_have_count(FIFTY)
    axis = page.get_by_role("slider", name="Range of lr")
    box = axis.bounding_box()
    assert box is not None
    across = box["x"] + box["width"] / 2
    page.mouse.move(across, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(across, box["y"] + box["height"] * 0.3, steps=4)
    page.mouse.up()
    legend = page.get_by_role("region", name="Runs")
    expect(page.locator(".parallel-run.is-outside")).not_to_have_count(0)
    expect(legend).to_contain_text(re.compile(r"1\d of 50 runs"))
    assert "brush=params.lr" in page.url
    page.get_by_role("link", name="Scatter").click()
    expect(page.locator(".scatter-mark")).to_have_count(page_count(legend.inner_text()))
    page.go_back()
    page.get_by_role("slider", name="Range of lr").focus()
    page.keyboard.press("Delete")
    expect(legend).to_contain_text("50 of 50 runs")


def page_count(text: str) -> int:
    found = re.search(r"(\d+) of", text)
    assert found is not None
    return int(found[1])


def test_a_mark_of_the_scatter_says_its_run_and_opens_it(window: Window, sweep: list[str]) -> None:
    page = window.go(chosen(sweep[:6], "view=scatter", "across=params.lr", "up=metric.loss"))
    mark = page.get_by_role("link", name=re.compile(r"^sweep-2:.*lr 0\.01"))
    mark.focus()
    expect(page.locator(".scatter-name")).to_have_text("sweep-2")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"/runs/{sweep[2]}"))


def test_zooming_one_chart_zooms_all_and_a_double_click_shows_all_again(window: Window, sweep: list[str]) -> None:
    page = window.go(chosen(sweep[:4]))
    over = page.locator(".chart .u-over").first
    over.wait_for()
    box = over.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    with page.expect_request(re.compile(r"/charts\?.*first=\d+&last=\d+")):
        page.mouse.move(box["x"] + box["width"] * 0.2, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=5)
        page.mouse.up()
    expect(page.get_by_title("Reset zoom")).to_have_count(2)
    assert "zoom=" in page.url
    page.locator(".chart .u-over").first.dblclick()
    expect(page.get_by_title("Reset zoom")).to_have_count(0)


def test_a_run_is_added_by_its_name_and_taken_away_again(
    open_window: Callable[..., Window], served: Served, sweep: list[str]
) -> None:
    page = open_window().go(chosen(sweep[:2]))
    page.get_by_label("Add a run by name or id").fill("sweep-4")
    page.get_by_role("button", name=re.compile(rf"sweep-4\s+{sweep[4]}|sweep-4 {sweep[4]}")).click()
    expect(page.get_by_role("heading", name="Compare 3 runs")).to_be_visible()
    page.get_by_role("button", name="Remove sweep-4").click()
    expect(page.get_by_role("heading", name="Compare 2 runs")).to_be_visible()
