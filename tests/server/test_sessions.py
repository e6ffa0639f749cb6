"""Signing in with a browser: the cookie, who may use it from where, and when it ends."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from http.cookies import SimpleCookie

import httpx
import pytest

from phalanx.server.auth.identities import Role
from phalanx.server.auth.sessions import LIFE_S
from tests.server.people import PASSWORD, cookie, sign_in
from tests.server.site import Site


@pytest.fixture(scope="module", autouse=True)
def ana(site: Site) -> None:
    site.context.accounts.add("ana", PASSWORD, {"*": Role.EDITOR})


@pytest.fixture
def browser(site: Site) -> Iterator[httpx.Client]:
    """As the page of this server uses it."""
    headers = {"Origin": site.url, "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    with httpx.Client(base_url=site.url, headers=headers, timeout=30.0, trust_env=False, verify=False) as client:
        yield client


def who(site: Site, value: str, **headers: str) -> httpx.Response:
    return httpx.get(
        f"{site.url}/api/v1/session", headers={"Cookie": value, **headers}, timeout=30.0, trust_env=False, verify=False
    )


def test_a_copied_cookie_is_of_no_use_after_signing_out(site: Site, browser: httpx.Client) -> None:
    first, second = (cookie(sign_in(site, user="ana", password=PASSWORD)) for _ in range(2))
    assert who(site, first).status_code == 200
    browser.delete("/api/v1/session", headers={"Cookie": first})
    assert who(site, first).status_code == 401
    assert who(site, second).status_code == 200, "only this session has ended"
    site.context.sessions.ended._mark = None  # as another server, or this one after a restart
    assert who(site, first).status_code == 401


def test_a_browser_signs_in_and_out(site: Site, browser: httpx.Client) -> None:
    assert browser.get("/api/v1/session").status_code == 401
    answer = browser.post("/api/v1/session", json={"user": "ana", "password": PASSWORD})
    about = {"user": "ana", "token": None, "expires": None}
    expected = {"name": "ana", "kind": "session", "role": "editor", "roles": {"*": "editor"}, **about}
    assert (answer.status_code, answer.json()) == (200, expected)
    assert browser.get("/api/v1/session").json() == expected
    assert browser.get("/api/v1/runs").status_code == 200
    assert browser.post("/api/v1/runs", json={}).status_code == 201
    assert browser.delete("/api/v1/session").status_code == 200
    assert browser.get("/api/v1/runs").status_code == 401


def test_a_token_signs_in_with_what_it_opens(site: Site, browser: httpx.Client) -> None:
    token = site.context.tokens.create("for-the-page", "viewer", projects=["p"])
    answer = browser.post("/api/v1/session", json={"token": f" {token}\n"}).json()
    about = {"user": None, "token": None, "expires": None}
    assert answer == {"name": "for-the-page", "kind": "session", "role": None, "roles": {"p": "viewer"}, **about}
    assert browser.post("/api/v1/runs", json={"project": "p"}).status_code == 403


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"token": ""}, 400),
        ({"user": "ana"}, 400),
        ({"token": 5}, 400),
        ({"token": ["x"]}, 400),
        ({"user": {"$ne": 1}, "password": "x"}, 400),
        ({"token": "phx_wrong"}, 401),
        ({"user": "ana", "password": "wrong password"}, 401),
        ({"user": "nobody", "password": PASSWORD}, 401),
    ],
)
def test_an_unknown_caller_gets_no_cookie(site: Site, body: dict[str, object], status: int) -> None:
    answer = site.client.post("/api/v1/session", json=body)
    assert answer.status_code == status, answer.text
    assert "set-cookie" not in answer.headers


def test_a_runs_token_signs_no_one_in(site: Site) -> None:
    assert sign_in(site, token=site.run_token(site.begin())).status_code == 403


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"x" * 20_000])
def test_a_body_that_is_none_is_refused(site: Site, body: bytes) -> None:
    assert site.client.post("/api/v1/session", content=body).status_code in (400, 413)


def test_the_cookie_is_for_this_server_alone_and_out_of_reach_of_scripts(site: Site) -> None:
    answer = sign_in(site, user="ana", password=PASSWORD)
    jar: SimpleCookie = SimpleCookie(answer.headers["set-cookie"])
    (found,) = jar.values()
    assert found.key == site.context.sessions.cookie
    assert found.key.startswith("phalanx-")
    assert (found["httponly"], found["samesite"], found["path"], found["domain"]) == (True, "strict", "/", "")
    assert int(found["max-age"]) == LIFE_S
    assert not found["secure"], "it came by plain HTTP, and would never be sent back"
    assert PASSWORD not in found.value
    assert site.context.accounts.get("ana").hash not in found.value


@pytest.mark.parametrize("header", ["X-Forwarded-Proto", "Origin"])
def test_behind_encryption_the_cookie_stays_there(site: Site, header: str) -> None:
    value = "https" if header == "X-Forwarded-Proto" else site.url.replace("http:", "https:")
    answer = site.client.post("/api/v1/session", json={"token": site.token}, headers={header: value})
    assert "Secure" in answer.headers["set-cookie"]


# from where ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Referer": "http://127.0.0.1/"},
    ],
)
def test_with_a_cookie_only_the_page_of_this_server_changes_anything(site: Site, headers: dict[str, str]) -> None:
    value = cookie(sign_in(site, user="ana", password=PASSWORD))
    before = site.get("/api/v1/runs")["count"]
    for method, path in (("POST", "/api/v1/runs"), ("POST", "/api/2.0/mlflow/runs/create")):
        answer = site.client.request(method, path, json={}, headers={"Cookie": value, **headers})
        assert answer.status_code == 403, answer.text
    assert site.get("/api/v1/runs")["count"] == before


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_a_form_of_another_site_is_refused_for_any_content_type(site: Site, kind: str) -> None:
    """Forms need no permission to be sent elsewhere; the browser says where they come from."""
    value = cookie(sign_in(site, user="ana", password=PASSWORD))
    headers = {"Cookie": value, "Origin": "https://evil.example", "Content-Type": kind}
    assert site.client.post("/api/v1/runs", content=b"{}", headers=headers).status_code == 403
    assert site.client.post("/api/v1/session", content=b"{}", headers=headers).status_code == 403


def test_what_only_looks_needs_no_origin(site: Site) -> None:
    """Browsers send none with GET, nor do images and event streams."""
    value = cookie(sign_in(site, user="ana", password=PASSWORD))
    assert who(site, value).status_code == 200
    assert who(site, value, **{"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert who(site, value, **{"Sec-Fetch-Site": "none"}).status_code == 200
    assert who(site, value, **{"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert who(site, value, Host="evil.example").status_code == 421


def test_who_follows_a_link_of_another_site_gets_the_page_and_nothing_else(site: Site) -> None:
    value = cookie(sign_in(site, user="ana", password=PASSWORD))
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    headers = {"Cookie": value, **followed}
    assert site.client.get("/runs", headers=headers).status_code == 200
    assert site.client.get("/api/v1/runs", headers=headers).status_code == 401, "not even with the cookie"
    headers |= {"Authorization": f"Bearer {site.token}"}
    assert site.client.get("/api/v1/runs", headers=headers).status_code == 401
    assert site.client.post("/api/v1/runs", json={}, headers=headers).status_code == 403
    framed = {**headers, "Sec-Fetch-Dest": "iframe"}
    assert site.client.get("/runs", headers=framed).status_code == 403


# what it is worth ---------------------------------------------------------------------------------------------------


def test_a_cookie_cannot_be_made_by_anybody_else(site: Site) -> None:
    name, _, value = cookie(sign_in(site, user="ana", password=PASSWORD)).partition("=")
    expires, kind, subject, nonce, mac = value.split("~")
    site.context.accounts.add("boss", PASSWORD, {"*": Role.ADMIN})
    later = str(int(expires) + 1)
    forged = [
        f"{later}~{kind}~{subject}~{nonce}~{mac}",
        f"{expires}~{kind}~boss~{nonce}~{mac}",
        f"{expires}~token~tester~{nonce}~{mac}",
        f"{expires}~{kind}~{subject}~{'0' * 16}~{mac}",
        f"{expires}~{kind}~{subject}~{nonce}~{'0' * 64}",
        f"{expires}~{kind}~{subject}~{nonce}~{hashlib.sha256(b'').hexdigest()}",
        f"{expires}~{kind}~{subject}~{nonce}",
        f"{expires}~{kind}~{subject}~{mac}",
        f"{expires}~{kind}~{subject}~{nonce}~{mac}~",
        f"{expires}~run~{subject}~{nonce}~{mac}",
        f" {value}x",
        "",
        "~~~",
        "9" * 13 + f"~user~ana~{nonce}~{mac}",
        "x" * 4000,
    ]
    for one in forged:
        assert who(site, f"{name}={one}").status_code == 401, one
    assert who(site, f"phalanx-00000000={value}").status_code == 401, "another server's"
    assert who(site, f"{name}={value}").status_code == 200


def test_a_cookie_of_another_home_is_worth_nothing_here(site: Site, own_site: Site) -> None:
    own_site.context.accounts.add("ana", PASSWORD, {"*": Role.ADMIN})
    _, _, value = cookie(sign_in(own_site, user="ana", password=PASSWORD)).partition("=")
    assert site.context.sessions.cookie != own_site.context.sessions.cookie
    assert who(site, f"{site.context.sessions.cookie}={value}").status_code == 401


def test_a_session_ends_after_a_week(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    value = cookie(sign_in(site, user="ana", password=PASSWORD))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + LIFE_S - 60)
    assert who(site, value).status_code == 200
    monkeypatch.setattr(time, "time", lambda: now + LIFE_S + 1)
    assert who(site, value).status_code == 401


def test_a_session_ends_with_what_it_was_opened_by(site: Site) -> None:
    accounts, tokens = site.context.accounts, site.context.tokens
    accounts.add("tom", PASSWORD, {"*": Role.VIEWER})
    by_password = cookie(sign_in(site, user="tom", password=PASSWORD))
    by_token = cookie(sign_in(site, token=tokens.create("toms", user="tom")))
    assert [who(site, value).status_code for value in (by_password, by_token)] == [200, 200]
    accounts.set_password("tom", "another password")
    assert [who(site, value).status_code for value in (by_password, by_token)] == [401, 200]
    accounts.set_password("tom", PASSWORD)
    assert who(site, by_password).status_code == 401, "the same password again does not bring it back"
    tokens.revoke("toms")
    assert who(site, by_token).status_code == 401
    tokens.create("toms", user="tom")
    assert who(site, by_token).status_code == 401, "nor does a token of the same name"
    again = cookie(sign_in(site, user="tom", password=PASSWORD))
    accounts.remove("tom")
    accounts.add("tom", PASSWORD, {"*": Role.ADMIN})
    assert who(site, again).status_code == 401


def test_a_session_may_do_what_its_user_may_now(site: Site) -> None:
    site.context.accounts.add("lea", PASSWORD, {"*": Role.EDITOR})
    value = cookie(sign_in(site, user="lea", password=PASSWORD))
    headers = {"Cookie": value, "Origin": site.url}
    assert site.client.post("/api/v1/runs", json={}, headers=headers).status_code == 201
    site.context.accounts.give("lea", ["*"], Role.VIEWER)
    assert site.client.post("/api/v1/runs", json={}, headers=headers).status_code == 403


def test_a_session_ends_with_the_days_of_its_token(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    value = cookie(sign_in(site, token=site.context.tokens.create("brief", days=1)))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86_401)
    assert who(site, value).status_code == 401


def test_a_cookie_that_is_worth_nothing_does_not_keep_anybody_from_the_page(site: Site) -> None:
    stale = {"Cookie": f"{site.context.sessions.cookie}=1~user~ana~{'0' * 16}~{'0' * 64}"}
    assert site.client.get("/", headers=stale).status_code == 200
    assert site.client.post("/api/v1/session", json={"token": site.token}, headers=stale).status_code == 200


def test_a_cookie_beside_a_token_does_not_matter(site: Site) -> None:
    value = cookie(sign_in(site, user="ana", password=PASSWORD))
    assert site.ask("POST", "/api/v1/runs", json={}, headers={"Cookie": value}).status_code == 201
    answer = site.client.get("/api/v1/runs", headers={"Cookie": value, "Authorization": "Bearer phx_wrong"})
    assert answer.status_code == 401, "whoever shows something wrong is not let in by something else"
