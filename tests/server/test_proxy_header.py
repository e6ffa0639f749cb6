"""Users whom a proxy names in a header, and all who send that header themselves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from phalanx.server.auth.identities import Role
from phalanx.server.auth.proxy_header import with_peer
from phalanx.server.auth.sign_on import ProxySettings, SignOnSettings
from tests.server.site import Site

ROLES = ({"group": "staff", "role": "viewer"}, {"group": "vision", "role": "editor", "projects": ["vision"]})
ANA = {"X-Forwarded-User": "ana", "X-Forwarded-Groups": "vision, other"}


def settings(**proxy: Any) -> SignOnSettings:
    return SignOnSettings.model_validate({"roles": ROLES, "proxy": {"addresses": ["127.0.0.1"], **proxy}})


@pytest.fixture(scope="module", name="behind")
def site_behind_a_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The client of these tests is the proxy."""
    with Site(tmp_path_factory.mktemp("behind"), sign_on=settings()) as site:
        yield site


def whoami(site: Site, headers: Any) -> Any:
    answer = site.client.get("/api/v1/session", headers=headers)
    return answer.json() if answer.status_code == 200 else answer.status_code


def test_the_proxy_says_who_asks_and_the_groups_say_what_they_may(behind: Site) -> None:
    assert whoami(behind, ANA) == {
        "name": "ana",
        "kind": "proxy",
        "role": None,
        "roles": {"vision": "editor"},
        "user": "ana",
        "token": None,
        "expires": None,
    }
    assert whoami(behind, {**ANA, "X-Forwarded-Groups": "staff"})["roles"] == {"*": "viewer"}
    assert whoami(behind, {}) == 401
    assert whoami(behind, {**ANA, "X-Forwarded-Groups": "other"}) == 403
    assert whoami(behind, {"X-Forwarded-User": "ana"}) == 403
    assert whoami(behind, {**ANA, "X-Forwarded-User": "ana smith"}) == 403


def test_a_token_beside_the_header_decides(behind: Site) -> None:
    headers = {**ANA, "Authorization": f"Bearer {behind.context.tokens.create('small', 'viewer')}"}
    assert whoami(behind, headers)["name"] == "small"
    assert whoami(behind, {**ANA, "Authorization": "Bearer phx_wrong"}) == 401


def test_the_user_of_the_proxy_comes_before_a_session_that_was_left_behind(behind: Site) -> None:
    behind.context.accounts.add("before", "correct horse battery", {"*": Role.ADMIN})
    cookie = f"{behind.context.sessions.cookie}={behind.context.sessions.open('user', 'before')}"
    assert whoami(behind, {"Cookie": cookie})["name"] == "before"
    assert whoami(behind, {**ANA, "Cookie": cookie})["name"] == "ana"


def test_a_page_of_another_site_changes_nothing_through_the_proxy(behind: Site) -> None:
    body = {"project": "vision"}
    for headers in ({}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert behind.client.post("/api/v1/runs", json=body, headers={**ANA, **headers}).status_code == 403
    own = {**ANA, "Origin": behind.url}
    made = behind.client.post("/api/v1/runs", json=body, headers=own)
    assert (made.status_code, made.json()["user"]) == (201, "ana")
    assert behind.client.post("/api/v1/session/tokens", json={}, headers=own).status_code == 201


def test_a_header_that_was_sent_twice_is_of_no_one(behind: Site) -> None:
    """A proxy that adds its header to that of the client does not say which one is its own."""
    headers = [*ANA.items(), ("x-forwarded-user", "root")]
    assert whoami(behind, headers) == 401
    assert whoami(behind, [*ANA.items(), ("X-Forwarded-Groups", "staff")]) == 401


def test_no_one_takes_over_an_account_by_its_name(behind: Site) -> None:
    behind.context.accounts.add("boss", "correct horse battery", {"*": Role.ADMIN})
    assert whoami(behind, {**ANA, "X-Forwarded-User": "boss"}) == 403


@pytest.mark.parametrize(
    "proxy",
    [{"addresses": ["10.0.0.5"]}, {"addresses": ["127.0.0.2"]}, {"addresses": ["::1"]}, {"secret_file": "secret"}],
)
def test_from_anybody_else_the_header_means_nothing(tmp_path: Path, proxy: dict[str, Any]) -> None:
    (tmp_path / "secret").write_text("of the proxy\n")
    if "secret_file" in proxy:
        proxy = {"secret_file": tmp_path / "secret"}
    with Site(tmp_path, sign_on=settings(**proxy)) as site:
        assert whoami(site, ANA) == 401
        assert whoami(site, {**ANA, "X-Forwarded-For": "10.0.0.5", "Forwarded": "for=10.0.0.5"}) == 401
        assert whoami(site, {**ANA, "X-Phalanx-Proxy-Secret": "guessed"}) == 401
        with_secret = whoami(site, {**ANA, "X-Phalanx-Proxy-Secret": "of the proxy"})
        assert with_secret == 401 if "addresses" in proxy else with_secret["name"] == "ana"


def test_without_the_settings_the_header_means_nothing(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        assert whoami(site, ANA) == 401


def test_what_a_client_says_of_its_address_makes_it_no_proxy(tmp_path: Path) -> None:
    """With --behind-proxy the address of the client comes from X-Forwarded-For: the header is for the peer alone."""
    site = Site(tmp_path, sign_on=settings(addresses=["10.0.0.5"]))
    listening = socket.create_server(("127.0.0.1", 0))
    app = with_peer(site.app, "127.0.0.1")
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", proxy_headers=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    with site:
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", trust_env=False) as client:
                forged = {**ANA, "X-Forwarded-For": "10.0.0.5"}
                assert client.get("/api/v1/session", headers=forged).status_code == 401
                assert site.context.audit.last(1)[0]["from"] == "10.0.0.5", "the address itself is believed"
        finally:
            server.should_exit = True
            thread.join()
            listening.close()


@pytest.mark.parametrize(
    ("address", "is_trusted"),
    [("127.0.0.1", True), ("::ffff:127.0.0.1", True), ("10.1.2.3", True), ("10.2.0.1", False), ("::1", False)],
)
def test_the_peer_is_known_by_its_address(address: str, is_trusted: bool) -> None:
    assert ProxySettings(addresses=("127.0.0.1", "10.1.0.0/16")).trusts(address) is is_trusted
    assert not ProxySettings(addresses=("127.0.0.1",)).trusts("unix")
