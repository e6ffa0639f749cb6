"""The table of runs: groups, saved views, stars, archived runs, tags, CSV, and sorting on a phone."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from phalanx.store import Store
from tests.web.browsing import Window
from tests.web.homes import fill_sweep
from tests.web.serving import Served


@pytest.fixture(scope="module", autouse=True)
def sweep(served: Served) -> list[str]:
    """A sweep, and projects for tests that change runs."""
    for project in ("marked", "tagged"):
        fill_sweep(served, 6, 3, project)
    return fill_sweep(served)


def rows(page: Page, table: str = "Runs") -> Locator:
    return page.get_by_role("table", name=table).get_by_role("row").filter(has=page.get_by_role("cell"))


def test_the_best_run_is_one_click_away(window: Window) -> None:
    page = window.go("/runs?project=sweep")
    expect(rows(page)).to_have_count(12)
    page.get_by_role("columnheader", name="loss").get_by_role("button").click()
    expect(page.get_by_role("columnheader", name="loss")).to_have_attribute("aria-sort", "ascending")
    losses = page.locator(".runs-row [role=cell]:nth-child(3)")
    expect(losses.first).to_have_text(min(losses.all_inner_texts(), key=float))


def test_runs_are_grouped_by_a_param_in_two_clicks_folded_and_compared(window: Window) -> None:
    page = window.go("/runs?project=sweep")
    expect(rows(page)).to_have_count(12)
    page.get_by_role("button", name="Group runs").click()
    page.get_by_role("checkbox", name=re.compile("^lr")).check()
    groups = rows(page, "Runs grouped by lr")
    expect(groups).to_have_count(3)
    page.keyboard.press("Escape")
    assert "by=params.lr" in page.url
    expect(groups.nth(1)).to_contain_text("0.003")
    expect(groups.nth(1)).to_contain_text("4 runs")
    expect(groups.locator(".runs-best")).to_have_count(2)  # of loss and accuracy
    expect(groups.nth(1).locator(".runs-best")).to_have_count(2)
    page.get_by_role("columnheader", name="loss").get_by_role("button").click()
    expect(groups.first).to_contain_text("0.003")
    page.get_by_role("button", name="Show the runs of lr 0.003").click()
    expect(groups).to_have_count(7)
    fold = page.get_by_role("button", name="Hide the runs of lr 0.003")
    expect(fold).to_have_attribute("aria-expanded", "true")
    page.reload()
    expect(groups).to_have_count(3)
    page.get_by_role("button", name="Compare the runs of lr 0.003").click()
    expect(page.get_by_role("heading", name="Compare 4 runs")).to_be_visible()
    page.go_back()
    expect(groups).to_have_count(3)
    page.get_by_role("button", name="Group runs").click()
    page.get_by_role("checkbox", name=re.compile("^optimizer")).check()
    expect(rows(page, "Runs grouped by lr, optimizer")).to_have_count(6)
    page.get_by_role("button", name="No groups").click()
    expect(rows(page)).to_have_count(12)


def test_groups_heed_the_filter_and_report_its_faults(window: Window) -> None:
    page = window.go("/runs?project=sweep&by=params.optimizer&q=params.lr:<0.01")
    groups = rows(page, "Runs grouped by optimizer")
    expect(groups).to_have_count(2)
    expect(groups.first).to_contain_text("4 runs")
    window.allow("400")
    page = window.go("/runs?project=sweep&by=nothing")
    expect(page.get_by_role("alert")).to_contain_text("cannot group by nothing")


def test_a_view_is_saved_applied_shared_and_deleted(
    served: Served, window: Window, open_window: Callable[..., Window]
) -> None:
    page = window.go("/runs?project=sweep&by=params.lr&sort=metric.loss&columns=metric.loss,best.accuracy&q=tags:sweep")
    expect(rows(page, "Runs grouped by lr")).to_have_count(3)
    for name, shared in (("by rate", True), ("my own", False)):
        page.get_by_role("button", name="Saved views").click()
        page.get_by_role("button", name="Save this view").click()
        page.get_by_role("textbox", name="Name of the view").fill(name)
        page.get_by_role("checkbox", name=re.compile("Share with everyone")).set_checked(shared)
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.get_by_role("dialog")).to_have_count(0)
    viewer = served.call("token", "create", "reader", "--role", "viewer", "--project", "sweep", "--days", "1", "--json")
    assert viewer.code == 0, viewer.err
    other = open_window()
    other.context.clear_cookies()
    other.sign_in(str(viewer.data["token"]))
    there = other.go("/runs?project=sweep")
    expect(rows(there)).to_have_count(12)
    there.get_by_role("button", name="Saved views").click()
    expect(there.get_by_role("button", name="my own")).to_have_count(0)
    expect(there.get_by_role("button", name="Delete view by rate")).to_have_count(0)
    there.get_by_role("button", name=re.compile("^by rate")).click()
    expect(rows(there, "Runs grouped by lr")).to_have_count(3)
    expect(there.get_by_role("columnheader", name="best accuracy")).to_be_visible()
    assert "sort=metric.loss" in there.url
    assert "q=tags:sweep" in there.url
    page.get_by_role("button", name="Saved views").click()
    for name in ("by rate", "my own"):
        page.get_by_role("button", name=f"Delete view {name}").click()
        expect(page.get_by_role("button", name=f"Delete view {name}")).to_have_count(0)


def test_stars_are_kept_found_and_set_by_a_key(window: Window) -> None:
    page = window.go("/runs?project=sweep")
    expect(rows(page)).to_have_count(12)
    first = rows(page).nth(0)
    star = first.get_by_role("button", name=re.compile("^Star"))
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("s")
    expect(rows(page).nth(1).get_by_role("button", name=re.compile("^Star"))).to_have_attribute("aria-pressed", "true")
    window.settle()
    page.reload()
    expect(page.locator(".runs-star[aria-pressed=true]")).to_have_count(2)
    page.get_by_role("button", name="More").click()
    page.get_by_role("button", name="Starred runs").click()
    expect(rows(page)).to_have_count(2)
    assert "starred:true" in page.url
    for place in (1, 0):
        rows(page).nth(place).get_by_role("button", name=re.compile("^Star")).click()
    window.settle()
    page.reload()
    expect(page.get_by_text("No matching runs")).to_be_visible()


def test_archived_runs_are_hidden_counted_and_shown_again(served: Served, window: Window) -> None:
    page = window.go("/runs?project=marked")
    expect(rows(page)).to_have_count(6)
    for place in (0, 1):
        rows(page).nth(place).get_by_role("checkbox").check()
    page.get_by_role("button", name="Archive", exact=True).click()
    expect(rows(page)).to_have_count(4)
    page.get_by_role("button", name="2 archived").click()
    expect(rows(page)).to_have_count(2)
    expect(rows(page).first).to_contain_text("archived")
    with Store.open(served.home) as store:
        assert store.count("project:marked, archived:true") == 2
    page.get_by_role("checkbox", name="Select all runs").click()
    page.get_by_role("button", name="Unarchive").click()
    expect(page.get_by_text("No matching runs")).to_be_visible()
    page.goto(f"{served.url}/runs?project=marked")
    expect(rows(page)).to_have_count(6)


def test_tags_of_many_runs_are_added_and_removed_at_once(served: Served, window: Window) -> None:
    page = window.go("/runs?project=tagged&sort=name")
    expect(rows(page)).to_have_count(6)
    page.get_by_role("checkbox", name="Select all runs").click()
    page.get_by_role("button", name="Tags").click()
    page.get_by_role("textbox", name="Add tags").fill("kept, <b>bold</b>")
    page.get_by_role("checkbox", name=re.compile("^sweep")).check()
    page.get_by_role("button", name="Apply").click()
    expect(rows(page).first).to_contain_text("<b>bold</b>")
    with Store.open(served.home) as store:
        assert {run.tags for run in store.runs("project:tagged")} == {("kept", "<b>bold</b>")}


def test_the_shown_runs_are_exported_in_two_clicks(window: Window, tmp_path: Path) -> None:
    page = window.go("/runs?project=sweep&columns=metric.loss,params.lr,took&sort=metric.loss&q=params.optimizer:adam")
    expect(rows(page)).to_have_count(6)
    page.get_by_role("button", name="More").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export CSV").click()
    assert download.value.suggested_filename == "runs.csv"
    download.value.save_as(tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(newline="") as stream:
        found = list(csv.DictReader(stream))
    assert list(found[0]) == ["id", "name", "status", "metric.loss", "params.lr", "duration_s"]
    losses = [float(row["metric.loss"]) for row in found]
    assert (len(losses), losses) == (6, sorted(losses))


def test_runs_of_the_last_hour_with_many_gpus_are_one_query(served: Served, window: Window) -> None:
    with Store.open(served.home) as store:
        (old,) = store.runs("project:sweep", limit=1)
        more: dict[str, Any] = {"created_at": datetime.now(UTC), "project": "wide", "gpus": 8.0, "memory_mib": 4096.0}
        store.add(old._replace(id="wide1", name="wide-now", **more))
        store.add(old._replace(id="wide2", name="wide-old", project="wide", gpus=8.0))
        store.add(old._replace(id="wide3", name="small-now", **{**more, "gpus": 1.0}))
    page = window.go("/runs?project=wide&columns=gpus,memory")
    expect(rows(page)).to_have_count(3)
    box = page.get_by_role("combobox", name="Filter runs")
    box.fill("created_at:")
    expect(page.get_by_role("option", name=re.compile("last hour"))).to_be_visible()
    box.fill("created_at:>1h, gpus:>2")
    page.keyboard.press("Enter")
    expect(rows(page)).to_have_count(1)
    expect(rows(page).first).to_contain_text("wide-now")
    expect(rows(page).first).to_contain_text("4 GiB")


def test_a_phone_sorts_groups_and_stars(open_window: Callable[..., Window]) -> None:
    window = open_window(width=390, height=844, has_touch=True)
    page = window.go("/runs?project=sweep&columns=metric.loss,metric.accuracy")
    expect(rows(page)).to_have_count(12)
    page.get_by_role("button", name="Sort runs").click()
    page.get_by_role("button", name="loss").click()
    page.wait_for_url(re.compile(r"sort=metric\.loss"))
    expect(page.get_by_role("button", name="loss")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Escape")
    shown = page.locator(".runs-row .runs-figure").all_inner_texts()[::2]
    assert [float(text) for text in shown] == sorted(map(float, shown))
    page.get_by_role("button", name="Group runs").click()
    page.get_by_role("checkbox", name=re.compile("^lr")).check()
    page.keyboard.press("Escape")
    expect(rows(page, "Runs grouped by lr")).to_have_count(3)
    page.get_by_role("button", name="Show the runs of lr 0.003").click()
    expect(rows(page, "Runs grouped by lr")).to_have_count(7)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
