"""What goes wrong with machines, disks, clocks and programs: each ends as promised."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from phalanx.agent import processes
from phalanx.errors import SystemFault
from phalanx.home.home import BALLAST_BYTES, Home
from phalanx.scheduler import local_executor
from tests.scheduler.working import Works, alive

# programs ----------------------------------------------------------------------------------------------------------


def test_a_replica_that_ignores_term_is_killed_after_its_grace(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_executor, "GRACE_S", 0.5)
    run_id = works.submit("trap '' TERM; echo up; sleep 60; sleep 60")
    works.says(run_id, "up")
    works.run_folder(run_id).ask_to_stop("enough")
    began = time.monotonic()
    assert works.settle(run_id).status == "stopped"
    assert time.monotonic() - began < 45
    assert works.end(run_id)["signal"] == 9


def test_term_is_sent_once_however_long_the_command_takes_to_obey(works: Works) -> None:
    run_id = works.submit("trap 'echo asked' TERM; echo up; for i in 1 2 3 4 5; do sleep 0.5; done; exit 0")
    works.says(run_id, "up")
    works.run_folder(run_id).ask_to_stop("enough")
    works.settle(run_id)
    assert works.log(run_id).count("asked") == 1


def test_a_run_that_is_stopped_while_it_starts_is_stopped_and_not_lost(works: Works) -> None:
    for delay_s in (0.0, 0.01, 0.03):
        run_id = works.submit("sleep 60", workers=2)
        works.until(run_id, "starting")
        time.sleep(delay_s)
        works.run_folder(run_id).ask_to_stop("at once")
        assert works.settle(run_id).status == "stopped"
        assert {row.cause for row in works.store.replicas(run_id)} == {"stopped"}


def test_daemons_end_with_the_run(works: Works) -> None:
    run_id = works.submit("setsid sleep 61 & (setsid setsid nohup sleep 62 &); sleep 0.2; echo done")
    assert works.settle(run_id).status == "succeeded"
    assert alive(run_id) == set()


@pytest.mark.slow
def test_200_megabytes_of_output_are_kept_and_cost_the_scheduler_nothing(works: Works) -> None:
    run_id = works.submit("head -c 200000000 /dev/zero | tr '\\0' x")
    assert works.settle(run_id).status == "succeeded"
    assert works.end(run_id)["log_bytes"] == 200_000_000
    assert (works.place(run_id) / "log").stat().st_size == 200_000_000
    assert (works.place(run_id) / "end.json").stat().st_size < 32_768
    (works.place(run_id) / "log").unlink()


def test_replicas_that_exit_at_once_are_all_seen(works: Works) -> None:
    runs = [works.submit("exit 0", workers=1) for _ in range(5)]
    works.settle(*runs)
    assert {works.run(run_id).status for run_id in runs} == {"succeeded"}


def test_a_command_that_is_not_there_fails_and_says_so(works: Works) -> None:
    run_id = works.submit("exec /no/such/program --now")
    run = works.settle(run_id)
    assert run.status == "failed"
    assert works.end(run_id)["code"] in (126, 127)
    assert any("/no/such/program" in line for line in works.end(run_id)["last_lines"])


def test_a_working_folder_that_is_gone_fails_and_says_so(works: Works) -> None:
    gone = works.folder / "gone"
    gone.mkdir()
    works.folder = gone
    run_id = works.submit("exit 0", max_restarts=3)
    gone.rmdir()
    run = works.settle(run_id)
    assert (run.status, run.attempt) == ("failed", 1)
    assert run.reason == f"could not be started: its working folder no longer exists: {gone}"


# clocks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def jumping(tmp_path: Path) -> Iterator[tuple[Works, list[float]]]:
    """A scheduler whose clock can be set."""
    offset = [0.0]
    works = Works(tmp_path, lambda: time.time() + offset[0])
    yield works, offset
    works.close()


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps_neither_loses_a_run_nor_disorders_its_statuses(
    jumping: tuple[Works, list[float]], jump_s: float
) -> None:
    works, offset = jumping
    run_id = works.submit("echo up; sleep 0.6", workers=1)
    works.until(run_id, "starting")
    offset[0] = jump_s
    for _ in range(5):
        works.scheduler.run_pass()
    works.says(run_id, "up")
    offset[0] = -jump_s
    assert works.settle(run_id).status == "succeeded"
    assert works.statuses(run_id)[-1] == "succeeded"  # and these are in the order of their times


def test_a_clock_that_was_set_back_does_not_delay_a_stop(jumping: tuple[Works, list[float]]) -> None:
    works, offset = jumping
    run_id = works.submit('echo up; [ "$RANK" = 1 ] && sleep 0.5 && exit 3; sleep 60', workers=1)
    works.says(run_id, "up")
    offset[0] = -1e7
    began = time.monotonic()
    assert works.settle(run_id).status == "failed"
    assert time.monotonic() - began < 45


def test_a_run_of_long_ago_that_was_just_started_is_not_declared_lost(jumping: tuple[Works, list[float]]) -> None:
    works, offset = jumping
    offset[0] = -1e8
    run_id = works.submit("sleep 0.5")
    works.until(run_id, "starting")
    offset[0] = 0.0
    works.new_scheduler()
    assert works.settle(run_id).status == "succeeded"


# disks -------------------------------------------------------------------------------------------------------------


FULL = "the disk of its run was full"


def is_gone(pid: int) -> bool:
    """Ended, whether or not its parent has noticed."""
    stat = processes.read_stat(pid)
    return stat is None or stat.state == "Z"


def wait_until(condition: Callable[[], object], patience_s: float = 90.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6000k", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    yield disk
    deadline = time.monotonic() + 10
    while subprocess.run(["umount", str(disk)], check=False, capture_output=True).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_run_that_fills_the_disk_ends_on_record(small_disk: Path) -> None:
    works = Works(small_disk)
    try:
        run_id = works.submit("head -c 9000000 /dev/zero; echo; exit 5")
        run = works.settle(run_id)
        assert run.status == "failed"
        assert run.reason.startswith(f"master-0: exit code 5; {FULL}")
        assert works.statuses(run_id)[-1] == "failed"
        assert works.end(run_id)["code"] == 5
    finally:
        (works.place(run_id) / "log").unlink()
        works.close()


def test_a_full_disk_is_named_though_the_scheduler_has_made_room_since(small_disk: Path) -> None:
    filled, go_on = small_disk.parent / "filled", small_disk.parent / "go-on"
    works = Works(small_disk)
    try:
        run_id = works.submit(
            f"head -c 9000000 /dev/zero; touch {filled}; while [ ! -e {go_on} ]; do sleep 0.05; done; exit 5"
        )
        works.turn_until(filled.exists)
        works.home.release_disk()
        go_on.touch()
        assert works.settle(run_id).reason.startswith(f"master-0: exit code 5; {FULL}")
    finally:
        (works.place(run_id) / "log").unlink()
        works.close()


def test_a_full_disk_is_named_though_its_agent_only_looks_when_there_is_room_again(small_disk: Path) -> None:
    go_on = small_disk.parent / "go-on"
    works = Works(small_disk)
    try:
        run_id = works.submit(
            f"echo up; while [ ! -e {go_on} ]; do sleep 0.05; done; head -c 9000000 /dev/zero; echo $$ >{go_on}; exit 5"
        )
        works.says(run_id, "up")
        os.kill(works.agent(run_id), signal.SIGSTOP)
        go_on.touch()
        wait_until(lambda: go_on.read_text().endswith("\n") and is_gone(int(go_on.read_text())))
        works.home.release_disk()
        os.kill(works.agent(run_id), signal.SIGCONT)
        assert works.settle(run_id).reason.startswith(f"master-0: exit code 5; {FULL}")
        (row,) = works.store.replicas(run_id)
        assert FULL in row.reason
    finally:
        (works.place(run_id) / "log").unlink()
        works.close()


def test_a_run_that_cannot_be_kept_is_refused_with_its_reason(small_disk: Path) -> None:
    works = Works(small_disk)
    fill(small_disk)
    try:
        with pytest.raises(SystemFault, match="no space left on device"):
            works.submit("exit 0")
    finally:
        (small_disk / "filler").unlink()
        works.close()
    assert [name for name in os.listdir(works.home.runs) if name.startswith(".")] == []


def test_a_disk_that_is_full_before_the_start_fails_the_run_and_hangs_nothing(small_disk: Path) -> None:
    works = Works(small_disk)
    run_id = works.submit("exit 0")
    fill(small_disk)
    try:
        run = works.settle(run_id)
        assert run.status in ("failed", "succeeded")  # what was let go of may be enough for a small run
    finally:
        (small_disk / "filler").unlink()
        works.close()


def test_when_nothing_can_be_written_a_turn_goes_on_and_settles_as_soon_as_there_is_room(small_disk: Path) -> None:
    works = Works(small_disk)
    run_id = works.submit("echo up; sleep 0.5")
    works.says(run_id, "up")
    works.home.release_disk()
    fill(small_disk)
    try:
        time.sleep(1.0)
        for _ in range(5):
            works.scheduler.run_pass()
    finally:
        (small_disk / "filler").unlink()
    assert works.settle(run_id).status == "succeeded"
    assert works.statuses(run_id)[-1] == "succeeded"
    works.close()


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as stream:
        try:
            while stream.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass


def test_ballast_is_held_only_where_there_is_plenty(tmp_path: Path, small_disk: Path) -> None:
    roomy = Home(tmp_path / "home")
    roomy.reserve_disk()
    assert roomy.ballast.stat().st_size == BALLAST_BYTES
    assert roomy.release_disk()
    assert not roomy.release_disk()
    tight = Home(small_disk / "home")
    fill(small_disk)
    tight.reserve_disk()
    assert not tight.ballast.exists()
