"""Documents of a run on the page: outputs as Markdown and notebooks, notes with links and images."""

from __future__ import annotations

import base64
import json
import re

import pytest
from playwright.sync_api import expect

from tests.web.browsing import Window
from tests.web.homes import png
from tests.web.serving import Served

REPORT = """# Report

See [the notebook](nested/book.ipynb) and ![loss](nested/plot.png), not ![gone](missing.png) or ![far](https://example.org/x.png).

| a | b |
|---|---|
| 1 | 2 |

<script>document.title = 'taken'</script>
"""
HTML = """<style>body {display: none}</style><script>parent.document.title = 'taken'</script>
<table onclick="alert(1)"><tr><th>loss</th></tr><tr><td><a href="javascript:alert(1)">0.25</a></td></tr></table>
<img src="https://example.org/x.png" onerror="parent.document.title = 'taken'">"""


@pytest.fixture(scope="module")
def run(served: Served) -> str:
    image = base64.b64encode(png(8, 8)).decode()
    cells = [
        {"cell_type": "markdown", "source": ["# A notebook"]},
        {
            "cell_type": "code",
            "execution_count": 7,
            "source": "print('hello')",
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["hello\\n"]},
                {"output_type": "display_data", "data": {"image/png": image}},
                {"output_type": "execute_result", "data": {"text/html": HTML, "text/plain": "loss 0.25"}},
            ],
        },
    ]
    (served.folder / "report.md").write_text(REPORT)
    (served.folder / "book.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}))
    (served.folder / "plot.png").write_bytes(png(8, 8))
    (served.folder / "broken.png").write_bytes(png(8, 8)[:40])
    copy = "cp report.md broken.png $PHALANX_OUTPUTS; mkdir $PHALANX_OUTPUTS/nested"
    return served.ran(f"{copy}; cp book.ipynb plot.png $PHALANX_OUTPUTS/nested")


def test_the_first_level_of_outputs_is_open_and_markdown_is_rendered(served: Served, window: Window, run: str) -> None:
    window.allow("404|missing.png")
    page = window.go(f"/runs/{run}/outputs")
    files = page.get_by_role("list", name="Files")
    files.get_by_role("button", name=re.compile("report.md")).click()  # nothing had to be opened
    document = page.locator(".preview-document")
    expect(document.get_by_role("heading", name="Report")).to_be_visible()
    expect(document.get_by_role("cell", name="2")).to_be_visible()
    expect(document.locator("img[alt=loss]")).to_have_js_property("naturalWidth", 8)
    expect(document).to_contain_text("Cannot show this image: gone")
    expect(document.locator("img[alt=far]")).to_have_count(0)
    assert "taken" not in page.title()
    page.get_by_role("button", name="Source").click()
    expect(page.get_by_role("region", name="Text")).to_contain_text("# Report")
    page.get_by_role("button", name="Preview").click()
    document.get_by_role("link", name="the notebook").click()
    expect(page).to_have_url(f"{served.url}/runs/{run}/outputs?path=outputs%2Fnested%2Fbook.ipynb")


def test_a_notebook_is_shown_without_running_anything_of_it(window: Window, run: str) -> None:
    page = window.go(f"/runs/{run}/outputs?path=outputs%2Fnested%2Fbook.ipynb")
    notebook = page.locator(".notebook")
    expect(notebook.get_by_role("heading", name="A notebook")).to_be_visible()
    expect(notebook.locator(".notebook-source")).to_have_text("print('hello')")
    expect(notebook).to_contain_text("[7]")
    expect(notebook.locator("img")).to_have_js_property("naturalWidth", 8)
    expect(notebook.get_by_role("cell", name="0.25")).to_be_visible()
    assert notebook.locator("a, script, style, [onclick], [onerror], iframe").count() == 0
    assert "taken" not in page.title()


def test_a_broken_image_says_so(window: Window, run: str) -> None:
    page = window.go(f"/runs/{run}/outputs?path=outputs%2Fbroken.png")
    expect(page.get_by_role("article")).to_contain_text("Cannot show this image: broken.png")


def test_notes_have_a_preview_and_lead_to_files_of_the_run(served: Served, window: Window, run: str) -> None:
    page = window.go(f"/runs/{run}")
    notes = page.get_by_role("region", name="Description")
    notes.get_by_role("button", name="Add").click()
    text = "**Good**: ![loss](nested/plot.png) in [the report](outputs/report.md)"
    notes.get_by_role("textbox").fill(text)
    notes.get_by_role("button", name="Preview").click()
    expect(notes.locator("img[alt=loss]")).to_have_js_property("naturalWidth", 8)
    notes.get_by_role("button", name="Save").click()
    expect(notes.get_by_role("button", name="Edit")).to_be_visible()
    expect(notes.locator("img[alt=loss]")).to_have_js_property("naturalWidth", 8)
    notes.get_by_role("link", name="the report").click()
    expect(page).to_have_url(f"{served.url}/runs/{run}/outputs?path=outputs%2Freport.md")
