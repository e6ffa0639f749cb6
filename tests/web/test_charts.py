"""Charts of a run: what they say about ranks, and what they hide or do not."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Download, Locator, Page, expect

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


def test_the_enlarged_chart_has_all_controls_and_takes_more_metrics(window: Window) -> None:
    page = window.go(f"/runs/{LAGGING}/charts")
    page.get_by_role("button", name="Enlarge loss").click()
    dialog = page.get_by_role("dialog")
    for control in ("log y", "log x", "mean", "ranks"):
        expect(dialog.get_by_role("button", name=control, exact=True)).to_be_visible()
    expect(dialog.get_by_role("slider")).to_be_visible()
    dialog.get_by_role("combobox").select_option("metric.epoch")
    expect(dialog.get_by_role("img").first).to_have_attribute("aria-label", re.compile("by epoch, 0 to 2.9"))
    dialog.get_by_role("button", name="Metrics loss").click()
    dialog.get_by_role("checkbox", name="train/accuracy").check()
    legend = dialog.get_by_role("list", name="Legend")
    expect(legend.get_by_role("button")).to_have_count(2)
    legend.get_by_role("button", name="train/accuracy").click()
    expect(legend.get_by_role("button", name="train/accuracy")).to_have_attribute("aria-pressed", "false")
    # The address holds all of it.
    assert "big=loss&big=train/accuracy" in page.url
    page.reload()
    expect(page.get_by_role("dialog").get_by_role("list", name="Legend").get_by_role("button")).to_have_count(2)


def test_a_pinned_chart_of_two_metrics_is_there_for_everyone_in_the_project(
    open_window: Callable[..., Window], served: Served
) -> None:
    window = open_window()
    window.allow("412")  # the second of two changes is told so, and made again
    page = window.go(f"/runs/{LAGGING}/charts?big=loss&big=epoch")
    page.get_by_role("dialog").get_by_role("button", name="Pin loss, epoch").click()
    expect(page.get_by_role("dialog").get_by_text("Pinned")).to_be_visible()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Pin train/accuracy").click()
    pinned = page.get_by_role("region", name="pinned")
    expect(pinned.locator(".chart-title")).to_have_text(["loss, epoch", "train/accuracy"])
    pinned.get_by_role("button", name="Move train/accuracy left").click()
    expect(pinned.locator(".chart-title")).to_have_text(["train/accuracy", "loss, epoch"])

    other = open_window().go(f"/runs/{LAGGING}/charts")
    expect(other.get_by_role("region", name="pinned").locator(".chart-title")).to_have_text(
        ["train/accuracy", "loss, epoch"]
    )
    # Both change it: neither change is lost.
    other.get_by_role("button", name="Pin eval/score").click()
    expect(other.get_by_role("region", name="pinned").locator(".chart-title")).to_have_count(3)
    pinned.get_by_role("button", name="Pin loss, epoch").click()
    expect(pinned.locator(".chart-title")).to_have_text(["train/accuracy", "eval/score"])
    assert [chart["metrics"] for chart in served.ask("/layout?project=big")[1]["charts"]] == [
        ["train/accuracy"], ["eval/score"]
    ]  # fmt: skip


def save(page: Page, name: str, kind: str) -> Download:
    page.get_by_role("button", name=f"Export {name}").click()
    with page.expect_download() as started:
        page.get_by_role("button", name=kind, exact=True).click()
    return started.value


def test_a_chart_is_exported_as_png_svg_and_csv(window: Window) -> None:
    page = window.go(f"/runs/{LAGGING}/charts?filter=loss")
    png = save(page, "loss", "PNG")
    assert png.suggested_filename == "loss.png"
    assert png.path().read_bytes().startswith(b"\x89PNG\r\n")
    assert png.path().stat().st_size > 5000
    svg = save(page, "loss", "SVG").path().read_text()
    assert svg.count("<path") >= 3
    assert "mean of 8 ranks, 1 behind" in svg
    rows = list(csv.DictReader(io.StringIO(save(page, "loss", "CSV").path().read_text())))
    assert len(rows) == 120
    assert (rows[0]["ranks"], rows[119]["ranks"], rows[60]["not_finite"]) == ("8", "7", "1")
    assert rows[60]["ranks"] == "7"
    page.goto(f"{window.served.url}/runs/{LAGGING}/charts?filter=loss&mode=ranks&ranks=1,4")
    expect(page.locator(".chart-card").get_by_role("list", name="Legend").get_by_role("button")).to_have_count(2)
    rows = list(csv.DictReader(io.StringIO(save(page, "loss", "CSV").path().read_text())))
    assert {(row["replica"], row["rank"]) for row in rows} == {("worker-0", "1"), ("worker-3", "4")}
    assert [row["value"] for row in rows if row["replica"] == "worker-0" and row["step"] in ("60", "80")] == [
        "NaN", "Infinity"
    ]  # fmt: skip


def test_the_address_of_a_zoom_shows_it_to_others(open_window: Callable[..., Window]) -> None:
    page = open_window().go(f"/runs/{LAGGING}/charts")
    over = chart(page, "loss").locator(".u-over")
    box = over.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40, steps=4)
    page.mouse.up()
    shown = chart(page, "loss").get_by_title("Reset zoom")
    expect(shown).to_be_visible()
    other = open_window().go(page.url.removeprefix(open_window().served.url))
    expect(chart(other, "loss").get_by_title("Reset zoom")).to_have_text(shown.inner_text())
