from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.insight.throughput import Measure, Pace, Speeds, choose, log_size_at, measure, pace_of
from phalanx.spool import PointWriter, Writer
from tests.insight.samples import BEGAN, end


def pace(steps_per_s: float | None, points: int = 10, mean: float | None = 1.0) -> Pace:
    return Pace(points, steps_per_s, mean)


def speeds(duration_s: float | None = None, lines_per_s: float | None = None, **paces: Pace) -> Speeds:
    return Speeds(paces, duration_s, lines_per_s)


def test_only_what_came_later_counts() -> None:
    found = pace_of([0, 1, 2, 10, 20], [0.0, 5.0, 9.0, 10.0, 12.0], [1, 1, 1, 4, float("nan")], since=10.0)
    assert found == Pace(points=2, steps_per_s=5.0, mean=4.0)


@pytest.mark.parametrize(("steps", "times"), [([], []), ([3], [11.0]), ([3, 3], [11.0, 12.0]), ([3, 4], [11.0, 11.0])])
def test_without_two_steps_at_two_times_there_is_no_speed(steps: list[int], times: list[float]) -> None:
    assert pace_of(steps, times, [1.0] * len(steps), since=10.0).steps_per_s is None


def test_steps_come_before_durations_and_those_before_lines() -> None:
    both = [speeds(9.0, 5.0, loss=pace(3.0)), speeds(5.0, 5.0, loss=pace(6.0))]
    chosen = choose(both)
    assert chosen == (Measure.STEPS, "loss", (3.0, 6.0))
    assert choose([speeds(10.0, 5.0), speeds(None, 5.0)]) == (Measure.DURATION, None, (0.1, None))
    assert choose([speeds(None, 5.0), None, speeds()]) == (Measure.LINES, None, (5.0, None, None))
    assert choose([speeds(), speeds(None, None, loss=pace(None))]) is None
    assert choose([None]) is None


def test_the_metric_that_all_trials_track_and_track_most_often_is_the_clock() -> None:
    trials = [
        speeds(loss=pace(100.0, 50), epoch=pace(1.0, 2), odd=pace(9.0, 500)),
        speeds(loss=pace(200.0, 90), epoch=pace(2.0, 3)),
    ]
    chosen = choose(trials)
    assert chosen is not None
    assert (chosen.metric, chosen.speeds) == ("loss", (100.0, 200.0))


def test_a_throughput_that_is_named_counts_by_its_mean() -> None:
    trials = [speeds(loss=pace(1.0), samples=pace(None, mean=512.0)), speeds(loss=pace(9.0)), None]
    assert choose(trials, "samples") == (Measure.METRIC, "samples", (512.0, None, None))
    assert choose(trials, "nothing") is None


def test_the_size_of_a_log_at_a_moment_is_that_of_the_last_look_before_it() -> None:
    notes = [{"at": 1.0, "log": 10}, {"at": 2.0, "log": 30}, {"at": 9.0, "log": 99}]
    assert [log_size_at(notes, moment) for moment in (0.5, 1.5, 100.0)] == [0, 10, 99]


def test_a_trial_is_measured_from_what_it_left(tmp_path: Path) -> None:
    folder = tmp_path / "replicas" / "master-0" / "attempt-1"
    folder.mkdir(parents=True)
    (tmp_path / "plan.json").write_text(json.dumps({"replicas": [{"role": "master", "index": 0, "rank": 0}]}))
    spool = Writer(folder / "spool")
    for note in ({"at": BEGAN, "start": 1}, {"at": BEGAN + 4, "log": 8}, {"at": BEGAN + 10, "log": 20}):
        spool.append_json(note)
    spool.close()
    (folder / "log").write_bytes(b"warming\nstep\nstep\nst")
    (folder / "end.json").write_text(json.dumps(end(10).to_json()))
    points = PointWriter(folder / "client-1.points")
    for step in range(20):  # slow at first
        points.add(step, BEGAN + (step if step < 5 else 5 + (step - 5) / 3), {"loss": 1.0})
    points.close()
    found = measure(tmp_path, ["master-0"], 1, finished=True)
    assert found is not None
    assert found.paces["loss"].steps_per_s == pytest.approx(3.0)
    assert found.duration_s == pytest.approx(10.0)
    assert found.lines_per_s == pytest.approx(2 / 5)
    unfinished = measure(tmp_path, ["master-0"], 1, finished=False)
    assert unfinished is not None
    assert unfinished.duration_s is None
    assert measure(tmp_path, ["worker-0"], 1, finished=True) is None
