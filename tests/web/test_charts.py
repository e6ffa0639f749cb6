"""Charts of a run: what they say about ranks, and what they hide or do not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.web.browsing import Window
from tests.web.homes import LAGGING, fill_lagging
from tests.web.serving import Served


@pytest.fixture(scope="module", name="served")
def served_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    found = Served(tmp_path_factory.mktemp("charts"), fill_lagging)
    yield found
    found.end()


def chart(page: Page, name: str) -> Locator:
    return page.locator(".chart-card").filter(has=page.locator(".chart-title", has_text=re.compile(f"^{name}$")))


def point_at(page: Page, card: Locator, share: float) -> Locator:
    """Hover over a chart at a share of its width; returns its tooltip."""
    over = card.locator(".u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
    return card.locator(".chart-tip")


def test_a_mean_says_where_it_lacks_a_rank_and_which(window: Window) -> None:
    page = window.go(f"/runs/{LAGGING}/charts")
    loss = chart(page, "loss")
    expect(loss.locator(".chart-note")).to_have_text("mean of 8 ranks, 1 behind")
    expect(loss.locator(".chart-note")).to_have_attribute("title", re.compile("worker-3 at step 107"))
    expect(point_at(page, loss, 0.3)).to_contain_text("mean of 8 ranks")
    tip = point_at(page, loss, 0.97)
    expect(tip).to_contain_text("mean of 7 of 8 ranks")
    # The line does not jump at the front: its last value is the last of all ranks, which the slowest decides.
    page.mouse.move(0, 0)
    shown = float(loss.locator(".chart-value").inner_text())
    assert shown > 0.6, "the mean of the others alone is about 0.35"


def test_values_that_are_not_finite_are_marked_and_named(window: Window) -> None:
    page = window.go(f"/runs/{LAGGING}/charts?mode=ranks&ranks=1")
    loss = chart(page, "loss")
    expect(point_at(page, loss, 60 / 119)).to_contain_text("NaN")
    expect(point_at(page, loss, 80 / 119)).to_contain_text("∞")
    expect(loss.locator("[role=img]")).to_have_attribute("aria-label", re.compile("2 values NaN or infinite"))
    page.goto(f"{window.served.url}/runs/{LAGGING}/charts")
    expect(point_at(page, loss, 60 / 119)).to_contain_text("1 NaN or infinite")


def test_lines_of_ranks_are_told_apart_in_the_tooltip(window: Window) -> None:
    page = window.go(f"/runs/{LAGGING}/charts?mode=ranks")
    tip = point_at(page, chart(page, "loss"), 0.4)
    expect(tip).to_contain_text("worker-3 (rank 4)")
    looks = tip.locator("svg line").evaluate_all(
        "lines => lines.map(line => line.getAttribute('stroke') + line.getAttribute('stroke-dasharray'))"
    )
    assert len(set(looks)) == 8


def test_cells_of_the_strip_are_numbered_as_the_replicas_are(window: Window) -> None:
    page = window.go(f"/runs/{LAGGING}")
    strip = page.get_by_role("region", name="Replicas")
    expect(strip).to_contain_text(re.compile("worker . 7 . ranks 1.7"))
    cell = strip.get_by_role("button", name=re.compile("^worker-3, rank 4"))
    expect(cell).to_contain_text("3")


def test_the_overview_says_whose_values_it_shows(window: Window) -> None:
    page = window.go(f"/runs/{LAGGING}")
    metrics = page.get_by_role("region", name="Metrics")
    expect(metrics.get_by_role("row", name=re.compile("^loss"))).to_contain_text("master-0 of 8 ranks")
    expect(metrics.get_by_role("row", name=re.compile("eval.score"))).to_contain_text("worker-2")
