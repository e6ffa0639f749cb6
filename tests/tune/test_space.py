"""Dimensions, points and positions."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.tune.space import Axis, Dimension, chance, draw, draw_new, point_at, point_key, size, value_at
from tests.examples import examples
from tests.tune.helpers import MIXED, listed, uniform

LOW = st.floats(-5, 4)
WIDTH = st.floats(0.1, 5)
STEP = st.floats(0.01, 2)


@st.composite
def dimensions(draw_: Any, name: str = "a") -> Dimension:
    kind = draw_(st.sampled_from(["values", "pvalues", "uniform", "loguniform", "normal", "lognormal"]))
    if kind == "values":
        return listed(
            name, *draw_(st.lists(st.one_of(st.integers(-9, 9), st.text(max_size=3)), min_size=1, max_size=6))
        )
    if kind == "pvalues":
        values = draw_(st.lists(st.integers(), min_size=1, max_size=5, unique=True))
        shares = draw_(st.lists(st.floats(0, 0.99 / len(values)), min_size=len(values), max_size=len(values)))
        return Dimension(name, "pvalues", tuple(values), tuple(shares))
    low = draw_(LOW)
    names = ("low", "high") if "uniform" in kind else ("loc", "scale")
    arguments = dict(zip(names, (low, low + draw_(WIDTH) if "uniform" in kind else draw_(WIDTH)), strict=True))
    if draw_(st.booleans()):
        return Dimension(name, f"q{kind}", arguments={**arguments, "q": draw_(STEP)})
    return Dimension(name, kind, arguments=arguments)


def is_of(dimension: Dimension, value: Any) -> bool:
    if dimension.values is not None:
        return value in dimension.values
    step = dimension.arguments.get("q", 0)
    if step and abs(value / step - round(value / step)) > 1e-6 * max(1, abs(value / step)):
        return False
    if "low" not in dimension.arguments:
        return math.isfinite(value)
    ends = [dimension.arguments["low"], dimension.arguments["high"]]
    low, high = map(math.exp, ends) if "log" in dimension.kind else ends
    return bool(low - step - 1e-9 <= value <= high + 1e-9)


@examples(300)
@given(dimensions(), st.integers(0, 10**6), st.integers(0, 50))
def test_every_drawn_value_is_one_of_its_dimension(dimension: Dimension, seed: int, number: int) -> None:
    assert is_of(dimension, draw([dimension], seed, number)["a"])


@examples(300)
@given(dimensions(), st.floats(0.001, 0.999))
def test_a_value_is_found_again_at_its_position(dimension: Dimension, position: float) -> None:
    axis = Axis(dimension)
    value = axis.value(position)
    again = axis.value(axis.position(value))
    assert is_of(dimension, value)
    if isinstance(value, float) and axis.order is None:
        low = dimension.arguments.get("q", 0) * 1.001 if "q" in dimension.arguments else 1e-6 * max(1, abs(value))
        assert again == pytest.approx(value, rel=1e-5, abs=low)
    else:
        assert again == value


@examples(100)
@given(st.lists(dimensions(), min_size=1, max_size=3), st.integers(0, 99))
def test_points_are_not_repeated_until_none_is_left(made: list[Dimension], seed: int) -> None:
    space = [dimension._replace(name=f"d{index}") for index, dimension in enumerate(made)]
    names = [dimension.name for dimension in space]
    total, known = size(space), set[str]()
    for number in range(60):
        point = draw_new(space, seed, number, known)
        if point is None:
            assert total is None or len(known) == total
            return
        assert all(is_of(dimension, point[dimension.name]) for dimension in space)
        assert point_key(point, names) not in known
        known.add(point_key(point, names))


def test_a_grid_varies_its_last_dimension_fastest() -> None:
    space = (listed("a", 1, 2), listed("b", "x", "y", "z"))
    assert [tuple(point_at(space, index).values()) for index in range(6)] == [
        (1, "x"), (1, "y"), (1, "z"), (2, "x"), (2, "y"), (2, "z"),
    ]  # fmt: skip


def test_what_probabilities_leave_over_goes_to_the_last_value() -> None:
    dimension = Dimension("a", "pvalues", ("relu", "sigmoid"), (0.1, 0.8))
    assert [value_at(dimension, place) for place in (0.0, 0.09, 0.11, 0.99)] == ["relu", "relu", "sigmoid", "sigmoid"]


@pytest.mark.parametrize(
    ("dimension", "expected"),
    [
        (Dimension("a", "loguniform", arguments={"low": 0, "high": 2}), math.e),
        (Dimension("a", "quniform", arguments={"low": 0, "high": 1, "q": 0.3}), 0.3),
        (Dimension("a", "normal", arguments={"loc": 2, "scale": 1}), 2),
        (Dimension("a", "lognormal", arguments={"loc": 2, "scale": 1}), math.exp(2)),
        (Dimension("a", "qlognormal", arguments={"loc": 2, "scale": 1, "q": 1}), 7),
        (Dimension("a", "normal", arguments={"loc": 2, "scale": 0}), 2),
        (Dimension("a", "quniform", arguments={"low": 0, "high": 1, "q": 0}), 0.5),
        (Dimension("a", "qloguniform", arguments={"low": 0, "high": 690, "q": 1e-20}), math.exp(345)),
    ],
)
def test_the_middle_of_a_distribution(dimension: Dimension, expected: float) -> None:
    assert value_at(dimension, 0.5) == pytest.approx(expected)


def test_a_point_depends_on_the_seed_the_name_and_the_number_alone() -> None:
    first = draw(MIXED, 0, 7)
    assert draw(MIXED, 0, 7) == first
    assert draw((*MIXED, uniform("other")), 0, 7) == {**first, "other": pytest.approx(chance(0, "other", 7))}
    assert draw(MIXED, 1, 7) != first
    assert draw(MIXED, 0, 8) != first
    assert chance(0, "lr", 7) == 0.45106955483773514  # in every version of Python


def test_log_forms_and_lists_have_even_positions() -> None:
    rate = Axis(Dimension("a", "loguniform", arguments={"low": math.log(1e-4), "high": 0}))
    assert [rate.position(value) for value in (1e-4, 1e-2, 1)] == pytest.approx([0, 0.5, 1])
    batch = Axis(listed("a", 256, 16, 64))
    assert [batch.position(value) for value in (16, 64, 256)] == pytest.approx([1 / 6, 3 / 6, 5 / 6])
    assert (batch.place(100), batch.place(10_000)) == (2, 2)  # of a user
    assert Axis(listed("a", "x", 2)).is_category
