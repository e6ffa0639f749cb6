"""Texts in Markdown: shown as they were meant, and never as a part of the page."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from playwright.sync_api import expect

import phalanx
from tests.web.browsing import Window
from tests.web.serving import Served

PAGE = Path(phalanx.__file__).parent / "server" / "page"
MOST_BYTES = 120_000
TEXT = """
# Findings

- [x] **lr** of `0.1`
- [ ] see [the paper](https://example.org/paper)

| a | b |
|---|--:|
| 1 | 2 |
"""
HOSTILE = """
<script>document.title = "taken"</script>
<img src=x onerror="document.title = 'taken'">
<svg onload="document.title = 'taken'"></svg>

[click](javascript:document.title='taken') ![x](javascript:document.title='taken')
[click](<java&#10;script:document.title='taken'>) <javascript:document.title='taken'>
![tracked](https://tracker.example/x.png) ![inside](//tracker.example/y.png)
[ref]: javascript:document.title='taken'

[ref]
<a href="/api/v1/session" onclick="document.title='taken'">sign in</a>
"""


def test_a_description_in_markdown_is_shown_as_it_was_meant(served: Served, window: Window) -> None:
    run_id = served.ask("/runs", "POST", {"name": "noted", "description": TEXT})[1]["id"]
    page = window.go(f"/runs/{run_id}")
    text = page.locator(".description .markdown")
    expect(text.get_by_role("heading", name="Findings")).to_be_visible()
    expect(text.get_by_role("checkbox").first).to_be_checked()
    expect(text.locator("strong")).to_have_text("lr")
    expect(text.locator("td.align-right")).to_have_text("2")
    link = text.get_by_role("link", name="the paper")
    assert link.get_attribute("rel") == "noopener noreferrer nofollow"


def test_a_hostile_description_runs_nothing_loads_nothing_and_links_nowhere(served: Served, window: Window) -> None:
    run_id = served.ask("/runs", "POST", {"name": "hostile", "description": HOSTILE})[1]["id"]
    page = window.go(f"/runs/{run_id}")
    text = page.locator(".description .markdown")
    expect(text).to_contain_text("sign in")
    expect(text.locator(".markdown-image").first).to_be_attached()  # it is parsed, not only shown
    for element in ("script", "img", "svg", "a", "iframe", "[onclick]", "[onerror]"):
        assert text.locator(element).count() == 0, element
    for word in page.get_by_text("click", exact=False).all()[:2]:
        word.click()
    assert page.title() != "taken"


def test_a_text_that_is_nested_too_deeply_leaves_the_page_usable(served: Served, window: Window) -> None:
    run_id = served.ask("/runs", "POST", {"name": "deep", "description": "> " * 20_000 + "end"})[1]["id"]
    page = window.go(f"/runs/{run_id}")
    expect(page.locator(".description .markdown blockquote").first).to_be_attached()  # the parser leaves out the rest
    page.get_by_role("button", name="Edit").click()
    expect(page.get_by_label("Description in Markdown")).to_be_visible()


def test_the_first_load_is_small_and_leaves_the_parser_out() -> None:
    first = re.findall(r'(?:src|href)="/(assets/[^"]+)"', (PAGE / "index.html").read_text())
    assert first
    assert not any("MarkdownView" in name for name in first)
    assert sum(len(gzip.compress((PAGE / name).read_bytes())) for name in first) < MOST_BYTES
