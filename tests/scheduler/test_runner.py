from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from phalanx.agent.processes import read_stat
from phalanx.backends.agent_zip import AgentArchives
from phalanx.home.home import Home
from phalanx.home.lease import Lease
from phalanx.scheduler.loop import Scheduler
from phalanx.scheduler.runner import SchedulerRunner, run_until_idle, start_early
from phalanx.store import Store, StoreError
from tests.scheduler.working import PATIENCE_S, Works, alive

SERVE = """
import sys
from pathlib import Path
from phalanx.home.home import Home
from phalanx.scheduler.runner import run_until_idle
from phalanx.store import Store
home = Home(Path(sys.argv[1]))
with Store.open(home.path) as store:
    run_until_idle(home, store, float(sys.argv[2]))
"""


def serve(works: Works, idle_s: float = 0.3) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SERVE, str(works.home.path), str(idle_s)])


def wait_until_over(works: Works, run_id: str) -> str:
    """Without taking a hand in it."""
    return wait_for_status(works, run_id, "succeeded", "failed", "stopped")


def wait_for_status(works: Works, run_id: str, *statuses: str) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while (status := works.run(run_id).status) not in statuses:
        assert time.monotonic() < deadline, f"still {status}"
        time.sleep(0.02)
    return status


@pytest.mark.slow
def test_a_background_scheduler_ends_when_there_is_nothing_left_to_do(works: Works) -> None:
    run_id = works.submit("sleep 0.3; echo done")
    with serve(works) as background:
        assert background.wait(PATIENCE_S) == 0
    assert works.run(run_id).status == "succeeded"


def test_a_second_scheduler_leaves_at_once(works: Works) -> None:
    lease = Lease(works.home)
    assert lease.take()
    began = time.monotonic()
    run_until_idle(works.home, works.store, 30.0)
    assert time.monotonic() - began < 25
    lease.close()


def test_an_attendant_turns_nothing_while_another_has_the_lease(works: Works) -> None:
    lease = Lease(works.home)
    assert lease.take()
    run_id = works.submit("exit 0")
    runner = SchedulerRunner(works.home, works.store)
    assert runner.run_pass() is None
    assert works.run(run_id).status == "created"
    lease.release()
    assert runner.run_pass() == 1
    runner.close()
    runner.lease.close()
    lease.close()


def test_a_process_that_was_started_while_a_run_was_prepared_forks_its_agents(works: Works) -> None:
    assert start_early(works.home, {}) is None  # no agent is packed yet
    AgentArchives.of(works.home.agents)
    fork_server = start_early(works.home, {})
    assert fork_server is not None
    assert fork_server.process is not None
    early = fork_server.process.pid
    run_id = works.submit("exit 0")
    runner = SchedulerRunner(works.home, works.store, fork_server=fork_server)
    while not works.run(run_id).is_done:
        runner.run_pass()
        assert fork_server.process.pid == early
        runner.pause()
    assert works.run(run_id).status == "succeeded"
    assert start_early(works.home, {}) is None  # this runner has the lease
    runner.release()
    assert read_stat(early) is None


@pytest.mark.slow
def test_the_next_scheduler_settles_what_a_killed_one_left(works: Works) -> None:
    run_id = works.submit("echo up; sleep 1; echo done", workers=1)
    with serve(works, 30.0) as background:
        wait_for_status(works, run_id, "running")
        background.kill()
    time.sleep(1.2)  # it ends while nobody looks
    assert works.run(run_id).status == "running"
    with serve(works) as background:
        assert wait_until_over(works, run_id) == "succeeded"
    assert works.log(run_id, "worker-0") == "up\ndone\n"
    assert works.statuses(run_id).count("running") == 1


@pytest.mark.slow
def test_a_scheduler_killed_with_its_agents_leaves_a_run_that_is_lost(works: Works) -> None:
    run_id = works.submit("echo up; sleep 60")
    with serve(works, 30.0) as background:
        wait_for_status(works, run_id, "running")
        background.kill()
    os.kill(works.agent(run_id), signal.SIGKILL)
    with serve(works):
        assert wait_until_over(works, run_id) == "failed"
    assert alive(run_id) == set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # nobody waits for the background one
def test_a_command_that_leaves_queued_runs_starts_a_scheduler(works: Works) -> None:
    run_id = works.submit("echo up; sleep 0.8")
    runner = SchedulerRunner(works.home, works.store)
    while works.run(run_id).status != "running":
        runner.run_pass()
    runner.release()
    assert wait_until_over(works, run_id) == "succeeded"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_that_comes_while_the_last_scheduler_is_leaving_is_not_forgotten(works: Works) -> None:
    """Whoever brought it found the lease taken, and went: so the one who leaves must look after it let go."""
    runner = SchedulerRunner(works.home, works.store)
    assert runner.run_pass() == 0
    run_id = works.submit("exit 0")
    with serve(works, 30.0) as late:
        assert late.wait(PATIENCE_S) == 0
    runner.release()
    assert wait_until_over(works, run_id) == "succeeded"


class Connection:
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_who_leaves_closes_what_engines_opened(works: Works) -> None:
    runner = SchedulerRunner(works.home, works.store)
    runner.run_pass()
    assert runner.scheduler is not None
    connections = runner.scheduler.executors.connections
    opened = connections.get("cluster", Connection)
    assert connections.get("cluster", Connection) is opened
    other = connections.get("another", Connection)
    runner.release()
    assert opened.is_closed
    assert other.is_closed


def test_a_background_scheduler_that_fails_closes_what_engines_opened(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Connection()

    def run_pass(scheduler: Scheduler) -> int:
        scheduler.executors.connections.get("cluster", lambda: opened)
        raise RuntimeError("nobody thought of it")

    monkeypatch.setattr(Scheduler, "run_pass", run_pass)
    with pytest.raises(RuntimeError, match="nobody thought of it"):
        run_until_idle(works.home, works.store)
    assert opened.is_closed


def test_who_leaves_with_nothing_left_starts_no_one(works: Works) -> None:
    runner = SchedulerRunner(works.home, works.store)
    assert runner.run_pass() == 0
    runner.release()
    assert not (works.home.path / "scheduler.log").exists()


def test_a_scheduler_whose_home_is_gone_ends(works: Works) -> None:
    other = Home(works.folder / "other")
    store = Store.open(works.home.path)
    other.runs.rmdir()
    with pytest.raises((OSError, StoreError)):
        run_until_idle(other, store, 30.0)
    store.close()
