"""Reports: written beside a preview, with live charts and tables, shared by their address, and exported as one file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.cli.homes import Place
from tests.web.browsing import Window
from tests.web.homes import LAGGING, fill_lagging, fill_sweep
from tests.web.serving import Served

TEXT = """# Learning rates

A **short** text with a [link](/runs/sweep000) and [another](javascript:alert(1)).

```chart
metric: loss
query: tags:sweep
by: lr
title: Loss by learning rate
```

```table
query: tags:sweep
sort: metric.loss
columns: name, status, params.lr, metric.loss, min.loss
limit: 3
```

```chart
metric: loss, accuracy
runs: sweep000, sweep001
x: time
```
"""
HOSTILE = """<script>document.title = 'taken'</script>
<img src=x onerror="document.title='taken'">
[click](javascript:document.title='taken') ![pixel](https://example.com/x.png)

```chart
metric: </text><script>document.title='taken'</script>
runs: sweep000
title: </svg><script>document.title='taken'</script>
```

```table
runs: sweep002
title: <img src=x onerror="document.title='taken'">
columns: name, params.lr, <script>x</script>
```

```chart
colour: red
```
"""


def fill(place: Place) -> None:
    fill_lagging(place)
    fill_sweep(place)


@pytest.fixture(scope="module", name="served")
def served_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    found = Served(tmp_path_factory.mktemp("reports"), fill)
    yield found
    found.end()


def create(served: Served, title: str, text: str) -> str:
    status, made = served.ask("/reports", "POST", {"project": "sweep", "title": title, "text": text})
    assert status == 201, made
    return str(made["id"])


def test_a_report_is_written_beside_its_preview_and_shared(open_window: Callable[..., Window]) -> None:
    page = open_window().go("/reports")
    page.get_by_role("button", name="New report").click()
    page.get_by_label("Title").fill("Learning rates")
    page.get_by_role("dialog").get_by_role("combobox").select_option("sweep")
    page.get_by_role("button", name="Create").click()
    page.get_by_label("Text in Markdown").fill(TEXT)
    preview = page.get_by_role("region", name="Preview")
    expect(preview.get_by_role("heading", name="Learning rates")).to_be_visible()
    legend = preview.get_by_role("list", name="Legend").first.get_by_role("button")
    expect(legend).to_have_text([re.compile(r"lr 0\.\d+ \(4\)")] * 3)
    expect(preview.get_by_role("row")).to_have_count(4)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("article", name="Learning rates")).to_be_visible()
    address = page.url
    assert re.search(r"/reports/[a-z0-9]{10}$", address)

    other = open_window().go(f"/{address.split('/', 3)[3]}")
    expect(other.get_by_role("article").get_by_role("heading", name="Learning rates").first).to_be_visible()
    expect(other.locator(".chart")).to_have_count(2)
    expect(other.get_by_role("link", name="link", exact=True)).to_have_attribute("href", "/runs/sweep000")
    expect(other.get_by_role("link", name="another")).to_have_count(0)
    other.goto(f"{address.rsplit('/', 1)[0]}")
    expect(other.get_by_role("row", name=re.compile("Learning rates"))).to_contain_text("sweep")


def exported(page: Page, folder: Path) -> Path:
    expect(page.locator(".spinner")).to_have_count(0)
    with page.expect_download() as started:
        page.get_by_role("button", name="Export HTML").click()
    path = folder / started.value.suggested_filename
    started.value.save_as(path)
    return path


def test_a_report_is_one_file_that_needs_no_server_and_no_scripts(
    served: Served, window: Window, browser: Browser, tmp_path: Path
) -> None:
    page = window.go(f"/reports/{create(served, 'Results', TEXT)}")
    expect(page.locator(".chart")).to_have_count(2)
    path = exported(page, tmp_path)
    assert path.name == "Results.html"
    context = browser.new_context(java_script_enabled=False, offline=True)
    try:
        alone = context.new_page()
        asked: list[str] = []
        alone.on("request", lambda request: asked.append(request.url))
        alone.goto(path.as_uri())
        expect(alone.get_by_role("heading", name="Results")).to_be_visible()
        expect(alone.locator("svg[role=img]")).to_have_count(2)
        expect(alone.locator("svg").first).to_contain_text("Loss by learning rate")
        assert alone.locator("svg path").count() >= 5
        expect(alone.get_by_role("row")).to_have_count(4)
        assert alone.get_by_role("link", name="link", exact=True).get_attribute("href") == f"{served.url}/runs/sweep000"
        assert asked == [path.as_uri()], "it loads nothing"
    finally:
        context.close()


def test_no_text_of_a_report_a_metric_or_a_run_becomes_a_script(
    served: Served, window: Window, browser: Browser, tmp_path: Path
) -> None:
    status, _ = served.ask("/runs/sweep002", "PATCH", {"name": "<script>document.title='taken'</script>"})
    assert status == 200
    page = window.go(f"/reports/{create(served, '<script>taken</script>', HOSTILE)}")
    expect(page.get_by_role("heading", name="<script>taken</script>")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("Unknown key")
    expect(page.get_by_text("None of 1 runs logged </text><script>")).to_be_visible()
    expect(page.get_by_role("cell", name="<script>document.title='taken'</script>")).to_be_visible()
    assert page.locator("main img, main script").count() == 0
    path = exported(page, tmp_path)
    text = path.read_text()
    assert not re.search(r"<(script|img|iframe)|<[^>]+\son\w+=|(?:href|src)=.javascript:", text, re.IGNORECASE)
    assert "default-src 'none'" in text
    context = browser.new_context(offline=True)
    try:
        alone = context.new_page()
        alone.goto(path.as_uri())
        expect(alone.get_by_role("heading", name="<script>taken</script>")).to_be_visible()
        assert alone.title() == "<script>taken</script>"
        assert alone.locator("script, img").count() == 0
    finally:
        context.close()


def test_of_two_editors_neither_overwrites_the_other_unasked(
    served: Served, open_window: Callable[..., Window]
) -> None:
    report = create(served, "Shared", "first")
    window = open_window()
    window.allow("412")
    page = window.go(f"/reports/{report}?edit=1")
    page.get_by_label("Text in Markdown").fill("mine")
    other = open_window().go(f"/reports/{report}?edit=1")
    other.get_by_label("Text in Markdown").fill("theirs")
    other.get_by_role("button", name="Save").click()
    expect(other.get_by_role("article")).to_contain_text("theirs")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("has changed this report meanwhile")
    assert served.ask(f"/reports/{report}")[1]["text"] == "theirs"
    page.get_by_role("button", name="Replace it with mine").click()
    expect(page.get_by_role("article")).to_contain_text("mine")
    page.get_by_role("button", name="More").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Reports")).to_be_visible()
    assert served.ask(f"/reports/{report}")[0] == 404


def test_a_viewer_reads_a_report_and_sees_only_runs_of_their_projects(
    served: Served, open_window: Callable[..., Window]
) -> None:
    text = f"```table\nruns: sweep000, {LAGGING}\ncolumns: name\n```"
    report = create(served, "For viewers", text)
    answer = served.call("token", "create", "vera", "--role", "viewer", "--project", "sweep", "--json")
    assert answer.code == 0, answer.err
    window = open_window()
    window.sign_in(answer.data["token"])
    page = window.go(f"/reports/{report}")
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("article")).to_contain_text("sweep-0")
    expect(page.get_by_role("button", name="Edit")).to_have_count(0)


def test_compared_runs_become_a_report(window: Window) -> None:
    page = window.go("/compare?run=sweep000&run=sweep001&metric=accuracy")
    page.get_by_role("link", name="New report").click()
    page.get_by_label("Title").fill("Two runs")
    page.get_by_role("button", name="Create").click()
    preview = page.get_by_role("region", name="Preview")
    expect(preview.locator(".chart-title")).to_have_text("accuracy")
    expect(preview.get_by_role("row")).to_have_count(3)
