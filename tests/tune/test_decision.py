"""Decisions are a function of the recorded history, for every algorithm of the standard library."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.tune.decision import UnknownAlgorithm, decide
from phalanx.tune.history import FAILED, INVALID, REPORTED, RUNNING, History
from phalanx.tune.model import (
    Added,
    Changed,
    Create,
    Entry,
    Failed,
    Finish,
    Invalid,
    Metric,
    Promote,
    Reported,
    SearchSettings,
    Stop,
    Stopped,
    StoppingRule,
    entry_as_json,
    entry_from_json,
)
from phalanx.tune.simulation import Outcome, Played, Simulation
from phalanx.tune.space import Dimension, chance, point_key
from tests.examples import examples
from tests.tune.helpers import LOSS, MIXED, asha, flaky, hyperband, listed, objective, pbt, play, settings, uniform
from tests.tune.test_space import is_of

NAMES = tuple(dimension.name for dimension in MIXED)
SEARCHES = {
    "grid_search": settings("grid_search", listed("a", 1, 2, 3), listed("b", "x", "y", "z", "w"), n=10),
    "random_search": settings("random_search", n=25),
    "hyperband": hyperband(9, 3),
    "asha": asha(20, 9),
    "pbt": pbt(),
}


def recorded(played: Played) -> str:
    return json.dumps([entry_as_json(entry) for entry in played.entries])


@st.composite
def plays(draw: Any) -> tuple[SearchSettings, Played]:
    """A search with failures, invalid points, NaN and trials of uneven length."""
    made = SEARCHES[draw(st.sampled_from(list(SEARCHES)))]._replace(seed=draw(st.integers(0, 999)))
    noise = flaky(draw(st.floats(0, 0.3)), draw(st.floats(0, 0.3)), draw(st.floats(0, 0.3)))
    speed = draw(st.integers(0, 99))
    concurrency = draw(st.integers(1, 9))
    return made, play(made, noise, concurrency, duration=lambda trial, units: units * chance(speed, trial.number) + 0.1)


@examples(100)
@given(plays())
def test_every_search_ends_and_creates_points_of_its_space_once(played: tuple[SearchSettings, Played]) -> None:
    made, found = played
    names = tuple(dimension.name for dimension in made.dimensions)
    assert isinstance(found.finish, Finish)
    assert not found.history.running
    for trial in found.history.trials:
        assert all(is_of(dimension, trial.params[dimension.name]) for dimension in made.dimensions)
    points = [point_key(entry.params, names) for entry in found.entries if isinstance(entry, Create)]
    assert len(points) == len(set(points))
    assert all(action.why for action in found.entries if isinstance(action, (Create, Promote, Finish)))


@examples(60)
@given(plays(), st.data())
def test_a_prefix_of_the_journal_read_again_gives_the_same_next_actions(
    played: tuple[SearchSettings, Played], data: st.DataObject
) -> None:
    made, found = played
    length = data.draw(st.integers(0, len(found.entries)))
    text = json.dumps([made.as_json(), [entry_as_json(entry) for entry in found.entries[:length]]])
    alive = History(found.entries[:length])
    first = decide(made, alive, 3)
    assert decide(made, alive, 3) == first  # deciding changes nothing
    settings_again, entries_again = json.loads(text)
    again = History(entry_from_json(entry) for entry in entries_again)
    assert decide(SearchSettings.from_json(settings_again), again, 3) == first


@examples(60)
@given(plays(), st.data())
def test_a_search_killed_at_any_entry_goes_on_to_the_same_end(
    played: tuple[SearchSettings, Played], data: st.DataObject
) -> None:
    """One trial at a time, so that nothing but the history can matter."""
    made, _ = played
    noise = flaky(0.2, 0.1)
    whole = play(made, noise, 1)
    cut = data.draw(st.integers(0, len(whole.entries)))
    history = History(whole.entries[:cut])
    entries: list[Entry] = list(whole.entries[:cut])
    while history.finish is None:
        for trial in list(history.running.values()):
            answer = noise(trial.params, trial.resource)
            event: Entry
            if isinstance(answer, Outcome):
                invalid = Invalid(trial.number, answer.invalid)
                event = invalid if answer.invalid else Failed(trial.number, trial.rung, answer.cause)
            else:
                event = Reported(trial.number, trial.rung, answer)
            entries.append(event)
            history.record(event)
        for action in decide(made, history, 1):
            entries.append(action)
            history.record(action)
    assert [entry_as_json(entry) for entry in entries] == [entry_as_json(entry) for entry in whole.entries]


@examples(40)
@given(plays())
def test_the_simulation_conserves_units_and_slots(played: tuple[SearchSettings, Played]) -> None:
    made, found = played
    resumes = made.options.get("resume", made.algorithm != "hyperband")
    total, trained = 0.0, dict[int, float]()
    for entry in found.entries:
        if isinstance(entry, (Create, Promote)):
            amount = 1.0 if entry.resource is None else entry.resource
            if isinstance(entry, Promote) and entry.source is not None:
                trained[entry.trial] = trained[entry.source]
            total += amount - (trained.get(entry.trial, 0.0) if resumes else 0.0)
            trained[entry.trial] = amount
    assert found.units == pytest.approx(total)
    assert found.busy <= found.time * 9 + 1e-6


@pytest.mark.parametrize("name", SEARCHES)
def test_the_same_seed_gives_the_same_search_and_another_one_does_not(name: str) -> None:
    made = SEARCHES[name]
    assert recorded(play(made)) == recorded(play(made))
    if name != "grid_search":
        assert recorded(play(made._replace(seed=0))) != recorded(play(made))


def test_zero_is_a_seed_of_its_own() -> None:
    found = {seed: recorded(play(settings("random_search", seed=seed, n=3))) for seed in (0, 1, "0", "group")}
    assert found[0] == found["0"]
    assert len({found[0], found[1], found["group"]}) == 3


def test_random_points_do_not_depend_on_concurrency() -> None:
    one, many = (play(settings("random_search", n=20), objective, slots) for slots in (1, 16))
    assert [trial.params for trial in one.history.trials] == [trial.params for trial in many.history.trials]


@pytest.mark.parametrize("slots", [0, 1, 5, 100])
def test_no_more_is_started_than_slots_are_free(slots: int) -> None:
    for made in SEARCHES.values():
        assert len(decide(made, History(), slots)) <= slots


def test_a_small_space_is_searched_whole_and_then_the_search_ends() -> None:
    weighted = Dimension("a", "pvalues", ("x", "never", "y"), (0.5, 0.0, 0.5))
    found = play(settings("random_search", weighted, listed("b", 1, 2, 2, 3), n=100))
    assert sorted((trial.params["a"], trial.params["b"]) for trial in found.history.trials) == [
        ("x", 1), ("x", 2), ("x", 3), ("y", 1), ("y", 2), ("y", 3),
    ]  # fmt: skip
    assert found.finish == Finish("all trials have ended: 6 reported")


def test_a_random_search_without_end_says_what_it_needs() -> None:
    (finish,) = decide(settings("random_search", uniform("a")), History(), 1)
    assert finish == Finish("random search needs `n_experiments`: its matrix has no end", "failed")


def test_failed_trials_are_replaced_and_invalid_ones_are_not_counted() -> None:
    made = settings("random_search", n=4)
    history = History(decide(made, History(), 4))
    history.record(Failed(0, 0, "exit code 1"))
    history.record(Invalid(1, "does not divide"))
    history.record(Reported(2, 0, 1.0))
    history.record(Reported(2, 0, 5.0))  # each rank may report
    assert history.trials[2].value == 1.0
    new = decide(made, history, 9)
    assert [action.trial for action in new if isinstance(action, Create)] == [4, 5]
    assert "in place of a failed one" in new[-1].why
    for action in new:
        history.record(action)
    for trial in list(history.running):
        history.record(Reported(trial, 0, 0.5))
    assert decide(made, history, 9) == [Finish("all trials have ended: 4 reported, 1 failed, 1 invalid")]
    assert history.counts == {RUNNING: 0, REPORTED: 4, FAILED: 1, INVALID: 1, "stopped": 0}


def test_a_grid_does_not_replace_a_failed_point_but_an_invalid_one() -> None:
    made = settings("grid_search", listed("a", 1, 2, 3, 4, 5), n=3)
    history = History(decide(made, History(), 3))
    history.record(Failed(0, 0, "exit code 1"))
    history.record(Invalid(1))
    (extra,) = decide(made, history, 3)
    assert isinstance(extra, Create)
    assert extra.params == {"a": 4}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_whose_trials_all_fail_comes_to_an_end(name: str) -> None:
    found = play(SEARCHES[name], lambda params, amount: Outcome(None, cause="ModuleNotFoundError"))
    assert found.finish is not None
    assert found.finish.outcome == "failed"
    assert len(found.history.trials) <= 3 * 25 + 10
    found = play(SEARCHES[name]._replace(max_failed=2), lambda params, amount: Outcome(None, cause="x"), 1)
    assert found.finish == Finish("3 trials failed; `max_failed` allows 2", "failed")


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_whose_points_are_all_invalid_comes_to_an_end(name: str) -> None:
    found = play(SEARCHES[name], lambda params, amount: Outcome(None, invalid="never fits"))
    assert found.finish is not None
    assert found.finish.outcome == "failed"
    assert len(found.history.trials) <= 110


def test_a_search_is_extended_to_a_total() -> None:
    made = settings("random_search", n=3)
    found = play(made)
    assert decide(made, found.history, 9) == []
    found.history.record(Changed(5))
    new = decide(made, found.history, 9)
    assert [action.trial for action in new if isinstance(action, Create)] == [3, 4]


def test_a_point_of_a_user_runs_next_and_in_addition() -> None:
    made = settings("random_search", n=3)
    history = History(decide(made, History(), 2))
    history.record(Added({"lr": 0.123}))
    mine, other = decide(made, history, 5)
    assert isinstance(mine, Create)
    assert (mine.added, mine.params["lr"], set(mine.params)) == (True, 0.123, set(NAMES))
    assert isinstance(other, Create)
    assert not other.added
    for action in (mine, other):
        history.record(action)
    assert not history.open_points
    assert decide(made, history, 5) == []  # all three of its own and that of the user run


def test_a_point_of_a_user_gets_the_full_resource_and_takes_no_place_in_a_rung() -> None:
    made = hyperband(9, 3)
    history = History([Added({"lr": 0.5})])
    for action in decide(made, history, 1):
        history.record(action)
    trial = history.trials[0]
    assert (trial.resource, trial.params["epochs"], trial.bracket) == (9, 9, -1)
    assert len([action for action in decide(made, history, 100) if isinstance(action, Create)]) == 9 + 5 + 3


def test_a_second_trial_of_the_same_number_is_ignored_and_a_gap_is_an_error() -> None:
    history = History([Create(0, {"a": 1})])
    history.record(Create(0, {"a": 2}))
    assert history.trials[0].params == {"a": 1}
    with pytest.raises(ValueError, match="trial 2 is recorded before trial 1"):
        history.record(Create(2, {"a": 2}))


def test_an_unknown_algorithm_is_named() -> None:
    for name in ("annealing", "../x", "os.path"):
        with pytest.raises(UnknownAlgorithm, match="unknown search algorithm"):
            decide(settings(name), History(), 1)


def test_entries_go_to_json_and_back() -> None:
    entries: list[Entry] = [
        Create(0, {"a": [1, {"b": None}]}, why="w"),
        Promote(0, 1, 3.0, {"epochs": 3}, "w", source=2),
        Stop(0, "w"),
        Stopped(0, 1, -math.inf),
        Reported(0, 0, math.inf),
        Added({"a": 1}),
        Changed(3),
        Finish("w", "stopped"),
    ]
    for entry in entries:
        assert entry_from_json({**json.loads(json.dumps(entry_as_json(entry), allow_nan=False)), "seq": 7}) == entry
    again = entry_from_json(json.loads(json.dumps(entry_as_json(Reported(0, 0, math.nan)), allow_nan=False)))
    assert isinstance(again, Reported)
    assert again.value is not None
    assert math.isnan(again.value)
    made = settings("random_search", n=2)._replace(
        early_stopping=(StoppingRule(Metric("acc"), 0.9), StoppingRule(LOSS, None, "median", 3)), max_failed=2
    )
    assert SearchSettings.from_json(json.loads(json.dumps(made.as_json()))) == made


def test_a_simulation_that_is_cut_counts_what_was_used() -> None:
    found = Simulation(asha(50), objective, 4).run(most_units=60)
    assert found.finish is None
    assert 60 <= found.units < 60 + 4 * 18


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "run" / "search.md"
    *_, code = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out.startswith("{0: 100, 1: 39, 2: 15, 3: 6}\n376.0 epochs")
