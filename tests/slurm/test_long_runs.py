"""Runs that take longer than the site's longest job: told to save, split into segments, each resuming the last.

All of them run at the same time: a segment takes two minutes at least.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.cli.homes import wait_for
from tests.slurm.cluster import Cluster
from tests.slurm.places import SlurmPlace
from tests.slurm.programs import (
    DONE,
    HERE,
    folder,
    job_of,
    jobs_named,
    kill_schedulers,
    log,
    over,
    schedulers,
    see,
    series,
    submit,
)
from tests.slurm.programs import program as the

SEGMENT_S = 120.0
OVER = "its segment reached its time limit"
MEMORY = {"resources": {"memory": {"limits": 200}}}
STEPS = 12
TRAPPING = f"bash {HERE / 'trapping.sh'}"


def segmented(checkpoint_s: int, workers: int = 0, timeout_s: int | None = None) -> dict[str, Any]:
    replicas = {"replicas": {"n_workers": workers, "default_worker": MEMORY}} if workers else {}
    slurm = {"segment": "2m", "checkpoint": checkpoint_s, "replicas_per_node": 1}
    return {**MEMORY, **replicas, "slurm": slurm, **({"timeout": timeout_s} if timeout_s else {})}


class Runs(NamedTuple):
    place: SlurmPlace
    signalled: str  # saves when it is told to, and goes on until its segment is over
    leaving: str  # leaves when it has saved
    trapping: str  # a shell that leaves
    timed: str  # has less time than two segments
    leaving_timed: str  # has less time left, when it is first told to save, than it wants to be told before
    other_place: SlurmPlace
    unattended: str  # leaves twice, while nobody of ours is there


@pytest.fixture(name="runs", scope="module")
def runs_fixture(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[Runs]:
    place, other = (SlurmPlace(tmp_path_factory.mktemp(name), cluster) for name in ("long", "unattended"))
    try:
        unattended = submit(other, f"{TRAPPING} 3", environment=segmented(80))
        wait_for(lambda: "begins" in log(other, unattended))
        kill_schedulers(other)
        going_on, leaving = (the("steps", STEPS, 0.5, wish, "--again") for wish in ("--told", "--leave"))
        runs = Runs(
            place,
            submit(place, going_on, framework="pytorch", environment=segmented(50, workers=2)),
            submit(place, leaving, framework="pytorch", environment=segmented(80, workers=1)),
            submit(place, TRAPPING, environment=segmented(80)),
            submit(place, "sleep 1000", environment=segmented(10, timeout_s=125)),
            submit(place, f"{TRAPPING} 99", environment=segmented(80, timeout_s=95)),
            other,
            unattended,
        )
        over(place, runs.signalled, runs.leaving, runs.trapping, runs.timed, patience_s=300)
        yield runs
    finally:
        place.close()
        other.close()


def went_on(place: SlurmPlace, run: str) -> dict[str, Any]:
    """In the same job, which Slurm started again, as the second attempt; nothing failed."""
    found = see(place, run)
    assert found["status"] == "succeeded", found["reason"]
    assert [change["reason"] for change in found["statuses"] if change["status"] == "resuming"] == [OVER]
    assert found["attempt"] == 2, found["statuses"]
    assert job_of(place, run, 1) == job_of(place, run, 2)
    assert [row[0] for row in place.accounted(job_of(place, run))] == ["REQUEUED", "COMPLETED"]
    return found


def saved_at(place: SlurmPlace, run: str) -> dict[str, tuple[int, float]]:
    """By rank: the step and time at which it was told to save, in the first attempt."""
    rows = [line.split() for line in (folder(place, run) / "outputs" / "told").read_text().splitlines()]
    first = {rank: (int(step), float(at)) for attempt, rank, step, at in rows if attempt == "1"}
    assert len(first) == sum(row[0] == "1" for row in rows), "told once"
    return first


def test_all_ranks_are_asked_to_save_before_the_end_and_go_on_in_the_next_segment(runs: Runs) -> None:
    place, run = runs.place, runs.signalled
    found = went_on(place, run)
    signalled = saved_at(place, run)
    assert sorted(signalled) == ["0", "1", "2"]
    began = min(replica_start(place, run, name) for name in ("master-0", "worker-0", "worker-1"))
    assert all(20 < at - began < SEGMENT_S - 50 for _, at in signalled.values()), (began, signalled)
    are_continued(place, run, signalled)
    for rank, name in enumerate(("master-0", "worker-0", "worker-1")):
        (ended,) = (line for line in log(place, run, name).splitlines() if line.startswith("ended at step "))
        assert int(ended.rpartition(" ")[2]) > signalled[str(rank)][0] + 3, "it went on when it had saved"
    assert {row["attempt"] for row in found["replicas"]} == {2}


def replica_start(place: SlurmPlace, run: str, name: str) -> float:
    return (place.attempt(run, name) / "agent.json").stat().st_mtime


def test_ranks_that_leave_when_they_have_saved_go_on_in_the_next_segment(runs: Runs) -> None:
    place, run = runs.place, runs.leaving
    went_on(place, run)
    signalled = saved_at(place, run)
    assert sorted(signalled) == ["0", "1"]
    are_continued(place, run, signalled)
    assert "ended at step" not in log(place, run)


def are_continued(place: SlurmPlace, run: str, signalled: dict[str, tuple[int, float]]) -> None:
    """One series of each rank: what it had saved, and from there what the second attempt did."""
    found = series(place, run, "loss")
    assert len(found) == len(signalled)
    for rank, (name, points) in enumerate(sorted(found.items())):
        step = signalled[str(rank)][0]
        assert points == [*((1, n) for n in range(step)), *((2, n) for n in range(step, step + STEPS))], name


def test_a_shell_can_trap_the_signal(runs: Runs) -> None:
    place, run = runs.place, runs.trapping
    went_on(place, run)
    first, second = log(place, run).splitlines(), log(place, run, attempt=2).splitlines()
    assert first[0] == "begins at 0"
    number = int(first[1].removeprefix("saved "))
    assert second == [f"begins at {number}", f"done at {number + 3}"]
    assert number > 3


def test_the_time_limit_of_a_run_counts_all_its_segments(runs: Runs) -> None:
    place, run = runs.place, runs.timed
    found = see(place, run)
    assert (found["status"], found["attempt"]) == ("failed", 2), found["statuses"]
    assert "ended by its time limit of 125 s" in found["reason"], found["reason"]


def test_a_run_without_time_left_is_not_restarted_again_and_again(runs: Runs) -> None:
    """Told to save for the end of the run, not of a segment: there is no next one."""
    place, run = runs.place, runs.leaving_timed

    def over_or_over_and_over() -> dict[str, Any]:
        found = see(place, run)
        return found if found["status"] in DONE or found["attempt"] > 3 else {}

    found = wait_for(over_or_over_and_over, 120)
    assert found["status"] == "failed", found["statuses"]
    assert "time limit of 95 s" in found["reason"], found["reason"]
    assert found["attempt"] <= 2, found["statuses"]


def test_a_run_goes_on_while_no_one_looks_after_it(runs: Runs) -> None:
    """Its job asks for its next segment itself; whoever looks later finds all of them."""
    place, run = runs.other_place, runs.unattended
    job = job_of(place, run)
    assert not schedulers(place)
    assert place.until_job(job, "COMPLETED", "FAILED") == "COMPLETED"
    assert not schedulers(place)
    (found,) = over(place, run)
    assert (found["status"], found["attempt"]) == ("succeeded", 3), found["statuses"]
    assert [change["reason"] for change in found["statuses"] if change["status"] == "resuming"] == [OVER, OVER]
    saved = [int(log(place, run, attempt=attempt).splitlines()[-1].split()[-1]) for attempt in (1, 2, 3)]
    assert saved == sorted(saved)
    assert log(place, run, attempt=3).splitlines() == [f"begins at {saved[1]}", f"done at {saved[1] + 3}"]
    assert jobs_named(place, run) == [job]
