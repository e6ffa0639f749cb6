"""Sign-on through an identity provider: who comes in, and all who only pretend."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

pytest.importorskip("joserfc", reason="needs the extra `oidc`")

from phalanx.errors import CallError
from phalanx.server.auth import oidc
from phalanx.server.auth.identities import Role
from phalanx.server.auth.oidc import SignOnAttempt, local_path
from phalanx.server.auth.rate_limits import TokenBuckets
from phalanx.server.auth.sign_on import read_settings
from tests.cli.running import called
from tests.server.oidc_provider import CLIENT, SECRET, Claims, FakeProvider
from tests.server.site import Site

START, CALLBACK = "/api/v1/sign-on/start", "/api/v1/sign-on/callback"
ROLES = """
roles:
  - {group: vision, role: editor, projects: [vision]}
  - {group: staff, role: viewer}
  - {group: root, role: admin}
"""
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module", name="provider")
def provider_fixture() -> Iterator[FakeProvider]:
    with FakeProvider() as found:
        yield found


@pytest.fixture(scope="module", name="team")
def site_with_sign_on(provider: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("team")
    settings = read_settings(written(folder, provider.issuer))
    with Site(folder, sign_on=settings) as site:
        ours = site.app.state.sign_on.provider
        ours.settings = ours.settings.model_copy(update={"url": site.url})
        yield site


def written(folder: Path, issuer: str, more: str = "") -> Path:
    (folder / "client.secret").write_text(f"{SECRET}\n")
    (folder / "sign-on.yml").write_text(
        f"{ROLES}session_hours: 2\noidc:\n  issuer: {issuer}\n  client_id: {CLIENT}\n"
        f"  client_secret_file: {folder}/client.secret\n  url: http://127.0.0.1:1\n{more}"
    )
    return folder / "sign-on.yml"


@pytest.fixture(autouse=True)
def honest(provider: FakeProvider, team: Site) -> None:
    """Before each test the provider tells the truth, and no user is known."""
    provider.claims = {"sub": "1", "preferred_username": "ana", "groups": ["vision"]}
    provider.change, provider.sign = (lambda claims: claims), provider.signed
    provider.more, provider.metadata, provider.userinfo = {}, {}, None
    ours = team.app.state.sign_on.provider
    ours._metadata = ours._keys = None
    team.context.credentials.limit(team.app.state.traffic.limits)
    team.context.audit._refusals = TokenBuckets(rate=0, burst=1)  # no limit: each test reads its own refusal
    for user in team.context.accounts.known():
        team.context.accounts.remove(user.name)


@pytest.fixture(name="browser")
def browser_fixture(team: Site) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=team.url, timeout=30.0, trust_env=False, verify=False) as client:
        yield client


def approved(browser: httpx.Client, path: str = "/") -> str:
    """The address to which the provider sends the browser back."""
    started = browser.get(START, params={"next": path})
    assert started.status_code == 303, started.text
    with httpx.Client(trust_env=False, verify=False) as elsewhere:
        return str(elsewhere.get(started.headers["location"]).headers["location"])


def signed_on(browser: httpx.Client, path: str = "/") -> httpx.Response:
    return browser.get(approved(browser, path))


def refused(answer: httpx.Response) -> str:
    """Back to the sign-in, with a sentence, and without a session."""
    assert answer.status_code == 303, answer.text
    address = urlsplit(answer.headers["location"])
    assert (address.netloc, address.path) == ("", "/login")
    assert not [line for line in answer.headers.get_list("set-cookie") if re.match(r"phalanx-[0-9a-f]{8}=", line)]
    return parse_qs(address.query)["why"][0]


def whoami(browser: httpx.Client) -> Any:
    answer = browser.get("/api/v1/session")
    return answer.json() if answer.status_code == 200 else None


def last_entry(site: Site) -> Any:
    """What the audit log says of the last sign-on."""
    return next(entry for entry in site.context.audit.last(10) if entry["kind"] == "sign-on")


# who comes in --------------------------------------------------------------------------------------------------------


def test_a_user_signs_on_and_has_the_roles_of_their_groups(
    team: Site, browser: httpx.Client, provider: FakeProvider
) -> None:
    assert browser.get("/api/v1/sign-on").json() == {"oidc": "single sign-on"}
    answer = signed_on(browser, "/runs?q=x")
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs?q=x"), last_entry(team)
    cookie = next(
        line for line in answer.headers.get_list("set-cookie") if line.startswith(team.context.sessions.cookie)
    )
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Max-Age=7200" in cookie
    assert whoami(browser) == {
        "name": "ana",
        "kind": "session",
        "role": None,
        "roles": {"vision": "editor"},
        "user": "ana",
        "token": None,
        "expires": None,
    }
    entry = last_entry(team)
    assert (entry["who"], entry["kind"], entry["action"]) == ("ana", "sign-on", f"GET {CALLBACK}")
    provider.claims["groups"] = ["staff", "root", "unknown", "*"]
    assert signed_on(browser).headers["location"] == "/"
    assert whoami(browser)["roles"] == {"*": "admin"}
    assert [user.name for user in team.context.accounts.known()] == ["ana"]


def test_signing_out_ends_the_session_on_the_server(team: Site, browser: httpx.Client) -> None:
    signed_on(browser)
    copied = {"Cookie": f"{team.context.sessions.cookie}={browser.cookies[team.context.sessions.cookie]}"}
    assert browser.delete("/api/v1/session", headers={"Origin": team.url}).status_code == 200
    assert team.client.get("/api/v1/session", headers=copied).status_code == 401


def signed_out(browser: httpx.Client, team: Site) -> Any:
    answer = browser.delete("/api/v1/session", headers={"Origin": team.url})
    assert answer.status_code == 200
    assert whoami(browser) is None
    return answer.json()["next"]


def test_signing_out_leads_to_the_sign_out_of_the_provider(
    team: Site, browser: httpx.Client, provider: FakeProvider
) -> None:
    provider.metadata = {"end_session_endpoint": f"{provider.issuer}/end"}
    answer = signed_on(browser)
    hint = next(line for line in answer.headers.get_list("set-cookie") if "-id=" in line)
    assert "HttpOnly" in hint
    assert "Path=/api/v1/session" in hint
    provider.end_session(signed_out(browser, team), f"{team.url}/login")
    assert signed_out(browser, team) is None, "there is no session any more"


@pytest.mark.parametrize(
    "metadata", [{}, {"end_session_endpoint": 7}, {"end_session_endpoint": "http://evil.example/end"}]
)
def test_without_a_usable_address_the_session_ends_here_only(
    team: Site, browser: httpx.Client, provider: FakeProvider, metadata: dict[str, Any]
) -> None:
    provider.metadata = metadata
    signed_on(browser)
    assert signed_out(browser, team) is None


def test_only_who_signed_on_at_the_provider_is_sent_there(
    team: Site, browser: httpx.Client, provider: FakeProvider
) -> None:
    provider.metadata = {"end_session_endpoint": f"{provider.issuer}/end"}
    signed_on(browser)
    team.context.accounts.add("local", PASSWORD, {"*": Role.VIEWER})
    body = {"user": "local", "password": PASSWORD}
    assert browser.post("/api/v1/session", json=body).status_code == 200
    assert signed_out(browser, team) is None
    signed_on(browser)
    ours = team.app.state.sign_on.provider
    ours.settings = ours.settings.model_copy(update={"sign_out": False})
    try:
        assert signed_out(browser, team) is None
    finally:
        ours.settings = ours.settings.model_copy(update={"sign_out": True})


def test_an_id_token_too_long_for_a_cookie_is_left_out(
    team: Site, browser: httpx.Client, provider: FakeProvider
) -> None:
    provider.metadata = {"end_session_endpoint": f"{provider.issuer}/end?tenant=1"}
    provider.claims["picture"] = "x" * 5000
    signed_on(browser)
    address = signed_out(browser, team)
    assert address.startswith(f"{provider.issuer}/end?tenant=1&client_id=")
    assert "id_token_hint" not in address


def test_a_session_ends_after_its_hours_and_with_its_user(
    team: Site, browser: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_on(browser)
    later = time.time() + 2 * 3600 + 5
    with monkeypatch.context() as patch:
        patch.setattr("phalanx.server.auth.sessions.time.time", lambda: later)
        assert whoami(browser) is None
    assert whoami(browser) is not None
    team.context.accounts.remove("ana")
    assert whoami(browser) is None


def test_a_new_key_of_the_provider_is_fetched_but_not_for_every_forgery(
    team: Site, browser: httpx.Client, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert signed_on(browser).headers["location"] == "/"
    ours = team.app.state.sign_on.provider
    provider.rotate()
    asked = provider.asked.count("/jwks")
    refused(signed_on(browser))  # the keys were read a moment ago
    assert provider.asked.count("/jwks") == asked
    monkeypatch.setattr(ours, "clock", lambda: time.monotonic() + oidc.RETRY_S + 1)
    assert signed_on(browser).headers["location"] == "/"
    assert provider.asked.count("/jwks") == asked + 1


def test_groups_and_names_may_come_from_the_user_information(browser: httpx.Client, provider: FakeProvider) -> None:
    provider.claims = {"sub": "7"}
    provider.userinfo = {"sub": "7", "preferred_username": "bo", "groups": "staff, other"}
    assert signed_on(browser).headers["location"] == "/"
    assert whoami(browser)["name"] == "bo"
    provider.userinfo = {"sub": "8", "preferred_username": "admin", "groups": "root"}
    refused(signed_on(browser))


def test_a_user_makes_a_token_for_the_command_line(team: Site, browser: httpx.Client) -> None:
    signed_on(browser)
    headers = {"Origin": team.url}
    made = browser.post("/api/v1/session/tokens", json={"role": "admin", "days": 2}, headers=headers).json()
    token = made["token"]
    who = team.ask("GET", "/api/v1/session", token).json()
    assert who["roles"] == {"vision": "editor"}, "a token never exceeds its user"
    assert [one["name"] for one in browser.get("/api/v1/session/tokens").json()["tokens"]] == [made["name"]]
    assert "token" not in browser.get("/api/v1/session/tokens").json()["tokens"][0]
    assert team.ask("POST", "/api/v1/session/tokens", token, json={}).status_code == 409, "a token makes no tokens"
    assert browser.post("/api/v1/session/tokens", json={}).status_code == 403, "not from another site"
    namesake = team.context.tokens.create("ana", "viewer")
    with httpx.Client(base_url=team.url, trust_env=False, verify=False) as other:
        assert other.post("/api/v1/session", json={"token": namesake}).status_code == 200
        answer = other.post("/api/v1/session/tokens", json={"role": "editor"}, headers=headers)
        assert answer.status_code == 409, "a session of a token with a user's name is not the user's"
    team.context.tokens.revoke("ana")
    assert browser.post("/api/v1/session/tokens", json={"days": 365}, headers=headers).status_code == 400
    assert browser.delete("/api/v1/session/tokens/tester", headers=headers).status_code == 404
    assert browser.delete(f"/api/v1/session/tokens/{made['name']}", headers=headers).json() == {"tokens": []}
    assert team.ask("GET", "/api/v1/session", token).status_code == 401
    assert (team.context.audit.last(2)[1]["who"], team.context.audit.last(2)[1]["outcome"]) == ("ana", 200)


# who only pretends ---------------------------------------------------------------------------------------------------


def unsigned(claims: Claims) -> str:
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(content: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def with_public_key(provider: FakeProvider) -> Callable[[Claims], str]:
    """HS256 with the public key as its secret, which everybody knows."""

    def sign(claims: Claims) -> str:
        content = f"{_part({'alg': 'HS256', 'kid': provider.keys[-1].kid})}.{_part(claims)}"
        mac = hmac.digest(provider.keys[-1].as_pem(private=False), content.encode(), hashlib.sha256)
        return f"{content}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"

    return sign


def with_other_key(provider: FakeProvider) -> Callable[[Claims], str]:
    """By somebody else, who says it was the provider's key."""
    stranger = FakeProvider()
    stranger.server.server_close()
    return stranger.signed


def cut(provider: FakeProvider) -> Callable[[Claims], str]:
    return lambda claims: provider.signed(claims)[:-8]


CLAIMS: dict[str, Claims] = {
    "another audience": {"aud": "another"},
    "no audience": {"aud": None},
    "several audiences": {"aud": [CLIENT, "another"]},
    "another party": {"azp": "another"},
    "another issuer": {"iss": "https://evil.example"},
    "another nonce": {"nonce": "guessed"},
    "no nonce": {"nonce": None},
    "expired": {"exp": 1_000_000_000},
    "no expiry": {"exp": None},
    "from the future": {"iat": 4_000_000_000},
    "no subject": {"sub": None},
    "no name": {"preferred_username": None},
    "a name with a line break": {"preferred_username": "ana\nadmin"},
    "a name that is none": {"preferred_username": ["ana"]},
}


@pytest.mark.parametrize("claims", CLAIMS.values(), ids=CLAIMS)
def test_claims_that_are_not_for_us_open_nothing(
    team: Site, browser: httpx.Client, provider: FakeProvider, claims: Claims
) -> None:
    provider.change = lambda told: {key: value for key, value in {**told, **claims}.items() if value is not None}
    refused(signed_on(browser))
    assert whoami(browser) is None
    assert team.context.accounts.known() == ()
    entry = last_entry(team)
    assert (entry["outcome"], entry["kind"], entry["who"]) == (403, "sign-on", None)
    assert entry["reason"]


@pytest.mark.parametrize("forged", [lambda _: unsigned, with_public_key, with_other_key, cut])
def test_signatures_that_are_not_the_providers_open_nothing(
    team: Site, browser: httpx.Client, provider: FakeProvider, forged: Callable[[FakeProvider], Callable[[Claims], str]]
) -> None:
    provider.sign = forged(provider)
    refused(signed_on(browser))
    assert whoami(browser) is None
    assert "ID token" in last_entry(team)["reason"]


def test_a_response_is_used_once_and_by_the_browser_that_started(
    team: Site, browser: httpx.Client, provider: FakeProvider
) -> None:
    address = approved(browser)
    with httpx.Client(base_url=team.url, trust_env=False, verify=False) as victim:
        refused(victim.get(address))  # of another browser: it would sign the victim in as the attacker
        approved(victim)  # nor with an attempt of its own
        refused(victim.get(address))
    address = approved(browser)
    kept = dict(browser.cookies)
    assert browser.get(address).headers["location"] == "/"
    refused(browser.get(address))  # the cookie of the attempt is gone
    with httpx.Client(base_url=team.url, trust_env=False, verify=False, cookies=kept) as thief:
        assert "used before" not in refused(thief.get(address))
        assert last_entry(team)["reason"] == "the state was used before"


@pytest.mark.parametrize("forged", ["another", "missing", "of another attempt", "cut"])
def test_a_response_with_another_state_is_refused_though_all_else_is_right(
    team: Site, browser: httpx.Client, provider: FakeProvider, forged: str
) -> None:
    """The code, the PKCE verifier and the nonce are those of this browser: the state alone refuses."""
    address = approved(browser)
    code, state = (parse_qs(urlsplit(address).query)[name][0] for name in ("code", "state"))
    states = {"another": "x" * len(state), "of another attempt": SignOnAttempt.new("/").state, "cut": state[:-1]}
    asked = provider.asked.count("/token")
    sent = {"code": code} | ({} if forged == "missing" else {"state": states[forged]})
    refused(browser.get(CALLBACK, params=sent))
    assert last_entry(team)["reason"] == "the state is not that of this browser"
    assert provider.asked.count("/token") == asked, "the code was not redeemed"
    assert whoami(browser) is None


def test_a_code_is_not_redeemed_twice(team: Site, browser: httpx.Client) -> None:
    code = parse_qs(urlsplit(approved(browser)).query)["code"][0]
    for _ in range(2):
        state = parse_qs(urlsplit(approved(browser)).query)["state"][0]
        with httpx.Client(base_url=team.url, trust_env=False, verify=False, cookies=dict(browser.cookies)) as client:
            answer = client.get(CALLBACK, params={"code": code, "state": state})
            refused(answer)  # also the first time: its PKCE verifier is that of another attempt
            assert "the provider refused" in last_entry(team)["reason"]


def test_forged_and_old_attempts_are_refused(
    team: Site, browser: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{team.context.sessions.cookie}-sign-on"
    mine = SignOnAttempt.new("/")
    forged = [mine.sealed(b"another key"), "", "x", "x.y", "é.é", mine.sealed(team.context.sessions.key)[:-1]]
    for value in forged:
        headers = [(b"Cookie", f"{name}={value}".encode())]
        refused(team.client.get(CALLBACK, params={"code": "x", "state": mine.state}, headers=headers))
    address = approved(browser)
    kept = {"Cookie": f"{name}={browser.cookies[name]}"}  # a browser forgets it, but an attacker does not
    later = time.time() + 700
    monkeypatch.setattr("phalanx.server.auth.oidc.time.time", lambda: later)
    refused(team.client.get(address, headers=kept))
    assert "longer than" in last_entry(team)["reason"]


def test_responses_of_another_issuer_are_refused(browser: httpx.Client, provider: FakeProvider, team: Site) -> None:
    """A mix-up of providers: https://www.rfc-editor.org/rfc/rfc9207"""
    provider.more = {"iss": "https://evil.example"}
    refused(signed_on(browser))
    assert "another issuer" in last_entry(team)["reason"]
    provider.more, provider.metadata = {}, {"authorization_response_iss_parameter_supported": True}
    team.app.state.sign_on.provider._metadata = None
    refused(signed_on(browser))
    provider.more = {"iss": provider.issuer}
    assert signed_on(browser).headers["location"] == "/"


def test_a_provider_that_describes_another_is_not_used(
    browser: httpx.Client, provider: FakeProvider, team: Site
) -> None:
    provider.metadata = {"issuer": "https://evil.example"}
    refused(browser.get(START))
    assert last_entry(team)["outcome"] == 503


@pytest.mark.parametrize("response", [{"error": "access_denied"}, {}, {"code": ""}, {"code": "wrong"}])
def test_a_provider_that_refuses_opens_nothing(team: Site, browser: httpx.Client, response: dict[str, str]) -> None:
    state = parse_qs(urlsplit(approved(browser)).query)["state"][0]
    refused(browser.get(CALLBACK, params={"state": state, **response}))
    assert whoami(browser) is None


@pytest.mark.parametrize(
    "path",
    [
        *("https://evil.example", "//evil.example", "/\\evil.example", "\\\\evil.example", "/\t/evil.example"),
        *("javascript:alert(1)", "/a\nb", "/\r\nSet-Cookie: x=1", "", "evil", "/ü", "/" + "a" * 3000, "/a\\..\\b"),
    ],
)
def test_a_sign_on_leads_to_no_other_site(path: str) -> None:
    assert local_path(path) == "/"


def test_where_a_sign_on_leads_is_a_path_of_the_page(browser: httpx.Client) -> None:
    assert signed_on(browser, "//evil.example/x").headers["location"] == "/"


def test_a_session_that_was_there_before_does_not_go_on(team: Site, browser: httpx.Client) -> None:
    """An attacker may have put it there, to see what the victim does in it."""
    team.context.accounts.add("eve", PASSWORD, {"*": Role.VIEWER})
    team.context.accounts.add("fix", PASSWORD, {"*": Role.VIEWER})
    planted = team.context.sessions.open("user", "eve")
    browser.cookies.set(team.context.sessions.cookie, planted)
    answer = signed_on(browser)
    assert answer.headers["location"] == "/"
    assert planted not in str(answer.headers)
    assert team.context.sessions.identify(planted) is None


def test_no_one_takes_over_an_account_by_its_name(team: Site, browser: httpx.Client, provider: FakeProvider) -> None:
    team.context.accounts.add("Ana", PASSWORD, {"*": Role.ADMIN})
    assert "already exists" in refused(signed_on(browser))
    team.context.accounts.remove("Ana")
    signed_on(browser)
    provider.claims["sub"] = "2"  # another person with the same name
    with httpx.Client(base_url=team.url, trust_env=False, verify=False) as other:
        assert "already exists" in refused(signed_on(other))
    provider.claims |= {"sub": "1", "preferred_username": "renamed"}
    signed_on(browser)
    assert whoami(browser)["name"] == "ana", "the same person, whose tokens go on"


def test_who_signs_on_has_no_password(team: Site, browser: httpx.Client) -> None:
    signed_on(browser)
    for password in ("", team.context.accounts.get("ana").hash, PASSWORD):
        body = {"user": "ana", "password": password}
        assert browser.post("/api/v1/session", json=body).status_code in (400, 401)
    with pytest.raises(CallError, match="has no password"):
        team.context.accounts.set_password("ana", PASSWORD)


def test_who_is_in_no_group_of_ours_does_not_come_in(team: Site, browser: httpx.Client, provider: FakeProvider) -> None:
    for groups in ([], ["*"], ["Vision"], "other", {"vision": 1}, None):
        provider.claims["groups"] = groups
        assert "no role" in refused(signed_on(browser))
    assert team.context.accounts.known() == ()


def test_attempts_without_end_are_stopped(team: Site, browser: httpx.Client, provider: FakeProvider) -> None:
    asked = len(provider.asked)
    statuses = [team.client.get(CALLBACK, params={"code": "x", "state": "y"}).status_code for _ in range(30)]
    assert statuses[-1] == 429
    assert len(provider.asked) == asked, "none of them reached the provider"


# settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "cannot read"),
        ("{}", "roles"),
        ("roles: [{group: a, role: viewer}]", "`oidc` or `proxy`"),
        ("roles: [{group: a, role: boss}]\nproxy: {addresses: [127.0.0.1]}", "roles are viewer, editor, admin"),
        ("roles: [{group: a, role: viewer}]\nproxy: {addresses: [here]}", "proxy.addresses.0"),
        ("roles: [{group: a, role: viewer}]\nproxy: {addresses: [127.0.0.1], usr: x}", "proxy.usr"),
        (
            "roles: [{group: a, role: viewer}]\noidc: {issuer: 'http://a.example', client_id: x, url: 'https://b'}",
            "oidc.issuer`: must be an https:// address",
        ),
        ("roles: [{group: a, role: viewer}]\nsession_hours: 1000\nproxy: {addresses: ['::1']}", "session_hours"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "sign-on.yml").write_text(text)
    with pytest.raises(CallError, match=re.escape(said)) as fault:
        read_settings(tmp_path / "sign-on.yml")
    assert str(tmp_path) in str(fault.value)


@pytest.mark.slow
def test_serve_names_what_is_missing(tmp_path: Path) -> None:
    """One sentence, and no server."""
    path = written(tmp_path, "http://127.0.0.1:1")
    (tmp_path / "client.secret").unlink()
    answer = called("serve", "--port", "0", "--sign-on", str(path), PHALANX_HOME=str(tmp_path / "home"))
    assert answer.code == 2
    assert "client.secret" in answer.err
    blocked = tmp_path / "joserfc"
    blocked.mkdir()
    (blocked / "__init__.py").write_text("raise ImportError('blocked')")
    answer = called(
        "serve", "--port", "0", "--sign-on", str(path), PHALANX_HOME=str(tmp_path / "home"), PYTHONPATH=str(tmp_path)
    )
    assert answer.code == 2
    assert "pip install 'phalanx[oidc]'" in answer.err
    assert "Traceback" not in answer.err
