"""Fields of `hptuning` that say when a search ends, and how its trials are compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.errors import SpecErrors
from phalanx.spec import load
from phalanx.spec.groups import search_settings
from phalanx.spec.model import Search


def searched(**tuning: Any) -> Search:
    matrix = {"lr": {"values": [1, 2]}}
    content = {"version": 1, "kind": "group", "hptuning": {"matrix": matrix, **tuning}, "run": {"cmd": "x {{ lr }}"}}
    found = load([("p.yml", json.dumps(content).encode())]).search
    assert found is not None
    return found


def test_limits_and_earlier_groups_are_read() -> None:
    found = searched(budget={"core_hours": 5, "until": "8h"}, max_failed=3, warm_start=["abc", 123], reuse=True)
    assert found.budget == {"core_hours": 5, "until": "8h"}
    assert (found.max_failed, found.warm_start, found.reuse) == (3, ("abc", "123"), True)
    assert search_settings(found, "seed").max_failed == 3


@pytest.mark.parametrize("until", ["2027-01-31 08:00", "2027-01-31T08:00:00+01:00", "90m"])
def test_a_budget_ends_at_a_time_or_after_a_duration(until: str) -> None:
    assert searched(budget={"until": until}).budget == {"until": until}


def test_what_is_no_time_is_an_error_with_an_example() -> None:
    with pytest.raises(SpecErrors) as caught:
        searched(budget={"until": "tomorrow"})
    (error,) = caught.value.errors
    assert (error.path, error.message) == ("hptuning.budget.until", "`tomorrow` is no time")
    assert error.suggestion is not None
    assert '"8h"' in error.suggestion


def test_the_metric_of_a_search_is_its_own_or_that_of_the_group() -> None:
    loss = {"name": "loss", "optimization": "minimize", "value": "best", "ranks": "mean"}
    found = searched(metric=loss)
    assert found.metric == loss
    metric = search_settings(found, "seed").metric
    assert metric is not None
    assert (metric.name, metric.maximize) == ("loss", False)
    assert searched().metric is None
