"""The state of a group, folded from its journal."""

from __future__ import annotations

import math
from typing import Any

import pytest

from phalanx.scheduler.group_state import GroupState, Leg, combined, event_record
from phalanx.tune.model import Create, Event, Failed, Invalid, Metric, Reported, Rerun, Stopped, entry_as_json

LOST = Failed(0, 0, "exit code 1")


@pytest.mark.parametrize(
    ("ends", "end"),
    [
        ([Reported(0, 0, 1.0), Reported(0, 0, 2.0)], Reported(0, 0, 1.5)),
        ([Reported(0, 0, 1.0), LOST], Reported(0, 0, 1.0)),
        ([Reported(0, 0, None), LOST], Reported(0, 0, None)),
        ([LOST, Failed(0, 0, "another")], LOST),
        ([Reported(0, 0, 1.0), Stopped(0, 0, 3.0)], Stopped(0, 0, 2.0)),
        ([LOST, Stopped(0, 0, None)], Stopped(0, 0, None)),
        ([Reported(0, 0, 1.0), Invalid(0, "too large")], Invalid(0, "too large")),
    ],
)
def test_the_end_of_a_trial_is_that_of_its_repeats(ends: list[Event], end: Event) -> None:
    assert combined(ends) == end


def test_one_value_that_is_no_number_makes_the_mean_none() -> None:
    end = combined([Reported(0, 0, 1.0), Reported(0, 0, math.nan)])
    assert isinstance(end, Reported)
    assert end.value is not None
    assert math.isnan(end.value)


def test_the_same_records_give_the_same_state_wherever_a_scheduler_died() -> None:
    state = GroupState(Metric("loss", maximize=False), 2, repeats=2)
    records: list[dict[str, Any]] = []

    def add(content: dict[str, Any]) -> None:
        records.append({"seq": len(records) + 1, **content})
        state.fold(records[-1])
        again = GroupState(Metric("loss", maximize=False), 2, records, repeats=2)
        assert (again.legs, again.ends, again.best, again.samples) == (
            state.legs,
            state.ends,
            state.best,
            state.samples,
        )
        assert list(map(repr, again.repeated())) == list(map(repr, state.repeated()))

    add(entry_as_json(Create(0, {"x": 1})))
    assert state.free_slots == 0
    first, second = state.legs_of(0)
    add(state.end_record(second, Reported(0, 0, 4.0)))
    assert (list(state.legs), state.free_slots, list(state.repeated())) == ([(0, 0)], 1, [])
    add(state.end_record(first, Stopped(0, 0), why="by its user"))
    (end,) = state.repeated()
    assert end == Stopped(0, 0, 4.0)
    add(event_record(end))
    assert not state.running
    add(event_record(Rerun(0, "the group was resumed"), after=[3, 4]))
    assert list(state.legs.values()) == [Leg(0, 0, 3, why="the group was resumed")], "the other has a result"
    add(state.end_record(state.legs[0, 0], Reported(0, 0, 2.0)))
    add(event_record(next(state.repeated())))
    assert state.best is not None
    assert (state.best.value, sorted(state.best.samples)) == (3.0, [2.0, 4.0])
