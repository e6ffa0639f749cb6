"""bo, tpe and cmaes: with the packages of the extra `search`."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from phalanx.tune import suggestions, surrogates
from phalanx.tune.algorithms.bo import _fewer
from phalanx.tune.decision import decide, packages
from phalanx.tune.history import History
from phalanx.tune.model import Create, Entry, Reported, SearchSettings, entry_as_json
from phalanx.tune.space import Axis, Dimension, draw, point_key
from phalanx.tune.suggestions import SuggestionFault
from phalanx.tune.view import SearchView
from tests.tune.helpers import MIXED, flaky, listed, objective, play, settings, uniform
from tests.tune.test_space import is_of

# Looked for, not imported: every worker of `make test` would spend a second on these packages.
pytestmark = pytest.mark.skipif(
    any(find_spec(package) is None for package in ("optuna", "sklearn", "cmaes")),
    reason="the extra `search` is not installed",
)

BRANIN = (uniform("x", -5, 10), uniform("y", 0, 15))
EI = {"acquisition_function": "ei", "eps": 0.0}
MODELS: dict[str, dict[str, Any]] = {
    "tpe": {"n_initial_trials": 5},
    "cmaes": {"population": 4},
    "bo": {"n_initial_trials": 4, "n_iterations": 10, "utility_function": EI},
}


def branin(params: Mapping[str, Any], amount: float | None = None) -> float:
    x, y = params["x"], params["y"]
    return float(
        (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2
        + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x)
        + 10
    )


def regret(algorithm: str, seed: int, n: int, concurrency: int = 1, **options: Any) -> float:
    found = play(settings(algorithm, *BRANIN, seed=seed, n=n, **options), branin, concurrency)
    best = found.best(maximize=False)
    assert best is not None
    return best - 0.397887


@pytest.mark.parametrize("name", MODELS)
def test_a_model_based_search_runs_all_its_trials_once(name: str) -> None:
    made: SearchSettings = settings(name, n=14, **MODELS[name])
    found = play(made, flaky(0.1, 0.1, 0.1), 3)
    assert found.finish is not None
    assert found.finish.outcome == "done"
    assert found.history.own["reported"] == 14
    names = tuple(dimension.name for dimension in MIXED)
    assert len({point_key(trial.params, names) for trial in found.history.trials}) == len(found.history.trials)
    for trial in found.history.trials:
        assert all(is_of(dimension, trial.params[dimension.name]) for dimension in MIXED)
    assert any("suggested from" in entry.why for entry in found.entries if isinstance(entry, Create))


SLOW = pytest.mark.slow
IN_A_PROCESS = ["tpe", pytest.param("cmaes", marks=SLOW), pytest.param("bo", marks=SLOW)]


@pytest.mark.parametrize("name", IN_A_PROCESS)
def test_another_process_decides_the_same(name: str) -> None:
    made: SearchSettings = settings(name, n=20, **MODELS[name])
    entries = play(made._replace(n=8), objective, 2).entries[:-1]  # without its end
    here = decide(made, History(entries), 3)
    there = suggestions.start(made, entries, 3).actions(60)
    assert there == here
    assert len({json.dumps(entry_as_json(action)) for action in there}) == 3  # running ones are not suggested again


@pytest.mark.parametrize("name", MODELS)
def test_the_order_in_which_trials_end_does_not_matter(name: str) -> None:
    made: SearchSettings = settings(name, n=20, **MODELS[name])
    created: list[Entry] = [*decide(made, History(), 4)]
    ends = [Reported(trial, 0, objective(action.params, None)) for trial, action in enumerate(created)]  # type: ignore[union-attr]
    assert decide(made, History([*created, *ends]), 1) == decide(made, History([*created, *reversed(ends)]), 1)


def test_a_missing_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "optuna.py").write_text("raise ModuleNotFoundError('No module named optuna', name='optuna')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made: SearchSettings = settings("tpe", n=5, n_initial_trials=1)
    entries: list[Entry] = [Create(0, {"lr": 0.1, "layers": 1, "act": "relu", "decay": 0.1}), Reported(0, 0, 1.0)]
    with pytest.raises(SuggestionFault, match="tpe needs the package `optuna`") as raised:
        suggestions.start(made, entries, 1).actions(60)
    assert raised.value.package == "optuna"
    assert "\n" not in str(raised.value)


def test_a_process_that_breaks_says_how() -> None:
    asked = suggestions.start(settings("no_such", n=3), [], 1)
    with pytest.raises(SuggestionFault, match="unknown search algorithm `no_such`"):
        asked.actions(60)
    stuck = suggestions.start(settings("tpe", n=3), [], 1, python="/bin/true" if Path("/bin/true").exists() else "true")
    with pytest.raises(SuggestionFault, match="the search ended with code 0"):
        stuck.actions(60)


def test_decisions_of_the_standard_library_import_nothing_else() -> None:
    assert [name for name in ("grid_search", "random_search", "hyperband", "asha", "pbt") if packages(name)] == []
    assert "optuna" in packages("tpe")
    code = (
        "import sys\nfrom phalanx.tune.decision import decide, packages\nfrom phalanx.tune import simulation\n"
        "packages('bo'), packages('tpe'), packages('cmaes')\n"
        "print([name for name in ('numpy', 'optuna', 'sklearn', 'statistics') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("utility", "section"),
    [
        ({"acquisition_function": "ucb", "kappa": 1.0}, {"kernel": "rbf", "length_scale": 0.5}),
        pytest.param({"acquisition_function": "poi", "eps": 0.01}, {"kernel": "matern", "nu": 2.5}, marks=SLOW),
        pytest.param({"acquisition_function": "ucb", "kappa": 1.0}, {}, marks=SLOW),
    ],
)
def test_the_kernels_and_acquisition_functions_of_the_file_work(
    section: dict[str, Any], utility: dict[str, Any]
) -> None:
    options: dict[str, Any] = {
        "n_initial_trials": 3,
        "n_iterations": 3,
        "utility_function": {**utility, "gaussian_process": section},
    }
    assert regret("bo", 1, 6, **options) < 100


@pytest.mark.slow
def test_a_kernel_of_the_file_changes_the_suggestion() -> None:
    made = {
        kernel: settings(
            "bo", *BRANIN, n=9, n_initial_trials=4, n_iterations=5,
            utility_function={**EI, "gaussian_process": {"kernel": kernel, "n_restarts_optimizer": 1}},
        )
        for kernel in ("rbf", "matern")
    }  # fmt: skip
    entries = play(made["rbf"]._replace(n=4), branin).entries[:-1]
    rbf, matern = (decide(made[kernel], History(entries), 1) for kernel in ("rbf", "matern"))
    assert rbf != matern


def test_results_that_are_all_alike_are_no_fault() -> None:
    for name, options in MODELS.items():
        found = play(settings(name, uniform("a"), n=8, **options), lambda params, amount: 1.0, 2)
        assert len(found.history.trials) == 8, name


def test_a_matrix_without_order_is_searched_by_cmaes_at_random() -> None:
    found = play(settings("cmaes", listed("a", "x", "y", "z"), n=10))
    assert sorted(trial.params["a"] for trial in found.history.trials) == ["x", "y", "z"]


def test_positions_of_a_dimension_with_one_value() -> None:
    assert Axis(listed("a", 3)).position(3) == 0.5
    fixed = Dimension("a", "normal", arguments={"loc": 1, "scale": 0})
    assert Axis(fixed).position(1) == 0.5


@pytest.mark.slow
def test_bayesian_optimisation_is_better_than_random_on_branin() -> None:
    options: dict[str, Any] = {"n_initial_trials": 5, "n_iterations": 15, "utility_function": EI}
    found = [regret("bo", seed, 20, **options) for seed in range(3)]
    assert statistics.median(found) < 0.25
    assert statistics.median(found) < statistics.median(regret("random_search", seed, 20) for seed in range(9)) / 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "limit"),
    [
        ("tpe", {}, 0.6),
        ("cmaes", {}, 0.6),
        ("bo", {"n_initial_trials": 5, "n_iterations": 35}, 0.02),
    ],
)
def test_the_median_regret_on_branin_after_forty_trials(name: str, options: dict[str, Any], limit: float) -> None:
    found = [regret(name, seed, 40, **options) for seed in range(5)]
    assert statistics.median(found) < limit
    assert statistics.median(found) < statistics.median(regret("random_search", seed, 40) for seed in range(11))


@pytest.mark.slow
def test_a_long_bayesian_search_is_fitted_to_its_best_and_latest_results() -> None:
    made: SearchSettings = settings("bo", *BRANIN, n=9000, n_initial_trials=4, n_iterations=8996)
    history = History()
    for number in range(1500):
        params = draw(BRANIN, 1, number)
        history.record(Create(number, params))
        history.record(Reported(number, 0, branin(params)))
    best = min(history.trials, key=lambda trial: trial.value or math.inf)
    kept = _fewer(surrogates.results(SearchView.of(made, history)))
    assert len(kept) <= 300
    assert {best.number, 1499} <= {result.trial.number for result in kept}
