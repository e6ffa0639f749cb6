"""Sign-on at a real OpenID Connect provider, in a real browser; and names that are made to deceive."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.homes import Place, wait_for
from tests.cli.tracked import remember_tracked
from tests.ports import free_ports
from tests.web.browsing import Window
from tests.web.serving import Served

pytestmark = pytest.mark.skipif(find_spec("oidc_provider_mock") is None, reason="`make setup` installs it")
ANA = {"sub": "ana", "preferred_username": "ana", "groups": ["vision"]}
EVIL = "report\u202efdp.exe\u200b"
POINTS = {"master-0": {"loss": [(0, 1.0), (1, 0.5)]}}


@pytest.fixture(scope="module", name="issuer")
def provider_process() -> Iterator[str]:
    (port,) = free_ports(1)
    people = [ANA, {"sub": "stranger", "preferred_username": "stranger", "groups": []}]
    options = [part for person in people for part in ("--user-claims", json.dumps(person))]
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--require-nonce", "true", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"

    def is_up() -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{address}/.well-known/openid-configuration", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        wait_for(is_up)
        yield address
    finally:
        process.kill()
        process.wait()


def fill(place: Place) -> None:
    remember_tracked(place, "aaa1", POINTS, name=EVIL, project="vision", tags=(EVIL,), user=EVIL)
    remember_tracked(place, "bbb1", POINTS, name="hidden", project="other")


@pytest.fixture(scope="module", name="team")
def served_with_sign_on(issuer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("team")
    (port,) = free_ports(1)
    (folder / "secret").write_text("any")
    client = {"client_id": "phalanx", "client_secret_file": str(folder / "secret")}
    oidc = {"issuer": issuer, **client, "url": f"http://127.0.0.1:{port}", "label": "Example"}
    roles = [{"group": "vision", "role": "editor", "projects": ["vision"]}]
    (folder / "sign-on.yml").write_text(json.dumps({"roles": roles, "oidc": oidc}))
    found = Served(folder, fill, "--port", str(port), "--sign-on", str(folder / "sign-on.yml"))
    yield found
    found.end()


@pytest.fixture(name="stranger")
def window_of_a_stranger(browser: Browser, team: Served) -> Iterator[Window]:
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    found = Window(context, team)
    found.allow("401|asked another host|favicon|jsdelivr|ERR_|404")  # the provider's page loads its styles elsewhere
    yield found
    assert not found.unexpected(), "\n".join(found.unexpected())
    context.close()


def signed_on(window: Window, who: str, path: str = "/runs") -> None:
    page = window.go(path)
    page.wait_for_url(re.compile("/login"))
    page.get_by_role("link", name="Sign in with Example").click()
    page.wait_for_url(re.compile("/oauth2/authorize|/authorize"), wait_until="commit")
    page.locator("input[name=sub]").fill(who)
    page.get_by_role("button", name="Authorize").click(no_wait_after=True)


def test_a_user_signs_on_works_makes_a_token_and_signs_out(team: Served, stranger: Window) -> None:
    signed_on(stranger, "ana", "/projects")
    page = stranger.page
    page.wait_for_url(f"{team.url}/projects")
    expect(page.get_by_role("link", name="vision")).to_be_visible()
    expect(page.get_by_text("other", exact=True)).to_have_count(0)
    menu = page.get_by_role("button", name="Signed in as ana")
    menu.click()
    page.get_by_role("button", name="Create token").click()
    page.get_by_label("Role").select_option("editor")
    page.get_by_role("button", name="Create", exact=True).click()
    token = page.get_by_test_id("token").inner_text()
    status, who = team.ask("/session", token=token)
    assert (status, who["roles"]) == (200, {"vision": "editor"})
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_test_id("token")).to_have_count(0)
    menu.click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(re.compile("/oauth2/end_session"), wait_until="commit")
    expect(page.get_by_text("id_token_hint")).to_be_attached()
    expect(page.get_by_text("Recommended parameter")).to_have_count(0)
    page.get_by_role("button", name="End session").click(no_wait_after=True)
    page.wait_for_url(f"{team.url}/login")
    page.goto(f"{team.url}/projects")
    page.wait_for_url(re.compile("/login"))
    entries = team.ask("/audit?limit=50")[1]["entries"]
    assert any((row["who"], row["kind"]) == ("ana", "sign-on") for row in entries)


def test_who_has_no_role_and_who_declines_come_back_to_the_sign_in(team: Served, stranger: Window) -> None:
    signed_on(stranger, "stranger")
    page = stranger.page
    page.wait_for_url(re.compile("/login"))
    expect(page.get_by_role("alert")).to_contain_text("no role on this server")
    page.get_by_role("link", name="Sign in with Example").click()
    page.get_by_role("button", name="Deny").click(no_wait_after=True)
    page.wait_for_url(re.compile("/login"))
    expect(page.get_by_role("alert")).to_contain_text("Sign-on failed")
    assert team.ask("/audit?limit=1", token=team.token)[1]["entries"]


def test_names_that_deceive_are_spelled_out(team: Served, stranger: Window) -> None:
    stranger.sign_in()
    spelled = "report\\u{202e}fdp.exe\\u{200b}"
    for path in ("/runs", "/runs/aaa1", "/projects", "/compare?run=aaa1&run=bbb1"):
        page = stranger.go(path)
        expect(page.get_by_text(spelled).first).to_be_visible()
        stranger.settle()
        assert not re.search("[\u202e\u200b]", page.inner_text("body")), path
        assert not re.search("[\u202e\u200b]", page.title()), path
