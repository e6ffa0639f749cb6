"""The page of a pipeline: its graph while it runs, its table, and how it is stopped and resumed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.web.browsing import Window
from tests.web.serving import Served

LONG_MS = 40_000
SMALL = {"environment": {"resources": {"cpu": {"requests": 0.01}}}}
COMMANDS = {
    "prepare": """echo '{"n": 7}' > $PHALANX_OUTPUTS/outputs.json""",
    "train": "echo {{ n }}; while [ ! -e GO ]; do sleep 0.05; done",
    "check": "test -e GOOD || exit 3",
    "report": "true",
}
OPS = [
    {"name": "report", "template": {"name": "report"}, "dependencies": ["train", "check"]},
    {"name": "prepare", "template": {"name": "prepare"}},
    {"name": "train", "template": {"name": "train"}, "params": {"n": "{{ ops.prepare.outputs.n }}"}},
    {"name": "check", "template": {"name": "check"}, "dependencies": ["prepare"]},
]


def begin(served: Served, name: str, *, is_good: bool = True) -> str:
    """A pipeline of four ops. `train` waits for the file go-NAME; `check` fails without the file good-NAME."""
    files = {word: str(served.folder / f"{word.lower()}-{name}") for word in ("GOOD", "GO")}
    templates: list[dict[str, Any]] = []
    for op_name, command in COMMANDS.items():
        text = command.replace("GOOD", files["GOOD"]).replace("GO ", f"{files['GO']} ")
        outputs = {"outputs": [{"name": "n", "type": "int"}]} if op_name == "prepare" else {}
        templates.append({"kind": "job", "name": op_name, **SMALL, **outputs, "run": {"cmd": text}})
    content = {"version": 1, "kind": "pipeline", "name": name, "ops": OPS, "templates": templates}
    (served.folder / f"{name}.yml").write_text(json.dumps(content))
    if is_good:
        Path(files["GOOD"]).touch()
    answer = served.call("run", "-f", f"{name}.yml", "-d", "--project", "pipelines")
    assert answer.code == 0, answer.err
    return answer.out.strip()


def op(page: Page, name: str) -> Locator:
    items = page.get_by_role("region", name="Ops").get_by_role("listitem")
    return items.filter(has=page.locator("b", has_text=re.compile(f"^{name}$")))


@pytest.mark.smoke
def test_the_graph_of_a_pipeline_is_live_and_an_op_opens_its_run(served: Served, window: Window) -> None:
    pipeline = begin(served, "nightly")
    page = window.go(f"/runs/{pipeline}")
    page.evaluate("window.isTheSame = true")
    expect(page.get_by_role("heading", level=1)).to_contain_text("nightly")
    train = op(page, "train").get_by_role("link")
    expect(train).to_have_attribute("aria-label", re.compile("train: running.*after prepare"), timeout=LONG_MS)
    expect(op(page, "report")).to_contain_text("train")  # what it waits for
    expect(page.get_by_role("progressbar", name="Progress")).to_have_attribute("aria-valuemax", "4")
    places = {name: op(page, name).bounding_box() for name in ("prepare", "train", "check", "report")}
    left = {name: box["x"] for name, box in places.items() if box}
    assert left["prepare"] < left["train"] == left["check"] < left["report"]
    expect(page.locator(".pipeline-edge")).to_have_count(4)
    (served.folder / "go-nightly").touch()
    expect(page.locator(".run-state")).to_contain_text("succeeded", timeout=LONG_MS)
    expect(page.locator(".pipeline-op.is-ok")).to_have_count(4)
    assert page.evaluate("window.isTheSame") is True
    op(page, "report").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("nightly-report")
    page.get_by_role("link", name=pipeline).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("nightly"))


def test_a_failed_pipeline_says_why_and_is_resumed(served: Served, window: Window) -> None:
    pipeline = begin(served, "broken", is_good=False)
    (served.folder / "go-broken").touch()
    page = window.go(f"/runs/{pipeline}")
    expect(page.locator(".run-state")).to_contain_text("failed", timeout=LONG_MS)
    expect(op(page, "check")).to_contain_text("exit code 3")
    expect(op(page, "report")).to_contain_text("op `check` failed")
    page.get_by_role("link", name="Ops", exact=True).click()
    table = page.get_by_role("table", name="Ops")
    expect(table.get_by_role("row").filter(has_text="prepare").first).to_contain_text("succeeded")
    expect(table.get_by_role("row").filter(has_text=re.compile("^check"))).to_contain_text("exit code 3")
    (served.folder / "good-broken").touch()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.locator(".run-state")).to_contain_text("succeeded", timeout=LONG_MS)
    expect(table.get_by_role("row").filter(has_text="succeeded")).to_have_count(4)


def test_a_running_pipeline_is_stopped_with_its_ops(served: Served, window: Window) -> None:
    pipeline = begin(served, "stopped")
    page = window.go(f"/runs/{pipeline}")
    train = op(page, "train").get_by_role("link")
    expect(train).to_have_attribute("aria-label", re.compile("running"), timeout=LONG_MS)
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.locator(".run-state")).to_contain_text("stopped", timeout=LONG_MS)
    expect(train).to_have_attribute("aria-label", re.compile("train: stopped"))


def test_ops_are_behind_the_row_of_their_pipeline_and_a_phone_has_a_table(
    served: Served, window: Window, open_window: Any
) -> None:
    pipeline = begin(served, "folded")
    (served.folder / "go-folded").touch()
    served.until(pipeline, "succeeded")
    page = window.go("/runs?project=pipelines")
    row = page.locator(".runs-row").filter(has=page.get_by_role("link", name="folded", exact=True))
    expect(row).to_contain_text("4 of 4 ops succeeded")
    expect(page.get_by_role("link", name="folded-train")).to_have_count(0)
    row.get_by_role("button", name="Show the ops of folded").click()
    expect(page.locator(".runs-row.is-trial")).to_have_count(4)
    expect(page.get_by_role("link", name="folded-train")).to_be_visible()
    phone = open_window(width=390, height=844, has_touch=True).go(f"/runs/{pipeline}")
    expect(phone.locator(".pipeline-cards li")).to_have_count(4)
    expect(phone.locator(".pipeline-graph")).to_have_count(0)
    expect(phone.locator(".pipeline-cards li").filter(has_text="prepare").first).to_contain_text("n 7")
