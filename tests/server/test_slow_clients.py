"""Clients that send a part of a request and wait: they must hold nothing that others need."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from phalanx.server.auth.rate_limits import RateLimits
from phalanx.server.http import body_pace
from tests.server.site import API, Site

SEARCH = f"{API}/runs/search"
FEW = RateLimits(costly=2, waiting=2, patience_s=0.5)


@pytest.fixture(name="narrow")
def narrow_site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, limits=FEW) as site:
        yield site


def half_sent(site: Site, method: str, path: str, length: int = 1000, sent: bytes = b"{") -> socket.socket:
    """A request of which only the beginning of the body was sent."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {site.token}\r\n"
    connection = socket.create_connection(site.listening.getsockname(), timeout=30)
    connection.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + sent)
    return connection


@contextmanager
def crowd(site: Site, method: str, path: str, count: int = 8) -> Iterator[list[socket.socket]]:
    with ExitStack() as held:
        yield [held.enter_context(half_sent(site, method, path)) for _ in range(count)]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def everything(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    found = b""
    while piece := connection.recv(65536):
        found += piece
    return found


@pytest.mark.parametrize(("method", "path"), [("POST", SEARCH), ("POST", "/api/v1/snapshots")])
def test_half_sent_bodies_hold_no_slot(narrow: Site, method: str, path: str) -> None:
    run_id = narrow.begin()
    with crowd(narrow, method, path):
        for _ in range(3):
            assert narrow.ask("GET", f"/api/v1/runs/{run_id}/chart?name=loss").status_code == 200
            assert narrow.mlflow_answer("POST", "runs/search", {"experiment_ids": ["0"]}).status_code == 200


def test_a_body_that_pauses_is_answered_and_closed(narrow: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_pace, "PAUSE_S", 0.2)
    with crowd(narrow, "POST", SEARCH, 3) as connections:
        for connection in connections:
            answer = everything(connection)
            assert answer.startswith(b"HTTP/1.1 408 "), answer
            assert b"arrives too slowly" in answer


def test_a_client_that_leaves_is_no_failure_of_the_server(narrow: Site, capfd: pytest.CaptureFixture[str]) -> None:
    memory = narrow.app.state.traffic.memory
    with half_sent(narrow, "POST", SEARCH):
        wait_for(lambda: memory.used == 1)
    wait_for(lambda: memory.used == 0)
    assert narrow.client.get("/healthz").status_code == 200
    assert capfd.readouterr().err == ""


def test_a_body_that_drips_is_answered_and_closed(narrow: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_pace, "GRACE_S", 0.2)
    run_id = narrow.begin()
    path = f"/api/v1/runs/{run_id}/files/artifacts/x?whole=1"
    with half_sent(narrow, "PUT", path) as connection:
        deadline = time.monotonic() + 30
        connection.settimeout(0.05)
        while time.monotonic() < deadline:
            connection.sendall(b"x")
            try:
                answer = connection.recv(65536)
                break
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408 "), answer
    assert not list(narrow.folder(run_id).rglob("*.draft"))


def test_the_rest_of_a_body_that_is_refused_is_not_read(narrow: Site) -> None:
    with half_sent(narrow, "POST", SEARCH, length=1 << 30) as connection:
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()


def test_headers_without_an_end_are_closed(narrow: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_pace, "HEADERS_S", 0.3)
    heads = (b"", b"GET /heal", b"GET /healthz HTTP/1.1\r\nHost: local")
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as held:
        for head in (*heads, whole + heads[-1]):
            connection = held.enter_context(socket.create_connection(narrow.listening.getsockname(), timeout=30))
            connection.sendall(head)
            assert everything(connection).count(b"HTTP/1.1 200 ") == (head.startswith(whole))


def test_a_request_may_take_longer_than_its_headers(narrow: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_pace, "HEADERS_S", 0.2)
    with half_sent(narrow, "POST", SEARCH, length=2) as connection:
        time.sleep(0.5)  # longer than the limit for headers
        connection.sendall(b"}")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_what_is_not_http_is_answered_like_every_other_error(site: Site) -> None:
    with socket.create_connection(site.listening.getsockname(), timeout=20) as client:
        client.sendall(b"\x16\x03\x01 hello\r\n\r\n")  # as a client does that thinks it is TLS
        head, _, body = b"".join(iter(lambda: client.recv(4096), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"Content-Type: application/json" in head
    assert json.loads(body)["error"]["message"] == "the request cannot be read"
