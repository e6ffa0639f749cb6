"""Before anything starts, every replica reaches the others; else it is said who did not reach whom."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from phalanx.agent.preflight import (
    Address,
    PreflightFailed,
    PreflightInterrupted,
    connect,
    listen,
    meetings,
    run_preflight,
)
from phalanx.stored_plan import StoredPlan
from tests.agent.running import Agents, is_open, wait_for

THREE = {"replicas": {"n_workers": 2}}


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


def agents(folder: Path, command: str, **facts: Any) -> Agents:
    names = ("master-0", "worker-0", "worker-1")
    ports = dict(zip(names, free_ports(3), strict=True))
    given: dict[str, Any] = {"port": ports, "meeting_s": 2.0, **facts}
    return Agents(folder, command, environment=THREE, **given)


def test_all_meet_and_the_port_is_free_for_the_command(tmp_path: Path) -> None:
    bind = "import os, socket; socket.create_server((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))"
    run = agents(tmp_path, f'if [ "$RANK" = 0 ]; then python3 -c "{bind}"; fi').start()
    assert [run.end(name)["cause"] for name in run.names] == ["finished"] * 3


def test_no_one_starts_before_the_last_one_is_there(tmp_path: Path) -> None:
    run = agents(tmp_path, "date +%s.%N", meeting_s=20.0)
    facts = dict(run.facts)
    for names in (run.names[:2], run.names[2:]):
        time.sleep(0.4)
        come_at = time.time()
        run.write_facts({**facts, "folders": {name: facts["folders"][name] for name in names}})
        run.start()
    for name in run.names:
        assert run.end(name)["cause"] == "finished"
        assert float(run.log(name)) > come_at


def test_a_port_in_use_is_reported_with_its_owner(tmp_path: Path) -> None:
    run = agents(tmp_path, "true")
    port = run.facts["port"]["master-0"]
    with socket.create_server(("127.0.0.1", port)):
        run.start()
        end = run.end()
        assert end["cause"] == "meeting"
        assert f"port {port}, assigned to master-0, is used by another program (pid {os.getpid()}" in end["message"]
        assert "run again" in end["message"]
        assert end["message"] in run.log().decode()
        visitor = run.end("worker-0")
    assert visitor["cause"] == "meeting"
    assert f"worker-0 cannot reach master-0 at 127.0.0.1:{port}" in visitor["message"]


def test_a_name_that_no_one_knows_is_reported_with_the_pair(tmp_path: Path) -> None:
    run = agents(tmp_path, "true", host={"*": "no-such-host.invalid"}).start()
    end = run.end("worker-1")
    assert end["cause"] == "meeting"
    assert "worker-1 cannot reach master-0 at no-such-host.invalid:" in end["message"]
    assert "the host name no-such-host.invalid is unknown there" in end["message"]
    assert "worker-0, worker-1 did not connect to master-0" in run.end()["message"]


def test_a_replica_that_never_comes_is_named(tmp_path: Path) -> None:
    run = agents(tmp_path, "true")
    run.write_facts({**run.facts, "folders": {name: run.facts["folders"][name] for name in run.names[:2]}})
    run.start()
    message = run.end()["message"]
    assert "worker-1 did not connect to master-0" in message
    assert "waited 2 s" in message
    held = run.end("worker-0")["message"]
    assert "master-0 at" in held
    assert "is still waiting for others" in held or "gave up waiting for others" in held


def test_who_waits_can_be_asked_to_end(tmp_path: Path) -> None:
    run = agents(tmp_path, "true", meeting_s=60.0)
    run.write_facts({**run.facts, "folders": {"master-0": run.facts["folders"]["master-0"]}})
    run.start()
    os.kill(run.pid(), signal.SIGTERM)
    assert run.end()["cause"] == "stopped"


def test_strangers_at_the_door_change_nothing(tmp_path: Path) -> None:
    run = agents(tmp_path, "true", meeting_s=20.0)
    run.write_facts({**run.facts, "folders": {name: run.facts["folders"][name] for name in run.names[:2]}})
    run.start()
    address = ("127.0.0.1", run.facts["port"]["master-0"])

    def answered(said: bytes) -> bytes:
        with socket.create_connection(address, timeout=5) as stranger:
            stranger.sendall(said)
            try:
                return stranger.recv(16)
            except ConnectionResetError:
                return b""

    wait_for(lambda: is_open(address[1]))
    assert answered(b"GET / HTTP/1.1\r\n\r\n") == b""
    assert answered(b"phalanx another-run.1 worker-1\n") == b""
    assert answered(b"phalanx test-run.1 worker-9\n") == b""
    assert answered(b"x" * 5000) == b""
    run.write_facts({**run.facts, "folders": {"worker-1": run.facts["folders"]["worker-1"]}})
    run.start()
    assert [run.end(name)["cause"] for name in run.names] == ["finished"] * 3


def test_who_meets_whom_follows_from_the_plan() -> None:
    places = {name: Address(name, "h", 1) for name in ("master-0", "worker-0", "ps-0")}
    by_name = meetings(StoredPlan(meets=("master-0",)), places, "k")
    assert by_name["worker-0"].visits == (places["master-0"],)
    assert by_name["worker-0"].home is None
    assert by_name["master-0"].visitors == {"worker-0", "ps-0"}
    by_role = meetings(StoredPlan(meets=("worker", "ps")), places, "k")
    assert by_role["worker-0"].visits == (places["ps-0"],)
    assert by_role["master-0"].visits == (places["worker-0"], places["ps-0"])
    assert meetings(StoredPlan(), places, "k")["worker-0"].visits == ()
    assert meetings(StoredPlan(meets=("master-0",)), {"master-0": places["master-0"]}, "k") == {}
    many = {f"worker-{number}": Address(f"worker-{number}", "h", 1) for number in range(200)}
    assert len(meetings(StoredPlan(meets=("worker",)), many, "k")["worker-199"].visits) == 64
    assert meetings(StoredPlan(meets=("worker",)), dict.fromkeys(map(str, range(300)), places["ps-0"]), "k") == {}


def test_a_server_is_reached_or_said_not_to_be() -> None:
    (port,) = free_ports(1)
    address = Address("master-0", "127.0.0.1", port)
    with pytest.raises(
        PreflightFailed, match=rf"worker-0 cannot reach master-0 at 127.0.0.1:{port}: connection refused"
    ):
        connect(address, "worker-0", 0.1, lambda: False)
    with pytest.raises(PreflightInterrupted):
        connect(address, "worker-0", 5.0, lambda: True)
    with listen(address):
        connect(address, "worker-0", 0.1, lambda: False)
        with pytest.raises(PreflightFailed, match="is used by another program"):
            listen(address)


def test_who_meets_no_one_starts_at_once() -> None:
    lonely = meetings(StoredPlan(), {name: Address(name, "h", 1) for name in ("a-0", "b-0")}, "k")["a-0"]
    run_preflight(lonely, lambda _: None, lambda: True)
