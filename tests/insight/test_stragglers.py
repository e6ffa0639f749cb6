"""Who is behind, and by how much."""

from __future__ import annotations

import pytest

from phalanx.insight.stragglers import Lag, RunProgress, lag_of, progress_of, progress_row
from phalanx.store.series.replica_steps import ReplicaStep


def steps(**given: int) -> dict[str, ReplicaStep]:
    return {name: ReplicaStep(step, 100.0 + step) for name, step in given.items()}


@pytest.mark.parametrize(("behind", "front"), [(0, 0), (1, 2), (2, 4), (5, 1000)])
def test_a_few_steps_are_no_lag(behind: int, front: int) -> None:
    assert lag_of(behind, front) is Lag.NONE


def test_the_lag_grows_with_the_share_of_missing_steps() -> None:
    assert [lag_of(behind, 1000) for behind in (5, 20, 30, 31, 100, 150, 151, 500)] == [0, 1, 1, 2, 2, 2, 3, 3]


def test_the_running_replica_that_is_furthest_behind_is_the_straggler() -> None:
    found = progress_of(steps(a=1000, b=700, c=100, d=650), running={"a", "b", "d"})
    assert (found.front, found.straggler) == (1000, "d")
    assert {name: (one.behind, one.lag) for name, one in found.replicas.items()} == {
        "a": (0, Lag.NONE),
        "b": (300, Lag.FAR),
        "c": (900, Lag.FAR),
        "d": (350, Lag.FAR),
    }


def test_without_a_lag_there_is_no_straggler() -> None:
    assert progress_of(steps(a=1000, b=999), running={"a", "b"}).straggler is None
    assert progress_of({}, running={"a"}) == RunProgress(None, None, {})


def test_a_replica_without_steps_has_no_lag_in_json() -> None:
    assert progress_row(None) == {"step": None, "step_at": None, "behind": None, "lag": None}
    progress = progress_of(steps(a=10, b=5), running=()).replicas["b"]
    assert progress_row(progress) == {"step": 5, "step_at": 105.0, "behind": 5, "lag": 3}
