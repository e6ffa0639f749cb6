"""What can go wrong between a client and a server, and what the user is told."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from phalanx import Client
from phalanx.client import RequestRefused, ServerUnreachable
from phalanx.client.live_events import LiveEvent, parsed
from phalanx.errors import CallError
from tests.client.answers import Said, said, somebody
from tests.server.site import Site

RUNS = {"count": 0, "runs": []}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_a_token_that_no_one_knows_is_reported_with_what_to_do(site: Site) -> None:
    with (
        Client(site.url, "wrong") as client,
        pytest.raises(RequestRefused, match=r"rejected the token.*phalanx login"),
    ):
        client.runs()
    with Client(site.url, "-") as client:
        assert client.is_there()


def test_no_one_answers(site: Site) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with Client(url, "x") as client, pytest.raises(ServerUnreachable, match=f"cannot connect to {url}"):
        client.runs()


@pytest.mark.parametrize("status", [200, 404])
def test_what_is_not_phalanx_is_reported_as_such(status: int) -> None:
    with (
        somebody(lambda *_: Said(status, b"<html>", {"Content-Type": "text/html"})) as (url, _),
        Client(url, "x") as client,
        pytest.raises(CallError, match="is not Phalanx"),
    ):
        client.runs()


def test_a_server_that_is_too_old_is_reported_as_such() -> None:
    body = {"error": {"message": "no such path", "hint": "GET …"}}
    with (
        somebody(lambda *_: said(404, body)) as (url, _),
        Client(url, "x") as client,
        pytest.raises(RequestRefused, match=r"runs an older Phalanx.*upgrade the server"),
    ):
        client.queue()


def test_a_token_goes_to_no_one_else() -> None:
    with somebody(lambda *_: said(200, RUNS)) as (other, asked):
        with (
            somebody(lambda *_: said(302, {}, Location=other)) as (url, _),
            Client(url, "secret") as client,
            pytest.raises(CallError, match="redirects to"),
        ):
            client.runs()
        assert asked == []


def test_what_only_reads_is_asked_again_when_the_server_is_busy() -> None:
    with somebody(lambda _, __, count: said(200, RUNS) if count == 2 else said(503, {})) as (url, asked):
        with Client(url, "x") as client:
            assert client.runs() == []
        assert len(asked) == 3


def test_what_changes_something_is_asked_once() -> None:
    with somebody(lambda *_: said(503, {"error": {"message": "the disk is full"}})) as (url, asked):
        with Client(url, "x") as client, pytest.raises(ServerUnreachable, match="the disk is full"):
            client.submit([("f.yml", "version: 1")])
        assert asked == [("POST", "/api/v1/runs/submit")]


def test_one_that_is_asked_to_wait_waits_and_asks_again() -> None:
    body = {"error": {"message": "too many requests"}}
    with somebody(lambda _, __, n: said(200, {"removed": []}) if n else said(429, body, Retry_After="1")) as (
        url,
        asked,
    ):
        with Client(url, "x") as client:
            client._ids.add("abc")
            client.delete("abc")
        assert [method for method, _ in asked] == ["DELETE", "DELETE"]


def test_what_the_server_says_is_reported_with_its_hint() -> None:
    with (
        somebody(lambda *_: said(403, {"error": {"message": "no", "hint": "ask somebody"}})) as (url, _),
        Client(url, "x") as client,
        pytest.raises(RequestRefused, match="no: ask somebody") as raised,
    ):
        client.runs()
    assert (raised.value.status, raised.value.hint) == (403, "ask somebody")


def test_a_certificate_that_no_one_vouches_for_is_refused(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl on this machine")
    names = ["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem", "-days", "1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    listening = socket.create_server(("127.0.0.1", 0))

    def greet() -> None:
        plain, _ = listening.accept()
        with plain:
            try:
                context.wrap_socket(plain, server_side=True).close()
            except (ssl.SSLError, OSError):
                return

    thread = threading.Thread(target=greet, daemon=True)
    thread.start()
    with listening, Client(f"https://localhost:{listening.getsockname()[1]}", "x") as client:
        with pytest.raises(CallError, match=r"certificate of .* is not trusted: self.signed certificate"):
            client.runs()
        thread.join(5)


def test_https_to_a_server_without_it_is_reported_as_such(site: Site) -> None:
    url = site.url.replace("http://", "https://")
    with Client(url, "x") as client, pytest.raises(CallError, match=r"TLS handshake .* failed.*use http://"):
        client.runs()


def test_events_are_read_and_everything_else_passed_over() -> None:
    lines = [
        ": comment",
        "event: run",
        'data: {"id":',
        'data: "x"}',
        "",
        "data: no json",
        "",
        "event: gone",
        "",
        "id: 7",
    ]
    assert list(parsed(lines)) == [LiveEvent("run", {"id": "x"})]


@pytest.mark.slow
def test_a_server_that_is_away_for_a_while_is_waited_for() -> None:
    row = {"id": "abc", "status": "running", "attempt": 1}
    line = {"at": 1.0, "replica": "master-0", "rank": 0, "text": "hello", "replicas": ["master-0"]}
    page = {"attempt": 1, "lines": [line], "first": "f", "last": "l", "at_start": True, "at_end": True}

    def answer(_: str, path: str, count: int) -> Said:
        if 1 <= count <= 3:  # all tries of one question
            return said(503, {})
        if "/lines" in path:
            return said(200, {**page, "lines": []} if "after=l" in path else page)
        return said(200, {"count": 1, "runs": [{**row, "status": "succeeded"} if count > 4 else row]})

    with somebody(answer) as (url, asked), Client(url, "x") as client:
        client._ids.add("abc")
        assert [line.text for line in client.follow("abc")] == ["hello"]
    assert len(asked) > 5
