"""Every page in both themes, at the width of a phone, and without anything that a page of ours never does."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Page, expect

from tests.cli.homes import THREE
from tests.web.browsing import Window
from tests.web.homes import fill_sweep
from tests.web.serving import Served

CONTRAST = (Path(__file__).parent / "contrast.js").read_text().partition("\n")[2].rstrip().rstrip(";")
NAMELESS = """() => [...document.querySelectorAll('button, a[href], input, select, [role=slider]')]
  .filter(one => one.checkVisibility() && !one.textContent.trim() && !one.ariaLabel && !one.title
    && !one.labels?.length && !one.placeholder && !one.querySelector('img[alt]'))
  .map(one => one.outerHTML.slice(0, 120))"""
PAGES = {
    "runs": "/runs",
    "runs of a project": "/runs?project=sweep",
    "runs that nobody has": "/runs?q=name:nobody",
    "a run": "/runs/{run}",
    "charts": "/runs/{run}/charts",
    "logs": "/runs/{run}/logs",
    "outputs": "/runs/{run}/outputs",
    "history": "/runs/{run}/history",
    "file": "/runs/{run}/spec",
    "group": "/runs/{group}",
    "trials of a group": "/runs/{group}/trials",
    "timeline of a group": "/runs/{group}/timeline",
    "pipeline": "/runs/{pipeline}",
    "ops of a pipeline": "/runs/{pipeline}/ops",
    "compared charts": "/compare?q=project:sweep",
    "differences": "/compare?q=project:sweep&limit=3&view=differences",
    "parallel": "/compare?q=project:sweep&view=parallel",
    "scatter": "/compare?q=project:sweep&view=scatter",
    "nothing to compare": "/compare",
    "queue": "/queue",
    "models": "/models",
    "projects": "/projects",
    "reports": "/reports",
    "report": "/reports/{report}",
    "report being edited": "/reports/{report}?edit=1",
    "enlarged chart": "/runs/{run}/charts?big=loss",
    "help": "/help",
}


class Shown(NamedTuple):
    run: str
    group: str
    report: str
    pipeline: str

    def path(self, template: str) -> str:
        return template.format(**self._asdict())


@pytest.fixture(scope="module")
def runs(served: Served) -> Shown:
    fill_sweep(served)
    (served.folder / "train.py").write_text(
        "import os\nfrom phalanx import tracking\nprint('WARNING: a line that warns')\n"
        "for step in range(50):\n    tracking.log(step=step, loss=1 / (step + 1))\n"
        "assert os.environ['PHALANX_REPLICA'] != 'worker-1', 'a bad batch'\n"
    )
    run = served.ran("python3 train.py", "-P", "lr=0.1", framework="plain", environment=THREE)
    log = f"{sys.executable} -c 'from phalanx import tracking; tracking.log(loss={{{{ x }}}} * {{{{ y }}}})'"
    matrix = {"x": {"uniform": "0:1"}, "y": {"values": [1, 2]}}
    resource = {"name": "epochs", "type": "int"}
    asha = {"n_experiments": 3, "max_iter": 3, "eta": 3, "resource": resource, "metric": {"name": "loss"}}
    tuning = {"matrix": matrix, "asha": asha, "concurrency": 3, "seed": 1}
    group = served.ran(log, kind="group", hptuning=tuning)
    blocks = ["chart\nmetric: loss\nby: lr", "table\nlimit: 3", "chart\nwrong: 1"]
    text = "# A heading\n\nText.\n\n" + "\n\n".join(f"```{block}\n```" for block in blocks)
    status, report = served.ask("/reports", "POST", {"project": "sweep", "title": "A report", "text": text})
    assert status == 201
    job = {"kind": "job", "environment": {"resources": {"cpu": {"requests": 0.01}}}}
    templates = [{**job, "name": name, "run": {"cmd": cmd}} for name, cmd in (("good", "true"), ("bad", "exit 3"))]
    ops: list[dict[str, Any]] = [{"name": name, "template": {"name": name}} for name in ("good", "bad")]
    ops.append({"name": "after", "template": {"name": "good"}, "dependencies": ["good", "bad"]})
    (served.folder / "p.yml").write_text(
        json.dumps({"version": 1, "kind": "pipeline", "name": "p", "ops": ops, "templates": templates})
    )
    pipeline = served.call("run", "-f", "p.yml", "--json").data["id"]
    return Shown(run, group, report["id"], pipeline)


def shown(window: Window, path: str) -> Page:
    """A page that has all it asked for. What the server tells by itself never ends, so it is not waited for."""
    page = window.go(path)
    expect(page.get_by_role("main")).to_be_visible()
    page.wait_for_function("() => !document.querySelector('.loading, .bone')")
    return page


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_can_be_read_and_all_that_can_be_pressed_has_a_name(
    theme: str, open_window: Callable[..., Window], runs: Shown
) -> None:
    window = open_window(color_scheme=theme, reduced_motion="reduce")
    faults = []
    for name, path in PAGES.items():
        page = shown(window, runs.path(path))
        faults += [f"{name}: faint: {found}" for found in page.evaluate(CONTRAST)]
        faults += [f"{name}: without a name: {found}" for found in page.evaluate(NAMELESS)]
    assert not faults, "\n".join(faults)


def test_no_page_is_wider_than_a_phone(open_window: Callable[..., Window], runs: Shown) -> None:
    window = open_window(width=390, height=844, has_touch=True)
    wide = {}
    for name, path in PAGES.items():
        page = shown(window, runs.path(path))
        width = page.evaluate("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
        if width > 390:
            wide[name] = width
    assert not wide


def test_the_theme_is_chosen_and_kept(window: Window) -> None:
    page = shown(window, "/queue")
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("button", name="Dark", exact=True).click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(ground.partition("(")[2].partition(",")[0])
    assert red < 60
