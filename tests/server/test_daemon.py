"""`phalanx serve` and `phalanx token` as processes: beginnings, ends, and what a killed server leaves."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from phalanx.home.home import Home
from phalanx.home.lease import Lease
from phalanx.home.run_tokens import server_url
from phalanx.server.auth.tokens import Tokens
from phalanx.store import Store
from phalanx.store.series.run_series import RunSeries
from tests.cli.running import COMMAND, called, in_terminal


class Serve:
    """One server in a process of its own."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        command = [COMMAND, "serve", "--port", "0", "--json", *options]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "PHALANX_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.announced = json.loads(self.process.stdout.readline() or "{}")
        self.url: str = self.announced.get("url", "")

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        token = (self.home / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.request(
            method, self.url + path, headers=headers, timeout=30, trust_env=False, verify=False, **more
        )

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    shutil.rmtree(tmp_path / "home", ignore_errors=True)  # whoever was left behind ends with it


@pytest.fixture
def serve(home: Path) -> Iterator[Serve]:
    found = Serve(home)
    yield found
    if found.process.poll() is None:
        found.end(signal.SIGKILL)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGINT, signal.SIGHUP))]
)
def test_a_server_says_where_it_is_and_ends_in_peace(home: Path, number: int) -> None:
    serve = Serve(home)
    assert serve.announced["ok"] is True
    assert serve.announced["token_file"] == str(home / "token")
    assert httpx.get(f"{serve.url}/healthz", trust_env=False).json() == {"ok": True}
    announced = json.loads((home / "server.json").read_text())
    assert (announced["url"], announced["pid"]) == (serve.url, serve.process.pid)
    assert server_url(home) == serve.url
    for name in ("server.json", "token", "tokens.json", "server.secret"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600, name
    code, err = serve.end(number)
    assert (code, err) == (0, "")
    assert not (home / "server.json").exists()


@pytest.mark.slow
def test_the_token_is_never_printed(home: Path) -> None:
    command = [COMMAND, "serve", "--port", "0"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PHALANX_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    said = first + process.stdout.readline() + process.stdout.readline()
    assert "serving at http://127.0.0.1:" in first
    token = (home / "token").read_text().strip()
    url = first.split()[2].rstrip(";")
    httpx.get(f"{url}/api/v1/runs", headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    httpx.get(f"{url}/api/v1/runs?token={token}", trust_env=False)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert token not in said + out + err
    assert str(home / "token") in said


@pytest.mark.slow
def test_the_same_token_serves_the_next_time(home: Path) -> None:
    first = Serve(home)
    token = (home / "token").read_text()
    first.end()
    second = Serve(home)
    assert (home / "token").read_text() == token
    assert second.ask("GET", "/api/v1/runs").status_code == 200
    second.end()


@pytest.mark.slow
def test_a_server_with_half_sent_requests_ends_when_it_is_told_to(serve: Serve) -> None:
    host, port = serve.url.removeprefix("http://").split(":")
    token = (serve.home / "token").read_text().strip()
    head = f"POST /api/2.0/mlflow/runs/search HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    with ExitStack() as held:
        for _ in range(16):
            connection = held.enter_context(socket.create_connection((host, int(port)), timeout=30))
            connection.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode() + b"{")
        assert serve.end(signal.SIGTERM)[0] == 0


@pytest.mark.slow
def test_a_home_has_one_server(serve: Serve) -> None:
    answer = called("serve", "--port", "0", PHALANX_HOME=str(serve.home))
    assert answer.code == 2
    assert f"is already served, at {serve.url}" in answer.err
    assert server_url(serve.home) == serve.url


@pytest.mark.slow
def test_a_port_that_is_taken_is_reported(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        answer = called("serve", "--port", str(port), PHALANX_HOME=str(home))
    assert answer.code == 2
    assert f"port {port} of 127.0.0.1 is in use" in answer.err
    assert "Traceback" not in answer.err
    assert not (home / "server.json").exists()


@pytest.mark.parametrize(
    ("host", "words"), [("no.such.host.invalid", "not an address"), ("203.0.113.7", "not an address")]
)
@pytest.mark.slow
def test_an_address_of_another_machine_is_reported(home: Path, host: str, words: str) -> None:
    answer = called("serve", "--host", host, "--port", "0", PHALANX_HOME=str(home))
    assert answer.code == 2
    assert words in answer.err


@pytest.mark.slow
def test_what_is_open_to_others_is_said_to_be_unencrypted(home: Path) -> None:
    serve = Serve(home, "--host", "0.0.0.0", "--allow-host", "gpu.example")
    assert serve.url.startswith("http://127.0.0.1:")
    for host, status in (("gpu.example", 200), ("GPU.example:80", 200), ("other.example", 421)):
        assert httpx.get(f"{serve.url}/healthz", headers={"Host": host}, trust_env=False).status_code == status
    _, err = serve.end()
    assert "not encrypted" in err


def test_an_installation_without_fastapi_is_said_to_be_incomplete(tmp_path: Path) -> None:
    (tmp_path / "fastapi.py").write_text("raise ModuleNotFoundError('no', name='fastapi')")
    answer = called("serve", "--port", "0", PHALANX_HOME=str(tmp_path / "home"), PYTHONPATH=str(tmp_path))
    assert answer.code == 2
    assert "has no package `fastapi`" in answer.err
    assert "pip install phalanx" in answer.err


def test_other_verbs_do_not_import_fastapi() -> None:
    imports = "sys, phalanx.cli.commands.token, phalanx.cli.commands.serve, phalanx.server.auth.tokens"
    code = f"import {imports}; print('fastapi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.slow
def test_another_home_can_be_named(tmp_path: Path, home: Path) -> None:
    serve = Serve(home, "--home", str(tmp_path / "other"))
    assert (tmp_path / "other" / "server.json").exists()
    assert not (home / "server.json").exists()
    serve.end()
    shutil.rmtree(tmp_path / "other")


# scheduling ---------------------------------------------------------------------------------------------------------


def wait_until_taken(home: Path) -> None:
    """The server takes the lease when it is free, a moment after it says where it is."""
    deadline = time.monotonic() + 20
    while True:
        lease = Lease(Home(home))
        is_free = lease.take()
        lease.release()
        lease.close()
        if not is_free:
            return
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_the_server_schedules_while_no_one_else_does(serve: Serve, tmp_path: Path) -> None:
    wait_until_taken(serve.home)
    (tmp_path / "polyaxonfile.yml").write_text("version: 1\nkind: job\nrun:\n  cmd: echo done\n")
    answer = called("run", "-f", str(tmp_path / "polyaxonfile.yml"), "--json", PHALANX_HOME=str(serve.home))
    assert answer.code == 0, answer.err
    run = serve.ask("GET", f"/api/v1/runs/{answer.data['id']}").json()
    assert (run["status"], run["kind"]) == ("succeeded", "job")
    log = serve.ask("GET", f"/api/v1/runs/{run['id']}/logs/master-0").text
    assert "done" in log


@pytest.mark.slow
def test_a_run_knows_the_address_of_its_server(serve: Serve, tmp_path: Path) -> None:
    command = "echo uri=$MLFLOW_TRACKING_URI run=$MLFLOW_RUN_ID token=${MLFLOW_TRACKING_TOKEN:0:4}"
    (tmp_path / "polyaxonfile.yml").write_text(f'version: 1\nkind: job\nrun:\n  cmd: "{command}"\n')
    answer = called("run", "-f", str(tmp_path / "polyaxonfile.yml"), "--json", PHALANX_HOME=str(serve.home))
    run_id = answer.data["id"]
    log = serve.ask("GET", f"/api/v1/runs/{run_id}/logs/master-0").text
    assert f"uri={serve.url}/tracked/{run_id}/1/master-0" in log
    assert f"run={run_id} token=phr_" in log


@pytest.mark.slow
def test_who_schedules_already_goes_on(home: Path) -> None:
    lease = Lease(Home(home))
    assert lease.take()
    serve = Serve(home)
    assert serve.ask("GET", "/api/v1/runs").json()["count"] == 0
    lease.release()
    lease.close()
    wait_until_taken(home)
    assert serve.end()[0] == 0


# kills --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_was_answered_outlives_the_server(serve: Serve) -> None:
    """Whoever logs while the server is killed at once loses nothing that was answered."""
    run_id = serve.ask("POST", "/api/2.0/mlflow/runs/create", json={"experiment_id": "0"}).json()["run"]["info"][
        "run_id"
    ]
    answered: list[int] = []
    ended = threading.Event()

    def log() -> None:
        token = (serve.home / "token").read_text().strip()
        with httpx.Client(base_url=serve.url, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as client:
            for step in range(100_000):
                metrics = [{"key": f"m{n}", "value": step, "timestamp": 1, "step": step} for n in range(20)]
                fields = {"run_id": run_id, "metrics": metrics, "params": [{"key": f"p{step}", "value": "x"}]}
                try:
                    if client.post("/api/2.0/mlflow/runs/log-batch", json=fields).status_code == 200:
                        answered.append(step)
                except httpx.HTTPError:
                    break
        ended.set()

    thread = threading.Thread(target=log)
    thread.start()
    while len(answered) < 30:
        time.sleep(0.01)
    serve.end(signal.SIGKILL)
    thread.join()
    assert ended.is_set()
    assert server_url(serve.home) is None
    series = RunSeries(serve.home / "runs" / run_id)
    for name in ("m0", "m19"):
        assert set(answered) <= set(series.series(name)[0].steps)
    again = Serve(serve.home)
    run = again.ask("GET", f"/api/2.0/mlflow/runs/get?run_id={run_id}").json()["run"]
    assert run["info"]["status"] == "RUNNING"
    assert {f"p{step}" for step in answered} <= {row["key"] for row in run["data"]["params"]}
    fields = {"run_id": run_id, "key": "m0", "value": -1, "timestamp": 1, "step": 10**6}
    assert again.ask("POST", "/api/2.0/mlflow/runs/log-metric", json=fields).status_code == 200
    last = again.ask("GET", f"/api/2.0/mlflow/metrics/get-history?run_id={run_id}&metric_key=m0").json()["metrics"][-1]
    assert (last["step"], last["value"]) == (10**6, -1.0)
    again.end()


@pytest.mark.slow
def test_a_full_disk_costs_records_and_not_the_server(serve: Serve) -> None:
    """A folder that may not be written stands for a disk that takes nothing more."""
    run_id = serve.ask("POST", "/api/v1/runs", json={}).json()["id"]
    points = serve.home / "runs" / run_id / "replicas" / "master-0" / "attempt-1" / "mlflow.points"
    points.mkdir()
    fields = {"run_id": run_id, "key": "m", "value": 1, "timestamp": 1}
    answer = serve.ask("POST", "/api/2.0/mlflow/runs/log-metric", json=fields)
    assert (answer.status_code, answer.json()["error_code"]) == (507, "INTERNAL_ERROR")
    points.rmdir()
    assert serve.ask("POST", "/api/2.0/mlflow/runs/log-metric", json=fields).status_code == 200
    with Store.open(serve.home) as store:
        assert store.find(run_id).summary == {"m": 1.0}


# tokens on the command line -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_tokens_are_made_listed_and_revoked(serve: Serve) -> None:
    home = str(serve.home)
    made = called("token", "create", "ci", "--scope", "read", "--days", "7", "--json", PHALANX_HOME=home)
    assert made.code == 0
    token = made.data["token"]
    headers = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{serve.url}/api/v1/runs", headers=headers, trust_env=False).status_code == 200
    assert httpx.post(f"{serve.url}/api/v1/runs", headers=headers, json={}, trust_env=False).status_code == 403
    listed = called("token", "list", "--json", PHALANX_HOME=home).data["tokens"]
    assert [(row["name"], row["role"]) for row in listed] == [("owner", "admin"), ("ci", "viewer")]
    assert "hash" not in listed[0]
    shown = called("token", "list", PHALANX_HOME=home)
    assert token not in shown.out
    assert "ci" in shown.out
    assert called("token", "revoke", "ci", PHALANX_HOME=home).out == "revoked ci\n"
    assert httpx.get(f"{serve.url}/api/v1/runs", headers=headers, trust_env=False).status_code == 401


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "a b"),
        ("create", "x", "--scope", "all"),
        ("create", "x", "--days", "0"),
        ("revoke", "nobody"),
        ("nothing",),
    ],
)
def test_a_wrong_call_about_tokens_is_reported(home: Path, arguments: tuple[str, ...]) -> None:
    answer = called("token", *arguments, PHALANX_HOME=str(home))
    assert answer.code == 2
    assert "error" in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.slow
def test_on_a_terminal_a_token_is_asked_for_what_is_not_given(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_HOME", str(home))
    code, shown = in_terminal("token", "create", "mine", typed="editor\nvision, audio\n7\n")
    assert code == 0, shown
    assert re.search(r"Role .*Projects.*Days.*editor of vision, audio, valid until", shown, re.DOTALL)
    code, shown = in_terminal("token", "create", "other", "--role", "admin", "--forever", typed="\n")
    assert code == 0, shown
    assert "Role" not in shown
    assert "Days" not in shown
    made = {token.name: token for token in Tokens(home).known()}
    assert (made["mine"].role, made["mine"].projects) == ("editor", ("vision", "audio"))
    assert made["mine"].expires == pytest.approx(made["mine"].created + 7 * 86_400)
    assert (made["other"].role, made["other"].projects, made["other"].expires) == ("admin", None, None)


def test_a_token_is_printed_once_and_alone(home: Path) -> None:
    answer = called("token", "create", "me", PHALANX_HOME=str(home))
    assert re.match(r"viewer of all, valid until \d{4}-\d\d-\d\d\n", answer.err)
    assert answer.out.strip().startswith("phx_")
    assert len(answer.out.splitlines()) == 1
