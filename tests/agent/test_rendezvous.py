"""The key-value server that Horovod's ranks meet at, over real HTTP."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread

import pytest

from phalanx.agent.rendezvous import MOST_BYTES, serving
from tests.agent.running import Agents, is_open, wait_for
from tests.ports import free_ports

SIZES = {"global": 2}


class Client:
    def __init__(self, port: int) -> None:
        self.connection = HTTPConnection("127.0.0.1", port, timeout=10)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        self.connection.request(method, path, body=body)
        answer = self.connection.getresponse()
        return answer.status, answer.read()


@pytest.fixture(name="client")
def client_fixture() -> Iterator[Client]:
    server = serving(socket.create_server(("127.0.0.1", 0)), SIZES)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    client = Client(server.socket.getsockname()[1])
    yield client
    client.connection.close()
    server.shutdown()
    server.server_close()


def test_what_one_puts_the_others_get(client: Client) -> None:
    assert client.ask("GET", "/global/0")[0] == 404
    assert client.ask("PUT", "/global/0", b"an \0 address") == (200, b"")
    assert client.ask("GET", "/global/0") == (200, b"an \0 address")
    assert client.ask("PUT", "/global/0", b"") == (200, b"")
    assert client.ask("GET", "/global/0") == (200, b"")


def test_a_scope_is_empty_again_when_all_its_members_are_done(client: Client) -> None:
    client.ask("PUT", "/global/0", b"a")
    for _ in range(2):  # the same member twice is one member
        assert client.ask("DELETE", "/global/0") == (200, b"")
        assert client.ask("GET", "/global/0") == (200, b"a")
    client.ask("DELETE", "/global/1")
    assert client.ask("GET", "/global/0")[0] == 404


def test_of_any_other_scope_a_key_is_deleted_alone(client: Client) -> None:
    client.ask("PUT", "/mine/a", b"1")
    client.ask("PUT", "/mine/b", b"2")
    assert client.ask("DELETE", "/mine/a") == (200, b"")
    assert client.ask("GET", "/mine/a")[0] == 404
    assert client.ask("GET", "/mine/b") == (200, b"2")
    assert client.ask("DELETE", "/mine/nothing") == (200, b"")


@pytest.mark.parametrize("path", ["/", "/global", "/global/", "//x", "/a/b/c", "x"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_any_other_address_is_a_fault(client: Client, method: str, path: str) -> None:
    assert client.ask(method, path, b"" if method == "PUT" else None)[0] == 400


def test_too_much_is_not_read(client: Client) -> None:
    client.connection.putrequest("PUT", "/global/0")
    client.connection.putheader("Content-Length", str(MOST_BYTES + 1))
    client.connection.endheaders()
    assert client.connection.getresponse().status == 413


def test_it_serves_beside_the_first_replica_until_the_last_one_has_ended(tmp_path: Path) -> None:
    port, other = free_ports(2)
    done = tmp_path / "done"
    ask = f"exec 3<>/dev/tcp/127.0.0.1/{port}; echo 'GET /global/nothing HTTP/1.0' >&3; echo >&3; head -1 <&3"
    run = Agents(
        tmp_path,
        f'if [ "$HOROVOD_RANK" = 1 ]; then while [ ! -e {done} ]; do sleep 0.05; done; {ask}; fi',
        environment={"replicas": {"n_workers": 1}},
        framework="horovod",
        port={"master-0": port, "worker-0": other},
    ).start()
    assert run.end("master-0")["cause"] == "finished"
    client = Client(port)
    assert client.ask("GET", "/global/nothing")[0] == 404
    client.connection.close()
    done.touch()
    assert run.end("worker-0")["cause"] == "finished"
    assert b" 404 " in run.log("worker-0")
    wait_for(lambda: not is_open(port))
    assert json.loads((tmp_path / "plan.json").read_text())["service"]["global"] == 2


STARTS_THE_SERVER_ALONE = """
import sys
from phalanx.agent import launcher
launcher.serve(*launcher.read(*sys.argv[1:]))
"""


def test_it_waits_for_replicas_that_have_not_started_yet(tmp_path: Path) -> None:
    port, other = free_ports(2)
    run = Agents(
        tmp_path,
        "true",
        environment={"replicas": {"n_workers": 1}},
        framework="horovod",
        port={"master-0": port, "worker-0": other},
    )
    files = [str(tmp_path / name) for name in ("plan.json", "facts.json")]
    subprocess.run([sys.executable, "-c", STARTS_THE_SERVER_ALONE, *files], check=True, timeout=60)
    for name in run.names:
        client = Client(port)
        assert client.ask("GET", "/global/nothing")[0] == 404
        client.connection.close()
        time.sleep(0.7)  # it looks every half second
        assert is_open(port)
        (run.attempt(name) / "end.json").write_text("{}")
    wait_for(lambda: not is_open(port))
