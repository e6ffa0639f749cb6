"""`phalanx tensorboard`, with a program that is called like TensorBoard; `make test-tensorboard` has the real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.boards.example import shown, write_example
from tests.boards.programs import install
from tests.cli.homes import Place, place_fixture, wait_for  # noqa: F401 - found by its name
from tests.cli.tracked import remember_tracked


def started(place: Place, *arguments: str, path: Path) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    return shown(place, install(path), *arguments)


def asked(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(url, trust_env=False, verify=False).json()
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(name="two")
def two_fixture(place: Place) -> Place:
    for run_id, rate in (("aaa1", 0.1), ("bbb2", 0.2)):
        lines = {"master-0": {"loss": [(0, 1.0), (1, 0.5)]}}
        remember_tracked(place, run_id, lines, params={"lr": rate, "depth": 4}, tags=("pair",))
    return place


@pytest.mark.slow
def test_runs_that_match_are_shown_on_loopback_until_ctrl_c_ends_everything(two: Place, tmp_path: Path) -> None:
    process, said = started(two, "-q", "tags:pair", path=tmp_path / "bin")
    assert said["runs"] == [{"id": "aaa1", "name": "lr=0.1"}, {"id": "bbb2", "name": "lr=0.2"}]
    port = said["url"].split(":")[2].strip("/")
    assert f"ssh -N -L {port}:127.0.0.1:{port} " in said["ssh"]
    found = asked(said["url"])
    assert (found["host"], found["port"]) == ("127.0.0.1", port)
    assert sorted(found["seen"]) == ["lr=0.1", "lr=0.2"]
    remember_tracked(two, "ccc3", {"master-0": {"loss": [(0, 3.0)]}}, params={"lr": 0.3, "depth": 4}, tags=("pair",))
    wait_for(lambda: "lr=0.3" in asked(said["url"])["seen"])
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert not any(map(is_alive, found["pids"]))
    assert not Path(found["logdir"]).exists()


@pytest.mark.slow
def test_it_ends_when_it_is_idle_and_its_program_ends_with_it_when_it_is_killed(two: Place, tmp_path: Path) -> None:
    process, said = started(two, "aaa1", path=tmp_path / "bin")
    found = asked(said["url"])
    process.kill()
    process.wait(30)
    wait_for(lambda: not is_alive(found["pids"][0]))
    os.kill(found["pids"][1], signal.SIGKILL)  # what it had started itself is not ours to see after a kill
    idle, _ = started(two, "aaa1", "bbb2", "--idle", "0.2s", path=tmp_path / "bin")
    assert idle.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name runs, or use a query"),
        (("aaa1", "--idle", "soon"), "expected seconds"),
        (("aaa1", "--group", "bbb2"), "is a run, not a group"),
        (("-q", "tags:none"), "No matching runs."),
        (("zzz",), "zzz"),
    ],
)
def test_calls_that_cannot_work_say_why(
    two: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}")
    answer = two.quick("tensorboard", *arguments)
    assert answer.code == 2
    assert words in answer.err


def test_without_tensorboard_it_says_how_to_get_it(two: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = two.quick("tensorboard", "aaa1")
    assert answer.code == 2
    assert "pip install tensorboard" in answer.err


def test_a_program_that_does_not_start_is_reported_with_its_words(two: Place, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "tensorboard"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no such flag >&2\nexit 3\n")
    broken.chmod(0o755)
    answer = two.call("tensorboard", "aaa1", PATH=f"{broken.parent}{os.pathsep}{os.environ['PATH']}")
    assert answer.code not in (0, 70)
    assert "TensorBoard ended with code 3: no such flag" in answer.err


@pytest.mark.slow
def test_the_example_of_the_page_works(place: Place, tmp_path: Path) -> None:
    write_example(place)
    process, said = started(place, path=tmp_path / "bin")
    assert [run["name"] for run in said["runs"]] == ["lr=0.1", "lr=0.2"]
    assert sorted(asked(said["url"])["seen"]) == ["lr=0.1", "lr=0.2"]
    process.terminate()
    assert process.wait(30) == 0


@pytest.mark.slow
def test_runs_of_a_server_are_shown_here(two: Place, tmp_path: Path) -> None:
    """Series are read, and the event files of a finished run are downloaded."""
    linked = two.home / "runs" / "bbb2" / "outputs" / "logs"
    linked.mkdir(parents=True)
    (linked / "events.out.tfevents.1.host").write_bytes(b"")
    serving = two.start("serve", "--port", "0", "--json")
    assert serving.stdout is not None
    url = str(json.loads(serving.stdout.readline())["url"])
    (tmp_path / "laptop").mkdir()
    laptop = Place(tmp_path / "laptop")
    server = {"PHALANX_SERVER": url, "PHALANX_TOKEN": (two.home / "token").read_text().strip(), "PHALANX_HOME": ""}
    process, said = shown(laptop, install(tmp_path / "bin"), "-q", "tags:pair", **server)
    seen = asked(said["url"])["seen"]
    assert sorted(seen) == ["lr=0.1", "lr=0.2/logs"]
    assert seen["lr=0.2/logs"] == ["events.out.tfevents.1.host"]
    for running in (process, serving):
        running.terminate()
        running.communicate(timeout=30)
        assert running.returncode == 0
