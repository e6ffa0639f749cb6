"""Hyperband and asha: who runs with how much of the resource, and who goes on."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from phalanx.tune.decision import decide
from phalanx.tune.history import History
from phalanx.tune.model import Create, Failed, Promote, Reported, Stopped
from phalanx.tune.rungs import bracket, first_amount, highest_rung, ladder
from phalanx.tune.simulation import Outcome
from phalanx.tune.space import chance
from tests.tune.helpers import asha, hyperband, listed, objective, play

TABLE_81 = [
    [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
    [(34, 3), (11, 9), (3, 27), (1, 81)],
    [(15, 9), (5, 27), (1, 81)],
    [(8, 27), (2, 81)],
    [(5, 81)],
]
TABLE_10 = [[(9, 10 / 9), (3, 10 / 3), (1, 10)], [(5, 10 / 3), (1, 10)], [(3, 10)]]


@pytest.mark.parametrize(("max_iter", "table"), [(81, TABLE_81), (10, TABLE_10)])
def test_the_tables_are_those_of_polyaxon(max_iter: int, table: list[list[tuple[int, float]]]) -> None:
    for number, rungs in enumerate(table):
        found = bracket(max_iter, 3, number)
        assert [rung.trials for rung in found] == [count for count, _ in rungs]
        assert [rung.amount for rung in found] == pytest.approx([amount for _, amount in rungs])


@pytest.mark.parametrize(
    ("ratio", "eta", "rung"),
    [(243, 3, 5), (1000, 10, 3), (81, 3, 4), (80, 3, 3), (1, 2, 0), (125, 5, 3), (2.25, 1.5, 2)],
)
def test_the_number_of_rungs_is_exact(ratio: float, eta: float, rung: int) -> None:
    assert highest_rung(ratio, eta) == rung


@pytest.mark.parametrize("concurrency", [1, 7, 300])
def test_hyperband_runs_its_table_whatever_the_concurrency(concurrency: int) -> None:
    found = play(hyperband(81, 3, resume=True), objective, concurrency)
    ran = Counter((entry.trial, entry.resource) for entry in found.entries if isinstance(entry, (Create, Promote)))
    assert set(ran.values()) == {1}
    rungs = {key: len(rung.members) for key, rung in found.history.rungs.items() if rung.members}
    assert rungs == {(b, r): count for b, row in enumerate(TABLE_81) for r, (count, _) in enumerate(row)}
    amounts = Counter(resource for _, resource in ran)
    assert amounts == {1: 81, 3: 27 + 34, 9: 9 + 11 + 15, 27: 3 + 3 + 5 + 8, 81: 1 + 1 + 1 + 2 + 5}
    assert len(found.history.trials) == 143  # configurations of all brackets: none twice
    assert found.units == 1581


def test_runs_that_start_over_cost_the_sum_of_their_rungs() -> None:
    assert play(hyperband(81, 3)).units == 1902
    assert play(hyperband(27, 3, resume=True)).units == 357
    assert play(hyperband(27, 3)).units == 423


def test_a_whole_resource_is_cut_as_polyaxon_does() -> None:
    found = play(hyperband(10, 3))
    ran = [entry.resource for entry in found.entries if isinstance(entry, (Create, Promote))]
    assert Counter(ran) == {1: 9, 3: 3 + 5, 10: 1 + 1 + 3}
    first = next(entry for entry in found.entries if isinstance(entry, Create))
    assert (first.params["epochs"], first.resource) == (1, 1)
    half = hyperband(10, 3)._replace(options={**hyperband(10, 3).options, "resource": {"name": "epochs"}})
    (made,) = decide(half, History(), 1)
    assert isinstance(made, Create)
    assert made.params["epochs"] == pytest.approx(10 / 9)


def test_those_who_go_on_are_the_best_of_their_rung() -> None:
    found = play(hyperband(81, 3, resume=True), objective, 5)
    for (number, place), rung in found.history.rungs.items():
        went_on = {trial.number for trial in rung.members if trial.rung > place}
        stayed = [trial.values[place] or 0.0 for trial in rung.members if trial.number not in went_on]
        best = [trial.values[place] or 0.0 for trial in rung.members if trial.number in went_on]
        assert not best or not stayed or max(best) <= min(stayed), (number, place)


def test_a_rung_waits_for_its_last_trial_while_the_next_bracket_starts() -> None:
    made = hyperband(9, 3)
    history = History(decide(made, History(), 9))
    for trial in range(8):
        history.record(Reported(trial, 0, float(trial)))
    (other,) = decide(made, history, 1)
    assert isinstance(other, Create)
    assert other.bracket == 1
    history.record(Reported(8, 0, 8.0))
    promoted = decide(made, history, 3)
    assert [(action.trial, action.rung, action.resource) for action in promoted if isinstance(action, Promote)] == [
        (0, 1, 3), (1, 1, 3), (2, 1, 3),
    ]  # fmt: skip
    assert promoted[0].why == "bracket 0: 0 is number 1 of 9 with 1; 3 go on with 3"


def test_a_failed_promotion_is_replaced_by_the_next_best() -> None:
    made = hyperband(9, 3)
    history = History(decide(made, History(), 9))
    for trial in range(9):
        history.record(Reported(trial, 0, [math.nan, None, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0][trial]))
    for action in decide(made, history, 3):
        history.record(action)
    assert sorted(history.running) == [2, 3, 4]  # neither the one without a value nor the one without a number
    history.record(Failed(3, 1, "exit code 1"))
    history.record(Stopped(4, 1))
    (replacement,) = [action for action in decide(made, history, 9) if isinstance(action, Promote)]
    assert replacement.trial == 5


def test_a_space_smaller_than_the_table_is_tried_once_in_each_bracket() -> None:
    found = play(hyperband(9, 3, listed("a", *range(6))))
    for number in range(3):
        members = [trial.params["a"] for trial in found.history.rung(number, 0).members]
        assert len(members) == len(set(members)) > 0


def test_hyperband_goes_on_with_its_first_bracket_when_it_is_extended() -> None:
    made = hyperband(9, 3)._replace(n=20)  # 9 + 5 + 3, and again 9
    assert len(play(made).history.trials) == 26


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"max_iter": 81, "eta": 3}, 1.0),
        ({"max_iter": 243, "eta": 3}, 1.0),
        ({"max_iter": 10, "eta": 3}, 10 / 9),
        ({"max_iter": 81, "eta": 3, "min_iter": 4}, 9.0),
        ({"max_iter": 81, "interval": 5}, 5.0),
    ],
)
def test_the_first_amount(options: dict[str, float], first: float) -> None:
    assert first_amount(options) == pytest.approx(first)


def test_the_ladder_of_asha_ends_at_the_maximum() -> None:
    assert ladder(1, 27, 3) == [1, 3, 9, 27]
    assert ladder(2, 27, 3) == [3, 9, 27]
    assert ladder(1, 100, 4) == [100 / 64, 100 / 16, 25, 100]
    assert ladder(5, 5, 2) == [5]


def test_asha_promotes_as_soon_as_one_is_among_the_best_third() -> None:
    made = asha(30, 9)
    history = History(decide(made, History(), 4))
    for trial, value in enumerate((0.3, 0.1)):
        history.record(Reported(trial, 0, value))
    assert all(isinstance(action, Create) for action in decide(made, history, 2))
    history.record(Reported(2, 0, 0.2))
    promoted, created = decide(made, history, 2)
    assert promoted == Promote(1, 1, 3, {"epochs": 3}, "0.1 is number 1 of 3 with 1; 1 go on with 3")
    assert isinstance(created, Create)


@pytest.mark.parametrize("n", [2, 3, 20, 27, 50])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_asha_takes_its_best_trial_to_the_top(n: int, concurrency: int) -> None:
    found = play(asha(n), objective, concurrency, duration=lambda trial, units: units * (0.5 + chance(trial.number)))
    assert len(found.history.trials) == n
    assert len(found.history.rung(0, 3).members) >= max(1, n // 27)
    # every rung but the first holds at most a third of the one below, but for those promoted before they were outrun
    assert found.history.rung(0, 1).n_ranked >= n // 3


def test_asha_keeps_slots_busy_where_hyperband_waits() -> None:
    def uneven(trial: object, units: float) -> float:
        return units * (1 + 9 * chance(getattr(trial, "number", 0), "speed"))

    found = play(asha(200, 27, resume=True), objective, 8, duration=uneven)
    assert found.busy / (found.time * 8) > 0.85


def test_a_failed_trial_counts_in_its_rung_of_asha_and_is_replaced() -> None:
    found = play(asha(12, 9), lambda params, amount: Outcome(None, "x") if params["lr"] < 0.3 else params["lr"])
    assert found.history.own["failed"] > 0
    assert found.history.own["reported"] == 12
    assert all(trial.rung == 0 for trial in found.history.trials if trial.state == "failed")
