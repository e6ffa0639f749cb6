"""Jupyter under the agent: where it listens, and who can read its token."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from phalanx import plan, spec
from phalanx.agent.interactive.notebook import NotebookServer, read_address
from phalanx.agent.processes import descendants
from phalanx.plan.document import document
from tests.agent.running import Agents, wait_for
from tests.notebook.fake_jupyter import install
from tests.ports import free_port


class Notebook(Agents):
    def __init__(self, folder: Path, **facts: Any) -> None:
        super().__init__(folder, "true", **facts)
        made = plan.make(spec.load_document("test", {"version": 1, "kind": "notebook"}), "test-run")
        (folder / "plan.json").write_text(json.dumps(document(made)))
        self.bin = install(folder / "bin")

    def started(self, is_open: str = "") -> Notebook:
        self.start(PATH=f"{self.bin}{os.pathsep}{os.environ['PATH']}", FAKE_IS_OPEN=is_open)
        return self

    @property
    def place(self) -> Path:
        return self.attempt() / ".notebook"

    def address(self) -> dict[str, Any]:
        wait_for((self.place / "address.json").exists)
        return dict(read_address((self.place / "address.json").read_bytes()))

    def stop(self) -> None:
        os.kill(self.pid(), signal.SIGTERM)
        self.end()


@pytest.fixture(name="short")
def short_fixture() -> Iterator[Path]:
    """A folder whose path leaves room for that of a socket."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


def status(address: dict[str, Any], token: str = "") -> int:
    family = socket.AF_UNIX if address["socket"] else socket.AF_INET
    with socket.socket(family) as line:
        line.connect(address["socket"] or ("127.0.0.1", address["port"]))
        asked = f"GET /api/contents HTTP/1.1\r\nHost: localhost\r\nAuthorization: token {token}\r\n\r\n"
        line.sendall(asked.encode())
        return int(line.recv(100).split()[1])


def test_in_a_job_it_listens_on_a_socket_that_only_its_user_can_use(short: Path) -> None:
    notebook = Notebook(short, job="slurm:1", node={}).started()
    try:
        address = notebook.address()
        assert (address["socket"], address["port"]) == (str(notebook.place / "socket"), None)
        assert (status(address), status(address, address["token"])) == (403, 200)
        modes = {path.name: path.stat().st_mode & 0o777 for path in (notebook.place, *notebook.place.rglob("*"))}
        assert modes.pop(".notebook") == modes.pop("labconfig") == 0o700
        assert set(modes.values()) == {0o600}
    finally:
        notebook.stop()
    assert not notebook.place.exists(), "nothing with the token is left"


def test_on_this_machine_it_listens_on_loopback_and_its_token_is_in_no_argument_and_no_log(tmp_path: Path) -> None:
    port = free_port()
    notebook = Notebook(tmp_path, port={"master-0": port}).started()
    try:
        address = notebook.address()
        assert (address["socket"], address["port"], address["page"]) == (None, port, "/lab")
        assert (status(address), status(address, "wrong"), status(address, address["token"])) == (403, 403, 200)
        token = address["token"].encode()
        assert len(token) >= 32
        for process in descendants(notebook.pid()):
            assert token not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
            assert token not in Path(f"/proc/{process.pid}/environ").read_bytes()
        elsewhere = [path for path in tmp_path.rglob("*") if path.is_file() and notebook.place not in path.parents]
        assert elsewhere
        assert not any(token in path.read_bytes() for path in elsewhere)
        assert f"--ServerApp.ip=127.0.0.1', '--ServerApp.port={port}'".encode() in notebook.log()
    finally:
        notebook.stop()


def test_a_server_that_answers_without_a_token_is_ended(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, port={"master-0": free_port()}).started(is_open="1")
    assert notebook.end()["cause"] == "error"
    assert b"ended, because Jupyter answered without a token" in notebook.log()


def test_a_machine_without_jupyter_says_how_to_get_it(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path)
    notebook.start(PATH="/nowhere")
    assert notebook.end()["code"] == 127
    assert notebook.log().endswith(b"`pip install jupyterlab`\n")


def test_a_path_that_is_too_long_for_a_socket_gives_a_private_folder_of_the_node_or_else_loopback(
    tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("long" * 20) / ("longer" * 10)
    folder.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(short))
    server = NotebookServer(str(folder), {}, "/lab", None)
    assert server.socket is not None
    assert Path(server.socket).is_relative_to(short)
    assert Path(server.socket).parent.stat().st_mode & 0o777 == 0o700
    server.close(0, print)
    assert not any(short.iterdir())
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    server = NotebookServer(str(folder), {}, "/lab", None)
    assert server.socket is None
    assert list(server.options[:2]) == ["--ServerApp.ip=127.0.0.1", f"--ServerApp.port={server.port}"]


def test_a_token_of_the_users_shell_is_not_used(tmp_path: Path) -> None:
    environment = {"JUPYTER_TOKEN": "known", "JUPYTER_TOKEN_FILE": "/some", "JUPYTER_CONFIG_PATH": "/mine"}
    server = NotebookServer(str(tmp_path), environment, "/lab", 4000)
    assert environment["JUPYTER_CONFIG_PATH"] == f"{server.folder}:/mine"
    assert not environment.keys() & {"JUPYTER_TOKEN", "JUPYTER_TOKEN_FILE"}


@pytest.mark.parametrize("text", [b"", b"[]", b'{"token": 1}', b"\xff"])
def test_a_damaged_address_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of JSON, or ours
        read_address(text)
