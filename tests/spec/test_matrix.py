"""The matrix of a group and how it is searched."""

from __future__ import annotations

import math
from typing import Any

import pytest

from phalanx.spec.matrix import FORMS, MAX_VALUES, first_values
from phalanx.spec.model import Search
from phalanx.tune.space import Dimension
from tests.spec.helpers import (
    GROUP,
    assert_quickly_refused,
    error_of,
    errors_of,
    load_text,
    messages_of,
    notes_of,
    where,
)


def _group(dimension: str, search: str = "random_search: {n_experiments: 2}") -> str:
    return f"{GROUP}hptuning:\n  matrix:\n    a: {dimension}\n  {search}\n"


def _search(text: str) -> Search:
    search = load_text(text).search
    assert search is not None
    return search


def _dimension(dimension: str) -> Dimension:
    return _search(_group(dimension)).matrix[0]


@pytest.mark.parametrize(
    ("dimension", "values"),
    [
        ("{values: [1, 2.5, text, true, [1, 2]]}", (1, 2.5, "text", True, (1, 2))),
        ("{range: '0:5:2'}", (0, 2, 4)),
        ("{range: [0, 4, 2]}", (0, 2)),
        ("{range: {start: 1, stop: 2, step: 0.5}}", (1.0, 1.5)),
        ("{linspace: '0:1:5'}", (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("{linspace: [0, 1, 1]}", (0.0,)),
        ("{logspace: '0:2:3'}", (1.0, 10.0, 100.0)),
        ("{logspace: '0:3:4:2'}", (1.0, 2.0, 4.0, 8.0)),
        ("{logspace: {start: 0, stop: 1, num: 2, base: 3}}", (1.0, 3.0)),
    ],
)
def test_a_finite_dimension_is_unfolded(dimension: str, values: tuple[Any, ...]) -> None:
    assert _dimension(dimension).values == values
    assert not _dimension(dimension).is_distribution


def test_a_range_of_whole_numbers_stays_whole() -> None:
    values = _dimension("{range: '16:129:16'}").values
    assert values is not None
    assert all(isinstance(value, int) for value in values)


def test_a_logspace_takes_exponents_as_numpy_does() -> None:
    values = _dimension("{logspace: '0.01:0.1:5'}").values
    assert values is not None
    assert values[0] == pytest.approx(1.0233, abs=1e-4)
    assert values[-1] == pytest.approx(1.2589, abs=1e-4)


def test_a_geomspace_is_even_in_its_powers() -> None:
    values = _dimension("{geomspace: '1:1000:4'}").values
    assert values == pytest.approx((1, 10, 100, 1000))


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("uniform", "low high"), ("quniform", "low high q"), ("loguniform", "low high"), ("qloguniform", "low high q"),
        ("normal", "loc scale"), ("qnormal", "loc scale q"), ("lognormal", "loc scale"), ("qlognormal", "loc scale q"),
    ],
)  # fmt: skip
def test_a_distribution_is_kept_in_any_way_of_writing_it(kind: str, names: str) -> None:
    numbers = [0.5, 2, 0.25][: len(names.split())]
    wanted = dict(zip(names.split(), numbers, strict=True))
    for written in (":".join(map(str, numbers)), str(numbers), str(wanted)):
        quoted = f"'{written}'" if ":" in written and "{" not in written else written
        dimension = _dimension(f"{{{kind}: {quoted}}}")
        assert dimension.arguments == wanted
        assert (dimension.kind, dimension.values, dimension.is_distribution) == (kind, None, True)


def test_weighted_values_are_a_distribution_of_listed_values() -> None:
    dimension = _dimension("{pvalues: [[a, 0.2], [[1, 2], 0.8]]}")
    assert (dimension.values, dimension.weights) == (("a", (1, 2)), (0.2, 0.8))
    assert dimension.is_distribution


def test_a_matrix_may_be_of_several_dimensions_in_their_order() -> None:
    search = _search(GROUP + "hptuning: {matrix: {b: {values: [1, 2]}, a: {range: '0:3:1'}}}\n")
    assert [dimension.name for dimension in search.matrix] == ["b", "a"]
    assert search.space == 6


def test_a_distribution_makes_the_space_endless() -> None:
    assert _search(_group("{uniform: '0:1'}")).space is None
    assert _search(_group("{pvalues: [[1, 0.5], [2, 0.5]]}")).space == 2


@pytest.mark.parametrize(
    ("dimension", "message"),
    [
        ("{valus: [1]}", "unknown key `valus` in a matrix entry"),
        ("{values: []}", "expected a list of values, found an empty list"),
        ("{values: 5}", "expected a list of values, found the number 5"),
        ("{values: [1], range: '0:1:1'}", "`a` needs exactly one of"),
        ("[1, 2]", "`a` needs exactly one of"),
        ("5", "`a` needs exactly one of"),
        ("{}", "`a` needs exactly one of"),
        ("{range: '0:1'}", "`range` takes 3 numbers, start:stop:step"),
        ("{range: [0, 1, x]}", "`range` takes 3 numbers, start:stop:step"),
        ("{range: null}", "`range` takes 3 numbers, start:stop:step"),
        ("{range: {start: 0, stop: 1, num: 2}}", "unknown key `num` in `range`"),
        ("{logspace: '0:1'}", "`logspace` takes 3 numbers, start:stop:num[:base]"),
        ("{uniform: '0'}", "`uniform` takes 2 numbers, low:high"),
        ("{uniform: '0:1:2'}", "`uniform` takes 2 numbers, low:high"),
        ("{range: '5:1:1'}", "the start (5) must be below the stop (1)"),
        ("{linspace: '1:1:3'}", "the start (1) must be below the stop (1)"),
        ("{range: '0:1:0'}", "the step must be above 0"),
        ("{range: '0:1:-1'}", "the step must be above 0"),
        ("{linspace: '0:1:0'}", "the number of values must be above 0"),
        ("{linspace: '0:1:2.5'}", "the number of values must be a whole number"),
        ("{geomspace: '0:1:2'}", "the start of `geomspace` must be above 0"),
        ("{logspace: '0:1000:2'}", "`logspace` takes exponents: 10^start to 10^stop"),
        ("{uniform: '1:0'}", "the low end (1) must be below the high end (0)"),
        ("{normal: '0:-1'}", "the scale must not be negative"),
        ("{pvalues: [[a, 1.0]]}", "expected `[value, probability]`, with a probability from 0 to below 1"),
        ("{pvalues: [[a]]}", "expected `[value, probability]`, with a probability from 0 to below 1"),
        ("{pvalues: [[a, 0.6], [b, 0.6]]}",
         "expected a list of `[value, probability]` whose probabilities sum to at most 1"),
        ("{pvalues: []}", "expected a list of `[value, probability]` whose probabilities sum to at most 1"),
        ("{uniform: [.nan, 1]}", "`uniform` takes 2 numbers, low:high"),
        ("{uniform: [0, .inf]}", "`uniform` takes 2 numbers, low:high"),
        ("{uniform: [true, 1]}", "`uniform` takes 2 numbers, low:high"),
    ],
)  # fmt: skip
def test_a_dimension_that_is_wrong_is_one_fault(dimension: str, message: str) -> None:
    error = error_of(_group(dimension))
    assert error.message.startswith(message)
    assert error.path.startswith("hptuning.matrix.a")
    assert error.place.line == 5


@pytest.mark.parametrize(
    "dimension", ["{uniform: '0:1e400'}", "{range: '0:1e400:1'}", "{uniform: [0, 1e400]}", "{normal: '0:1e999'}"]
)
def test_a_number_beyond_all_bounds_is_a_fault(dimension: str) -> None:
    assert "takes" in error_of(_group(dimension)).message


@pytest.mark.parametrize("kind", ["uniform", "range", "linspace"])
def test_a_huge_integer_is_a_fault(kind: str) -> None:
    assert errors_of(_group(f"{{{kind}: [0, {'9' * 400}, 1]}}"))


@pytest.mark.parametrize("numbers", ["'0:300:5:1e10'", "'-1:1:3:0'", "'0:1:5:-10'", "'-300:300:3:1e5'"])
def test_a_logspace_whose_powers_are_no_numbers_is_a_fault(numbers: str) -> None:
    assert error_of(_group(f"{{logspace: {numbers}}}")).path == "hptuning.matrix.a.logspace"


def test_a_linspace_whose_gap_is_no_number_is_a_fault() -> None:
    dimension = "{linspace: '-1e308:1e308:3'}"
    errors = errors_of(_group(dimension))
    values = () if errors else _dimension(dimension).values or ()
    assert all(math.isfinite(value) for value in values)


@pytest.mark.parametrize("dimension", ["{range: '0:1e9:1'}", "{linspace: '0:1:1000000000'}", "{logspace: '0:1:1e14'}"])
def test_more_values_than_anybody_tries_are_a_fault(dimension: str) -> None:
    assert error_of(_group(dimension)).message == f"more than {MAX_VALUES} values"


def test_many_dimensions_of_many_values_are_refused_quickly() -> None:
    dimensions = "".join(f"    a{n}: {{range: '0:100000:1'}}\n" for n in range(2_000))
    assert_quickly_refused(f"{GROUP}hptuning:\n  matrix:\n{dimensions}", "values")


def test_a_misspelt_form_says_what_was_meant() -> None:
    error = error_of(_group("{valus: [1]}"))
    assert error.suggestion == "did you mean `values`?"
    assert where(error) == (5, 9)


def test_a_list_in_place_of_numbers_says_how_values_are_written() -> None:
    assert error_of(_group("{range: [1, 2, 3, 4]}")).suggestion == "for a list of values write `values: [...]`"
    assert error_of(_group("[1, 2]")).suggestion == "write `values: [...]`"


@pytest.mark.parametrize("matrix", ["{}", "[]", "5", "text"])
def test_a_matrix_of_nothing_is_a_fault(matrix: str) -> None:
    error = error_of(f"{GROUP}hptuning: {{matrix: {matrix}}}\n")
    assert error.message.startswith("expected a map of parameters to try, found ")


def test_all_wrong_dimensions_are_reported_at_once() -> None:
    text = (
        GROUP
        + "hptuning: {matrix: {a: {valus: [1]}, b: 5, c: {range: '1:0:1'}}}\nrun: {cmd: '{{ a }} {{ b }} {{ c }}'}\n"
    )
    assert [error.path for error in errors_of(text)] == [
        "hptuning.matrix.a.valus",
        "hptuning.matrix.b",
        "hptuning.matrix.c.range",
    ]


# searches ----------------------------------------------------------------------------------------------------


def test_a_matrix_alone_is_a_grid_of_one_run_at_a_time() -> None:
    search = _search(GROUP + "hptuning: {matrix: {a: {values: [1]}}}\n")
    assert (search.algorithm, search.concurrency, search.n_experiments, search.early_stopping) == (
        "grid_search",
        1,
        None,
        (),
    )


def test_a_concurrency_of_nothing_is_one() -> None:
    assert _search(GROUP + "hptuning: {matrix: {a: {values: [1]}}, concurrency: 0}\n").concurrency == 1


def test_the_settings_of_a_search_come_through() -> None:
    search = _search(_group("{values: [1, 2]}", "random_search: {n_experiments: 2}\n  seed: 7\n  concurrency: 3"))
    assert (search.algorithm, search.n_experiments, search.seed, search.concurrency) == ("random_search", 2, 7, 3)


ASHA = "asha: {n_experiments: 9, max_iter: 81, eta: 3, resource: {name: epochs, type: int}, metric: {name: loss}}"
PBT = "pbt: {n_experiments: 9, max_iter: 81, interval: 9, resource: {name: epochs, type: int}, metric: {name: loss}}"
HYPERBAND = (
    "hyperband: {max_iter: 81, eta: 3, resource: {name: epochs, type: int}, "
    "metric: {name: loss, optimization: MINIMIZE}}"
)
BO = (
    "bo: {n_initial_trials: 5, n_iterations: 10, metric: {name: loss}, "
    "utility_function: {kappa: 2.5, gaussian_process: {nu: 2}}}"
)


def test_hyperband_gives_its_resource_to_the_templates() -> None:
    text = _group("{uniform: '0:1'}", HYPERBAND) + "run: {cmd: 'x {{ a }} {{ epochs }}'}\n"
    search = _search(text)
    assert search.algorithm == "hyperband"
    assert search.settings["metric"] == {"name": "loss", "optimization": "minimize"}
    assert first_values(search) == {"epochs": 1, "a": 0}
    assert load_text(text).command == "x 0 1"


def test_the_resource_of_hyperband_is_a_float_unless_said() -> None:
    search = _search(_group("{uniform: '0:1'}", HYPERBAND.replace(", type: int", "")))
    assert first_values(search)["epochs"] == 1.0
    assert isinstance(first_values(search)["epochs"], float)


@pytest.mark.parametrize(
    ("max_iter", "eta", "kind", "first"),
    [(81, 3, "int", 1), (243, 3, "int", 1), (1000, 10, "float", 1.0), (10, 3, "float", 10 / 9), (10, 3, "int", 1),
     (1, 2, "int", 1), (100, 1.5, "int", 1),
     (10**15, 1.1, "int", 1)],
)  # fmt: skip
def test_the_preview_of_hyperband_is_a_run_of_its_first_round(
    max_iter: int, eta: float, kind: str, first: float
) -> None:
    text = HYPERBAND.replace("max_iter: 81, eta: 3", f"max_iter: {max_iter}, eta: {eta}").replace("int", kind)
    assert first_values(_search(_group("{uniform: '0:1'}", text)))["epochs"] == pytest.approx(first)


@pytest.mark.parametrize(
    ("dimension", "value"),
    [
        ("{uniform: '0.5:1'}", 0.5), ("{loguniform: '-3:-1'}", math.exp(-3)), ("{normal: '2:1'}", 2),
        ("{lognormal: '-2:1'}", math.exp(-2)), ("{quniform: '3:10:2'}", 2), ("{qloguniform: '2:3:0.5'}", 7.0),
        ("{qnormal: '7:1:2'}", 6), ("{qlognormal: '1:1:0.5'}", 2.5), ("{quniform: '3:10:0'}", 3),
    ],
)  # fmt: skip
def test_the_preview_of_a_distribution_is_one_of_its_values(dimension: str, value: float) -> None:
    search = _search(_group(dimension, "random_search: {n_experiments: 2}"))
    assert first_values(search)["a"] == pytest.approx(value)


@pytest.mark.parametrize("dimension", ["{loguniform: '0:1000'}", "{lognormal: '1000:1'}", "{qloguniform: '1:800:2'}"])
def test_exponents_beyond_the_floating_point_range_are_a_fault(dimension: str) -> None:
    assert "takes exponents of e: at most 700" in error_of(_group(dimension)).message


@pytest.mark.parametrize(
    ("dimension", "values"),
    [
        ("{geomspace: '1:1000:4'}", (1.0, 10.0, 100.0, 1000.0)), ("{geomspace: '0.001:0.1:3'}", (0.001, 0.01, 0.1)),
        ("{geomspace: '3:7:2'}", (3.0, 7.0)), ("{geomspace: '3:7:1'}", (3.0,)),
        ("{logspace: '-5:-1:5'}", (1e-05, 0.0001, 0.001, 0.01, 0.1)),
    ],
)  # fmt: skip
def test_a_space_ends_exactly_where_it_says(dimension: str, values: tuple[float, ...]) -> None:
    assert _dimension(dimension).values == values


def test_bayesian_optimisation_comes_through() -> None:
    search = _search(_group("{uniform: '0:1'}", BO))
    assert search.algorithm == "bo"
    assert search.settings["utility_function"] == {"kappa": 2.5, "gaussian_process": {"nu": 2}}


@pytest.mark.parametrize(
    ("search", "path", "message"),
    [
        ("hyperband: {}", "hptuning.hyperband.max_iter", "hyperband needs `max_iter`"),
        (HYPERBAND.replace("eta: 3", "eta: 1"), "hptuning.hyperband.eta",
         "expected a number from 1.1 to 1000000, found the number 1"),
        (ASHA.replace("eta: 3", "eta: 3, min_iter: 100"), "hptuning.asha.min_iter", "`min_iter` is above `max_iter`"),
        ("asha: {max_iter: 3}", "hptuning.asha.n_experiments", "asha needs `n_experiments`"),
        (PBT.replace("interval: 9", "interval: 0.001"), "hptuning.pbt.interval",
         "`max_iter` has more than 10000 intervals"),
        ("tpe: {n_experiments: 3}", "hptuning.tpe.metric", "tpe needs `metric`"),
        ("cmaes: {n_experiments: 3, sigma: 0, metric: {name: x}}", "hptuning.cmaes.sigma", "expected a number above 0"),
        ("bo: {n_iterations: 1, metric: {name: x}}", "hptuning.bo.n_initial_trials", "bo needs `n_initial_trials`"),
        (BO.replace("kappa: 2.5, ", ""), "hptuning.bo.utility_function.kappa",
         "the acquisition function `ucb` needs `kappa`"),
        (BO.replace("kappa: 2.5", "acquisition_function: EI"), "hptuning.bo.utility_function.eps",
         "the acquisition function `ei` needs `eps`"),
        ("random_search: {n_experiments: 0}", "hptuning.random_search.n_experiments",
         "expected a whole number of at least 1"),
        ("concurrency: -1", "hptuning.concurrency", "expected a whole number of at least 0"),
        ("early_stopping: [{metric: x}]", "hptuning.early_stopping[0].value", "early_stopping needs `value`"),
        ("early_stopping: [{metric: x, value: 1, policy: {kind: mean}}]", "hptuning.early_stopping[0].policy.kind",
         "expected one of median, average, truncation"),
    ],
)  # fmt: skip
def test_an_invalid_search_says_where_it_is_wrong(search: str, path: str, message: str) -> None:
    errors = errors_of(_group("{values: [1]}", search))
    assert (path, True) in [(error.path, error.message.startswith(message)) for error in errors]


def test_an_unknown_acquisition_function_is_one_fault() -> None:
    text = _group("{values: [1]}", BO.replace("kappa: 2.5", "acquisition_function: magic"))
    assert error_of(text).path == "hptuning.bo.utility_function.acquisition_function"


def test_two_searches_are_a_fault_at_the_second() -> None:
    error = error_of(_group("{values: [1]}", "grid_search: {}\n  random_search: {n_experiments: 1}"))
    assert error.message == "a group has one search; `grid_search` and `random_search` are both set"
    assert where(error) == (7, 3)


def test_a_distribution_without_a_search_is_searched_at_random_with_notes() -> None:
    text = GROUP + "hptuning: {matrix: {a: {uniform: '0:1'}}}\n"
    assert _search(text).algorithm == "random_search"
    assert notes_of(text) == [
        "`a` is a distribution, not enumerable by grid search: read as random search",
        "running it requires `random_search: {n_experiments: N}`",
    ]


@pytest.mark.parametrize("dimension", ["{uniform: '0:1'}", "{pvalues: [[1, 0.5]]}"])
def test_a_distribution_in_a_grid_is_a_fault(dimension: str) -> None:
    error = error_of(_group(dimension, "grid_search: {n_experiments: 3}"))
    assert error.message == "`a` is a distribution, which grid search cannot enumerate"
    assert error.suggestion == "write `random_search: {n_experiments: N}`"


@pytest.mark.parametrize("dimension", ["{normal: '0:1'}", "{qloguniform: '0:1:2'}", "{values: [1, 2]}"])
def test_bayesian_optimisation_searches_all_kinds_of_dimensions(dimension: str) -> None:
    assert _search(_group(dimension, BO)).algorithm == "bo"


def test_early_stopping_comes_through() -> None:
    policy = "{kind: Truncation, percent: 50, evaluation_interval: 2}"
    rule = f"{{metric: acc, value: 0.9, optimization: Maximize, policy: {policy}}}"
    (stop,) = _search(_group("{values: [1]}", f"early_stopping: [{rule}]")).early_stopping
    assert stop == {
        "metric": "acc",
        "value": 0.9,
        "optimization": "maximize",
        "policy": {"kind": "truncation", "percent": 50, "evaluation_interval": 2},
    }


def test_the_forms_named_in_a_message_are_all_that_there_are() -> None:
    assert messages_of(_group("5")) == [f"`a` needs exactly one of {', '.join(FORMS)}"]
