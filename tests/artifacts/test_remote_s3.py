"""Outputs in a real S3 server: moto's, in a process of its own. Needs `moto[server]` and `s3fs`: `make test-s3`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from phalanx.artifacts.downloads import download, free_local, open_output, restore
from phalanx.artifacts.outputs import browse, read_manifest
from phalanx.artifacts.remote import RemoteStorage, push
from phalanx.errors import SystemFault
from tests.artifacts.test_outputs import sha256
from tests.ports import free_port
from tests.scheduler.leftovers import Left, left_fixture  # noqa: F401 - found by its name

KEY = "phalanx-test-secret-key"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"{address}/moto-api/", timeout=5).close()
            break
        except OSError:
            assert process.poll() is None, "moto's server ended"
            assert time.monotonic() < deadline, "moto's server does not answer"
            time.sleep(0.1)
    yield address
    process.kill()
    process.wait()


@pytest.fixture
def environment(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    variables = {
        "AWS_ENDPOINT_URL_S3": server,
        "AWS_ACCESS_KEY_ID": "phalanx",
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


@pytest.fixture
def storage(environment: dict[str, str]) -> Any:
    return import_module("s3fs").S3FileSystem(skip_instance_cache=True, use_listings_cache=False)


@pytest.fixture
def url(storage: Any) -> Iterator[str]:
    bucket = f"runs-{os.urandom(4).hex()}"
    storage.mkdir(bucket)
    yield f"s3://{bucket}/team/one"
    storage.rm(bucket, recursive=True)


def objects(storage: Any, url: str) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in storage.find(f"{url}/objects"))


def test_the_whole_way(left: Left, url: str, storage: Any, tmp_path: Path) -> None:
    files = {"outputs/a b/ü": b"one", "artifacts/x": b"two", "models/m/1/w": b"two", "outputs/empty": b""}
    folder = left.run("r1", files)
    left.run("r2", {"outputs/y": b"two"})
    pushed = push(left.home, "r1", url)
    assert (pushed.sent, pushed.known, pushed.sent_bytes) == (3, 0, 6)
    assert push(left.home, "r1", url)[1:3] == (0, 3)
    assert push(left.home, "r2", url)[1:3] == (0, 1)
    assert objects(storage, url) == sorted(sha256(data) for data in (b"one", b"two", b""))
    assert free_local(left.home, "r1") == 9
    assert browse(folder, "outputs/a b/ü")[0].place == "remote"
    with open_output(left.home, "r1", "outputs/a b/ü")[0] as stream:
        assert stream.read(2) == b"on"
    assert download(left.home, "r1", "outputs", tmp_path / "got").unchecked == 0
    assert (tmp_path / "got/a b/ü").read_bytes() == b"one"
    assert restore(left.home, "r1") == 4
    assert {path: (folder / path).read_bytes() for path in files} == files


def test_a_large_file_goes_in_parts_and_comes_back_whole(left: Left, url: str, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 61  # more than s3fs sends in one part
    left.run("r1", {"artifacts/big": data})
    calls: list[tuple[str, int, int]] = []
    push(left.home, "r1", url, lambda *what: calls.append(what))
    sending = [done for what, done, _ in calls if what.startswith("sending")]
    assert len(sending) > 1
    assert sending[-1] == len(data)
    free_local(left.home, "r1")
    download(left.home, "r1", "artifacts/big", tmp_path / "big")
    assert sha256((tmp_path / "big").read_bytes()) == sha256(data)


def test_damage_there_is_found(left: Left, url: str, storage: Any, tmp_path: Path) -> None:
    left.run("r1", {"outputs/a": b"one"})
    push(left.home, "r1", url)
    storage.pipe_file(f"{url}/objects/{sha256(b'one')}", b"eno")
    with pytest.raises(SystemFault, match="is damaged"):
        free_local(left.home, "r1")
    assert (left.folder("r1").path / "outputs/a").read_bytes() == b"one"


def test_killed_while_it_sends_it_goes_on(left: Left, url: str, storage: Any, environment: dict[str, str]) -> None:
    files = {f"outputs/{n:02}": os.urandom(300_000) for n in range(30)}
    left.run("r1", files)
    code = """
import sys
from pathlib import Path
from phalanx.home.home import Home
from phalanx.artifacts.remote import push
push(Home(Path(sys.argv[1])), "r1", sys.argv[2])
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(left.home.path), url])
    deadline = time.monotonic() + 60
    while not objects(storage, url):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = len(objects(storage, url))
    assert not storage.exists(f"{url}/runs/r1.json")
    pushed = push(left.home, "r1", url)
    assert pushed.known >= there > 0
    assert pushed.sent + pushed.known == 30
    assert objects(storage, url) == sorted(sha256(data) for data in files.values())


def test_a_bucket_that_is_not_there_is_said_and_not_made(left: Left, storage: Any) -> None:
    left.run("r1", {"outputs/a": b"one"})
    with pytest.raises(SystemFault, match="s3://no-such-bucket-of-ours"):
        push(left.home, "r1", "s3://no-such-bucket-of-ours/x")
    assert not storage.exists("no-such-bucket-of-ours")
    assert read_manifest(left.folder("r1").path).url is None


def test_a_server_that_is_away_is_said(left: Left, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left.run("r1", {"outputs/a": b"one"})
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(SystemFault, match="cannot be"):
        push(left.home, "r1", url)


def test_no_key_is_kept_anywhere(left: Left, url: str, storage: Any) -> None:
    left.run("r1", {"outputs/a": b"one"})
    push(left.home, "r1", url)
    left.settle("r1")
    for path in left.home.path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()
    manifest = storage.cat_file(f"{url}/runs/r1.json")
    assert KEY.encode() not in manifest
    assert list(json.loads(manifest)["files"]) == ["outputs/a"]
    assert RemoteStorage(url).manifest("r1") == {"outputs/a": (3, sha256(b"one"))}
