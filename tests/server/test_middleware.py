"""Nobody is answered without a token, and nobody does more than their token says."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Iterator

import httpx
import pytest

from phalanx.server.auth.credentials import shown_in
from phalanx.server.http.responses import RequestError
from phalanx.server.middleware import check_host
from phalanx.server.mlflow.calls import CALLS
from phalanx.server.policy import POLICY, Rule, leaves
from tests.server.site import API, Site

OPEN = {key for key, rule in POLICY.items() if rule is Rule.OPEN}
# Viewers may write what is only theirs: stars, saved views, tokens, boards
OWN = {key for key, rule in POLICY.items() if rule in (Rule.PERSONAL, Rule.SIGNED_IN)}
CATCH_ALL = "/mlflow/{path:path}"


def routes(site: Site) -> Iterator[tuple[str, str]]:
    """Every method and path of the application, with something in the place of parameters."""
    found = list(leaves(site.app.routes))
    assert len(found) > 40
    for route in found:
        for method in sorted(route.methods or ()):
            yield method, route.path.replace("{attempt}", "1").replace("{replica}", "master-0")


def filled(path: str) -> str:
    return re.sub(r"\{[^}]+\}", "x", path)


def test_nothing_but_what_the_table_opens_is_answered_without_a_token(site: Site) -> None:
    for method, path in routes(site):
        answer = site.client.request(method, filled(path))
        is_open = ("GET" if method == "HEAD" else method, path) in OPEN
        assert (answer.status_code == 401) == (not is_open), (method, path, answer.text)


def test_calls_of_mlflow_are_not_answered_without_a_token_either(site: Site) -> None:
    for method, path in CALLS:
        answer = site.client.request(method, f"{API}/{path.replace('*', 'x')}")
        assert answer.status_code == 401, (method, path)
        assert answer.json()["error_code"] == "UNAUTHENTICATED"


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/api/v1/openapi.json", "/nothing", "/api/v1/../healthz"])
def test_what_is_not_there_needs_a_token_too(site: Site, path: str) -> None:
    assert site.client.get(path).status_code in (401, 200 if path.endswith("healthz") else 401)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic !!!", "Digest x", "bearer\twrong"])
def test_an_odd_header_is_no_token(site: Site, header: str) -> None:
    answer = site.client.get("/api/v1/runs", headers={"Authorization": header})
    assert answer.status_code == 401
    assert "token" in answer.json()["error"]["message"]


def test_a_token_comes_as_a_bearers_or_as_a_password(site: Site) -> None:
    assert site.client.get("/api/v1/runs", headers={"Authorization": f"bearer {site.token}"}).status_code == 200
    assert site.client.get("/api/v1/runs", auth=("anyone", site.token)).status_code == 200
    assert site.client.get("/api/v1/runs", auth=(site.token, "")).status_code == 401


def test_a_password_may_have_a_colon() -> None:
    assert shown_in("Basic " + base64.b64encode(b"me:a:b").decode()) == ("me", "a:b")


def test_a_token_that_is_revoked_is_refused_at_once(site: Site) -> None:
    other = site.context.tokens.create("other")
    assert site.ask("GET", "/api/v1/runs", other).status_code == 200
    site.context.tokens.revoke("other")
    assert site.ask("GET", "/api/v1/runs", other).status_code == 401


def test_who_may_only_read_writes_nothing(site: Site) -> None:
    reader, run_id = site.context.tokens.create("reader", "read"), site.begin()
    tried = 0
    for method, path in routes(site):
        if method in ("GET", "HEAD") or path.endswith(CATCH_ALL) or (method, path) in OPEN | OWN:
            continue
        address = filled(
            path.replace("{run_id}", run_id).replace("artifacts/{path:path}", f"artifacts/{run_id}/artifacts/x")
        )
        answer = site.ask(method, address, reader, content=b"{}")
        assert answer.status_code == (501 if "/mpu/" in path else 403), (method, path, answer.text)
        tried += 1
    assert tried >= 9
    assert not (site.folder(run_id) / "artifacts" / "x").exists()


def test_who_may_only_read_calls_nothing_of_mlflow_that_writes(site: Site) -> None:
    reader, run_id = site.context.tokens.create("reader-of-mlflow", "read"), site.begin()
    fields = {
        "run_id": run_id,
        "experiment_id": "0",
        "key": "k",
        "value": "1",
        "name": "n",
        "version": "1",
        "alias": "a",
    }
    writing = [key for key, entry in CALLS.items() if not entry.reads]
    assert len(writing) > 35
    for method, path in writing:
        answer = site.mlflow_answer(method, path.replace("*", "m-x"), fields, token=reader)
        assert answer.status_code == 403, (method, path, answer.text)
        assert answer.json()["error_code"] == "PERMISSION_DENIED"
    assert "k" not in site.tags(run_id)


def test_every_call_that_writes_was_distinguished_from_those_that_read() -> None:
    """A new call is taken for one that writes unless it says otherwise: these are all that do."""
    reading = {path for (_, path), entry in CALLS.items() if entry.reads}
    words = ("get", "list", "search", "alias", "artifacts/directories", "logged-models/*")
    assert all(any(word in path for word in words) for path in reading)
    assert not any(method in ("PATCH", "DELETE") for (method, _), entry in CALLS.items() if entry.reads)


# tokens of runs -----------------------------------------------------------------------------------------------------


def test_a_runs_token_reads_and_writes_that_run_alone(site: Site) -> None:
    mine, other = site.begin(), site.begin()
    token = site.run_token(mine)
    assert site.ask("GET", f"/api/v1/runs/{mine}", token).status_code == 200
    assert site.ask("GET", f"/api/v1/runs/{other}", token).status_code == 403
    assert site.ask("GET", "/api/v1/runs", token).status_code == 403
    assert site.ask("GET", "/api/v1/models", token).status_code == 403
    assert site.ask("POST", "/api/v1/runs", token, json={}).status_code == 403
    assert site.ask("PATCH", f"/api/v1/runs/{other}", token, json={"name": "x"}).status_code == 403
    assert site.ask("PATCH", f"/api/v1/runs/{mine}", token, json={"name": "x"}).status_code == 200
    first, second = (f"/api/v1/runs/{mine}/files/replicas/master-0/attempt-{n}/a.points" for n in (1, 2))
    assert site.ask("PUT", first, token, content=b"x").status_code == 200
    assert site.ask("PUT", second, token, content=b"x").status_code == 403


def test_a_runs_token_is_of_no_use_at_the_plain_address_of_mlflow(site: Site) -> None:
    mine = site.begin()
    for method, path in CALLS:
        answer = site.mlflow_answer(method, path.replace("*", "x"), {"run_id": mine}, token=site.run_token(mine))
        assert answer.status_code == 403, (method, path)


def test_a_run_does_not_delete_itself_through_mlflow(site: Site) -> None:
    mine = site.begin()
    for call in ("runs/delete", "runs/restore"):
        fields, prefix = {"run_id": mine}, f"/tracked/{mine}/1/master-0"
        answer = site.mlflow_answer("POST", call, fields, prefix, site.run_token(mine))
        assert (answer.status_code, answer.json()["error_code"]) == (403, "PERMISSION_DENIED")
    assert site.run(mine)["info"]["lifecycle_stage"] == "active"


def test_a_runs_token_calls_nothing_that_writes_elsewhere(site: Site) -> None:
    mine, other = site.begin(), site.begin()
    prefix, token = f"/tracked/{mine}/1/master-0", site.run_token(mine)
    fields = {
        "run_id": other,
        "source_run_id": other,
        "status": 2,
        "experiment_id": "0",
        "key": "k",
        "value": "1",
        "name": "n",
        "version": "1",
        "alias": "a",
    }
    harmless = {"runs/create", "registered-models/create", "experiments/create", "experiments/set-experiment-tag"}
    for method, path in [key for key, entry in CALLS.items() if not entry.reads and key[1] not in harmless]:
        answer = site.mlflow_answer(method, path.replace("*", "m-x"), fields, prefix, token)
        assert answer.status_code in (403, 404), (method, path, answer.text)
    assert "k" not in site.tags(other)
    upload = site.ask("PUT", f"{prefix}/api/2.0/mlflow-artifacts/artifacts/{other}/artifacts/x", token, content=b"x")
    assert upload.status_code == 403


@pytest.mark.parametrize(
    "prefix", ["/tracked/{other}/1/master-0", "/tracked/{mine}/2/master-0", "/tracked/{mine}/x/master-0"]
)
def test_a_runs_token_opens_no_other_prefix(site: Site, prefix: str) -> None:
    mine, other = site.begin(), site.begin()
    place = prefix.format(mine=mine, other=other)
    answer = site.mlflow_answer("GET", "runs/get", {"run_id": mine}, place, site.run_token(mine))
    assert answer.status_code in (403, 404)


# hosts and pages ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "a b", "[::1", "@"]
)
def test_other_hosts_are_not_answered_for(host: str) -> None:
    with pytest.raises(RequestError) as refusal:
        check_host(host, frozenset(["localhost"]))
    assert refusal.value.status == 421


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:8000", "10.1.2.3", "[::1]:80", "[fe80::1%25eth0]"]
)
def test_this_machine_and_bare_addresses_are_answered_for(host: str) -> None:
    check_host(host, frozenset(["localhost"]))


def test_a_page_that_leads_its_own_name_here_is_not_answered(site: Site) -> None:
    headers = {"Host": "evil.example", "Authorization": f"Bearer {site.token}"}
    assert site.client.get("/api/v1/runs", headers=headers).status_code == 421
    assert site.client.get("/healthz", headers={"Host": "evil.example"}).status_code == 421
    assert site.client.get("/healthz", headers={"Host": socket.gethostname()}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_are_refused_even_with_a_token(site: Site, headers: dict[str, str]) -> None:
    answer = site.ask("POST", "/api/v1/runs", json={}, headers=headers)
    assert answer.status_code == 403
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_the_page_of_this_server_is_not(site: Site) -> None:
    headers = {"Origin": site.url, "Sec-Fetch-Site": "same-origin"}
    assert site.ask("POST", "/api/v1/runs", json={}, headers=headers).status_code == 201


def test_no_other_site_gets_permission_to_ask(site: Site) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answer = site.client.options("/api/v1/runs", headers=headers)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_browser_is_never_asked_for_a_password(site: Site) -> None:
    """It would send it along with whatever other sites ask for."""
    assert "WWW-Authenticate" not in site.client.get("/api/v1/runs").headers


# faults -------------------------------------------------------------------------------------------------------------


def test_a_fault_of_ours_is_reported_without_its_place(
    site: Site, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret thought")

    monkeypatch.setattr(site.context, "find", broken)
    answer = site.ask("GET", "/api/v1/runs/abcd")
    assert answer.status_code == 500
    assert set(answer.json()) == {"error"}
    assert "secret thought" not in answer.text
    assert "Traceback" not in answer.text
    output = capfd.readouterr().err
    assert "ZeroDivisionError: secret thought" in output
    assert site.token not in output


def test_addresses_that_do_not_exist_are_reported(site: Site) -> None:
    answer = site.ask("GET", "/api/v1/nothing")
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "no such path")
    answer = site.ask("DELETE", "/api/v1/runs")
    assert answer.status_code == 405
    assert answer.json()["error"]["message"] == "this path does not support that method"


def test_there_are_no_web_sockets(site: Site) -> None:
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "x", "Sec-WebSocket-Version": "13"}
    assert site.client.get("/api/v1/runs", headers=headers).status_code == 401


def test_all_that_can_be_asked_is_reported_in_openapis_words(site: Site) -> None:
    answer = site.get("/api/v1/openapi.json")
    assert answer["info"]["title"] == "Phalanx"
    assert {"/api/v1/runs", "/api/v1/runs/{run_id}/metrics/series", "/api/v1/models"} <= set(answer["paths"])
    assert not [path for path in answer["paths"] if "mlflow" in path]


def test_a_connection_that_breaks_off_hurts_no_one(site: Site) -> None:
    host, port = site.listening.getsockname()
    for part in (
        b"GET",
        b"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc",
        b"\x16\x03\x01\x00",
    ):
        with socket.create_connection((host, port)) as broken:
            broken.sendall(part)
    assert httpx.get(f"{site.url}/healthz", trust_env=False).status_code == 200
