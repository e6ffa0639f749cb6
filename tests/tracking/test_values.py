"""What `log` takes for a number, a step and a name."""

from __future__ import annotations

import argparse
import math
import sys
from collections import OrderedDict, UserDict
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from phalanx import tracking
from phalanx.tracking import TrackedRun
from phalanx.tracking.recorder import MOST_NAMES
from tests.tracking.reading import Replica


class Scalar:
    """What tensors have in common."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def item(self) -> Any:
        return self.value


class Eager:
    """TensorFlow's."""

    def numpy(self) -> float:
        return 2.5


class Color(IntEnum):
    RED = 3


class Sneaky:
    def __float__(self) -> float:
        raise RuntimeError("not today")


class Numbered:
    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


# values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (0.5, 0.5),
        (-0.0, -0.0),
        (5e-324, 5e-324),
        (1.7976931348623157e308, 1.7976931348623157e308),
        (math.inf, math.inf),
        (-math.inf, -math.inf),
        (3, 3.0),
        (2**53 + 1, float(2**53 + 1)),
        (10**300, 1e300),
        (True, 1.0),
        (False, 0.0),
        (Color.RED, 3.0),
        (Decimal("0.125"), 0.125),
        (Fraction(1, 4), 0.25),
        (Scalar(0.75), 0.75),
        (Scalar(7), 7.0),
        (Scalar(True), 1.0),
        (Eager(), 2.5),
        ("0.5", 0.5),
    ],
)
def test_any_single_number_is_kept_unchanged(run: TrackedRun, replica: Replica, value: Any, kept: float) -> None:
    run.log(loss=value, step=1)
    run.log({"loss": value, "other": 1.0}, step=2)
    assert replica.points() == {"loss": [(1, kept), (2, kept)], "other": [(2, 1.0)]}
    assert math.copysign(1.0, replica.values("loss")[0]) == math.copysign(1.0, kept)
    assert run.dropped == {}


def test_nan_is_kept(run: TrackedRun, replica: Replica) -> None:
    run.log(loss=math.nan, step=1)
    run.log({"loss": Scalar(math.nan)}, step=2)
    assert [math.isnan(value) for value in replica.values("loss")] == [True, True]


@pytest.mark.parametrize(
    "value",
    [None, "many", "", b"x", 1j, 10**400, [], [1.0, 2.0], (), {1}, object, object(), Sneaky(), Scalar([1, 2]), len],
)
def test_a_value_that_is_no_number_is_reported_and_costs_nothing_else(
    run: TrackedRun, replica: Replica, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run.log({"before": 1.0, "bad": value, "after": 2}, step=3)
    run.log(bad=value, step=4)
    assert replica.points() == {"before": [(3, 1.0)], "after": [(3, 2.0)]}
    assert sum(run.dropped.values()) == 2
    assert "bad: " in next(iter(run.dropped))
    assert capsys.readouterr().err.count("could not be recorded") == 1  # the same reason is said once
    tracking.finish()
    assert replica.event("dropped")["count"] == 2


def test_numpys_scalars_and_arrays_of_one(run: TrackedRun, replica: Replica) -> None:
    numpy = pytest.importorskip("numpy")
    given = [
        numpy.float16(0.5), numpy.float32(0.5), numpy.float64(0.5), numpy.longdouble(0.5), numpy.array(0.5),
        numpy.array([0.5]), numpy.array([[0.5]]), numpy.int8(1) / 2,
    ]  # fmt: skip
    for step, value in enumerate(given):
        run.log(loss=value, step=numpy.int64(step))
    run.log(count=numpy.uint64(2**63), flag=numpy.bool_(True), small=numpy.int32(-7))
    assert replica.points()["loss"] == [(step, 0.5) for step in range(len(given))]
    assert [replica.values(name) for name in ("count", "flag", "small")] == [[2.0**63], [1.0], [-7.0]]
    run.log(many=numpy.zeros(3), whole=numpy.complex128(1j), good=1.0)
    assert set(replica.points()) == {"loss", "count", "flag", "small", "good"}
    assert sum(run.dropped.values()) == 2


# steps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        (0, 0), (-5, -5), (2**62, 2**62), (2**63 - 1, 2**63 - 1), (-(2**63) + 1, -(2**63) + 1), (True, 1),
        (2.0, 2), (2.9, 2), ("7", 7), (Numbered(9), 9), (Decimal(4), 4),
    ],
)  # fmt: skip
def test_a_step_is_any_whole_number(run: TrackedRun, replica: Replica, step: Any, kept: int) -> None:
    run.log(a=1.0, step=step)
    run.log({"b": 1, "c": 2.0}, step=step)
    assert replica.points() == {"a": [(kept, 1.0)], "b": [(kept, 1.0)], "c": [(kept, 2.0)]}


@pytest.mark.parametrize("step", [2**63, -(2**63) - 1, 10**30, math.nan, math.inf, "x", [], object(), 1j, Sneaky()])
def test_what_is_no_step_costs_its_point_and_nothing_else(run: TrackedRun, replica: Replica, step: Any) -> None:
    run.log(loss=1.0, step=step)
    run.log({"loss": 2.0, "other": 3.0}, step=step)
    run.log(loss=4.0, step=1)
    assert replica.points() == {"loss": [(1, 4.0)]}
    assert sum(run.dropped.values()) == 3
    assert "the step" in next(iter(run.dropped))


def test_steps_that_are_not_given_are_counted_by_the_reader(run: TrackedRun, replica: Replica) -> None:
    for value in (1.0, 2.0, 3.0):
        run.log(loss=value)
    run.log(loss=4.0, step=10)
    run.log(loss=5.0)
    run.log(accuracy=0.5)
    assert replica.series("loss") == ([0, 1, 2, 10, 11], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert replica.series("accuracy") == ([0], [0.5])


def test_a_step_may_go_back(run: TrackedRun, replica: Replica) -> None:
    for step in (5, 6, 2, 3, -1):
        run.log(loss=float(step), step=step)
    assert sorted(replica.points()["loss"]) == [(-1, -1.0), (2, 2.0), (3, 3.0), (5, 5.0), (6, 6.0)]


# names -------------------------------------------------------------------------------------------------------------

STRANGE = [
    "a/b/c", "/", "//", "../../etc/passwd", "with space", 'quote"s', "it's",
    "emoji 🔥", "日本語", "\u202eright to left", "a" * 500, "%s %d {} {0}", "$(rm -rf /)", "None", "0",
]  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_any_text_is_a_name(run: TrackedRun, replica: Replica, name: str) -> None:
    run.log({name: 0.5}, step=1)
    run.log({name: 0.25}, step=2)
    run.log(**{name: 1})
    assert replica.points() == {name: [(1, 0.5), (2, 0.25), (None, 1.0)]}
    assert run.dropped == {}


@pytest.mark.parametrize(
    ("name", "kept"), [("new\nline", "new_line"), ("tab\t", "tab_"), ("NUL\0here", "NUL_here"), ("\r", "_")]
)
def test_control_characters_in_a_name_are_replaced(run: TrackedRun, replica: Replica, name: str, kept: str) -> None:
    run.log({name: 0.5}, step=1)
    run.log(**{name: 1})
    assert replica.points() == {kept: [(1, 0.5), (None, 1.0)]}
    assert run.dropped == {}


def test_half_a_character_becomes_a_sign_that_can_be_kept(run: TrackedRun, replica: Replica) -> None:
    run.log({"a\ud800b": 0.5})
    run.log({"a\ud800b": 1.5})
    assert replica.points() == {"a_b": [(None, 0.5), (None, 1.5)]}


def test_a_long_name_is_cut_and_stays_one_name(run: TrackedRun, replica: Replica) -> None:
    for step in range(3):
        run.log({"x" * 10_000: float(step)}, step=step)
    ((name, points),) = replica.points().items()
    assert (len(name), name[-1], points) == (500, "…", [(0, 0.0), (1, 1.0), (2, 2.0)])


def test_an_empty_name_is_said(run: TrackedRun, replica: Replica) -> None:
    run.log({"": 1.0, "good": 2.0})
    assert replica.points() == {"good": [(None, 2.0)]}
    assert list(run.dropped) == [": a name must not be empty"]


def test_names_that_are_no_texts_become_texts(run: TrackedRun, replica: Replica) -> None:
    given: dict[Any, float] = {1: 1.0, 2.5: 2.0, None: 3.0, ("a", "b"): 4.0, Color.RED: 6.0, b"c": 7.0}
    run.log(given)
    names = {"1", "2.5", "None", "('a', 'b')", "b'c'", str(Color.RED)}
    assert set(replica.points()) == names


def test_ten_thousand_names(run: TrackedRun, replica: Replica) -> None:
    for step in range(2):
        run.log({f"layer-{number}/norm": number + step / 2 for number in range(10_000)}, step=step)
    points = replica.points()
    assert len(points) == 10_000
    assert all(points[f"layer-{n}/norm"] == [(0, n), (1, n + 0.5)] for n in range(10_000))


def test_nested_mappings_are_named_by_their_way(run: TrackedRun, replica: Replica) -> None:
    run.log({"train": {"loss": 1.0, "top": {5: 0.5}}, "lr": 0.1}, step=1)
    run.log(val={"loss": 2.0}, step=1)
    run.log(OrderedDict(a=UserDict(b=3)), c=SimpleNamespace(d=4), e=argparse.Namespace(f=5))
    assert {name: points[0][1] for name, points in replica.points().items()} == {
        "train/loss": 1.0, "train/top/5": 0.5, "lr": 0.1, "val/loss": 2.0, "a/b": 3.0, "c/d": 4.0, "e/f": 5.0,
    }  # fmt: skip


def test_a_mapping_and_keywords_together(run: TrackedRun, replica: Replica) -> None:
    run.log({"a": 1.0, "b": 2.0}, 7, b=3.0, c=4)
    assert replica.points() == {"a": [(7, 1.0)], "b": [(7, 3.0)], "c": [(7, 4.0)]}


def test_metrics_may_have_the_names_of_arguments(run: TrackedRun, replica: Replica) -> None:
    run.log(metrics=1.0, self=2.0, values=3.0, step=4)
    tracking.log(metrics=5.0, self=6.0)
    assert replica.points() == {
        "metrics": [(4, 1.0), (None, 5.0)],
        "self": [(4, 2.0), (None, 6.0)],
        "values": [(4, 3.0)],
    }


@pytest.mark.parametrize("metrics", ["loss", 5, [("loss", 1.0)], object(), 0.5, {"loss"}])
def test_what_is_no_mapping_is_said(run: TrackedRun, replica: Replica, metrics: Any) -> None:
    run.log(metrics)
    run.log(metrics, loss=1.0)
    assert replica.points() == {}
    assert sum(run.dropped.values()) == 2


def test_nothing_at_all_is_nothing(run: TrackedRun, replica: Replica) -> None:
    run.log()
    run.log({})
    run.log(None, step=3)
    run.log({"a": {}})
    assert replica.points() == {}
    assert list(run.dropped) == [
        "a: a dict is not one number (float() argument must be a string or a real number, not 'dict')"
    ]


def test_what_holds_itself_comes_to_an_end(run: TrackedRun, replica: Replica) -> None:
    knot: dict[str, Any] = {"loss": 1.0}
    knot.update({f"again-{number}": knot for number in range(6)})
    run.log(knot)
    assert replica.points()["loss"] == [(None, 1.0)]
    assert run.dropped["other reasons"] == 36 - 20


@pytest.mark.slow
def test_what_has_no_end_is_said(run: TrackedRun, replica: Replica) -> None:
    bush: dict[str, Any] = {"leaf": 1.0}
    for _ in range(20):
        bush = {f"b{number}": bush for number in range(20)}
    run.log(bush)
    run.log(loss=2.0)
    assert replica.points() == {"loss": [(None, 2.0)]}
    assert f"more than {MOST_NAMES:,} of them" in run.dropped


def test_a_mapping_whose_own_code_fails_is_said(run: TrackedRun, replica: Replica) -> None:
    class Broken(dict[str, float]):
        def items(self) -> Any:
            raise ZeroDivisionError("no items today")

        def keys(self) -> Any:
            raise ZeroDivisionError("no keys today")

    run.log(Broken(a=1.0))
    run.log(Broken(a=1.0, b=2.0))
    run.log(good=1.0)
    assert replica.points()["good"] == [(None, 1.0)]


def test_time_is_reported(run: TrackedRun, replica: Replica) -> None:
    import time

    before = time.time()
    run.log(loss=1.0)
    run.log(loss=1)
    (file,) = replica.files()
    assert all(before <= at <= time.time() for at in file.metrics["loss"].times)


def test_a_call_is_one_write(run: TrackedRun, replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the names are known."""
    run.log(a=1.0, b=2.0)
    written: list[bytes] = []

    def write(_: int, data: bytes) -> int:
        written.append(data)
        return len(data)

    monkeypatch.setattr(sys.modules["phalanx.tracking.recorder"], "_write", write)
    run.log(a=1.0, b=2.0, step=1)
    run.log(a=1.0, step=2)
    run.log({"a": 1, "b": True}, step=3)
    assert len(written) == 3
