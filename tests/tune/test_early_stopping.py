"""Conditions that end a search, and policies that stop single trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from phalanx.tune.decision import decide
from phalanx.tune.history import History
from phalanx.tune.model import Create, Finish, Measured, Metric, Reported, SearchSettings, Stop, Stopped, StoppingRule
from phalanx.tune.simulation import Simulation
from tests.tune.helpers import LOSS, RESOURCE, settings, uniform

ACCURACY = Metric("accuracy")


def searched(*rules: StoppingRule, n: int = 6) -> tuple[SearchSettings, History]:
    made: SearchSettings = settings("random_search", uniform("lr"), n=n)._replace(early_stopping=rules)
    return made, History(decide(made, History(), n))


def measure(history: History, step: int, *values: float, metric: str = "accuracy") -> None:
    for trial, value in enumerate(values):
        history.record(Measured(trial, step, value, metric))


def test_a_condition_ends_the_search_when_its_metric_arrives() -> None:
    made, history = searched(StoppingRule(ACCURACY, 0.9))
    measure(history, 1, 0.5, 0.89)
    assert decide(made, history, 1) == []
    measure(history, 2, 0.6, 0.91)
    assert decide(made, history, 0) == [
        Finish("early stopping: accuracy of trial 1 is 0.91, at least 0.9", "stopped"),
    ]


def test_the_metric_of_the_search_needs_no_name_and_may_be_the_reported_value() -> None:
    made, history = searched(StoppingRule(LOSS, 0.1))
    history.record(Measured(0, 1, 0.2))
    assert decide(made, history, 0) == []
    history.record(Reported(1, 0, 0.1))
    (finish,) = decide(made, history, 0)
    assert isinstance(finish, Finish)
    assert finish.why == "early stopping: loss of trial 1 is 0.1, at most 0.1"


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("median", "its best accuracy after 2 reports is 0.3, worse than the median 0.75 of 5 other trials"),
        ("average", "its best accuracy after 2 reports is 0.3, worse than the average 0.75 of 5 other trials"),
        ("truncation", "its best accuracy after 2 reports is 0.3, place 6 of 6: the last 20 % stop"),
    ],
)
def test_a_policy_stops_the_worst_trial(policy: str, why: str) -> None:
    made, history = searched(StoppingRule(ACCURACY, None, policy, 2, 20.0))
    measure(history, 10, 0.3, 0.6, 0.6, 0.7, 0.8, 0.8)
    assert decide(made, history, 0) == []  # looked at every second report
    measure(history, 20, 0.2, 0.9, 0.8, 0.8, 0.8, 0.7)
    stops = decide(made, history, 0)
    assert stops == [Stop(0, why)]
    for stop in stops:
        history.record(stop)
    assert decide(made, history, 0) == []  # once
    history.record(Reported(0, 0, 0.3))  # it ended in the meantime: the decision stands
    assert history.trials[0].state == "stopped"
    assert history.trials[0].cause == why


def test_a_stopped_trial_counts_and_frees_its_slot() -> None:
    made, history = searched(StoppingRule(ACCURACY, None, "median"), n=6)
    measure(history, 1, 0.1, *[0.5] * 5)
    for stop in decide(made, history, 0):
        history.record(stop)
    history.record(Stopped(0, 0, 0.1))
    assert decide(made, history, 1) == []
    for trial in range(1, 6):
        history.record(Reported(trial, 0, 0.5))
    assert decide(made, history, 1) == [Finish("all trials have ended: 5 reported, 1 stopped")]


def test_few_trials_are_not_compared() -> None:
    made, history = searched(StoppingRule(ACCURACY, None, "median"), n=4)
    measure(history, 1, 0.1, 0.5, 0.5, 0.5)
    assert decide(made, history, 0) == []


def test_a_value_logged_again_after_a_restart_counts_once() -> None:
    _, history = searched(StoppingRule(ACCURACY, None, "median"))
    measure(history, 1, 0.5)
    measure(history, 1, 0.9)
    assert history.curves.of["accuracy"][0].means == [0.5]


def test_median_stopping_saves_units_and_keeps_the_best_trial() -> None:
    def curve(params: Mapping[str, Any], amount: float | None) -> float:
        return float(abs(params["lr"] - 0.3)) + 1 / (amount or 1)

    rule = StoppingRule(LOSS, None, "median", 3)
    plain: SearchSettings = settings(
        "asha", uniform("lr"), n=40, max_iter=30, min_iter=30, eta=3, resource=RESOURCE
    )  # one rung: every trial runs to the end
    whole = Simulation(plain, curve, 4).run()
    cut = Simulation(plain._replace(early_stopping=(rule,)), curve, 4).run()
    assert cut.units < 0.7 * whole.units
    assert cut.best(maximize=False) == whole.best(maximize=False)
    assert [trial.params["lr"] for trial in cut.history.trials] == [
        trial.params["lr"] for trial in whole.history.trials
    ]
    assert all(isinstance(entry, Create) or entry.why for entry in cut.entries if isinstance(entry, (Create, Stop)))
