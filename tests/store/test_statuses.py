from __future__ import annotations

from itertools import pairwise

import pytest

from phalanx import store
from phalanx.store.statuses import DONE, Status, may_follow

ACTIVE = frozenset(Status) - DONE
FLOW = ("created", "building", "scheduled", "starting", "running", "succeeded")

# Polyaxon's table, to <- from. Ours differs in four: a failed run can be resumed, a run whose place starts it again
# resumes by itself, what is done stays done when somebody stops it, and a run may build in its job, or wait for a build
# before it is queued.
BEFORE: dict[str, set[str]] = {
    "created": {"building"},
    "resuming": {*map(str, Status)} - {"resuming"},
    "building": {"created", "resuming", "warning", "unknown", "scheduled", "starting"},
    "scheduled": {"created", "resuming", "warning", "unknown", "building"},
    "starting": {"created", "resuming", "warning", "building", "scheduled"},
    "running": {"created", "resuming", "warning", "unknown", "building", "scheduled", "starting"},
    "warning": {*map(str, ACTIVE)} - {"warning"},
    "unknown": {*map(str, ACTIVE)} - {"unknown"},
    "succeeded": {*ACTIVE},
    "failed": {*ACTIVE},
    "stopped": {*ACTIVE},
    "skipped": {*ACTIVE},
    "upstream_failed": {*ACTIVE},
}


@pytest.mark.parametrize("new", list(Status))
@pytest.mark.parametrize("old", list(Status))
def test_a_status_follows_only_those_of_the_table(old: Status, new: Status) -> None:
    assert may_follow(old, new) == (old in BEFORE[new])


def test_the_table_has_every_status() -> None:
    assert set(BEFORE) == set(Status)


def test_a_new_run_is_created_and_nothing_else() -> None:
    assert [status for status in Status if may_follow(None, status)] == [Status.CREATED]


def test_the_usual_way_is_open() -> None:
    assert all(may_follow(old, new) for old, new in pairwise(FLOW))


@pytest.mark.parametrize("done", sorted(DONE))
def test_what_is_over_can_only_be_resumed(done: Status) -> None:
    assert [status for status in Status if may_follow(done, status)] == [Status.RESUMING]


def test_a_restart_goes_from_warning_to_scheduled() -> None:
    assert may_follow("running", "warning")
    assert may_follow("starting", "warning")
    assert may_follow("warning", "scheduled")


def test_no_status_follows_itself() -> None:
    assert not any(may_follow(status, status) for status in Status)


def test_the_store_means_the_same_by_done() -> None:
    assert set(store.DONE) == DONE
