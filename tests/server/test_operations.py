"""Running a server: what it prints and to whom, what it writes down, how it ends, what stands before it."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from phalanx.cli.commands.serve import command as serve_command
from phalanx.cli.commands.ui import has_screen, tunnel_line
from phalanx.server.daemon import notify_systemd
from phalanx.server.ops.access_log import FORMATS, ServerLog
from tests.cli.running import COMMAND, Answer, called
from tests.server.test_daemon import Serve

ROOT = Path(__file__).resolve().parents[2]
UNITS = [ROOT / "deploy" / "phalanx.service", ROOT / "deploy" / "phalanx-user.service"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    with suppress(OSError, ValueError, KeyError):  # a test that failed
        os.kill(json.loads((tmp_path / "home" / "server.json").read_bytes())["pid"], signal.SIGKILL)
    shutil.rmtree(tmp_path / "home", ignore_errors=True)  # whoever was left behind ends with it


class Watched:
    """A server with its standard error in a file, to be read while it runs."""

    def __init__(self, home: Path, *options: str) -> None:
        self.errors = home.parent / "stderr"
        with self.errors.open("wb") as stream:
            self.process = subprocess.Popen(
                [COMMAND, "serve", "--port", "0", "--json", *options],
                env={**os.environ, "PHALANX_HOME": str(home)},
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]
        self.token = (home / "token").read_text().strip()

    def get(self, path: str, **headers: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}", **headers}
        return httpx.get(self.url + path, headers=headers, timeout=30.0, trust_env=False, verify=False)

    def end(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=30)
        assert self.process.returncode == 0
        return self.errors.read_text()


# what is printed ----------------------------------------------------------------------------------------------------


def in_terminal(home: Path, *arguments: str, **environment: str) -> str:
    """What a command prints in a terminal until it is quiet; it is ended then."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PHALANX_HOME": str(home), "TERM": "dumb", "NO_COLOR": "1", **environment},
    )
    os.close(theirs)
    shown = b""
    try:
        while select.select([ours], [], [], 60 if b"#token=" not in shown and b"MLFLOW" not in shown else 0.7)[0]:
            try:
                shown += os.read(ours, 65_536)
            except OSError:  # it has ended
                break
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())


@pytest.mark.slow
def test_in_a_terminal_an_address_is_printed_that_signs_the_owner_in(home: Path) -> None:
    shown = in_terminal(home, "serve", "--port", "0")
    token = (home / "token").read_text().strip()
    assert shown.count(token) == 1
    assert re.search(rf"open http://127\.0\.0\.1:\d+/#token={re.escape(token)}\s", shown)


@pytest.mark.slow
def test_that_can_be_left_out(home: Path) -> None:
    shown = in_terminal(home, "serve", "--port", "0", "--no-token-url")
    assert "serving at" in shown
    assert (home / "token").read_text().strip() not in shown
    assert str(home / "token") in shown


def fake_browser(folder: Path) -> Path:
    """Writes down what it is called with, and what the file says that it is to open."""
    script = folder / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {folder}/called\ncat "${{1#file://}}" > {folder}/opened\n')
    script.chmod(0o755)
    return script


@pytest.mark.slow
def test_ui_starts_a_server_and_opens_the_page_signed_in(home: Path, tmp_path: Path) -> None:
    shown = in_terminal(home, "ui", "--port", "0", "/queue", BROWSER=str(fake_browser(tmp_path)), SSH_CONNECTION="")
    token = (home / "token").read_text().strip()
    (url,) = re.findall(r"serving at (http://127\.0\.0\.1:\d+)", shown)
    assert f"{url}/queue#token={token}" in shown
    assert f"url={url}/queue#token={token}" in (tmp_path / "opened").read_text()
    assert token not in (tmp_path / "called").read_text()  # everybody sees what a process is called with
    assert (home / "open.html").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_ui_uses_the_server_that_is_up(home: Path, tmp_path: Path) -> None:
    serve = Serve(home)
    run_id = serve.ask("POST", "/api/v1/runs", json={"name": "mine"}).json()["id"]
    token = (home / "token").read_text().strip()
    browser = str(fake_browser(tmp_path))

    def ui(what: str, **environment: str) -> Answer:
        data = {**dict.fromkeys(("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"), ""), **environment}
        return called("ui", what, PHALANX_HOME=str(home), BROWSER=browser, **data)  # type: ignore[arg-type]

    answer = ui("/", SSH_CONNECTION="10.1.2.3 50000 10.9.8.7 22", USER="ann")
    port = serve.url.rpartition(":")[2]
    assert f"ssh -N -L {port}:127.0.0.1:{port} ann@10.9.8.7\n" in answer.out  # for where the browser is
    assert not (tmp_path / "opened").exists()
    answer = ui(run_id[:6])
    assert answer.code == 0, answer.err
    assert f"open {serve.url}/runs/{run_id};" in answer.out
    assert token not in answer.out  # which is no terminal
    assert f"{serve.url}/runs/{run_id}#token={token}" in (tmp_path / "opened").read_text()
    assert ui("nothing").code == 2
    data = called("ui", "queue", "--no-browser", "--json", PHALANX_HOME=str(home)).data
    assert data == {"ok": True, "url": f"{serve.url}/queue", "token_file": str(home / "token")}
    there = {"PHALANX_SERVER": serve.url, "PHALANX_TOKEN": token, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert ui(run_id[:6], **there).out == f"open {serve.url}/runs/{run_id}\n"  # of a server, wherever it is
    assert f"{serve.url}/runs/{run_id}#token={token}" in (tmp_path / "opened").read_text()
    assert (tmp_path / "config" / "phalanx" / "open.html").stat().st_mode & 0o077 == 0
    assert httpx.get(f"{serve.url}/healthz", trust_env=False).json() == {"ok": True}
    serve.end()


def test_a_tunnel_is_printed_only_where_it_is_needed() -> None:
    came = {"SSH_CONNECTION": "10.1.2.3 50000 10.9.8.7 2222", "USER": "ann"}
    url = "http://127.0.0.1:8001"
    assert tunnel_line(url, came, "node") == "ssh -N -L 8001:127.0.0.1:8001 -p 2222 ann@10.9.8.7"
    jumped = {**came, "SSH_CONNECTION": "::1 1 ::1 22"}
    assert tunnel_line(url, jumped, "node") == "ssh -N -L 8001:127.0.0.1:8001 ann@node"
    assert tunnel_line(url, {**came, "DISPLAY": ":10"}, "node") is None
    assert tunnel_line(url, {"USER": "ann"}, "node") is None
    assert not has_screen({}, "linux")
    assert has_screen({}, "darwin")


# what is written down -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_requests_are_written_down_without_what_was_sent(home: Path) -> None:
    server = Watched(home, "--access-log", "--log-format", "json")
    first = server.get("/api/v1/runs?q=name:secretquery", **{"X-Request-ID": "abc-123"})
    assert first.headers["x-request-id"] == "abc-123"
    second = server.get("/api/v1/runs/none", **{"X-Request-ID": 'evil"} <x>'})
    assert re.fullmatch(r"[0-9a-f]{16}", second.headers["x-request-id"])
    httpx.get(f"{server.url}/api/v1/runs?token={server.token}", trust_env=False)
    httpx.get(f"{server.url}/a%0Ab%22", trust_env=False)
    text = server.end()
    rows = [json.loads(line) for line in text.splitlines()]
    requests = [(row["who"], row["method"], row["path"], row["route"], row["status"]) for row in rows]
    assert requests == [
        ("owner", "GET", "/api/v1/runs", "/api/v1/runs", 200),
        ("owner", "GET", "/api/v1/runs/none", "/api/v1/runs/{run_id}", 404),
        ("-", "GET", "/api/v1/runs", "/api/v1/runs", 401),
        ("-", "GET", "/a%0Ab%22", "other", 401),
    ]
    assert rows[0]["id"] == "abc-123"
    assert all(row["kind"] == "access" and 0 <= row["ms"] < 60_000 for row in rows)
    assert server.token not in text
    assert "secretquery" not in text


def test_what_went_wrong_is_one_line_in_either_form() -> None:
    for form in FORMATS:
        stream = io.StringIO()
        ServerLog(form, stream=stream).trouble("first\nsecond \x1b[31m", id="r1")
        (line,) = stream.getvalue().splitlines()
        assert "\x1b" not in line
        if form == "json":
            row = json.loads(line)
            assert (row["kind"], row["message"], row["id"]) == ("error", "first\nsecond \x1b[31m", "r1")
        else:
            assert line.endswith("first second  [31m")


# ends ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_under_way_is_answered_and_no_one_new_is_let_in(home: Path) -> None:
    """A file whose second half is sent after the server was told to end."""
    server = Watched(home)
    headers = {"Authorization": f"Bearer {server.token}"}
    made = httpx.post(f"{server.url}/api/v1/runs", headers=headers, json={}, trust_env=False).json()["id"]
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        path = f"/api/v1/runs/{made}/files/artifacts/slow.bin?whole=1"
        head = (
            f"PUT {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {server.token}\r\nContent-Length: 10\r\n\r\n"
        )
        connection.sendall(head.encode() + b"01234")
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=5).close()
            except OSError:
                break
            assert time.monotonic() < deadline, "the server goes on to take connections"
            time.sleep(0.02)
        assert server.process.poll() is None
        connection.sendall(b"56789")
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    server.process.communicate(timeout=30)
    assert (home / "runs" / made / "artifacts" / "slow.bin").read_bytes() == b"0123456789"
    assert server.process.returncode == 0
    assert server.errors.read_text() == ""


@pytest.mark.slow
def test_live_streams_are_ended_at_once_and_systemd_knows(home: Path, manager: socket.socket) -> None:
    server = Watched(home)
    assert manager.recv(100) == b"READY=1"
    begun, ended = threading.Event(), threading.Event()
    faults: list[Exception] = []

    def listen() -> None:
        headers = {"Authorization": f"Bearer {server.token}"}
        try:
            with httpx.stream("GET", f"{server.url}/api/v1/live", headers=headers, trust_env=False, timeout=30) as live:
                for _ in live.iter_bytes():
                    begun.set()
        except httpx.HTTPError as fault:
            faults.append(fault)
        ended.set()

    thread = threading.Thread(target=listen)
    thread.start()
    assert begun.wait(60)
    assert "phalanx_live_listeners 1\n" in server.get("/metrics").text
    told_at = time.monotonic()
    assert server.end() == ""
    assert ended.wait(15)
    thread.join()
    assert time.monotonic() - told_at < 15  # it does not wait for the stream until its grace period is over
    assert faults == []  # the stream ended as a stream should
    assert manager.recv(100) == b"STOPPING=1"


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where systemd listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "notify"))
        found.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield found


def test_without_systemd_no_one_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify_systemd("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    notify_systemd("READY=1")


# behind a proxy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "address"), [((), "127.0.0.1"), (("--behind-proxy",), "203.0.113.9")])
@pytest.mark.slow
def test_a_proxy_is_believed_only_when_that_is_asked_for(home: Path, options: tuple[str, ...], address: str) -> None:
    server = Watched(home, "--allow-host", "phalanx.example", "--access-log", *options)
    headers = {"Host": "phalanx.example", "X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
    httpx.post(f"{server.url}/api/v1/session", headers=headers, json={"token": "phx_wrong"}, trust_env=False)
    rows = [json.loads(line) for line in (home / "audit.log").read_text().splitlines()]
    assert [row["from"] for row in rows] == [address]
    signed = httpx.post(f"{server.url}/api/v1/session", headers=headers, json={"token": server.token}, trust_env=False)
    assert signed.status_code == 200
    server.get("/x%0D%0A2026-01-01 00:00:00 GET /forged 200", **{"X-Request-ID": "r1"})
    lines = server.end().splitlines()
    assert len(lines) == 3  # whatever was asked for
    forged = "/x%0D%0A2026-01-01%2000%3A00%3A00%20GET%20/forged%20200"
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d GET {forged} 404 \d+\.\d ms owner r1", lines[-1])


# deploy/ ------------------------------------------------------------------------------------------------------------


def options_of(command: str) -> Iterator[str]:
    yield from re.findall(r"(?<!\S)--[a-z-]+", command)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_calls_the_server_with_options_that_it_has(unit: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(\S+/phalanx serve .*)$", unit.read_text(), re.MULTILINE)
    known = {name for parameter in serve_command.params for name in parameter.opts}
    given = set(options_of(line))
    assert given
    assert given <= known
    for setting in ("KillMode=process", "OOMPolicy=continue", "NoNewPrivileges=yes", "UMask=0077", "Type=notify"):
        assert f"\n{setting}\n" in unit.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path) -> None:
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={COMMAND}", unit.read_text(), flags=re.MULTILINE)
    (tmp_path / unit.name).write_text(text)
    user = ["--user"] if "user" in unit.name else []
    done = subprocess.run(
        ["systemd-analyze", *user, "--man=no", "--generators=no", "verify", str(tmp_path / unit.name)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if unit.name in line]
    assert complaints == []


def test_the_container_calls_the_server_with_options_that_it_has_and_is_not_root() -> None:
    text = (ROOT / "deploy" / "Containerfile").read_text()
    (arguments,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    called_with: list[str] = json.loads(arguments)
    known = {name for parameter in serve_command.params for name in parameter.opts}
    assert called_with[0] == "serve"
    assert {argument for argument in called_with if argument.startswith("--")} <= known
    (user,) = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
    assert int(user) > 0
    for word in ("curl", "wget", "apt-get", "ADD ", "git clone"):
        assert word not in text


# copies of a home ---------------------------------------------------------------------------------------------------


def recipe(name: str) -> str:
    """A block of docs/serve/operations.md, as people would type it."""
    text = (ROOT / "docs" / "serve" / "operations.md").read_text()
    (found,) = re.findall(rf"<!-- tested: {name} -->\n```sh\n(.*?)```", text, re.DOTALL)
    return str(found)


def typed(script: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-eu", "-c", script],
        cwd=cwd,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_a_home_is_copied_while_it_is_in_use_and_brought_back(home: Path, tmp_path: Path) -> None:
    """As the documentation says, with a server, a run under way and somebody who logs all the time."""
    serve = Serve(home)
    done = str(serve.ask("POST", "/api/v1/runs", json={"name": "done", "params": {"lr": 0.1}}).json()["id"])
    live = str(serve.ask("POST", "/api/v1/runs", json={"name": "live"}).json()["id"])
    (tmp_path / "polyaxonfile.yml").write_text("version: 1\nkind: job\nrun:\n  cmd: sleep 60\n")
    options = ("run", "-f", str(tmp_path / "polyaxonfile.yml"), "--detach", "--json")
    job = called(*options, PHALANX_HOME=str(home)).data["id"]

    def log(run: str, step: int) -> httpx.Response:
        fields = {"run_id": run, "key": "m", "value": step, "timestamp": 1, "step": step}
        return serve.ask("POST", "/api/2.0/mlflow/runs/log-metric", json=fields)

    for step in range(20):
        log(done, step)
    serve.ask("POST", f"/api/v1/runs/{done}/finish", json={"status": "succeeded"})
    ended, logged = threading.Event(), [0]

    def go_on() -> None:
        while not ended.is_set():
            if log(live, logged[0]).status_code == 200:
                logged[0] += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    while logged[0] < 10:
        time.sleep(0.01)
    before = logged[0]
    try:
        copied = typed(recipe("backup"), tmp_path, PHALANX_HOME=str(home))
    finally:
        ended.set()
        thread.join()
    assert copied.returncode == 0, copied.stderr
    (archive,) = tmp_path.glob("phalanx-*.tar.gz")
    assert archive.stat().st_mode & 0o077 == 0  # it has tokens in it
    assert called("stop", job, PHALANX_HOME=str(home)).code == 0
    while serve.ask("GET", f"/api/v1/runs/{job}").json()["status"] != "stopped":
        time.sleep(0.05)
    serve.end()  # nothing of ours is left, so nobody stays behind to schedule
    shutil.move(home, tmp_path / "lost")
    back = typed(recipe("restore"), tmp_path, PHALANX_HOME=str(home), ARCHIVE=str(archive))
    assert back.returncode == 0, back.stderr + back.stdout
    again = Serve(home)
    rows = {row["id"]: row for row in again.ask("GET", "/api/v1/runs").json()["runs"]}
    assert {done, live, job} <= set(rows)
    assert (rows[done]["status"], rows[done]["params"]) == ("succeeded", {"lr": 0.1})
    points = again.ask("GET", f"/api/v1/runs/{done}/metrics/series?name=m&buckets=0").json()
    assert "19" in json.dumps(points)
    assert rows[live]["summary"]["m"] >= before - 1
    again.end()
    shutil.rmtree(tmp_path / "lost")
