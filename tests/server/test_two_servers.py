"""Two servers of one home on a real PostgreSQL: both answer, one schedules, and whoever is killed loses nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from phalanx.home.home import Home
from phalanx.home.run_tokens import server_url
from phalanx.server.run_writers import RunWriters, writer_name
from phalanx.server.write_gate import SharedWriteGate
from phalanx.store import Store
from phalanx.store.series.run_series import RunSeries
from tests.cli.running import COMMAND, Answer, called
from tests.store.conftest import Address, fresh

MLFLOW = "/api/2.0/mlflow"
SLOW = "for n in 1 2 3 4 5 6; do echo step $n; sleep 0.7; done; echo done"


class Server:
    def __init__(self, address: Address) -> None:
        self.address = address
        self.process = subprocess.Popen(
            [COMMAND, "serve", "--port", "0", "--json"],
            env={**os.environ, **environment(address)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]
        token = (address.home / "token").read_text().strip()
        self.client = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False
        )

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.client.request(method, path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def schedules(self) -> bool:
        return "phalanx_scheduling 1\n" in self.client.get("/metrics").text

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> str:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=30)[1]


def environment(address: Address) -> dict[str, str]:
    return {"PHALANX_HOME": str(address.home), "PHALANX_DATABASE": address.url or ""}


def command(address: Address, *arguments: str) -> Answer:
    """The command, for this home and database."""
    return called(*arguments, PHALANX_HOME=str(address.home), PHALANX_DATABASE=address.url or "")


def until(is_so: Callable[[], bool], longest_s: float = 20.0) -> None:
    deadline = time.monotonic() + longest_s
    while not is_so():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[Address]:
    with fresh("postgresql", tmp_path) as found:
        yield found
        shutil.rmtree(found.home, ignore_errors=True)  # whoever was left behind ends with it
        time.sleep(0.5)


@pytest.fixture
def servers(address: Address) -> Iterator[tuple[Server, Server]]:
    first = Server(address)
    until(first.schedules)
    second = Server(address)
    yield first, second
    for server in (first, second):
        server.end()


def submitted(server: Server, command: str) -> str:
    text = f"version: 1\nkind: job\nrun:\n  cmd: {json.dumps(command)}\n"
    files = [{"name": "polyaxonfile.yml", "text": text}]
    return str(server.ask("POST", "/api/v1/runs/submit", {"files": files})["id"])


def test_each_has_its_own_place_and_one_of_them_schedules(address: Address, servers: tuple[Server, Server]) -> None:
    first, second = servers
    for number, server in enumerate(servers, 1):
        name = "server.json" if number == 1 else f"server-{number}.json"
        assert json.loads((address.home / name).read_text())["url"] == server.url
    assert (first.schedules(), second.schedules()) == (True, False)
    assert first.end() == ""
    until(second.schedules)
    assert server_url(address.home) == second.url
    third = Server(address)
    assert json.loads((address.home / "server.json").read_text())["url"] == third.url
    third.end()


def test_runs_outlive_the_server_that_scheduled_them(address: Address, servers: tuple[Server, Server]) -> None:
    first, second = servers
    runs = [submitted(server, SLOW) for server in servers]

    def all_are(status: str) -> bool:
        return {second.ask("GET", f"/api/v1/runs/{run_id}")["status"] for run_id in runs} == {status}

    until(lambda: all_are("running"))
    first.kill()
    runs.append(submitted(second, "echo step 1; echo done"))
    until(lambda: all_are("succeeded"), 60)
    assert second.schedules()
    for run_id, steps in zip(runs, (6, 6, 1), strict=True):
        log = second.client.get(f"/api/v1/runs/{run_id}/logs/master-0").text
        assert re.findall(r"^step \d|^done", log, re.MULTILINE) == [*(f"step {n + 1}" for n in range(steps)), "done"]
        run = second.ask("GET", f"/api/v1/runs/{run_id}")
        assert [row["status"] for row in run["statuses"]][-2:] == ["running", "succeeded"]
        assert run["attempt"] == 1
    assert server_url(address.home) == second.url


def test_what_both_were_informed_of_one_run_is_kept_when_one_is_killed(
    address: Address, servers: tuple[Server, Server]
) -> None:
    first, second = servers
    run_id = first.ask("POST", f"{MLFLOW}/runs/create", {"experiment_id": "0"})["run"]["info"]["run_id"]
    kept: dict[str, set[int]] = {"a": set(), "b": set()}

    def log(server: Server, name: str, many: int) -> None:
        for step in range(many):
            metrics = [{"key": name, "value": step, "timestamp": 1, "step": step}]
            fields = {"run_id": run_id, "metrics": metrics, "params": [{"key": f"{name}{step}", "value": "x"}]}
            try:
                if server.client.post(f"{MLFLOW}/runs/log-batch", json=fields).status_code == 200:
                    kept[name].add(step)
            except httpx.HTTPError:
                return

    threads = [threading.Thread(target=log, args=args) for args in ((first, "a", 100_000), (second, "b", 150))]
    for thread in threads:
        thread.start()
    until(lambda: len(kept["a"]) > 60)
    first.kill()
    for thread in threads:
        thread.join()
    assert len(kept["b"]) == 150
    attempt = address.home / "runs" / run_id / "replicas" / "master-0" / "attempt-1"
    assert {"mlflow.points", "mlflow-2.points"} <= {path.name for path in attempt.iterdir()}
    series = RunSeries(address.home / "runs" / run_id)
    for name, steps in kept.items():
        assert steps <= set(series.series(name)[0].steps)

    def params() -> set[str]:
        rows = second.ask("GET", f"{MLFLOW}/runs/get?run_id={run_id}")["run"]["data"]["params"]
        return {row["key"] for row in rows}

    until(lambda: {f"{name}{step}" for name, steps in kept.items() for step in steps} <= params())
    second.ask("POST", f"{MLFLOW}/runs/update", {"run_id": run_id, "status": "FINISHED"})
    with address.open() as store:
        found = store.find(run_id)
    assert (found.status, found.summary["b"]) == ("succeeded", 149.0)


def test_one_sees_what_the_other_has_changed(address: Address, servers: tuple[Server, Server]) -> None:
    first, second = servers
    made = first.ask("POST", f"{MLFLOW}/experiments/create", {"name": "both"})["experiment_id"]
    for server, key in ((first, "x"), (second, "y"), (first, "z")):
        server.ask(
            "POST", f"{MLFLOW}/experiments/set-experiment-tag", {"experiment_id": made, "key": key, "value": "1"}
        )
    found = second.ask("GET", f"{MLFLOW}/experiments/get?experiment_id={made}")["experiment"]
    assert {tag["key"] for tag in found["tags"]} == {"x", "y", "z"}
    run_id = second.ask("POST", f"{MLFLOW}/runs/create", {"experiment_id": made})["run"]["info"]["run_id"]
    for step, server in enumerate((first, second, first, second)):
        fields = {"run_id": run_id, "key": "m", "value": step, "timestamp": 1, "step": step}
        server.ask("POST", f"{MLFLOW}/runs/log-metric", fields)
        for other in servers:
            shown = other.ask("GET", f"{MLFLOW}/runs/get?run_id={run_id}")["run"]["data"]["metrics"]
            assert [(row["key"], row["value"]) for row in shown] == [("m", float(step))]
    token = command(address, "token", "create", "ci", "--json").data["token"]
    headers = {"Authorization": f"Bearer {token}"}
    for status in (200, 401):
        for server in servers:
            assert httpx.get(f"{server.url}/api/v1/runs", headers=headers, trust_env=False).status_code == status
        if status == 200:
            assert command(address, "token", "revoke", "ci").code == 0


def test_a_file_that_comes_by_both_ways_is_whole(address: Address, servers: tuple[Server, Server]) -> None:
    """A client whose first server did not answer in time sends the same pieces to the other one."""
    first, second = servers
    run_id = first.ask("POST", "/api/v1/runs", {})["id"]
    whole = os.urandom(1 << 20)
    path = f"/api/v1/runs/{run_id}/files/replicas/master-0/attempt-1/client-1.points"

    def send(server: Server) -> None:
        with httpx.Client(base_url=server.url, headers=server.client.headers, trust_env=False) as client:
            for offset in range(0, len(whole), 8192):
                answer = client.put(f"{path}?offset={offset}", content=whole[offset : offset + 8192])
                assert answer.status_code == 200, answer.text

    threads = [threading.Thread(target=send, args=(server,)) for server in (first, second, first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    attempt = address.home / "runs" / run_id / "replicas" / "master-0" / "attempt-1"
    assert (attempt / "client-1.points").read_bytes() == whole
    assert not list((address.home / "desks").iterdir())
    with Store.open(address.home, address.url) as store:
        assert store.find(run_id).status == "running"


# the locks between them, which need no database ---------------------------------------------------------------------


def test_a_run_has_one_writer_among_all_servers(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    several = [RunWriters(home, writer=writer_name(1, number)) for number in (1, 2)]
    inside: list[int] = []
    worst = 0

    def write(run_writers: RunWriters) -> None:
        nonlocal worst
        for _ in range(100):
            with run_writers.of("run"), run_writers.of("run"):
                inside.append(1)
                worst = max(worst, len(inside))
                time.sleep(0.0002)
                inside.pop()

    threads = [threading.Thread(target=write, args=(run_writers,)) for run_writers in several * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert worst == 1
    assert not list((home.path / "desks").iterdir())


def test_what_is_remembered_of_a_run_is_forgotten_where_another_may_change_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for writer_of_process, kept in ((None, {"a": 1}), (writer_name(2), {})):
        run_writers = RunWriters(home, writer=writer_of_process)
        with run_writers.of("run") as writer:
            writer.notes["a"] = 1
            with run_writers.of("run") as again:
                assert again.notes == {"a": 1}
        with run_writers.of("run") as writer:
            assert writer.notes == kept


def test_a_turn_is_alone_among_all_servers(tmp_path: Path) -> None:
    """However many requests there are, which never leave a gap."""
    ours, theirs = SharedWriteGate(tmp_path / "turns.lock"), SharedWriteGate(tmp_path / "turns.lock")
    inside, ended, faults = [0], threading.Event(), []
    lock = threading.Lock()

    def write() -> None:
        while not ended.is_set():
            with theirs.shared(), theirs.shared():
                with lock:
                    inside[0] += 1
                time.sleep(0.003)
                with lock:
                    inside[0] -= 1

    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    while inside[0] < 4:
        time.sleep(0.001)
    for _ in range(20):
        with ours.exclusive():
            faults.append(inside[0])
            time.sleep(0.002)
            faults.append(inside[0])
    ended.set()
    for thread in threads:
        thread.join(30)
    assert set(faults) == {0}
    with theirs.shared(), ours.shared():
        pass


def test_a_turn_does_not_wait_for_ever_for_a_server_that_hangs(tmp_path: Path) -> None:
    ours, theirs = (SharedWriteGate(tmp_path / "turns.lock", patience_s=0.2) for _ in range(2))
    with theirs.shared():
        began = time.monotonic()
        with ours.exclusive():
            waited = time.monotonic() - began
    assert 0.2 <= waited < 3
