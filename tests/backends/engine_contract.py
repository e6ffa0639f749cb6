"""What every engine keeps of its contract, whatever runs its jobs.

A module of tests subclasses `EngineContract` and has a fixture `rig`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from phalanx.backends.contract import ENDED, RUNNING, WAITING, Engine, Observation
from phalanx.home.attempts import AttemptFolder

PATIENCE_S = 60.0


class Rig(ABC):
    """An engine, with a place where its jobs really run or are acted."""

    engine: Engine

    @abstractmethod
    def submit(self, run_id: str) -> tuple[AttemptFolder, str]:
        """A job that runs until it is told to finish, and its handle."""

    @abstractmethod
    def finish(self, attempt_folder: AttemptFolder) -> None:
        """Let the job end well."""

    @abstractmethod
    def restart(self) -> Engine:
        """The engine of another process, which knows nothing of what this one did."""


def until(condition: Callable[[], Observation | None]) -> Observation:
    deadline = time.monotonic() + PATIENCE_S
    while (found := condition()) is None:
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return found


def seen(engine: Engine, attempt_folder: AttemptFolder, handle: str, *states: str) -> Observation:
    """What is observed of a job once it is in one of these states; its files are fetched, as the scheduler does."""

    def look() -> Observation | None:
        engine.fetch(attempt_folder, handle)
        found = engine.observe([handle]).get(handle)
        return found if found is not None and found.state in states else None

    return until(look)


class EngineContract:
    def test_a_job_carries_its_run_and_attempt(self, rig: Rig) -> None:
        attempt_folder, handle = rig.submit("one")
        found = seen(rig.engine, attempt_folder, handle, WAITING, RUNNING)
        assert (found.run_id, found.attempt) == ("one", 1)
        assert handle.startswith(f"{rig.engine.name}:")

    def test_a_job_that_finished_is_observed_as_ended_for_as_long_as_it_is_asked_for(self, rig: Rig) -> None:
        attempt_folder, handle = rig.submit("one")
        seen(rig.engine, attempt_folder, handle, RUNNING)
        rig.finish(attempt_folder)
        assert seen(rig.engine, attempt_folder, handle, ENDED).cause == "finished"
        assert rig.engine.observe([handle])[handle].state == ENDED

    def test_a_job_is_cancelled_once_or_twice(self, rig: Rig) -> None:
        attempt_folder, handle = rig.submit("one")
        seen(rig.engine, attempt_folder, handle, RUNNING)
        rig.engine.cancel([handle])
        assert seen(rig.engine, attempt_folder, handle, ENDED).cause != "finished"
        rig.engine.cancel([handle])

    def test_a_job_that_no_one_submitted_is_unknown_and_cancelled_without_a_fault(self, rig: Rig) -> None:
        attempt_folder, handle = rig.submit("one")
        foreign = handle.replace("one", "none")
        assert foreign != handle
        assert foreign not in rig.engine.observe([foreign])
        rig.engine.cancel([foreign])
        assert seen(rig.engine, attempt_folder, handle, RUNNING).run_id == "one"

    def test_all_jobs_are_observed_in_one_call_and_those_of_a_run_are_distinguished(self, rig: Rig) -> None:
        jobs = {run_id: rig.submit(run_id) for run_id in ("one", "two")}
        for attempt_folder, handle in jobs.values():
            seen(rig.engine, attempt_folder, handle, WAITING, RUNNING)
        assert {handle for _, handle in jobs.values()} <= set(rig.engine.observe(()))
        assert list(rig.engine.history("two")) == [jobs["two"][1]]

    def test_another_process_finds_a_job_by_its_handle_and_by_its_run(self, rig: Rig) -> None:
        attempt_folder, handle = rig.submit("one")
        seen(rig.engine, attempt_folder, handle, RUNNING)
        other = rig.restart()
        assert seen(other, attempt_folder, handle, RUNNING).run_id == "one"
        assert list(other.history("one")) == [handle]
