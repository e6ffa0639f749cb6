"""What replicas write, on its way to the server of their home."""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from phalanx.agent import server_courier
from phalanx.agent.server_courier import ServerCourier, fetch
from phalanx.uploads import Uploader, UploadRefused, UploadUnavailable
from tests.agent.pods import Pod

TOKEN = "phr_run-1_1_secret"
PATH = "/api/v1/pods/run-1/1/"


class Home:
    """A server as ours answers, and one that can be in trouble."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.order: list[str] = []
        self.trouble: list[int] = []  # codes of the next answers
        self.refused: set[str] = set()
        self.code = b""
        self.calls = 0
        home = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                home.put(self)

            def do_GET(self) -> None:
                home.calls += 1
                if home.trouble:
                    answer(self, home.trouble.pop(0))
                elif not is_told(self):
                    answer(self, 401)
                else:
                    answer(self, 200, home.code, "application/gzip")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def put(self, call: BaseHTTPRequestHandler) -> None:
        self.calls += 1
        body = call.rfile.read(int(call.headers["Content-Length"]))
        url = urllib.parse.urlsplit(call.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        name = urllib.parse.unquote(url.path).removeprefix(f"{PATH}files/")
        if self.trouble:
            answer(call, self.trouble.pop(0))
        elif not is_told(call):
            answer(call, 401)
        elif name in self.refused:
            answer(call, 400)
        else:
            kept = self.files.setdefault(name, bytearray())
            self.order.append(name)
            offset = int(query["offset"])
            if "size" in query and query.get("whole") == "1":
                kept[:] = body
            elif offset > len(kept):
                answer(call, 409, json.dumps({"size": len(kept)}).encode())
                return
            else:
                kept[offset : offset + len(body)] = body
            answer(call, 200, json.dumps({"size": len(kept)}).encode())

    def content(self) -> dict[str, bytes]:
        return {name: bytes(data) for name, data in self.files.items()}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def is_told(call: BaseHTTPRequestHandler) -> bool:
    return call.headers["Authorization"] == f"Bearer {TOKEN}"


def answer(call: BaseHTTPRequestHandler, code: int, body: bytes = b"{}", kind: str = "application/json") -> None:
    call.send_response(code)
    if code == 302:
        call.send_header("Location", "http://127.0.0.1:9/elsewhere")
    call.send_header("Content-Type", kind)
    call.send_header("Content-Length", str(len(body)))
    call.end_headers()
    call.wfile.write(body)


@pytest.fixture
def home() -> Iterator[Home]:
    made = Home()
    yield made
    made.close()


def courier(home: Home, folder: Path, *, token: str = TOKEN) -> ServerCourier:
    return ServerCourier(Uploader(home.url, token), "run-1", 1, str(folder), str(folder / "outputs"))


def write(folder: Path, name: str, data: bytes, *, age_s: float = 0.0) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (time.time() - age_s, time.time() - age_s))


ATTEMPT = "replicas/worker-0/attempt-1"


def test_what_is_new_is_sent_and_ends_come_last(tmp_path: Path, home: Home) -> None:
    sender = courier(home, tmp_path)
    write(tmp_path, f"{ATTEMPT}/log", b"one\n")
    write(tmp_path, f"{ATTEMPT}/agent.json", b"{}")
    write(tmp_path, f"{ATTEMPT}/end.json", b'{"cause": "finished"}')
    write(tmp_path, f"{ATTEMPT}/media/1.png", b"image")
    write(tmp_path, "replicas/worker-0.1/attempt-1/7.points", b"points")
    write(tmp_path, "outputs/model.bin", b"weights")
    write(tmp_path, "outputs/.draft", b"draft")
    assert sender.run_pass()
    assert home.content() == {
        "worker-0/log": b"one\n",
        "worker-0/agent.json": b"{}",
        "worker-0/media/1.png": b"image",
        "worker-0.1/7.points": b"points",
    }
    write(tmp_path, f"{ATTEMPT}/log", b"one\ntwo\n")
    assert sender.run_pass()
    assert home.content()["worker-0/log"] == b"one\ntwo\n"
    calls = home.calls
    assert sender.run_pass()
    assert home.calls == calls  # nothing new
    assert sender.finish()
    assert home.order[-1] == "worker-0/end.json"
    assert home.content()["outputs/model.bin"] == b"weights"
    assert "outputs/.draft" not in home.content()


def test_outputs_are_sent_once_they_have_settled(tmp_path: Path, home: Home) -> None:
    sender = courier(home, tmp_path)
    write(tmp_path, "outputs/deep/er/old.bin", b"old", age_s=60)
    write(tmp_path, "outputs/new.bin", b"new")
    assert sender.run_pass()
    assert home.content() == {"outputs/deep/er/old.bin": b"old"}


def test_a_large_file_goes_in_pieces(tmp_path: Path, home: Home) -> None:
    sender = courier(home, tmp_path)
    sender.post.most = 1000
    data, log = os.urandom(4500), os.urandom(3200)
    write(tmp_path, "outputs/model.bin", data, age_s=60)
    write(tmp_path, f"{ATTEMPT}/log", log)
    assert sender.run_pass()
    assert home.content() == {"outputs/model.bin": data, "worker-0/log": log}


def test_what_the_server_has_already_is_not_sent_again(tmp_path: Path, home: Home) -> None:
    """An agent that was started anew does not know how far it was."""
    home.files["worker-0/log"] = bytearray(b"one\n")
    write(tmp_path, f"{ATTEMPT}/log", b"one\ntwo\n")
    assert courier(home, tmp_path).run_pass()
    assert home.content()["worker-0/log"] == b"one\ntwo\n"


@pytest.mark.parametrize("trouble", [[500], [503, 429]])
def test_a_server_in_trouble_is_tried_again(
    tmp_path: Path, home: Home, trouble: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_courier, "TURN_S", 0.01)
    home.trouble = list(trouble)
    write(tmp_path, f"{ATTEMPT}/log", b"one\n")
    write(tmp_path, f"{ATTEMPT}/end.json", b"{}")
    sender = courier(home, tmp_path)
    sender.start()
    assert sender.finish(10.0)
    assert home.content() == {"worker-0/log": b"one\n", "worker-0/end.json": b"{}"}


def test_a_server_that_is_not_there_costs_a_bounded_time(tmp_path: Path, home: Home) -> None:
    home.close()
    write(tmp_path, f"{ATTEMPT}/end.json", b"{}")
    began = time.monotonic()
    pulses = []
    assert not courier(home, tmp_path).finish(0.5, lambda: pulses.append(1))
    assert time.monotonic() - began < 20
    assert pulses


def test_a_server_that_says_nothing_costs_a_bounded_time(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        write(tmp_path, f"{ATTEMPT}/end.json", b"{}")
        post = Uploader(f"http://127.0.0.1:{silent.getsockname()[1]}", TOKEN)
        began = time.monotonic()
        assert not ServerCourier(post, "run-1", 1, str(tmp_path), None).finish(0.5)
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("code", [401, 403, 409])
def test_a_server_that_has_done_with_the_attempt_is_left_alone(tmp_path: Path, home: Home, code: int) -> None:
    home.trouble = [code]
    write(tmp_path, f"{ATTEMPT}/log", b"one\n")
    write(tmp_path, f"{ATTEMPT}/end.json", b"{}")
    sender = courier(home, tmp_path)
    assert not sender.finish(10.0)
    assert (home.calls, sender.is_refused) == (1, True)
    assert TOKEN not in sender.trouble


def test_one_file_that_is_not_wanted_does_not_hold_up_the_others(tmp_path: Path, home: Home) -> None:
    home.refused = {"worker-0/log"}
    write(tmp_path, f"{ATTEMPT}/log", b"one\n")
    write(tmp_path, f"{ATTEMPT}/end.json", b"{}")
    sender = courier(home, tmp_path)
    assert sender.finish(10.0)
    assert home.content() == {"worker-0/end.json": b"{}"}
    assert list(sender.unwanted) == ["worker-0/log"]


def test_an_end_that_is_not_wanted_is_not_delivered(tmp_path: Path, home: Home) -> None:
    home.refused = {"worker-0/end.json"}
    write(tmp_path, f"{ATTEMPT}/end.json", b"{}")
    assert not courier(home, tmp_path).finish(10.0)


def test_the_token_goes_nowhere_else(tmp_path: Path, home: Home) -> None:
    home.trouble = [302]
    with pytest.raises(UploadRefused):
        fetch(Uploader(home.url, TOKEN), "run-1", 1, str(tmp_path / "code"), 5.0)
    assert home.calls == 1


def test_code_is_fetched_when_the_server_is_back(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    home.trouble, home.code = [503, 500], b"archive"
    fetch(Uploader(home.url, TOKEN), "run-1", 1, str(tmp_path / "code"), 60.0)
    assert (tmp_path / "code").read_bytes() == b"archive"
    home.trouble = [503] * 100
    with pytest.raises(UploadUnavailable):
        fetch(Uploader(home.url, TOKEN), "run-1", 1, str(tmp_path / "code"), 0.0)


def test_a_pod_delivers_to_the_server(tmp_path: Path, home: Home) -> None:
    pod = Pod(tmp_path, "echo hello; echo data > $PHALANX_OUTPUTS/x", courier="server", server=home.url)
    said = pod.run(PHALANX_RUN_TOKEN=TOKEN)
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[1:] == [b"hello"]  # for kubectl
    assert home.content()["master-0/log"] == b"hello\n"
    assert home.content()["outputs/x"] == b"data\n"
    assert json.loads(home.content()["master-0/end.json"])["cause"] == "finished"
    assert home.content()["master-0/spool"] == (pod.attempt() / "spool").read_bytes()


def test_a_pod_that_the_server_refuses_says_its_end_with_its_log(tmp_path: Path, home: Home) -> None:
    pod = Pod(tmp_path, "echo hello; exit 3", courier="server", server=home.url)
    said = pod.run(PHALANX_RUN_TOKEN="phr_wrong")
    assert said.code == 3
    assert "not everything reached the server" in said.err
    assert "phr_wrong" not in said.err + said.out.decode()
    files = said.files()
    assert files["master-0", "log"] == b"hello\n"
    assert json.loads(files["master-0", "end.json"])["code"] == 3


def test_without_a_token_a_pod_uses_its_log(tmp_path: Path, home: Home) -> None:
    pod = Pod(tmp_path, "echo hello", courier="server", server=home.url)
    said = pod.run()
    assert json.loads(said.files()["master-0", "end.json"])["cause"] == "finished"
    assert home.calls == 0


def test_a_pod_fetches_its_code_from_the_server(tmp_path: Path, home: Home) -> None:
    from tests.agent.test_pod_entry import bundle

    bundle(tmp_path / "code.tar.gz", train_py="print('fetched')")
    home.code = (tmp_path / "code.tar.gz").read_bytes()
    pod = Pod(tmp_path / "pod", "python3 train.py", courier="server", server=home.url)
    pod.place["code"]["kind"] = "server"
    pod.write()
    assert pod.run("--prepare", PHALANX_RUN_TOKEN=TOKEN).code == 0
    assert [path.name for path in (pod.root / "code").iterdir()] == ["train.py"]
    assert pod.run("--prepare", PHALANX_RUN_TOKEN="phr_wrong").code == 78
