from __future__ import annotations

import csv
import io
import math

import pytest

from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name
from tests.cli.running import is_silent_about_itself
from tests.cli.tracked import remember_tracked

RAMP = [(step, float(step)) for step in range(100)]


@pytest.fixture(name="tracked")
def tracked_fixture(place: Place) -> Place:
    spiky = [(step, 100.0 if step == 501 else 1.0) for step in range(1000)]
    remember_tracked(
        place,
        "aaa1",
        {
            "master-0": {"loss": RAMP, "val/loss": [(0, 2.0), (50, 1.0)], "spiky": spiky},
            "worker-0": {"loss": [(step, value + 1) for step, value in RAMP]},
        },
        name="first",
    )
    return place


def rows(place: Place, *arguments: str) -> list[dict[str, str]]:
    answer = place.quick("metrics", *arguments, "--csv")
    assert answer.code == 0, answer.err
    return list(csv.DictReader(io.StringIO(answer.out)))


def test_the_table_has_every_metric_of_every_replica(tracked: Place) -> None:
    head, *lines = tracked.call("metrics", "first").out.splitlines()
    assert head.split() == ["METRIC", "REPLICA", "POINTS", "STEP", "LAST", "MIN", "MAX", "SHAPE"]
    cells = {tuple(line.split()[:2]): line.split()[2:7] for line in lines}
    assert cells["loss", "master-0"] == ["100", "99", "99", "0", "99"]
    assert cells["loss", "worker-0"] == ["100", "99", "100", "1", "100"]
    assert cells["spiky", "master-0"] == ["1000", "999", "1", "1", "100"]
    assert len(lines) == 4


def test_points_come_as_csv(tracked: Place) -> None:
    found = rows(tracked, "first", "loss", "--replica", "worker-0", "--steps", "10:12")
    assert [(row["step"], row["value"], row["rank"]) for row in found] == [
        ("10", "11.0", "1"),
        ("11", "12.0", "1"),
        ("12", "13.0", "1"),
    ]


@pytest.mark.parametrize(("steps", "count"), [("98:", 2), (":1", 2), ("5", 1), ("5:5", 1), ("200:300", 0), ("-5:0", 1)])
def test_steps_choose_a_part(tracked: Place, steps: str, count: int) -> None:
    assert len(rows(tracked, "first", "loss", "--replica", "master-0", f"--steps={steps}")) == count


def test_no_spike_is_left_out_of_buckets(tracked: Place) -> None:
    data = tracked.quick("metrics", "first", "spiky", "--json", "--buckets", "7").data
    (metric,) = data["metrics"]
    found = metric["buckets"]["master-0"]
    assert len(found) <= 7
    assert max(bucket["max"] for bucket in found) == 100.0
    assert sum(bucket["count"] for bucket in found) == 1000


def test_a_chart_is_drawn_with_both_ends_of_its_scales(tracked: Place) -> None:
    out = tracked.quick("metrics", "first", "spiky", "--plot").out
    assert "100 │" in out
    assert "999" in out.splitlines()[-2]


def test_ranks_are_put_together(tracked: Place) -> None:
    data = tracked.quick("metrics", "first", "loss", "--over-ranks", "--json").data
    found = data["metrics"][0]["buckets"]["all"]
    assert [(row["first_step"], row["mean"], row["min"], row["max"]) for row in found[:2]] == [
        (0, 0.5, 0.0, 1.0),
        (1, 1.5, 1.0, 2.0),
    ]
    assert "2 ranks" in tracked.quick("metrics", "first", "loss", "--over-ranks").out


@pytest.mark.parametrize(
    ("wanted", "found"), [("val/%", ["val/loss"]), ("%loss", ["loss", "val/loss"]), ("%os%", ["loss", "val/loss"])]
)
def test_names_may_be_parts(tracked: Place, wanted: str, found: list[str]) -> None:
    data = tracked.quick("metrics", "first", wanted, "--json").data
    assert [row["name"] for row in data["metrics"]] == found


def test_json_without_names_has_no_points(tracked: Place) -> None:
    data = tracked.quick("metrics", "first", "--json").data
    assert all("series" not in row for row in data["metrics"])
    assert data["metrics"][0]["summary"]["last"] == 99.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("first", "los"), "did you mean `loss`?"),
        (("first", "--replica", "worker-9"), "master-0, worker-0"),
        (("first", "--steps", "a:b"), "expected FIRST:LAST"),
        (("nobody",), "there is no run `nobody`"),
    ],
)
def test_what_is_wrong_is_said_kindly(tracked: Place, arguments: tuple[str, ...], said: str) -> None:
    answer = tracked.call("metrics", *arguments)
    assert answer.code == 2
    assert said in answer.err
    assert is_silent_about_itself(answer)
    assert said in tracked.call("metrics", *arguments, "--json").data["errors"][0]["message"]


def test_a_run_without_metrics_says_so(place: Place) -> None:
    place.remember("aaa1")
    assert "no metrics yet" in place.quick("metrics", "aaa1").out


def test_names_cannot_move_the_cursor_and_odd_values_are_shown(place: Place) -> None:
    odd = [(0, math.nan), (1, math.inf), (2, 3.0)]
    remember_tracked(place, "aaa1", {"master-0": {"a\x1b[2J\n'\"😀": odd, "never": [(0, math.nan)]}})
    answer = place.call("metrics", "aaa1")
    assert "\x1b" not in answer.out
    assert "😀" in answer.out
    assert place.quick("metrics", "aaa1", "--plot").code == 0
    data = place.quick("metrics", "aaa1", "never", "--json").data
    assert data["metrics"][0]["series"][0]["values"] == ["NaN"]
    assert place.quick("show", "aaa1").code == 0
