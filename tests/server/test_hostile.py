"""Whoever may ask, and means harm: paths that lead out, addresses that the server should fetch, odd requests."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from phalanx.server.policy import Rule
from phalanx.spool import JSON, frame
from tests.server.people import filled, routes
from tests.server.site import Site

PLANTED = "what nobody may fetch"
UP = ("..", "%2e%2e", ".%2E", "%252e%252e", "..%00", "..%5c", "%c0%ae%c0%ae", "..;")


@pytest.fixture(scope="module")
def run_id(site: Site, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run with links out of its folder, at every place that an address can name."""
    found = site.begin()
    site.run_token(found)  # makes the secret
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text(PLANTED)
    (site.home.path / "secret").write_text(PLANTED)
    folder = site.folder(found)
    (folder / "secret").write_text(PLANTED)
    for place in ("outputs", "artifacts", "models", "replicas/master-0/attempt-1/media"):
        (folder / place).mkdir(parents=True, exist_ok=True)
        (folder / place / "file").write_text("fine")
        (folder / place / "link").symlink_to(outside / "secret")
        (folder / place / "way").symlink_to(outside)
        (folder / place / "up").symlink_to("../" * (place.count("/") + 1))
        (folder / place / "loop").symlink_to("loop")
        (folder / place / "absolute").symlink_to("/etc")
        os.mkfifo(folder / place / "pipe")
    (site.attempt(found) / "log").unlink(missing_ok=True)
    (site.attempt(found) / "log").symlink_to(outside / "secret")
    return found


def hostile(site: Site, tops: Iterable[str]) -> Iterator[str]:
    """As they stand in an address, most of them quoted already."""
    home = str(site.home.path)
    for top in tops:
        yield from (f"{top}{name}" for name in ("link", "way/secret", "up/secret", "loop", "absolute/passwd", "pipe"))
        yield from (f"{top}{f'{up}/' * depth}secret" for up in UP for depth in (1, 2))
        yield from (
            f"{top}{way}" for way in ("%2e%2e%2fsecret", "..%2f..%2fsecret", "..%5csecret", "file/../../secret")
        )
        yield f"{top}file%00.txt"
    yield from (f"{home}/secret", f"/{home}/secret", f"%2f{quote(home, safe='')}%2fsecret")
    yield from ("%2fetc%2fpasswd", "file:///etc/passwd", "//etc/passwd", "C:%5cwindows", "~root", "~")
    yield from ("a" * 300, "a/" * 500, "%ff%fe", "%", "%zz", "%00", "%0a", "%0d%0aX-Injected: 1", "\u202e", "x" * 5000)
    yield from ("token", "tokens.json", "server.secret", "run.json", "plan.json", "history")


def _has_files(template: str) -> bool:
    return "/mlflow/" not in template and "ajax" not in template and "/presigned/" not in template


def tops_of(template: str, run_id: str) -> tuple[str, ...]:
    """Where an address begins to name files."""
    if "mlflow" in template:
        return f"{run_id}/artifacts/", "~models/x/1/"
    return ("",) if "media" in template else ("outputs/", "artifacts/")


def asked(site: Site, method: str, path: str, body: bytes = b"") -> tuple[int, bytes, dict[str, str]]:
    """With the path exactly as it is written, as the owner, who may see everything that can be seen."""
    host, port = site.listening.getsockname()
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.putrequest(method, quote(path, safe="/%:;?=&+~.{}!$'()*,@#[]\\-_"))
        connection.putheader("Authorization", f"Bearer {site.token}")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return answer.status, b"", {}
        return answer.status, answer.read(), dict(answer.headers)
    finally:
        connection.close()


@pytest.mark.slow
def test_no_address_leads_out_of_a_runs_folder(site: Site, run_id: str) -> None:
    kept = [(site.home.path / name).read_bytes() for name in ("tokens.json", "server.secret")]
    tried = set()
    for method, template, rule in routes(site):
        before = template.partition("{path:path}")[0].partition("{name:path}")[0]
        # Calls of MLflow have no files in their paths, and what is at both of its addresses is the same.
        if method != "GET" or before == template or rule is Rule.OPEN or not _has_files(template):
            continue
        for path in hostile(site, tops_of(template, run_id)):
            status, body, headers = asked(site, method, f"{filled(before, run_id)}{path}")
            assert status < 500 or status == 501, (template, path, status, body)
            assert PLANTED.encode() not in body, (template, path)
            assert b"root:" not in body, (template, path)
            assert not any(secret in body for secret in kept), (template, path)
            assert "X-Injected" not in headers
            tried.add(template)
    assert len(tried) >= 6


def test_nothing_is_written_or_removed_out_of_a_runs_folder(site: Site, run_id: str) -> None:
    def state() -> dict[str, bytes]:
        folder = site.folder(run_id)
        return {
            str(path): path.read_bytes()
            for path in site.home.path.rglob("*")
            if path.is_file()
            and not path.is_symlink()
            and not {folder / "artifacts", folder / "models"} & set(path.parents)
            and not path.name.startswith(("phalanx.db", "audit.log"))
            and path.suffix not in (".events", ".points", ".lock")
            and path.name != "ballast"
        }

    before = state()
    for base in (f"/api/v1/runs/{run_id}/files/", "/api/2.0/mlflow-artifacts/artifacts/"):
        for path in hostile(site, tops_of(base, run_id)):
            for method in ("PUT",) if "/files/" in base else ("PUT", "DELETE"):
                if method == "DELETE" and path.rstrip("/").endswith(("artifacts", "models")):
                    continue
                status, body, _ = asked(site, method, f"{base}{path}", b"evil")
                assert status < 500 or status in (501, 507), (method, base, path, body)
    assert state() == before


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "..%2f..", "x" * 300, "master-0%2f..", "%00", "worker--1", "é", "*", "master-0%0a"]
)
def test_names_in_addresses_are_names(site: Site, run_id: str, name: str) -> None:
    """Of runs, replicas and attempts: they become parts of paths."""
    tried = 0
    for method, template, _ in routes(site):
        for parameter in ("{run_id}", "{replica}", "{attempt}"):
            if parameter in template and method in ("GET", "PUT") and "ajax" not in template:
                path = filled(template.replace(parameter, name), run_id)
                status, body, _ = asked(site, method, path, b"{}")
                assert status < 500 or status == 501, (method, path, status, body)
                assert PLANTED.encode() not in body
                assert status != 200 or method == "GET", (method, path, body)
                tried += 1
    assert tried > 30


# nothing is fetched -------------------------------------------------------------------------------------------------


@pytest.fixture
def trap() -> Iterator[tuple[str, list[bytes]]]:
    """An address, and what was asked for there."""
    heard: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def listen() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(1)
                heard.append(connection.recv(1000))

    thread = threading.Thread(target=listen)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/x", heard
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_the_server_fetches_nothing_that_a_client_names(own_site: Site, trap: tuple[str, list[bytes]]) -> None:
    site, (url, heard) = own_site, trap
    named = {"name": "e", "artifact_location": url}
    experiment = str(site.mlflow("POST", "experiments/create", named)["experiment_id"])
    run_id = site.begin(experiment, tags=[{"key": "mlflow.source.name", "value": url}])
    site.mlflow("GET", "artifacts/list", {"run_id": run_id})
    site.mlflow("POST", "registered-models/create", {"name": "m"})
    for fields in ({"source": url}, {"source": url, "run_id": run_id, "run_link": url}):
        site.mlflow("POST", "model-versions/create", {"name": "m", **fields})
    for number in ("1", "2"):
        site.mlflow("GET", "model-versions/get-download-uri", {"name": "m", "version": number})
        assert site.ask("GET", f"/api/2.0/mlflow-artifacts/artifacts/~models/m/{number}/x").status_code == 404
    source = {"dataset": {"name": "d", "digest": "1", "source_type": "http", "source": json.dumps({"url": url})}}
    site.mlflow("POST", "runs/log-inputs", {"run_id": run_id, "datasets": [source]})
    events = [
        {"kind": "model", "name": "told", "path": url},
        {"kind": "artifact", "path": url, "name": "x", "type": "file"},
        {"kind": "image", "name": "i", "path": url},
        {"kind": "dataset", "name": "d", "uri": url},
    ]
    sent = b"".join(frame(JSON, json.dumps({"at": 1.0, **event}).encode()) for event in events)
    files = f"/api/v1/runs/{run_id}/files"
    place = f"{files}/replicas/master-0/attempt-1/client-1.events"
    assert site.ask("PUT", place, content=sent).status_code == 200
    manifest = {
        "version": 1,
        "files": {"artifacts/x": {"size": 1, "digest": "0" * 64, "freed": True, "mtime_ns": 0, "inode": 0, "at": 0}},
        "links": {},
        "url": url,
        "pushed_at": 1.0,
    }
    for path in ("outputs.json", "artifacts/../outputs.json", "artifacts%2f..%2foutputs.json", "outputs/outputs.json"):
        status, _, _ = asked(site, "PUT", f"{files}/{path}?whole=1", json.dumps(manifest).encode())
        assert status == 400, path
        artifact = f"/api/2.0/mlflow-artifacts/artifacts/{run_id}/{path}"
        assert asked(site, "PUT", artifact, json.dumps(manifest).encode())[0] in (400, 403), path
    assert site.ask("PUT", f"{files}/artifacts/outputs.json?whole=1", json=manifest).status_code == 200
    site.ask("POST", f"/api/v1/runs/{run_id}/finish", json={})
    for method, template, rule in routes(site):
        if method == "GET" and rule is not Rule.OPEN:
            asked(site, method, filled(template, run_id, f"artifacts/x?url={quote(url)}&path=artifacts/x"))
    assert heard == []


# names of this server -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evil.example:80",
        "127.0.0.1.nip.io",
        "localhost@evil.example",
        "0x7f.1",
    ],
)
def test_a_name_that_leads_here_without_being_ours_is_answered_nothing(site: Site, host: str) -> None:
    for method, template, _ in routes(site):
        answer = site.client.request(method, filled(template), headers={"Host": host})
        assert answer.status_code == 421, (method, template)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET http://evil.example/api/v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /api/v1/runs HTTP/1.0\r\n\r\n",
        b"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
        b"GET /healthz\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"TRACE /api/v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_an_odd_request_is_refused(site: Site, head: bytes) -> None:
    with socket.create_connection(site.listening.getsockname(), timeout=10) as connection:
        connection.sendall(head)
        status = int(connection.recv(1000).split(b" ")[1])
    assert 400 <= status < 500


def test_a_method_is_what_the_request_says_and_nothing_in_it(site: Site) -> None:
    reader = site.context.tokens.create("only-looks", "viewer")
    before = site.get("/api/v1/runs")["count"]
    for header in ("X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"):
        answer = site.ask("GET", "/api/v1/runs?_method=POST", reader, headers={header: "POST"})
        assert answer.status_code == 200
    assert site.get("/api/v1/runs")["count"] == before


def test_a_header_does_not_identify_a_caller(site: Site) -> None:
    for header in ("X-Forwarded-User", "X-Remote-User", "Remote-User", "X-User", "X-Forwarded-For", "X-Real-IP"):
        assert site.client.get("/api/v1/runs", headers={header: "owner"}).status_code == 401
    assert site.client.get(f"/api/v1/runs?token={site.token}").status_code == 401, "nor by what stands in an address"
    assert site.client.get(f"/api/v1/runs?access_token={site.token}").status_code == 401


def test_the_files_of_the_server_are_its_owners_alone(own_site: Site, tmp_path: Path) -> None:
    own_site.context.tokens.ensure_owner()
    own_site.post("/api/v1/runs", {}, 201)
    for name in ("token", "tokens.json", "audit.log"):
        assert (own_site.home.path / name).stat().st_mode & 0o077 == 0, name
