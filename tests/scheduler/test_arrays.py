"""Trials that are tasks of arrays, at an engine that acts as Slurm does. The real one is in tests/slurm."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.backends.contract import ENDED, RUNNING, WAITING, EngineUnavailable, JobRejected, Observation, TooManyTasks
from phalanx.ends import Cause
from phalanx.home import array_folder
from phalanx.home.array_folder import ArrayTask
from phalanx.home.group_folder import GroupFolder, trial_id
from phalanx.scheduler import arrays
from phalanx.scheduler.arrays import ArrayLoad, allot
from phalanx.submission.group_requests import GroupRequests
from phalanx.submission.submit import submit
from tests.examples import examples
from tests.scheduler.scripted_engine import Cluster, ScriptedEngine
from tests.submission.samples import submission_of


class ArrayEngine(ScriptedEngine):
    """Tasks that wait leave no trace when they are cancelled, as in Slurm."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: dict[str, int] = {}
        self.sizes: list[int] = []
        self.most = 1000
        self.lost_answers = 0  # so many submissions are accepted, but the answer is lost

    def array_key(self, folder: Path, working: Path) -> str | None:
        return "alike"

    def submit_array(
        self, folder: Path, tasks: Sequence[ArrayTask], at_once: int | None, environment: Mapping[str, str]
    ) -> list[str]:
        if self.fault is not None:
            raise self.fault
        if len(tasks) > self.most:
            raise TooManyTasks("AssocMaxSubmitJobLimit")
        array_folder.write_tasks(folder, tasks)
        self.submissions += 1
        self.sizes.append(len(tasks))
        array = f"slurm:{100 + len(self.limits)}"
        self.limits[array] = 1000 if at_once is None else at_once
        handles = [f"{array}_{number}" for number in range(len(tasks))]
        for handle, task in zip(handles, tasks, strict=True):
            self.jobs[handle] = Observation(WAITING, "because", run_id=task.run_id, attempt=task.attempt)
        if self.lost_answers:
            self.lost_answers -= 1
            raise EngineUnavailable("the answer was lost")
        return handles

    def limit_array(self, array: str, at_once: int) -> None:
        self.limits[array] = at_once

    def array_of(self, handle: str) -> str | None:
        return handle.rpartition("_")[0] or None

    def cancel(self, handles: Any) -> None:
        super().cancel(handles)
        for handle in handles:
            if handle in self.jobs and self.jobs[handle].state == WAITING:
                del self.jobs[handle]
            elif handle in self.jobs:
                self.jobs[handle] = self.jobs[handle]._replace(state=ENDED, why="cancelled", cause=Cause.STOPPED)


class ArrayCluster(Cluster):
    engine: ArrayEngine

    def group(self, count: int, concurrency: int = 4, **tuning: Any) -> str:
        matrix = {"x": {"values": list(range(count))}}
        search = {"matrix": matrix, "concurrency": concurrency, "slurm": {"trials": "array"}, **tuning}
        content = {"version": 1, "kind": "group", "hptuning": search, "run": {"cmd": "true"}}
        asked = submission_of(
            content, folder=Path("/"), environment={"PATH": os.environ["PATH"]}, on="slurm", is_unchecked=True
        )
        return submit(self.works.home, self.works.store, asked).id

    def until(self, condition: Callable[[], object], times: int = 60) -> None:
        for _ in range(times):
            if condition():
                return
            self.turn(1)
        raise AssertionError("it did not come to that")

    def states(self) -> Counter[str]:
        return Counter(seen.state for seen in self.engine.jobs.values())

    def advance(self) -> None:
        """Slurm starts waiting tasks, as many as each array may run."""
        for array, limit in self.engine.limits.items():
            tasks = [handle for handle in self.engine.jobs if handle.rpartition("_")[0] == array]
            running = sum(self.engine.jobs[handle].state == RUNNING for handle in tasks)
            for handle in [handle for handle in tasks if self.engine.jobs[handle].state == WAITING][
                : max(0, limit - running)
            ]:
                self.begin(handle)

    def begin(self, handle: str) -> None:
        self.became(handle, RUNNING)
        seen = self.engine.jobs[handle]
        self.claim(str(seen.run_id), handle, seen.attempt)
        self.facts(str(seen.run_id), handle, seen.attempt)
        self.agent(str(seen.run_id), seen.attempt)

    def finish(self, handle: str, cause: str = "finished") -> None:
        seen = self.engine.jobs[handle]
        if (self.works.run_folder(str(seen.run_id)).path).exists():
            self.end(str(seen.run_id), cause, seen.attempt)
        self.became(handle, ENDED, "finished", "finished" if cause == "finished" else "lost")

    def finish_all(self) -> None:
        for handle in [handle for handle, seen in self.engine.jobs.items() if seen.state == RUNNING]:
            self.finish(handle)

    def run_to_end(self, group: str, limit: int) -> None:
        for _ in range(200):
            self.turn(2)
            if self.run(group).is_done:
                return
            self.advance()
            assert self.states()[RUNNING] <= limit
            self.turn(1)
            self.finish_all()
        raise AssertionError("the group did not end")

    def records(self, group: str, *what: str) -> list[dict[str, Any]]:
        found = GroupFolder(self.works.run_folder(group).path).records()
        return [record for record in found if record["what"] in what]


@pytest.fixture(name="there")
def there_fixture(cluster: Cluster) -> ArrayCluster:
    cluster.__class__ = ArrayCluster
    assert isinstance(cluster, ArrayCluster)
    cluster.engine = ArrayEngine()
    cluster.scheduler.close()
    cluster.scheduler = cluster.new_scheduler()
    return cluster


def test_a_group_is_submitted_as_one_array_and_ends(there: ArrayCluster) -> None:
    group = there.group(12)
    there.until(lambda: len(there.engine.jobs) == 12)
    assert (there.engine.sizes, there.engine.limits) == ([12], {"slurm:100": 4})
    assert there.handle(trial_id(group, 7)) == "slurm:100_7"
    there.run_to_end(group, 4)
    assert there.run(group).status == "succeeded"
    assert there.engine.sizes == [12]
    assert len(there.records(group, "reported")) == 12
    array_folder.tidy(there.works.home.arrays, there.scheduler.is_over)
    assert list(there.works.home.arrays.iterdir()) == []


def test_concurrency_pauses_and_stops_reach_the_array(there: ArrayCluster) -> None:
    group = there.group(10)
    there.until(lambda: len(there.engine.jobs) == 10)
    there.advance()
    asked = GroupRequests(there.works.home, there.run(group), {})
    asked.set_concurrency(6)
    there.until(lambda: there.engine.limits == {"slurm:100": 6})
    asked.pause()
    there.until(lambda: there.engine.limits == {"slurm:100": 0})
    asked.resume()
    there.until(lambda: there.engine.limits == {"slurm:100": 6})
    one = trial_id(group, 9)
    there.stop(one)
    there.until(lambda: there.run(one).status == "stopped")
    assert there.engine.cancelled == ["slurm:100_9"]
    there.engine.cancelled.clear()
    asked.finish()  # the running ones end by themselves
    there.until(lambda: there.states()[WAITING] == 0)
    assert sorted(there.engine.cancelled) == [f"slurm:100_{number}" for number in range(4, 9)]
    there.turn(2)
    there.finish_all()
    there.until(lambda: there.run(group).is_done)
    assert Counter(there.run(trial_id(group, number)).status for number in range(10)) == {"succeeded": 4, "stopped": 6}


def test_a_stopped_group_cancels_all_tasks_in_one_call(there: ArrayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    cancel = ArrayEngine.cancel

    def counted(engine: ArrayEngine, handles: Any) -> None:
        calls.append(len(handles))
        cancel(engine, handles)

    monkeypatch.setattr(ArrayEngine, "cancel", counted)
    group = there.group(9)
    there.until(lambda: len(there.engine.jobs) == 9)
    there.advance()
    there.turn()
    there.works.run_folder(group).ask_to_stop("enough")
    there.until(lambda: there.run(group).is_done)
    assert there.run(group).status == "stopped"
    assert calls == [9]


def test_a_task_that_another_cancelled_is_stopped(there: ArrayCluster) -> None:
    group = there.group(3)
    there.until(lambda: len(there.engine.jobs) == 3)
    del there.engine.jobs["slurm:100_2"]
    there.until(lambda: there.run(trial_id(group, 2)).status == "stopped")
    assert there.run(trial_id(group, 2)).reason == "its task was cancelled before it started"


@pytest.mark.slow
def test_arrays_are_split_where_the_engine_takes_no_more(there: ArrayCluster) -> None:
    there.engine.most = 5
    group = there.group(12, concurrency=3)
    there.run_to_end(group, 3)
    assert sum(there.engine.sizes) == 12
    assert max(there.engine.sizes) <= 5
    assert there.run(group).status == "succeeded"


def test_a_rejected_array_fails_its_runs(there: ArrayCluster) -> None:
    there.engine.fault = JobRejected("Invalid account")
    group = there.group(2)
    there.until(lambda: there.run(group).is_done)
    assert there.run(trial_id(group, 1)).reason == "slurm refused the job: Invalid account"


def test_an_array_whose_answer_was_lost_is_found_and_not_submitted_again(there: ArrayCluster) -> None:
    there.engine.lost_answers = 1
    group = there.group(6)
    there.until(lambda: len(there.engine.jobs) == 6)
    there.scheduler = there.new_scheduler()
    there.until(lambda: all(there.handle(trial_id(group, number)) for number in range(6)))
    there.run_to_end(group, 4)
    assert there.engine.sizes == [6]


@pytest.mark.slow
def test_a_promotion_goes_before_first_attempts_within_the_limit(there: ArrayCluster) -> None:
    group = there.group(20, concurrency=4)
    there.until(lambda: len(there.engine.jobs) == 20)
    there.advance()
    there.turn()
    lost = there.engine.jobs["slurm:100_0"].run_id
    there.end(str(lost), "lost")
    there.became("slurm:100_0", ENDED, "its node failed", "lost")
    there.until(lambda: "slurm:101" in there.engine.limits)
    there.advance()
    assert there.engine.jobs["slurm:101_0"].run_id == lost
    assert there.engine.jobs["slurm:101_0"].state == RUNNING
    assert there.states()[RUNNING] == 4
    there.run_to_end(group, 4)
    assert there.run(str(lost)).attempt == 2


def test_alike_runs_of_no_group_are_an_array_if_they_are_many(there: ArrayCluster) -> None:
    runs = [there.submit() for _ in range(arrays.LEAST_ALIKE)]
    there.turn()
    assert there.engine.sizes == [len(runs)]
    assert {there.run(run).status for run in runs} == {"scheduled"}
    there.submit()
    there.turn()
    assert there.engine.sizes == [len(runs)]
    assert len(there.engine.jobs) == len(runs) + 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_trial_is_lost_or_doubled_when_schedulers_are_killed(there: ArrayCluster, seed: int) -> None:
    chance = random.Random(seed)
    group = there.group(25, concurrency=5)
    for _ in range(600):
        match chance.randrange(9):
            case 0:  # killed at any moment: its threads end with it
                with suppress(Exception):
                    there.scheduler.close()
                there.scheduler = there.new_scheduler()
            case 1:
                there.engine.lost_answers = 1
            case 2:
                there.engine.most = chance.choice([1, 3, 8, 1000])
            case 3 | 4:
                there.advance()
            case 5:
                running = [handle for handle, seen in there.engine.jobs.items() if seen.state == RUNNING]
                if running:
                    there.finish(chance.choice(running), "lost" if chance.random() < 0.2 else "finished")
            case _:
                there.turn(1)
        assert there.states()[RUNNING] <= 5
        if there.run(group).is_done:
            break
    there.engine.most = 1000
    there.run_to_end(group, 5)
    reported = there.records(group, "reported", "failed")
    assert sorted(record["trial"] for record in reported) == list(range(25))
    begun = Counter((seen.run_id, seen.attempt) for seen in there.engine.jobs.values())
    assert max(begun.values()) == 1, "an attempt was submitted twice"


LOADS = st.lists(
    st.builds(
        lambda unfinished, running, allowed: ArrayLoad("a", unfinished, min(running, unfinished), allowed),
        st.integers(1, 30),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    max_size=5,
)


@given(limit=st.integers(0, 12), loads=LOADS)
@examples(200)
def test_no_more_tasks_than_the_limit_are_ever_allowed(limit: int, loads: list[ArrayLoad]) -> None:
    granted = allot(limit, loads)
    before = sum(load.held for load in loads)
    after = sum(max(grant, load.held) for grant, load in zip(granted, loads, strict=True))
    assert sum(granted) <= limit
    assert after <= max(limit, before)
    settled = [
        load._replace(running=min(grant, load.running), allowed=grant)
        for grant, load in zip(granted, loads, strict=True)
    ]
    for _ in range(len(loads) + 1):  # once the others have ended, nothing of the limit is unused
        granted = allot(limit, settled)
        settled = [
            load._replace(running=min(grant, load.running), allowed=grant)
            for grant, load in zip(granted, settled, strict=True)
        ]
    assert sum(granted) == min(limit, sum(load.unfinished for load in loads))
