from __future__ import annotations

import math
from pathlib import Path

import pytest

from phalanx.insight.trial_metric import TrialMeasure, interval_of, value_of
from phalanx.spool import PointWriter
from phalanx.store.series.run_series import RunSeries

LINES = {"master-0": [3.0, 1.0, 2.0], "worker-0": [6.0, 5.0, 4.0]}


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path) -> Path:
    """A run of two ranks that logged a loss at the steps 0, 1 and 2."""
    for name, values in LINES.items():
        place = tmp_path / "replicas" / name / "attempt-1"
        place.mkdir(parents=True)
        writer = PointWriter(place / "client-1.points")
        for step, value in enumerate(values):
            writer.add(step, 1.0 + step, {"loss": value})
        writer.close()
    return tmp_path


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        (TrialMeasure("loss"), 2.0),
        (TrialMeasure("loss", maximize=False, is_best=True), 1.0),
        (TrialMeasure("loss", maximize=True, is_best=True), 3.0),
        (TrialMeasure("loss", step=1), 1.0),
        (TrialMeasure("loss", step=100), 2.0),
        (TrialMeasure("loss", ranks="mean"), 3.0),
        (TrialMeasure("loss", ranks="max"), 4.0),
        (TrialMeasure("loss", ranks="min", step=0), 3.0),
        (TrialMeasure("loss", maximize=False, is_best=True, ranks="mean"), 2.5),
        (TrialMeasure("accuracy"), None),
        (TrialMeasure("accuracy", ranks="mean"), None),
    ],
)
def test_the_value_of_a_trial_is_what_the_file_says(folder: Path, measure: TrialMeasure, value: float | None) -> None:
    assert value_of(folder, RunSeries(folder).summaries(), measure) == value


def test_a_rank_without_a_number_makes_the_value_no_number(folder: Path) -> None:
    writer = PointWriter(folder / "replicas" / "worker-0" / "attempt-1" / "client-2.points")
    writer.add(3, 9.0, {"loss": math.nan})
    writer.close()
    found = value_of(folder, RunSeries(folder).summaries(), TrialMeasure("loss", ranks="mean"))
    assert found is not None
    assert math.isnan(found)


def test_the_interval_of_a_mean_is_that_of_students_t() -> None:
    assert interval_of([1.0, 2.0, 3.0]) == pytest.approx((-0.4843, 4.4843), abs=1e-4)
    assert interval_of([float(number) for number in range(100)]) == pytest.approx((43.743, 55.257), abs=1e-3)
    assert interval_of([1.0]) is None
    assert interval_of([1.0, float("nan")]) is None
