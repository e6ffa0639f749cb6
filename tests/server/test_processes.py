"""`phalanx serve` with several processes: they answer as one, and whichever is killed loses nothing."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from phalanx.agent.processes import read_stat
from phalanx.store.series.run_series import RunSeries
from tests.cli.running import called
from tests.server.test_daemon import Serve
from tests.server.test_metrics import read

MLFLOW = "/api/2.0/mlflow"
MANY = 12  # connections: that all of them reach the same of two processes has a chance of 1 to 2,048


class Pool(Serve):
    """A server with two processes, and one that schedules."""

    def __init__(self, home: Path, *options: str) -> None:
        super().__init__(home, "--processes", "2", *options)

    def members(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def scheduler(self) -> int:
        """The first to be started."""
        return min(self.members())

    def workers(self) -> list[int]:
        return [pid for pid in self.members() if pid != self.scheduler()]

    def everywhere(self, path: str, **headers: str) -> list[httpx.Response]:
        """The same request on many connections: they reach all processes."""
        token = (self.home / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", **headers}
        with ExitStack() as opened:
            clients = [
                opened.enter_context(httpx.Client(base_url=self.url, trust_env=False, verify=False, timeout=30))
                for _ in range(MANY)
            ]
            return [client.get(path, headers=headers) for client in clients]

    def metrics(self) -> dict[str, dict[str, float]]:
        return read(self.ask("GET", "/metrics").text)

    def counted(self, route: str) -> float:
        """Successful reads of the route, by all processes together."""
        return counted_in(self.ask("GET", "/metrics"), route)

    def address(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)


def counted_in(metrics: httpx.Response, route: str) -> float:
    return read(metrics.text)["phalanx_requests_total"].get(f'method="GET",route="{route}",status="2xx"', 0)


def until(is_so: Callable[[], bool], longest_s: float = 30.0) -> None:
    deadline = time.monotonic() + longest_s
    while not is_so():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


@contextmanager
def running(home: Path, *options: str) -> Iterator[Pool]:
    pool = Pool(home, *options)
    try:
        yield pool
    finally:
        members = pool.members() if pool.process.poll() is None else []
        if pool.process.poll() is None:
            pool.end(signal.SIGKILL)
        for pid in members:
            until(partial(is_gone, pid))
        shutil.rmtree(home, ignore_errors=True)


def is_unchanged_everywhere(pool: Pool, path: str) -> bool:
    tags = {row.headers["etag"] for row in pool.everywhere(path)}
    again = pool.everywhere(path, **{"If-None-Match": tags.pop()})
    return not tags and {row.status_code for row in again} == {304}


def is_gone(pid: int) -> bool:
    return not is_alive(pid)


def has_more(these: set[int], count: int) -> bool:
    return len(these) > count


def is_alive(pid: int) -> bool:
    found = read_stat(pid)
    return found is not None and found.state != "Z"


@pytest.fixture(name="pool")
def pool_of_two(tmp_path: Path) -> Iterator[Pool]:
    with running(tmp_path / "home") as found:
        yield found


def test_the_processes_answer_as_one(pool: Pool) -> None:
    """Folded into one: a server with three processes takes a while to start."""
    assert (pool.announced["pid"], len(pool.members())) == (pool.process.pid, 3)
    made = pool.ask("POST", "/api/v1/runs", json={"name": "first"}).json()["id"]

    # a change is seen at once, whoever is asked
    for name in ("second", "third"):
        assert all(row.json()["runs"][0]["id"] == made for row in pool.everywhere("/api/v1/runs"))
        assert pool.ask("PATCH", f"/api/v1/runs/{made}", json={"name": name}).status_code == 200
        assert {row.json()["name"] for row in pool.everywhere(f"/api/v1/runs/{made}")} == {name}
        assert {row.json()["runs"][0]["name"] for row in pool.everywhere("/api/v1/runs")} == {name}
    # all have the same ETags, once the scheduler has taken in the run
    until(lambda: pool.metrics()["phalanx_scheduling"][""] == 1)
    until(partial(is_unchanged_everywhere, pool, f"/api/v1/runs/{made}"))

    # requests are counted once, by all together
    pool.everywhere("/api/v1/projects")
    until(lambda: pool.counted("/api/v1/projects") == MANY)
    assert {counted_in(row, "/api/v1/projects") for row in pool.everywhere("/metrics")} == {MANY}
    assert pool.metrics()["phalanx_processes"][""] == 3
    assert len(pool.ask("GET", "/api/v1/audit").json()["entries"]) == 3

    # the scheduler is in another process than the one that accepts a run, and starts it at once
    files = [{"name": "polyaxonfile.yml", "text": "version: 1\nkind: job\nrun:\n  cmd: echo here\n"}]
    run_id = pool.ask("POST", "/api/v1/runs/submit", json={"files": files}).json()["id"]
    until(lambda: pool.ask("GET", f"/api/v1/runs/{run_id}").json()["status"] == "succeeded")

    # signing out ends the session everywhere
    token = (pool.home / "token").read_text().strip()
    with httpx.Client(base_url=pool.url, trust_env=False, verify=False) as browser:
        page = {"Origin": pool.url}
        assert browser.post("/api/v1/session", json={"token": token}, headers=page).status_code == 200
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        for status in (200, 401):
            seen = set()
            for _ in range(MANY):
                answer = httpx.get(f"{pool.url}/api/v1/runs", headers={"Cookie": cookie}, trust_env=False, verify=False)
                seen.add(answer.status_code)
            assert seen == {status}
            if status == 200:
                assert browser.request("DELETE", "/api/v1/session", headers=page).status_code in (200, 204)

    members = pool.members()
    assert pool.end() == (0, "")
    assert not any(map(is_alive, members))
    assert not (pool.home / "server.json").exists()


@pytest.mark.slow
def test_a_killed_process_is_replaced_and_a_killed_supervisor_leaves_none(tmp_path: Path) -> None:
    with running(tmp_path / "home") as pool:
        before = pool.members()
        pool.everywhere("/api/v1/projects")
        until(lambda: pool.counted("/api/v1/projects") == MANY)  # a request is counted after its answer was sent
        for victim in before:
            os.kill(victim, signal.SIGKILL)
        until(lambda: len(set(pool.members()) - set(before)) == 3)
        assert {row.status_code for row in pool.everywhere("/api/v1/runs")} == {200}
        assert pool.counted("/api/v1/projects") == MANY, "counters must not go back"
        until(lambda: pool.metrics()["phalanx_scheduling"][""] == 1)

        members = pool.members()
        _, port = pool.address()
        pool.process.kill()
        pool.process.communicate()
        # the next server waits for the processes of the one before to end
        next_one = Serve(pool.home, "--port", str(port), "--processes", "1")
        try:
            assert next_one.url == pool.url
            assert not any(map(is_alive, members))
            assert next_one.ask("GET", "/api/v1/runs").status_code == 200
        finally:
            assert next_one.end()[0] == 0


@pytest.mark.slow
def test_half_sent_bodies_freeze_no_process(pool: Pool) -> None:
    run_id = pool.ask("POST", "/api/v1/runs", json={}).json()["id"]
    token = (pool.home / "token").read_text().strip()
    head = f"POST {MLFLOW}/runs/search HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    with ExitStack() as held:
        for _ in range(64):
            connection = held.enter_context(socket.create_connection(pool.address(), timeout=30))
            connection.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode() + b"{")
        for path in (
            f"/runs/{run_id}/chart?name=loss",
            f"/compare?run={run_id}",
            f"/runs/{run_id}/lines/search?text=a",
        ):
            assert {row.status_code for row in pool.everywhere(f"/api/v1{path}")} == {200}
        assert pool.end()[0] == 0


@pytest.mark.slow
def test_limits_are_those_of_all_processes_together(tmp_path: Path) -> None:
    with running(tmp_path / "home", "--rate", "2") as pool:
        assert called(
            "users", "add", "ana", "--role", "viewer", stdin=b"a long password\n", PHALANX_HOME=str(pool.home)
        )
        began = time.monotonic()
        seen = [httpx.get(f"{pool.url}/healthz", trust_env=False, verify=False).status_code for _ in range(4 * MANY)]
        passed = seen.count(200)
        assert set(seen) == {200, 429}
        assert passed <= 4 + 2 * (time.monotonic() - began) + 2, "twice as many would pass if each process counted"
    with running(tmp_path / "home2", "--rate", "0") as pool:
        assert called(
            "users", "add", "ana", "--role", "viewer", stdin=b"a long password\n", PHALANX_HOME=str(pool.home)
        )
        wrong = [
            httpx.get(f"{pool.url}/api/v1/runs", auth=("ana", f"guess {n}"), trust_env=False, verify=False).status_code
            for n in range(2 * MANY)
        ]
        assert wrong == [401] * 10 + [429] * (2 * MANY - 10)


@pytest.mark.slow
def test_no_acknowledged_point_is_lost_while_processes_are_killed(pool: Pool) -> None:
    run_ids = [
        pool.ask("POST", f"{MLFLOW}/runs/create", json={"experiment_id": "0"}).json()["run"]["info"]["run_id"]
        for _ in range(2)
    ]
    kept: list[dict[str, Any]] = [
        {"run": run_ids[number % 2], "name": f"m{number}", "steps": set()} for number in range(4)
    ]
    ended = threading.Event()
    token = (pool.home / "token").read_text().strip()

    def log(of: dict[str, Any]) -> None:
        """A client that tries again, with a new connection, as MLflow's does."""
        step = 0
        while not ended.is_set():
            fields = {"run_id": of["run"], "key": of["name"], "value": step, "timestamp": 1, "step": step}
            try:
                answer = httpx.post(
                    f"{pool.url}{MLFLOW}/runs/log-metric",
                    json=fields,
                    headers={"Authorization": f"Bearer {token}"},
                    timeout=30,
                    trust_env=False,
                    verify=False,
                )
            except httpx.HTTPError:
                continue
            assert answer.status_code == 200, answer.text
            of["steps"].add(step)
            step += 1

    threads = [threading.Thread(target=log, args=(of,)) for of in kept]
    for thread in threads:
        thread.start()
    chance = random.Random(7)
    for _ in range(12):
        until(partial(has_more, kept[0]["steps"], len(kept[0]["steps"]) + 3))
        os.kill(chance.choice(pool.members()), signal.SIGKILL)
        until(lambda: len(pool.members()) == 3)
    ended.set()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    for of in kept:
        assert len(of["steps"]) > 10
        found = RunSeries(pool.home / "runs" / of["run"]).series(of["name"])
        assert of["steps"] <= {int(step) for line in found for step in line.steps}
    attempt = pool.home / "runs" / run_ids[0] / "replicas" / "master-0" / "attempt-1"
    names = {path.name for path in attempt.iterdir() if path.suffix == ".points"}
    assert names == {"mlflow.points", "mlflow-1-2.points"}, "one writer for each file, and no more files than processes"
    for run_id in run_ids:
        assert (
            pool.ask("POST", f"{MLFLOW}/runs/update", json={"run_id": run_id, "status": "FINISHED"}).status_code == 200
        )
    errors = pool.end()[1]
    assert re.search(r"was killed by signal 9 and is replaced", errors)
    assert "Traceback" not in errors
    assert json.dumps(errors).count("internal server error") == 0


@pytest.mark.slow
def test_a_server_whose_processes_cannot_start_gives_up(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "turns.lock").mkdir(parents=True)
    answer = called("serve", "--port", "0", "--processes", "2", PHALANX_HOME=str(home))
    assert answer.code == 2
    assert "Traceback" not in answer.err
    assert "turns.lock as a lock: is a directory" in answer.err
    assert not (home / "server.json").exists()
