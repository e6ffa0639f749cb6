from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import termios
from contextlib import suppress

import pytest

from tests.cli.homes import ALL_CPUS, PATIENCE_S, THREE, Place, place_fixture, wait_for  # noqa: F401 - found by its name
from tests.cli.running import COMMAND

BUSY = "touch ready-$RANK; while :; do :; done"


def test_without_runs_it_says_so(place: Place) -> None:
    answer = place.call("top", "--once")
    assert answer.code == 0
    assert "No active runs." in answer.out
    data = place.call("top", "--json").data
    assert data["runs"] == []
    assert data["asked"]["cpus"] == 0
    assert data["free"] == data["machine"]


@pytest.mark.slow
def test_it_shows_what_every_replica_uses(place: Place) -> None:
    run_id = place.queued(BUSY, "--name", "busy", framework="pytorch", environment=THREE)
    wait_for(lambda: len(list(place.folder.glob("ready-*"))) == 3)

    def measured() -> list[dict[str, object]]:
        (run,) = place.call("top", "--json").data["runs"]
        return run["replicas"] if all(row["use"] for row in run["replicas"]) and len(run["replicas"]) == 3 else []

    rows = wait_for(measured)
    assert [row["name"] for row in rows] == ["master-0", "worker-0", "worker-1"]
    assert {row["status"] for row in rows} == {"running"}
    for row in rows:
        assert row["use"]["memory_mib"] > 0
        assert row["use"]["threads"] >= 1
        assert row["use"]["cpu_percent"] >= 0
    frame = place.call("top", "--once").out
    assert f"{run_id} (busy)" in frame
    assert "1 running, 0 queued" in frame
    assert frame.count("MiB") == 4


@pytest.mark.slow
def test_it_shows_the_queue_and_what_is_asked_for(place: Place) -> None:
    blocker = place.queued("sleep 60", name="a.yml", environment=ALL_CPUS)
    place.until(blocker, "running")
    low = place.queued("true", environment=ALL_CPUS)
    high = place.queued("true", "--priority", "3", environment=ALL_CPUS)
    data = place.call("top", "--json").data
    assert {run["id"]: run["queue_position"] for run in data["runs"]} == {blocker: None, high: 1, low: 2}
    assert data["asked"]["cpus"] == data["machine"]["cpus"]
    assert data["free"]["cpus"] == 0
    frame = place.call("top", "--once").out
    assert "1 running, 2 queued" in frame
    assert "queued, 2." in frame


@pytest.mark.parametrize(
    ("arguments", "sign", "way"),
    [(["top"], b"phalanx top", "q"), (["top"], b"phalanx top", "ctrl-c"), (["ps", "-w"], b"FRAMEWORK", "q")],
)
@pytest.mark.slow
def test_live_it_draws_until_it_is_left_and_gives_the_terminal_back(
    place: Place, arguments: list[str], sign: bytes, way: str
) -> None:
    run_id = place.queued("touch ready; sleep 60")
    wait_for((place.folder / "ready").exists)
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [COMMAND, *arguments],
        env=place.environment(TERM="xterm", COLUMNS="100", LINES="30"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    shown = b""
    while shown.count(sign) < 2:
        assert select.select([ours], [], [], PATIENCE_S)[0], shown
        shown += os.read(ours, 65_536)
    assert termios.tcgetattr(theirs) != before
    if way == "q":
        os.write(ours, b"q")
    else:
        process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 0
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    with suppress(OSError):
        while piece := os.read(ours, 65_536):
            shown += piece
    os.close(ours)
    assert run_id.encode() in shown
    assert shown.startswith(b"\x1b[?1049h\x1b[?25l")
    assert shown.endswith(b"\x1b[?25h\x1b[?1049l")
    assert b"Traceback" not in shown
    assert place.status(run_id) == "running"
