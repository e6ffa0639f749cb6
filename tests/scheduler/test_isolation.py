"""Two homes on one machine at the same time."""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.backends.local import runner
from phalanx.home import attempts
from phalanx.home.lease import Lease
from tests.scheduler.working import Works, alive


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Works, Works]]:
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        found.append(Works(tmp_path / name))
    yield found[0], found[1]
    for works in found:
        works.close()


def test_two_homes_have_a_lease_each(pair: tuple[Works, Works]) -> None:
    leases = [Lease(works.home) for works in pair]
    assert all(lease.take() for lease in leases)
    for lease in leases:
        lease.close()


@pytest.mark.slow
def test_runs_of_two_homes_end_each_for_itself(pair: tuple[Works, Works]) -> None:
    mine, yours = pair
    lost = mine.submit("setsid sleep 63 & echo up; sleep 60", workers=1)
    stopped = mine.submit("echo up; sleep 60")
    kept = yours.submit("setsid sleep 64 & echo up; sleep 60", workers=1)
    mine.says(lost, "up", "worker-0")
    mine.says(lost, "up", "master-0")
    mine.says(stopped, "up")
    yours.says(kept, "up", "worker-0")
    yours.says(kept, "up", "master-0")
    before = alive(kept)
    assert len(before) >= 6  # agents, commands, daemons
    os.kill(mine.agent(lost), signal.SIGKILL)
    mine.run_folder(stopped).ask_to_stop("mine")
    mine.settle(lost, stopped)
    yours.scheduler.run_pass()
    assert alive(lost, stopped) == set()
    assert before <= alive(kept)
    assert yours.run(kept).status == "running"
    assert mine.store.ids() == {lost, stopped}
    assert yours.store.ids() == {kept}


def test_a_port_is_held_as_long_as_anybody_of_its_run_is_there(pair: tuple[Works, Works]) -> None:
    mine, _ = pair
    run_id = mine.submit("echo up; sleep 60", workers=1)
    mine.says(run_id, "up")
    attempt_folder = attempts.AttemptFolder(mine.run_folder(run_id).path, run_id, 1, ("master-0", "worker-0"))
    ports = attempts.read_facts(attempt_folder)["port"].values()
    assert not any(is_free(port) for port in ports)
    mine.run_folder(run_id).ask_to_stop("make room")
    mine.settle(run_id)
    assert all(is_free(port) for port in ports)


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as name:
        try:
            name.bind(f"\0phalanx-port-{port}")
        except OSError:
            return False
    return True


def test_ports_are_all_handed_out_before_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PORTS", range(19_500, 19_510))
    held = runner.reserve_ports(6)
    with pytest.raises(OSError, match="6 free ports are needed"):
        runner.reserve_ports(6)
    for name in held.values():
        name.close()


def test_sweeping_a_run_touches_no_other(pair: tuple[Works, Works]) -> None:
    mine, yours = pair
    first, second = mine.submit("echo up; sleep 60"), yours.submit("echo up; sleep 60")
    mine.says(first, "up")
    yours.says(second, "up")
    assert runner.sweep(first[:5]) == 0  # the beginning of an id is not the id
    assert runner.sweep(first) >= 2
    assert alive(first) == set()
    assert len(alive(second)) >= 2


def test_a_stop_is_heard_only_in_its_own_home(pair: tuple[Works, Works]) -> None:
    mine, yours = pair
    run_id = mine.submit("exit 0")
    (yours.home.stops / run_id).touch()
    yours.scheduler.run_pass()
    assert mine.settle(run_id).status == "succeeded"
    assert yours.home.asked_to_stop() == []


def test_no_one_else_can_look_into_a_home(pair: tuple[Works, Works]) -> None:
    mine, _ = pair
    run_id = mine.submit("echo secret")
    mine.settle(run_id)
    for folder in (mine.home.path, mine.home.runs, mine.home.environments, mine.run_folder(run_id).path):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((mine.place(run_id) / "log").stat().st_mode) == 0o600
