"""What replicas write, on its way into the output of their container."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import frames
from phalanx.agent import stdout_courier
from phalanx.agent.stdout_courier import Output, StdoutCourier, attempt_files
from tests.agent.pods import Said
from tests.examples import examples


class Pipe:
    """An output that is read when the test says so."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.output = Output(self.writing)

    def read(self) -> bytes:
        os.set_blocking(self.reading, False)
        found = b""
        try:
            while piece := os.read(self.reading, 1 << 20):
                found += piece
        except BlockingIOError:
            pass
        return found

    def close(self) -> None:
        for descriptor in (self.reading, self.writing):
            with suppress(OSError):  # the test did
                os.close(descriptor)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def folder(base: Path, member: str = "worker-0") -> Path:
    made = base / member / "attempt-1"
    made.mkdir(parents=True, exist_ok=True)
    return made


def test_lines_come_as_they_are_finished(tmp_path: Path, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = StdoutCourier(str(tmp_path), 1, "worker-0", pipe.output)
    with (folder(tmp_path) / "log").open("ab", buffering=0) as log:
        log.write(b"one\ntw")
        relay.turn()
        assert pipe.read() == b'::phalanx {"r":"worker-0","f":"log","at":0}\none\n'
        log.write(b"o\n")
        relay.turn()
        assert pipe.read() == b'::phalanx {"r":"worker-0","f":"log","at":4}\ntwo\n'
        log.write(b" 10%")
        relay.turn()
        assert pipe.read() == b""
        monkeypatch.setattr(stdout_courier, "CUT_S", 0.0)
        relay.turn()
        assert pipe.read() == b'::phalanx {"r":"worker-0","f":"log","at":8,"cut":1}\n 10%\n'


def test_an_end_comes_after_all_that_was_said(tmp_path: Path, pipe: Pipe) -> None:
    relay = StdoutCourier(str(tmp_path), 1, "worker-0", pipe.output)
    (folder(tmp_path) / "end.json").write_text("{}")
    (folder(tmp_path) / "log").write_bytes(b"not finished")
    relay.turn()
    assert b"end.json" not in pipe.read()
    assert relay.finish()
    said = pipe.read()
    assert said.index(b"not finished") < said.index(b'"end.json"')


def test_other_processes_and_other_files_come_as_frames(tmp_path: Path, pipe: Pipe) -> None:
    relay = StdoutCourier(str(tmp_path), 1, "worker-0", pipe.output)
    kept = {
        ("worker-0", "log"): b"first\n",
        ("worker-0", "spool"): os.urandom(20_000),
        ("worker-0", "7.points"): os.urandom(100),
        ("worker-0", "media/1-2-0.png"): os.urandom(9_000),
        ("worker-0", "agent.json"): b"{}",
        ("worker-0.1", "log"): b"second\n",
    }
    (folder(tmp_path) / "media").mkdir()
    for (member, name), data in kept.items():
        (folder(tmp_path, member) / name).write_bytes(data)
    for stranger in ("end.draft", ".hidden.points", "media/.draft", "asked-to-end"):
        (folder(tmp_path) / stranger).write_bytes(b"stranger")
    (tmp_path / "worker-0" / "attempt-2").mkdir()
    (tmp_path / "worker-0" / "attempt-2" / "log").write_bytes(b"another attempt\n")
    assert relay.finish()
    out = pipe.read()
    assert Said(0, out).files("worker-0") == kept
    assert b"second" not in out
    assert relay.turn(is_last=True)
    assert pipe.read() == b""


@examples(40)
@given(st.lists(st.tuples(st.binary(max_size=60) | st.just(b"::phalanx {}\n"), st.booleans()), max_size=12))
def test_a_log_that_grows_while_it_is_read_comes_home(
    tmp_path_factory: pytest.TempPathFactory, grown: list[tuple[bytes, bool]]
) -> None:
    base, pipe = tmp_path_factory.mktemp("pod"), Pipe()
    relay = StdoutCourier(str(base), 1, "worker-0", pipe.output)
    out = b""
    with (folder(base) / "log").open("ab", buffering=0) as log:
        for data, is_looked_at in grown:
            log.write(data)
            if is_looked_at:
                relay.turn()
                out += pipe.read()
    relay.finish()
    out += pipe.read()
    pipe.close()
    assert Said(0, out).files("worker-0").get(("worker-0", "log"), b"") == b"".join(data for data, _ in grown)


def test_with_another_way_home_the_log_alone_is_shown(tmp_path: Path, pipe: Pipe) -> None:
    """For kubectl, without a word between."""
    relay = StdoutCourier(str(tmp_path), 1, "worker-0", pipe.output, is_log_alone=True)
    log, spool = b"one\n::phalanx odd\ntwo\n", os.urandom(50)
    (folder(tmp_path) / "log").write_bytes(log)
    (folder(tmp_path) / "spool").write_bytes(spool)
    relay.turn()
    out = pipe.read()
    assert out.startswith(b"one\n")
    assert b"spool" not in out
    assert Said(0, out).files("worker-0")["worker-0", "log"] == log
    relay.send_everything()
    assert relay.finish()
    assert Said(0, out + pipe.read()).files("worker-0") == {("worker-0", "log"): log, ("worker-0", "spool"): spool}


def test_what_an_output_does_not_take_is_not_gathered_without_end(tmp_path: Path, pipe: Pipe) -> None:
    relay = StdoutCourier(str(tmp_path), 1, "worker-0", pipe.output)
    (folder(tmp_path) / "log").write_bytes(b"line\n" * 2_000_000)
    began = time.monotonic()
    for _ in range(20):
        relay.turn()
    assert len(pipe.output.waiting) < stdout_courier.MOST_WAITING + 3 * stdout_courier.STRETCH
    assert time.monotonic() - began < 60


def test_it_does_not_wait_for_ever_for_an_output(tmp_path: Path, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdout_courier, "STUCK_S", 0.3)
    relay = StdoutCourier(str(tmp_path), 1, "worker-0", pipe.output)
    (folder(tmp_path) / "log").write_bytes(b"line\n" * 100_000)
    pulses = []
    assert not relay.finish(pulse=lambda: pulses.append(1))
    assert pulses


def test_a_slow_output_is_waited_for_as_long_as_it_takes_anything(
    tmp_path: Path, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdout_courier, "STUCK_S", 0.5)
    relay = StdoutCourier(str(tmp_path), 1, "worker-0", pipe.output)
    log = b"a line of a log\n" * 20_000
    (folder(tmp_path) / "log").write_bytes(log)
    found = []

    def read() -> None:
        while piece := os.read(pipe.reading, 40_000):
            found.append(piece)
            time.sleep(0.1)

    reader = threading.Thread(target=read)
    reader.start()
    assert relay.finish()
    os.close(pipe.writing)
    reader.join()
    assert Said(0, b"".join(found)).files("worker-0")["worker-0", "log"] == log


def test_an_output_that_is_gone_costs_nothing(tmp_path: Path, pipe: Pipe) -> None:
    os.close(pipe.reading)
    relay = StdoutCourier(str(tmp_path), 1, "worker-0", pipe.output)
    (folder(tmp_path) / "log").write_bytes(b"line\n" * 1000)
    assert relay.finish()
    assert pipe.output.is_gone


def test_what_is_too_large_for_a_log_is_left(tmp_path: Path, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdout_courier, "LARGEST_WHOLE", 1000)
    (folder(tmp_path) / "media").mkdir()
    (folder(tmp_path) / "media" / "film.mp4").write_bytes(bytes(1001))
    relay = StdoutCourier(str(tmp_path), 1, "worker-0", pipe.output)
    assert relay.finish()
    assert pipe.read() == b""
    assert [os.path.basename(path) for path in relay.left_behind] == ["film.mp4"]


def test_only_files_that_may_arrive_are_found(tmp_path: Path) -> None:
    (folder(tmp_path) / "log").mkdir()
    os.symlink("/etc/passwd", folder(tmp_path) / "x.points")
    (folder(tmp_path) / "end.json").write_text(json.dumps({}))
    found = {name for _, name, _ in attempt_files(str(tmp_path), 1)}
    assert found == {"end.json"}
    assert all(map(frames.is_file, found))
