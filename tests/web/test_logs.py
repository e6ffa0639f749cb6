"""The log of a run on the page: colours, filters, search, download."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.web.browsing import Window
from tests.web.serving import Served

FIVE = {"replicas": {"n_workers": 4}, "resources": {"cpu": {"requests": 0.1}}}
TALKS = r"""
import os, sys, time
rank = int(os.environ["RANK"])
print("all start")
for step in range(30):
    print(f"rank {rank} step {step} loss {1 / (step + 1):.4f}")
script = "<script>document.title='taken'</script>"
print(f"\x1b[1;32mdone\x1b[0m by \x1b[38;5;208mrank {rank}\x1b[0m \x1b]0;title\x07{script}")
sys.stdout.flush()
open(f"said-{rank}", "w").close()
if rank == 4:  # when all have spoken: the others end with it
    while not all(os.path.exists(f"said-{other}") for other in range(4)):
        time.sleep(0.05)
    raise ValueError("a bad batch on rank 4")
"""


@pytest.fixture(scope="module")
def run(served: Served) -> str:
    (served.folder / "talks.py").write_text(TALKS)
    return served.ran("python3 talks.py", "--name", "talker", framework="pytorch", environment=FIVE)


class Clicks:
    """Counts how often a user clicks for a task."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, target: Locator) -> None:
        target.click()
        self.count += 1


def test_the_error_of_a_replica_is_one_click_from_its_run_and_its_cause_two_from_the_list(
    window: Window, run: str
) -> None:
    click = Clicks()
    page = window.go("/runs")
    click(page.get_by_role("link", name="talker").first)
    expect(page.get_by_role("region", name="First failure")).to_contain_text("ValueError: a bad batch on rank 4")
    assert click.count <= 2

    click = Clicks()
    click(page.get_by_role("region", name="Replicas").get_by_role("button", name=re.compile("^worker-3,")))
    panel = page.get_by_role("complementary", name="Replica worker-3")
    expect(panel).to_contain_text("ValueError: a bad batch on rank 4")
    assert click.count == 1
    panel.get_by_role("link", name="full log").click()
    expect(page).to_have_url(re.compile(r"/logs\?replica=worker-3"))
    expect(page.get_by_role("combobox", name="Replicas")).to_have_value("worker-3")


def test_replicas_are_chosen_by_name_role_and_ranks(window: Window, run: str) -> None:
    page = window.go(f"/runs/{run}/logs")
    log = page.get_by_role("region", name="Log")
    names = log.locator(".log-line .log-who")
    expect(log).to_contain_text("rank 0 step 29")
    field = page.get_by_role("combobox", name="Replicas")
    field.fill("worker-3")
    expect(log).not_to_contain_text("rank 0 step")
    expect(log).to_contain_text("rank 4 step 29")
    assert set(names.all_inner_texts()) == {"worker-3"}
    field.fill("0-1")
    field.press("Enter")
    expect(log).to_contain_text("rank 0 step 29")
    expect(log).not_to_contain_text("rank 4 step")
    window.allow("404")
    field.fill("woker-3")
    field.press("Enter")
    expect(page.get_by_role("main")).to_contain_text("did you mean worker-3")


def test_prefixes_are_aligned_and_colours_are_those_of_the_program(window: Window, run: str) -> None:
    page = window.go(f"/runs/{run}/logs")
    log = page.get_by_role("region", name="Log")
    done = log.locator(".log-text", has_text="done by rank 2")
    expect(done).to_have_text(r"done by rank 2 \x1b]0;title\x07<script>document.title='taken'</script>")
    expect(done.locator(".ansi-green.is-bold")).to_have_text("done")
    expect(done.locator(".ansi-any")).to_have_text("rank 2")
    assert "taken" not in page.title()
    starts = {round(box["x"]) for line in log.locator(".log-text").all()[:40] if (box := line.bounding_box())}
    assert len(starts) == 1


def test_a_regular_expression_finds_lines_and_a_wrong_one_says_why(window: Window, run: str) -> None:
    page = window.go(f"/runs/{run}/logs")
    page.get_by_role("button", name="Regular expression").click()
    search = page.get_by_label("Search the log")
    search.fill(r"rank [34] step (2[89])\b")
    search.press("Enter")
    matches = page.get_by_role("region", name="Matches")
    expect(matches).to_contain_text("4 matches")
    expect(matches.locator("mark").first).to_have_text("rank 3 step 28")
    matches.get_by_role("button", name=re.compile("rank 4 step 29")).click()
    expect(page.locator(".log-line.is-marked")).to_contain_text("rank 4 step 29")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download log").click()
    lines = download.value.path().read_text().splitlines()
    assert len(lines) == 4
    assert any(re.fullmatch(r"\S+Z? worker-2 rank 3 step 28 loss 0\.0345", line) for line in lines)  # by time
    window.allow("400")
    search.fill("(")
    search.press("Enter")
    expect(page.get_by_role("main")).to_contain_text("( is not a regular expression: missing )")
