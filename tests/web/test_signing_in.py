"""Who may come in, and what those who may only look are told."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, expect

from tests.web.browsing import Window
from tests.web.browsing import window as opened
from tests.web.serving import Served

UNKNOWN = "401"  # browsers note every refused request


@pytest.fixture(name="viewer", scope="module")
def viewer_fixture(served: Served) -> str:
    answer = served.call("token", "create", "onlooker", "--role", "viewer", "--json")
    assert answer.code == 0, answer.err
    return str(answer.data["token"])


@pytest.fixture(name="stranger")
def stranger_fixture(open_window: Callable[..., Window]) -> Window:
    """A browser that nobody signed in with."""
    window = open_window()
    window.context.clear_cookies()
    window.allow(UNKNOWN)
    return window


def test_a_token_in_the_address_signs_in_and_is_gone_from_it(served: Served, stranger: Window) -> None:
    page = stranger.go(f"/runs#token={served.token}")
    expect(page.get_by_role("button", name=re.compile("^Signed in as"))).to_be_visible()
    assert served.token not in page.url
    assert page.evaluate("location.hash") == ""
    assert served.token not in page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
    page.go_back()
    assert served.token not in page.url
    assert not any(served.token in path for path in stranger.asked)


def test_a_stranger_is_asked_who_they_are_and_then_led_where_they_wanted_to_go(
    served: Served, stranger: Window
) -> None:
    page = stranger.go("/queue")
    page.wait_for_url(re.compile("/login"))
    field = page.get_by_label(re.compile("token", re.IGNORECASE)).first
    field.fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").first).to_be_visible()
    field.fill(served.token)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/queue"))


def test_a_viewer_cannot_stop_a_run_and_learns_why(
    browser: Browser, served: Served, viewer: str, stranger: Window
) -> None:
    run_id = served.queued("sleep 60")
    served.until(run_id, "running")
    stranger.sign_in(viewer)
    page = stranger.go(f"/runs/{run_id}")
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_disabled()
    expect(stop).to_have_attribute("title", re.compile("viewer|may|role", re.IGNORECASE))
    assert served.ask(f"/runs/{run_id}/stop", "POST", {}, token=viewer)[0] == 403
    refused = page.evaluate(
        "path => fetch(path, {method: 'POST'}).then(answer => answer.status)", f"/api/v1/runs/{run_id}/stop"
    )
    assert refused == 403
    stranger.allow("403")
    assert served.status(run_id) == "running"
    with opened(browser, served) as owner:
        owners = owner.go(f"/runs/{run_id}")
        owners.get_by_role("button", name="Stop").click()
        owners.get_by_role("dialog").get_by_role("button", name="Stop").click()
        expect(owners.locator(".run-state")).to_contain_text("stopped")


def test_after_signing_out_nothing_is_visible(stranger: Window, viewer: str) -> None:
    stranger.sign_in(viewer)
    page = stranger.go("/runs")
    page.get_by_role("button", name=re.compile("^Signed in as")).click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(re.compile("/login"))
    page.goto(f"{stranger.served.url}/runs")
    page.wait_for_url(re.compile("/login"))
