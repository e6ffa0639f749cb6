"""When a replica is told to save, and when it must have ended."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from phalanx.agent.deadlines import Deadline, TimeLimits, limits_of
from phalanx.stored_plan import CheckpointSettings, StoredPlan
from tests.agent.running import Agents


def test_the_earlier_end_counts() -> None:
    at = time.time()
    assert Deadline(TimeLimits(timeout_s=10)).cause == "timeout"
    assert Deadline(TimeLimits(timeout_s=10, ends_at=at + 1000, is_segment=True)).cause == "timeout"
    assert Deadline(TimeLimits(timeout_s=5000, ends_at=at + 100, is_segment=True)).cause == "segment"
    assert Deadline(TimeLimits(ends_at=at + 100)).cause == "timeout"
    assert Deadline(TimeLimits()).end_at == float("inf")


def test_it_says_once_that_it_is_time_to_save_and_once_that_it_is_over() -> None:
    deadline = Deadline(TimeLimits(timeout_s=100, before_s=40))
    now = time.monotonic()
    assert not deadline.is_time_to_save(now + 50)
    assert deadline.is_time_to_save(now + 61)
    assert not deadline.is_time_to_save(now + 62)
    assert not deadline.is_over(now + 99)
    assert deadline.is_over(now + 101)
    assert not deadline.is_over(now + 102)


def test_the_job_is_left_before_its_place_ends_it() -> None:
    now = time.monotonic()
    long, short = (Deadline(TimeLimits(ends_at=time.time() + left)).end_at - now for left in (1000, 50))
    assert long == pytest.approx(970, abs=1)
    assert short == pytest.approx(40, abs=1)


def test_the_time_of_earlier_segments_counts() -> None:
    plan = StoredPlan(timeout_s=100.0, segment_s=50.0, checkpoint=CheckpointSettings(signal="USR2"))
    limits = limits_of(plan, {"spent_s": 30.0, "ends_at": 5.0})
    assert limits == TimeLimits(70.0, 5.0, True, 300.0, signal.SIGUSR2, 100.0)
    assert limits_of(StoredPlan(), {}) == TimeLimits()


@pytest.mark.parametrize(
    ("timeout_s", "facts", "words"),
    [
        (600.0, {"limit_s": 60.0}, "the time limit of its job, 60 s"),
        (None, {"limit_s": 60.0}, "the time limit of its job, 60 s"),
        (95.0, {"limit_s": 120.0}, "its time limit of 95 s"),
        (600.0, {"limit_s": 600.0}, "its time limit of 600 s"),
        (600.0, {}, "its time limit of 600 s"),
        (None, {}, "the time limit of its job"),
    ],
)
def test_the_limit_that_ends_a_replica_is_named(timeout_s: float | None, facts: dict[str, float], words: str) -> None:
    """Variables and directives can make the job shorter than the file does."""
    assert limits_of(StoredPlan(timeout_s=timeout_s), facts).words == words


SAVER = "trap 'echo saved; exit 85' {number}; while :; do sleep 0.05; done"


@pytest.mark.parametrize("before", ["", "sleep 0.5; "], ids=["at once", "once its imports are done"])
def test_a_program_that_handles_the_signal_saves_and_continues_in_the_next_segment(tmp_path: Path, before: str) -> None:
    environment = {"slurm": {"segment": "1d", "checkpoint": "1h"}}
    agents = Agents(tmp_path, before + SAVER.format(number="USR1"), environment=environment, ends_at=time.time() + 3600)
    agents.start()
    end = agents.end()
    assert (end["cause"], end["code"], end["message"]) == ("segment", 85, "saved and exited for the next segment")
    assert "saved" in (agents.attempt() / "log").read_text()


def test_a_run_that_ends_at_its_time_limit_is_not_restarted(tmp_path: Path) -> None:
    environment = {"timeout": "1h", "slurm": {"segment": "1d", "checkpoint": "2h"}}
    agents = Agents(tmp_path, SAVER.format(number="USR1"), environment=environment, ends_at=time.time() + 86400)
    agents.start()
    assert agents.end()["cause"] == "timeout"


def test_a_program_that_does_not_handle_the_signal_survives_it(tmp_path: Path) -> None:
    """The shell has no handler, nor has what it waits for: both would be ended by the signal."""
    environment = {"timeout": 3, "slurm": {"checkpoint": "2s"}}
    agents = Agents(tmp_path, "sleep 2; echo went on; sleep 100", environment=environment)
    agents.start()
    end = agents.end()
    assert end["cause"] == "timeout"
    assert "went on" in (agents.attempt() / "log").read_text()


def test_a_segment_that_is_over_is_no_timeout(tmp_path: Path) -> None:
    environment = {"timeout": "1d", "slurm": {"segment": "2m", "checkpoint": "1m"}}
    agents = Agents(tmp_path, "sleep 100", environment=environment, ends_at=time.time() + 1.0)
    agents.start()
    assert agents.end()["cause"] == "segment"


def test_code_85_is_an_error_where_there_are_no_segments(tmp_path: Path) -> None:
    agents = Agents(tmp_path, "exit 85")
    agents.start()
    assert agents.end()["cause"] == "error"


def test_a_notebook_is_asked_to_save_before_its_time_limit() -> None:
    """A quarter of a short limit before its end, and at most five minutes."""
    for timeout_s, before_s in ((20.0, 5.0), (7200.0, 300.0)):
        limits = limits_of(StoredPlan(notebook="/lab", timeout_s=timeout_s), {})
        assert limits.before_s == before_s
    assert limits_of(StoredPlan(notebook="/lab"), {"limit_s": 40.0}).before_s == 10.0
    assert limits_of(StoredPlan(timeout_s=20.0), {}).before_s is None
