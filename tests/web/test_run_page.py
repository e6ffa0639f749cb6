"""The page of one run: what happens to it is seen, and why it failed is one click away."""

from __future__ import annotations

import json
import os
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from phalanx.store import Store
from tests.cli.homes import ALL_CPUS, THREE
from tests.notebook.fake_jupyter import install
from tests.web.browsing import Window
from tests.web.homes import png
from tests.web.serving import Served

FAILS = """
import os, sys, time, pathlib
from phalanx import tracking
here = os.environ["PHALANX_REPLICA"]
print("begins", here, flush=True)
for step in range(10_000):
    tracking.log(step=step, loss=1.0 / (step + 1))
    time.sleep(0.05)
    if here == "worker-1" and pathlib.Path("fail").exists():
        print("<script>document.title = 'taken'</script>", flush=True)
        raise ValueError("a bad batch")
"""
LONG_MS = 40_000


def replicas(page: Page) -> Locator:
    return page.get_by_role("region", name="Replicas")


def test_a_distributed_run_is_watched_from_the_queue_to_its_failure_and_the_lines_of_its_cause(
    served: Served, window: Window
) -> None:
    (served.folder / "train.py").write_text(FAILS)
    blocker = served.queued("while [ ! -e free ]; do sleep 0.05; done", environment=ALL_CPUS)
    served.until(blocker, "running")
    run_id = served.queued("python3 train.py", "--name", "watched", framework="plain", environment=THREE)

    page = window.go(f"/runs/{run_id}")
    page.evaluate("window.isTheSame = true")
    state = page.locator(".run-state")
    expect(state).to_contain_text(re.compile("created|scheduled|waiting", re.IGNORECASE))
    (served.folder / "free").touch()
    expect(state).to_contain_text("running", timeout=LONG_MS)
    expect(replicas(page)).to_contain_text("3 replicas")
    expect(replicas(page)).to_contain_text("all running")
    expect(replicas(page)).to_contain_text("latest step")
    (served.folder / "fail").touch()
    expect(state).to_contain_text("failed", timeout=LONG_MS)
    expect(replicas(page)).to_contain_text("1 failed")
    expect(replicas(page).get_by_role("button", name=re.compile("worker-1.*failed"))).to_be_visible()

    cause = page.get_by_role("region", name="First failure")
    expect(cause).to_contain_text("worker-1 (rank 2) failed first")
    expect(cause).to_contain_text("ValueError: a bad batch")
    cause.get_by_role("link", name="Show in log").click()
    log = page.get_by_role("region", name="Log")
    expect(log.locator(".log-line.is-marked")).to_be_in_viewport()
    expect(log).to_contain_text("ValueError: a bad batch")
    expect(log).to_contain_text("<script>document.title = 'taken'</script>")
    assert "taken" not in page.title()
    assert page.evaluate("window.isTheSame") is True, "nothing of it loaded the page again"


def test_the_head_says_what_a_part_of_a_running_run_waits_for_until_it_is_over(served: Served, window: Window) -> None:
    run_id = served.queued("while [ ! -e over ]; do sleep 0.05; done")
    served.until(run_id, "running")
    with Store.open(served.home) as store:  # as the scheduler records it for a run of a cluster
        store.put_fact(run_id, "waiting", {"why": "2 of 4 pods wait: <b>no node</b> has enough CPUs", "at": 0.0})
    state = window.go(f"/runs/{run_id}").locator(".run-state")
    expect(state).to_contain_text("running")
    expect(state).to_contain_text("2 of 4 pods wait: <b>no node</b> has enough CPUs")
    (served.folder / "over").touch()
    expect(state).to_contain_text("succeeded", timeout=LONG_MS)
    expect(state).not_to_contain_text("wait")


def test_a_running_notebook_says_how_to_reach_it_but_not_its_token(served: Served, window: Window) -> None:
    path = f"{install(served.folder / 'bin')}{os.pathsep}{os.environ['PATH']}"
    answer = served.call("notebook", "--json", PATH=path)
    assert answer.code == 0, answer.err
    run_id, token = answer.data["id"], answer.data["url"].partition("token=")[2]
    page = window.go(f"/runs/{run_id}")
    expect(page.get_by_text(f"phalanx notebook --url {run_id}")).to_be_visible()
    assert token not in page.content()
    served.call("stop", run_id)
    expect(page.get_by_text("phalanx notebook --url")).to_have_count(0, timeout=LONG_MS)


def test_a_run_that_restarts_shows_its_attempts_and_what_each_of_them_printed(served: Served, window: Window) -> None:
    command = "echo this is attempt $PHALANX_ATTEMPT; [ $PHALANX_ATTEMPT = 2 ]"
    run_id = served.ran(command, environment={"max_restarts": 1})
    page = window.go(f"/runs/{run_id}/logs")
    expect(page.get_by_role("region", name="Log")).to_contain_text("this is attempt 2")
    attempt = replicas(page).get_by_role("combobox")
    expect(attempt).to_have_value("2")
    attempt.select_option("1")
    expect(page.get_by_role("region", name="Log")).to_contain_text("this is attempt 1")
    assert "attempt=1" in page.url
    page.goto(f"{served.url}/runs/{run_id}/history")
    expect(page.get_by_role("main")).to_contain_text("exit code 1")


def test_zooming_asks_for_the_range_alone_and_a_double_click_shows_all_again(served: Served, window: Window) -> None:
    (served.folder / "log.py").write_text(
        "from phalanx import tracking\nfor step in range(5000):\n    tracking.log(step=step, loss=5000.0 - step)\n"
    )
    run_id = served.ran("python3 log.py")
    page = window.go(f"/runs/{run_id}/charts")
    over = page.locator(".chart .u-over").first
    over.wait_for()
    box = over.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    with page.expect_request(lambda request: "/chart?" in request.url and "first=" in request.url) as asked:
        page.mouse.move(box["x"] + box["width"] * 0.4, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=5)
        page.mouse.up()
    first, last = (int(found) for found in re.findall(r"(?:first|last)=(\d+)", asked.value.url))
    assert 1500 < first < 2500 < last < 3500
    expect(page).to_have_url(re.compile("steps="))
    reset = page.get_by_title("Reset zoom").first
    expect(reset).to_be_visible()
    page.locator(".chart .u-over").first.dblclick()
    expect(reset).to_have_count(0)
    assert "steps=" not in page.url


@pytest.fixture(name="written", scope="module")
def written_fixture(served: Served) -> str:
    folder = served.folder / "made"
    folder.mkdir()
    (folder / "notes.txt").write_text("first line\n<script>document.title='taken'</script>\n")
    (folder / "result.json").write_text(json.dumps({"best": {"loss": 0.25}}))
    (folder / "table.csv").write_text("name,score\nann,1.5\n<b>bob</b>,2.5\n")
    (folder / "picture.png").write_bytes(png())
    (folder / "drawing.svg").write_text(
        "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><script>parent.document.title='taken'"
        "</script><rect width='9' height='9' fill='red'/></svg>"
    )
    (folder / "report.html").write_text(
        "<h1>A report</h1><p id=told>no script ran</p><script>"
        "try { parent.document.title = 'taken' } catch (fault) {}"
        "try { document.cookie = 'stolen=1' } catch (fault) {}"
        "fetch('/api/v1/session').then(() => 'the server was reached', () => 'the server was not reached')"
        ".then(word => { document.getElementById('told').textContent = `origin ${window.origin}, ${word}` })</script>"
    )
    return served.ran('cp made/* "$PHALANX_OUTPUTS/"')


class TestOutputs:
    def test_a_text_a_table_json_and_an_image_are_looked_into(self, written: str, window: Window) -> None:
        page = window.go(f"/runs/{written}/outputs")
        self._open(page, "notes.txt")
        expect(page.get_by_role("article")).to_contain_text("<script>document.title='taken'</script>")
        self._choose(page, "result.json")
        expect(page.get_by_role("article")).to_contain_text("0.25")
        self._choose(page, "table.csv")
        expect(page.get_by_role("article").get_by_role("cell", name="<b>bob</b>")).to_be_visible()
        self._choose(page, "picture.png")
        image = page.get_by_role("article").get_by_role("img")
        expect(image).to_be_visible()
        page.wait_for_function("document.querySelector('article img').naturalWidth === 64")
        self._choose(page, "drawing.svg")
        expect(page.get_by_role("article").get_by_role("img")).to_be_visible()
        assert "taken" not in page.title()
        assert "path=" in page.url

    def test_a_page_that_a_run_wrote_has_no_scripts_until_asked_and_never_a_way_out(
        self, served: Served, written: str, window: Window
    ) -> None:
        window.allow("[Ss]andbox|refused by the policy|Content Security Policy|Failed to load|access a cross-origin")
        page = window.go(f"/runs/{written}/outputs")
        self._open(page, "report.html")
        frame = page.frame_locator("article iframe")
        expect(frame.get_by_role("heading", name="A report")).to_be_visible()
        expect(frame.locator("#told")).to_have_text("no script ran")
        expect(page.locator("article iframe")).to_have_attribute("sandbox", "")
        page.get_by_role("button", name="Run scripts").click()
        expect(frame.locator("#told")).to_have_text("origin null, the server was not reached")
        assert "taken" not in page.title()
        assert "stolen" not in page.evaluate("document.cookie")
        assert not any(cookie["name"] == "stolen" for cookie in window.context.cookies())

    def test_in_a_window_of_its_own_such_a_page_is_downloaded(
        self, served: Served, written: str, window: Window
    ) -> None:
        window.allow("[Ss]andbox|refused by the policy|Content Security Policy|Failed to load")
        path = next(
            row["path"] for row in served.ask(f"/runs/{written}/outputs")[1]["files"] if "report" in row["path"]
        )
        page = window.go("/")
        for more in ("", "?scripts=1"):
            with page.expect_download() as started:
                page.evaluate("address => { location.href = address }", f"/api/v1/runs/{written}/view/{path}{more}")
            assert started.value.suggested_filename.endswith(".html")

    def _choose(self, page: Page, name: str) -> None:
        page.get_by_role("list", name="Files").get_by_role("button", name=re.compile(re.escape(name))).click()
        expect(page.get_by_role("article", name=name)).to_be_visible()

    def _open(self, page: Page, name: str) -> None:
        """Folders are opened until the file is there."""
        tree = page.get_by_role("list", name="Files").first
        tree.wait_for()
        outputs = tree.get_by_role("button", name=re.compile("^outputs"))
        if outputs.count() and outputs.first.get_attribute("aria-expanded") == "false":
            outputs.first.click()
        self._choose(page, name)


RECORDS = """
from phalanx import tracking
run = tracking.start()
run.alert("Low <b>accuracy</b>", "below 0.1", level="WARN")
run.image("picture", [[0, 255, 0], [255, 0, 255]], step=1, caption="dots")
run.audio("voice", [0.0, 0.5, -0.5] * 100, sample_rate=8000)
run.points("curve", [[0, 1], [0.5, 0.8], [1, 0]], columns=["recall", "precision"])
run.table("confusion", {"true": [1, 2], "guess": ["<i>one</i>", "two"]})
run.text("sample", "once upon a time")
"""


def test_what_training_recorded_is_shown(served: Served, window: Window) -> None:
    (served.folder / "records.py").write_text(RECORDS)
    run_id = served.ran("python3 records.py")
    page = window.go(f"/runs/{run_id}")
    alert = page.get_by_role("region", name="Alerts")
    expect(alert).to_contain_text("Low <b>accuracy</b>")
    expect(alert).to_contain_text("below 0.1")
    page = window.go(f"/runs/{run_id}/media")
    expect(page.locator(".media-image")).to_have_js_property("naturalWidth", 3)
    expect(page.get_by_text("dots")).to_be_visible()
    sound = page.locator("audio")
    sound.evaluate("sound => { sound.preload = 'auto'; sound.load() }")
    expect(sound).to_have_js_property("duration", 0.0375)  # the browser could read it: 300 of 8000 samples a second
    expect(page.locator(".media-points circle")).to_have_count(3)
    expect(page.get_by_role("cell", name="<i>one</i>")).to_be_visible()
    expect(page.get_by_text("once upon a time")).to_be_visible()


def test_no_tab_of_a_running_notebook_has_its_token(served: Served, window: Window) -> None:
    path = f"{install(served.folder / 'bin')}{os.pathsep}{os.environ['PATH']}"
    found = served.call("notebook", "--json", PATH=path).data
    token = found["url"].rpartition("token=")[2]
    for tab in ("", "/logs", "/spec", "/history"):
        page = window.go(f"/runs/{found['id']}{tab}")
        expect(page.get_by_text(f"phalanx notebook --url {found['id']}")).to_be_visible()
        assert token not in page.content()
    served.call("stop", found["id"])
    expect(page.get_by_text("phalanx notebook --url")).to_have_count(0)
