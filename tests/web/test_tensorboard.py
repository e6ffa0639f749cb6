"""TensorBoard from the page: two clicks from the list of runs, and two from the page of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.boards.programs import install
from tests.web.browsing import Window
from tests.web.serving import Served

LOGS = 'python3 -c "from phalanx import tracking; tracking.log(loss=0.5, step=1)"'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Its server finds a program that is called like TensorBoard."""
    base = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{install(base / 'bin')}{os.pathsep}{os.environ['PATH']}")
        found = Served(base)
    yield found
    found.end()


def test_selected_runs_and_one_run_are_opened_in_tensorboard(served: Served, window: Window) -> None:
    run_id = served.ran(LOGS, "--name", "board")
    window.allow("asked another host: http|favicon")
    page = window.go("/runs")
    page.get_by_label("Select board").check()
    with page.context.expect_page() as opened:
        page.get_by_role("toolbar").get_by_role("button", name="TensorBoard").click()
    expect(opened.value.locator("body")).to_contain_text('"logdir"')

    page = window.go(f"/runs/{run_id}")
    page.get_by_role("button", name="More").click()
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="TensorBoard").click()
    expect(opened.value.locator("body")).to_contain_text('"board"')


def test_without_an_address_the_command_is_shown(served: Served, window: Window) -> None:
    """As to a browser on another machine."""
    run_id = served.ran(LOGS, "--name", "far")
    page = window.go(f"/runs/{run_id}")
    window.context.set_extra_http_headers({"X-Forwarded-For": "192.0.2.7"})
    page.get_by_role("button", name="More").click()
    page.get_by_role("button", name="TensorBoard").click()
    dialog = page.get_by_role("dialog", name="Open in TensorBoard")
    expect(dialog).to_contain_text(f"phalanx tensorboard {run_id}")
    expect(dialog.get_by_role("button", name="Copy")).to_be_visible()
