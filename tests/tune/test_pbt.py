"""Population based training."""

from __future__ import annotations

from phalanx.tune.decision import decide
from phalanx.tune.history import History
from phalanx.tune.model import Promote, Reported
from tests.tune.helpers import pbt, play


def test_the_worst_go_on_from_the_checkpoint_of_the_best_with_changed_params() -> None:
    made = pbt(8)
    history = History(decide(made, History(), 8))
    for trial in range(8):
        history.record(Reported(trial, 0, float(trial)))
    found = [action for action in decide(made, history, 8) if isinstance(action, Promote)]
    assert [action.trial for action in found] == [6, 7, 0, 1, 2, 3, 4, 5]  # those that copy come first
    assert all(action.source in (0, 1) and action.resource == 8 for action in found[:2])
    for action in found[:2]:
        assert action.source is not None
        source = history.trials[action.source].params
        assert action.params != {**source, "epochs": 8}
        assert set(action.params) == set(source)
    assert all(action.source is None and action.params == {"epochs": 8} for action in found[2:])


def test_the_order_of_decisions_does_not_change_who_copies_whom() -> None:
    made = pbt(8)
    at_once, one_by_one = play(made, concurrency=8), play(made, concurrency=1)

    def copies(played: object) -> set[tuple[int, int, int | None]]:
        entries = getattr(played, "entries", [])
        return {(entry.trial, entry.rung, entry.source) for entry in entries if isinstance(entry, Promote)}

    assert copies(at_once) == copies(one_by_one)
    assert len(at_once.history.rung(0, 4).members) == 8
    assert at_once.units == 8 * 20


def test_a_population_ends_better_than_it_would_without_copying() -> None:
    def best(seed: int, quantile: float) -> float:
        def trained(params: dict[str, float], amount: float | None) -> float:
            return abs(params["lr"] - 0.3) + 1 / (amount or 1)

        found = play(pbt(8, quantile=quantile)._replace(seed=seed), trained)
        mean = [trial.value for trial in found.history.trials if trial.value is not None]
        return sum(mean) / len(mean)

    assert sum(best(seed, 0.25) for seed in range(5)) < 0.8 * sum(best(seed, 0.01) for seed in range(5))
