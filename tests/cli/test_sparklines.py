from __future__ import annotations

import math
import sys

import pytest

from phalanx.cli.render.sparklines import BARS, sparkline
from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([1.0], BARS[0]),
        ([2.0, 2.0], BARS[0] * 2),
        ([0.0, 1.0], BARS[0] + BARS[-1]),
        ([1.0, math.nan, 0.0], BARS[-1] + " " + BARS[0]),
        ([math.nan, math.inf], ""),
    ],
)
def test_the_shape_of_a_series(values: list[float], line: str) -> None:
    assert sparkline(values) == line


def test_a_long_series_fits_its_width() -> None:
    line = sparkline([float(number) for number in range(1000)], width=20)
    assert len(line) == 20
    assert line == "".join(sorted(line))


@pytest.mark.slow
def test_a_run_ends_with_its_metrics_and_is_found_by_them(place: Place) -> None:
    program = "from phalanx import tracking; [tracking.log(loss=1 / (n + 1), step=n) for n in range(50)]"
    answer = place.run(f'{sys.executable} -c "{program}"')
    assert answer.code == 0, answer.err
    # The first figure is the mean of the first share of the shape: here of 1 and 1/2.
    assert any(
        line.startswith("loss  0.75 ") and line.endswith(" 0.02     min 0.02, max 1")
        for line in answer.err.splitlines()
    ), answer.err
    rows = place.call("ps", "--json", "-q", "metric.loss:<0.1").data["runs"]
    assert [row["summary"] for row in rows] == [{"loss": pytest.approx(0.02)}]
    assert place.call("ps", "--json", "-q", "metric.loss:>0.1").data["count"] == 0
