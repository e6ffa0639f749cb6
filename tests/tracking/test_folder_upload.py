"""To a server: kept here first, sent beside the training; delivered in the end, or left to be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from phalanx import tracking
from phalanx.tracking import TrackedRun, folder_upload
from tests.cli.homes import Place, place_fixture, wait_for  # noqa: F401 - the fixture
from tests.tracking.post import TOKEN, Post
from tests.tracking.reading import Replica, clean_environment, only_run, runs_of, script

NO_ANSWERS = (b"[1,2]", b"\xff\xfe\xfd", b"{}", b"<html>Please log in</html>", b"null", b"[" * 100_000)


@pytest.fixture(name="post")
def post_fixture() -> Iterator[Post]:
    with Post() as post:
        yield post


@pytest.fixture(name="outbox")
def outbox_fixture(home: Path, post: Post, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a run is kept until it is delivered; everybody is in a hurry."""
    monkeypatch.setenv("PHALANX_TOKEN", TOKEN)
    monkeypatch.setenv("PHALANX_SERVER", post.url)
    for name, value in {"TURN_S": 0.05, "LONGEST_TURN_S": 0.1, "BEAT_S": 0.2, "LAST_S": 1.0, "TIMEOUT_S": 2.0}.items():
        monkeypatch.setattr(folder_upload, name, value)
    return home / "outbox"


def as_sent(post: Post, folder: Path) -> Replica:
    """The run as the server has it, as a folder like any other."""
    ((run_id, _),) = post.runs.items()
    for path, data in post.files.items():
        (folder / run_id / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / run_id / path).write_bytes(data)
    return Replica(folder / run_id)


def kept(outbox: Path) -> list[Replica]:
    return runs_of(outbox)


def train(steps: int = 100) -> TrackedRun:
    run = tracking.start(name="sent", project="vision", tags=["a"], description="hello")
    for step in range(steps):
        run.log(loss=float(step), step=step)
    run.params(lr=0.1)
    return run


def test_everything_is_delivered_and_nothing_is_left(outbox: Path, post: Post, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(9 << 20))  # in three pieces
    (tmp_path / "tricky.points").write_bytes(b"not what it is called")
    (tmp_path / "empty").write_bytes(b"")
    run = train()
    run.artifact(tmp_path / "large", "a b/lärge ü?&#%")
    run.artifact(tmp_path / "tricky.points", "x.points")
    run.artifact(tmp_path / "empty", "empty")
    run.model(tmp_path / "empty", "net")
    run.image("i", tmp_path / "tricky.points")
    run.finish()
    ((run_id, fields),) = post.runs.items()
    assert run_id == run.id
    assert (fields["name"], fields["project"], fields["tags"], fields["description"]) == (
        "sent",
        "vision",
        ["a"],
        "hello",
    )
    sent = as_sent(post, tmp_path / "sent")
    assert sent.points()["loss"] == [(step, float(step)) for step in range(100)]
    assert sent.params() == {"lr": 0.1}
    assert post.files["artifacts/a b/lärge ü?&#%"] == (tmp_path / "large").read_bytes()
    assert post.files["artifacts/x.points"] == b"not what it is called"
    assert post.files["artifacts/empty"] == b""
    assert (sent.run / sent.event("model")["path"]).read_bytes() == b""
    assert (sent.folder / sent.event("image")["path"]).read_bytes() == b"not what it is called"
    end = {"status": "succeeded", "reason": "finished", "at": post.ends[run.id]["at"], "attempt": 1}
    assert post.ends == {run.id: end}
    assert kept(outbox) == []
    assert [path for path in outbox.rglob("*") if path.is_file()] == []


def test_it_is_sent_while_it_runs(outbox: Path, post: Post) -> None:
    run = train()
    wait_for(lambda: post.beats > 1 and any(path.endswith(".points") for path in post.files))
    before = len(post.file(".points"))
    run.log(loss=-1.0)
    wait_for(lambda: len(post.file(".points")) > before)
    offsets = [request.partition("offset=")[2] for request in post.requests if ".points" in request]
    assert len(offsets) == len(set(offsets))  # only what was new
    assert not post.ends


def test_a_failure_is_reported_as_such(outbox: Path, post: Post) -> None:
    with pytest.raises(ZeroDivisionError), tracking.start():
        1 / 0  # noqa: B018
    ((end,),) = [list(post.ends.values())]
    assert (end["status"], end["reason"]) == ("failed", "ZeroDivisionError: division by zero")


def test_a_file_that_is_replaced_is_sent_again(outbox: Path, post: Post, tmp_path: Path) -> None:
    run = train()
    for text in ("first", "second, and longer", "3"):
        (tmp_path / "a").write_text(text)
        run.artifact(tmp_path / "a")
        wait_for(partial(_has, post, "artifacts/a", text.encode()))


def _has(post: Post, path: str, data: bytes) -> bool:
    return post.files.get(path) == data


def test_a_server_that_comes_later(outbox: Path, post: Post, tmp_path: Path) -> None:
    post.leave()
    run = train()
    time.sleep(0.3)
    assert not post.runs
    post.come()
    run.finish()
    assert len(as_sent(post, tmp_path / "sent").values("loss")) == 100
    assert kept(outbox) == []


def test_a_server_that_dies_in_between(outbox: Path, post: Post, tmp_path: Path) -> None:
    run = train()
    wait_for(lambda: any(path.endswith(".points") for path in post.files))
    for number in range(3):
        post.leave()
        run.log(loss=1000.0 + number)
        time.sleep(0.15)
        post.come()
        run.log(loss=2000.0 + number)
        time.sleep(0.15)
    run.finish()
    assert as_sent(post, tmp_path / "sent").values("loss") == [
        *map(float, range(100)), 1000.0, 2000.0, 1001.0, 2001.0, 1002.0, 2002.0,
    ]  # fmt: skip
    assert kept(outbox) == []


@pytest.mark.parametrize(
    "trouble",
    [
        500, 503, 429, b"", b"HTTP/1.1 2", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}",
        b"HTTP/1.1 500 Trouble\r\nContent-Length: 99\r\n\r\n{}",
        *(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text) for text in NO_ANSWERS),
    ],
)  # fmt: skip
def test_trouble_that_passes(outbox: Path, post: Post, tmp_path: Path, trouble: Any) -> None:
    post.breaks = [trouble] * 7
    run = train()
    wait_for(lambda: not post.breaks)
    run.finish()
    sent = as_sent(post, tmp_path / "sent")
    assert sent.points()["loss"] == [(step, float(step)) for step in range(100)]
    assert sent.params() == {"lr": 0.1}
    assert list(post.ends) == [run.id]
    assert kept(outbox) == []


@pytest.mark.parametrize("trouble", [500, b"nonsense\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"])
def test_trouble_that_stays(
    outbox: Path, post: Post, trouble: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    post.is_broken = trouble
    run = train()
    before = time.monotonic()
    run.finish()
    assert time.monotonic() - before < 60
    assert only_run(outbox).values("loss") == list(map(float, range(100)))
    assert only_run(outbox).end()["cause"] == "finished"
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "send the rest with `phalanx sync`" in said


def test_half_of_what_was_sent(outbox: Path, post: Post, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(9 << 20))
    post.half_of = ".points"
    run = train(5000)
    wait_for(lambda: any(path.endswith(".points") for path in post.files))
    post.half_of = "large"
    run.artifact(tmp_path / "large")
    run.finish()
    assert as_sent(post, tmp_path / "sent").values("loss") == list(map(float, range(5000)))
    assert post.files["artifacts/large"] == (tmp_path / "large").read_bytes()


def test_a_wrong_token_is_said_once_and_costs_no_time(
    outbox: Path, post: Post, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_TOKEN", "wrong")
    monkeypatch.setattr(folder_upload, "LAST_S", 30.0)
    run = train()
    wait_for(lambda: len(post.requests) > 3)
    before = time.monotonic()
    run.finish()
    assert time.monotonic() - before < 25
    said = capsys.readouterr().err
    assert said.count("401") == 1
    assert "who are you?" in said
    assert only_run(outbox).values("loss") == list(map(float, range(100)))
    assert not post.runs


@pytest.mark.parametrize("token", ["", "ü", "a\nb", "x" * 100_000])
def test_strange_tokens(outbox: Path, post: Post, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("PHALANX_TOKEN", token)
    run = train()
    run.finish()
    assert len(kept(outbox)) == 1


def test_a_file_that_is_refused_does_not_hold_up_the_others(
    outbox: Path, post: Post, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text("alpha")
    post.refused = "artifacts/bad"
    run = train()
    for name in ("bad", "good"):
        run.artifact(tmp_path / "a", name)
    run.finish()
    assert post.files["artifacts/good"] == b"alpha"
    assert len(as_sent(post, tmp_path / "sent").values("loss")) == 100
    assert len(kept(outbox)) == 1  # it is not all there
    assert [end["status"] for end in post.ends.values()] == ["succeeded"]
    assert "not this one" in capsys.readouterr().err


def test_a_server_that_forgot_the_run(outbox: Path, post: Post, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("alpha")
    run = train()
    run.artifact(tmp_path / "a")
    wait_for(lambda: "artifacts/a" in post.files)
    with post.lock:
        post.runs.clear()
        post.files.clear()
    run.log(loss=100.0)
    run.finish()
    assert as_sent(post, tmp_path / "sent").values("loss") == list(map(float, range(101)))
    assert post.files["artifacts/a"] == b"alpha"
    assert kept(outbox) == []


def test_a_server_that_takes_nothing(outbox: Path, post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """It always says that it has less than it was sent."""
    monkeypatch.setattr("tests.tracking.post._Handler._put", lambda *_: (409, {"size": 0}))
    run = train()
    before = time.monotonic()
    run.finish()
    assert time.monotonic() - before < 60
    assert len(post.requests) < 500
    assert len(kept(outbox)) == 1


def test_a_conflict_that_is_no_offset_is_a_refusal(outbox: Path, post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.tracking.post._Handler._put", lambda *_: (409, {"error": {"message": "a folder"}}))
    train().finish()
    assert len(kept(outbox)) == 1


def test_a_slow_server_does_not_slow_the_training(outbox: Path, post: Post, tmp_path: Path) -> None:
    post.delay_s = 0.3
    before = time.monotonic()
    run = train(5000)
    for _ in range(20):
        run.log(loss=0.5)
        time.sleep(0.001)
    assert time.monotonic() - before < 30
    run.finish()
    assert len(as_sent(post, tmp_path / "sent").values("loss")) == 5020
    assert kept(outbox) == []


def test_a_server_that_never_answers(outbox: Path, post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_upload, "TIMEOUT_S", 0.3)
    post.delay_s = 3.0
    run = train()
    before = time.monotonic()
    run.finish()
    assert time.monotonic() - before < 60
    assert len(kept(outbox)) == 1


def test_a_large_file_does_not_silence_the_signs_of_life(
    outbox: Path, post: Post, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_upload, "PIECE", 1000)
    (tmp_path / "large").write_bytes(bytes(50_000))
    run = train()
    run.artifact(tmp_path / "large")
    wait_for(lambda: any("large" in request for request in post.requests))
    post.delay_s = 0.02
    wait_for(lambda: "artifacts/large" in post.files)
    pieces = [place for place, request in enumerate(post.requests) if "large" in request]
    assert any("/beat" in request for request in post.requests[pieces[0] : pieces[-1]])


def test_without_another_thread_all_is_sent_at_the_end(
    outbox: Path, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread.start", refuse)
        run = train()
    run.finish()
    assert list(post.ends) == [run.id]
    assert kept(outbox) == []


def test_children_are_sent_along(outbox: Path, post: Post, tmp_path: Path) -> None:
    run = train(1)
    child = os.fork()
    if child == 0:
        run.log(child=1.0)
        run.finish()
        os._exit(0)
    os.waitpid(child, 0)
    text = "from phalanx import tracking; tracking.log(started=2.0)"
    environment = {**clean_environment(), **{name: os.environ[name] for name in os.environ if "PHALANX" in name}}
    subprocess.run([sys.executable, "-c", text], check=True, env=environment)
    assert not post.ends
    run.finish()
    sent = as_sent(post, tmp_path / "sent")
    assert (sent.values("child"), sent.values("started")) == ([1.0], [2.0])


@pytest.mark.slow
def test_a_server_that_is_away_delays_the_end_little_and_gets_the_run_later(
    place: Place, post: Post, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ps` lists the run as not sent, and `sync` knows the server by itself."""
    monkeypatch.setenv("PHALANX_HOME", str(place.home))
    monkeypatch.setattr(folder_upload, "LAST_S", 60.0)
    port = post.port
    post.leave()
    run = tracking.start(name="later", server=f"http://127.0.0.1:{port}")
    run.log(loss=0.5, step=1)
    before = time.monotonic()
    run.finish()
    assert time.monotonic() - before < 30
    (listed,) = place.call("ps", "--json").data["unsent"]
    assert (listed["id"], listed["status"], listed["server"]) == (run.id, "succeeded", f"http://127.0.0.1:{port}")
    line = place.call("ps").out.splitlines()[1]
    assert line.startswith(f"{run.id}  later  succeeded")
    assert f"not sent to http://127.0.0.1:{port}: `phalanx sync` sends it" in line
    away = place.call("ps", PHALANX_SERVER=f"http://127.0.0.1:{port}")
    assert away.code != 0
    assert run.id in away.out
    post.come()
    answer = place.call("sync", PHALANX_TOKEN=TOKEN)
    assert answer.out == f"{run.id}  delivered to http://127.0.0.1:{port}\n"
    assert as_sent(post, tmp_path / "sent").values("loss") == [0.5]
    assert place.call("ps", "--json").data["unsent"] == []


@pytest.mark.slow
def test_what_is_left_is_sent_by_the_command(place: Place, post: Post, tmp_path: Path) -> None:
    """After kill -9, too."""
    text = """
import os
from phalanx import tracking
for step in range(50):
    tracking.log(loss=float(step), step=step)
os.kill(os.getpid(), 9)
"""
    port = post.port
    post.leave()
    script(text, PHALANX_HOME=str(place.home), PHALANX_SERVER=f"http://127.0.0.1:{port}", PHALANX_TOKEN=TOKEN)
    assert only_run(place.home / "outbox").values("loss") == list(map(float, range(50)))
    sync = partial(place.call, "sync", PHALANX_SERVER=post.url, PHALANX_TOKEN=TOKEN)
    assert sync().code == 1
    post.come()
    answer = sync("--json")
    assert answer.data["ok"], answer
    assert as_sent(post, tmp_path / "sent").values("loss") == list(map(float, range(50)))
    ((end,),) = [list(post.ends.values())]
    assert (end["status"], end["reason"]) == ("failed", "its process ended without a word")
    assert runs_of(place.home / "outbox") == []
    assert sync().out == "Nothing to upload.\n"


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        ("http://host", True), ("https://host:8000/x/", True), ("", False), ("ftp://host", False), ("host:80", False),
        ("http://", False), ("http://a b", False), ("file:///etc/passwd", False), ("http://a\n", False),
    ],
)  # fmt: skip
def test_what_is_an_address(address: str, is_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PHALANX_SERVER", raising=False)
    if is_one:
        assert folder_upload.server_url(address) == address
    elif address:
        with pytest.raises(ValueError, match="a server URL looks like"):
            folder_upload.server_url(address)
    else:
        assert folder_upload.server_url(address) is None


def test_the_token_of_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PHALANX_TOKEN", raising=False)
    assert folder_upload.token(str(tmp_path)) == ""
    (tmp_path / "token").write_text("abc\n")
    assert folder_upload.token(str(tmp_path)) == "abc"
    monkeypatch.setenv("PHALANX_TOKEN", "def")
    assert folder_upload.token(str(tmp_path)) == "def"


# to the real one -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_real_server_takes_it(place: Place, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    with _socket_port() as port:
        pass
    server = place.start("serve", "--port", str(port))
    token = place.home / "token"
    try:
        wait_for(lambda: token.exists() and _is_up(port))
        (tmp_path / "large").write_bytes(os.urandom(6 << 20))
        text = f"""
from phalanx import tracking
with tracking.start(name="sent", params={{"lr": 0.1}}, tags=["a"]) as run:
    for step in range(1000):
        run.log(loss=float(step), step=step)
    run.artifact({str(tmp_path / "large")!r}, "x/large.points")
    run.model({str(tmp_path / "large")!r}, "net")
"""
        answer = script(
            text,
            PHALANX_HOME=str(tmp_path / "elsewhere"),
            PHALANX_SERVER=f"http://127.0.0.1:{port}",
            PHALANX_TOKEN=token.read_text().strip(),
        )
        assert answer == (0, "", "")
        assert runs_of(tmp_path / "elsewhere" / "outbox") == []
        (run_id,) = place.run_ids()
        run = Replica(place.home / "runs" / run_id)
        assert run.series("loss") == (list(range(1000)), list(map(float, range(1000))))
        assert (run.run / "artifacts" / "x" / "large.points").read_bytes() == (tmp_path / "large").read_bytes()
        row = wait_for(lambda: next((r for r in place.call("ps", "--json").data["runs"] if r["summary"]), None))
        assert (row["name"], row["status"], row["params"], row["tags"]) == ("sent", "succeeded", {"lr": 0.1}, ["a"])
    finally:
        server.terminate()
        server.communicate(timeout=30)


def _socket_port() -> Any:
    from contextlib import contextmanager
    from socket import socket

    @contextmanager
    def free() -> Iterator[int]:
        with socket() as probe:
            probe.bind(("127.0.0.1", 0))
            yield probe.getsockname()[1]

    return free()


def _is_up(port: int) -> bool:
    from urllib.error import URLError
    from urllib.request import urlopen

    ask: Callable[..., Any] = urlopen
    try:
        with ask(f"http://127.0.0.1:{port}/healthz", timeout=1) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
