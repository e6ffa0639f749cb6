"""The one rule for the summary of a metric: the same live, from memory and from compacted files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import nan
from pathlib import Path

import pytest

from phalanx.store.records import Summary
from phalanx.store.series.compaction import compact
from phalanx.store.series.replica_summaries import ReplicaSummaries
from phalanx.store.series.run_series import RunSeries
from tests.store.series.test_run_series import START, Logged, line, plainly, random_run, same_summary, write_run


def logged(points: Sequence[tuple[int | None, float, float]], attempt: int = 1, file: str = "mlflow") -> list[Logged]:
    return [Logged("loss", "master-0", attempt, file, step, START + time, value) for step, time, value in points]


def everywhere(run: Path, live: ReplicaSummaries) -> Summary:
    """The summary of `loss`, which must be the same for every reader."""
    live.poll()
    found = live.summary("loss")
    assert repr(RunSeries(run).summaries()["loss"]) == repr(found)
    return found


def follow(run: Path, attempt: int = 1) -> ReplicaSummaries:
    return ReplicaSummaries(run, "master-0", attempt)


class TestTheLastValue:
    def test_it_is_that_of_the_largest_step(self, tmp_path: Path) -> None:
        live = follow(tmp_path)
        for count, expected in ((1, 0.1), (2, 0.5), (3, 0.5)):
            write_run(tmp_path, logged([(1, 0, 0.1), (5, 1, 0.5), (3, 2, 0.3)][count - 1 : count]))
            assert everywhere(tmp_path, live)[0] == expected
        assert everywhere(tmp_path, live) == Summary(0.5, 0.1, 0.5, 3, 5, START + 1)
        compact(tmp_path, 1)
        assert RunSeries(tmp_path).summaries() == {"loss": Summary(0.5, 0.1, 0.5, 3, 5, START + 1)}

    def test_points_that_mlflow_sends_again_count_once(self, tmp_path: Path) -> None:
        live = follow(tmp_path)
        points = [(step, step, 10.0 - step) for step in range(10)]
        write_run(tmp_path, logged(points))
        assert everywhere(tmp_path, live).last == 1.0
        write_run(tmp_path, logged(points[:1]))
        assert everywhere(tmp_path, live) == Summary(1.0, 1.0, 10.0, 10, 9, START + 9)
        assert len(RunSeries(tmp_path).series("loss")[0].values) == 10
        compact(tmp_path, 1)
        assert RunSeries(tmp_path).summaries()["loss"] == Summary(1.0, 1.0, 10.0, 10, 9, START + 9)

    def test_among_equal_steps_the_latest_time_counts_whatever_was_written_last(self, tmp_path: Path) -> None:
        live = follow(tmp_path)
        write_run(tmp_path, logged([(0, 5, 0.5), (0, 9, 0.9), (0, 7, 0.7)]))
        assert everywhere(tmp_path, live) == Summary(0.9, 0.5, 0.9, 3, 0, START + 9)
        write_run(tmp_path, logged([(0, 9, 0.1)]))  # same step and time: written later
        assert everywhere(tmp_path, live).last == 0.1

    def test_it_may_be_nan_and_nan_is_sent_again_like_any_other(self, tmp_path: Path) -> None:
        live = follow(tmp_path)
        write_run(tmp_path, logged([(0, 0, 1.0), (1, 1, nan), (1, 1, nan)]))
        found = everywhere(tmp_path, live)
        assert (repr(found.last), found.min, found.max, found.count) == ("nan", 1.0, 1.0, 2)

    def test_a_restarted_attempt_overwrites_from_its_smallest_step_on(self, tmp_path: Path) -> None:
        write_run(tmp_path, line([float(step) for step in range(10)]))
        live = follow(tmp_path, 2)
        write_run(tmp_path, line([70.0], attempt=2, first=7))
        assert everywhere(tmp_path, live)[:5] == (70.0, 0.0, 70.0, 8, 7)
        write_run(tmp_path, line([30.0], attempt=2, first=3, file="client-2"))
        assert everywhere(tmp_path, live)[:5] == (70.0, 0.0, 70.0, 5, 7)

    def test_a_point_without_a_step_comes_after_the_largest(self, tmp_path: Path) -> None:
        live = follow(tmp_path)
        write_run(tmp_path, logged([(5, 0, 0.5), (3, 1, 0.3), (None, 2, 0.1)]))
        assert everywhere(tmp_path, live)[:5] == (0.1, 0.1, 0.5, 3, 6)


@pytest.mark.parametrize("seed", range(3))
def test_live_summaries_are_exact_at_every_moment(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    points = random_run(chance, longest=60)
    for attempt in sorted({point.attempt for point in points}):
        live = follow(tmp_path, attempt)
        own = [point for point in points if point.attempt == attempt and point.replica == "master-0"]
        chance.shuffle(own) if seed else None
        done = [point for point in points if point.attempt < attempt]
        for first in range(0, len(own), 40):
            write_run(tmp_path, own[first : first + 40])
            live.poll()
            known = [*done, *own[: first + 40]]
            series = RunSeries(tmp_path)
            for metric in {point.metric for point in own[: first + 40]}:
                assert same_summary(live.summary(metric), plainly(known, metric, "master-0")[0])
                assert repr(live.summary(metric)) == repr(series.summary(metric, "master-0"))
        if chance.random() < 0.5:
            compact(tmp_path, attempt)
