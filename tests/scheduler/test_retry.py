"""What follows an attempt that has ended, as a pure decision."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.ends import Cause, End
from phalanx.insight.autopsy import first_failure
from phalanx.scheduler.active_runs import AttemptOutcome
from phalanx.scheduler.retry import Action, Decision, decide
from phalanx.stored_plan import PlannedReplica, StoredPlan

PLAN = StoredPlan((PlannedReplica("worker", 0, 0),))
AFTER: dict[str, Any] = {
    "stop": None,
    "stopped_by_engine": None,
    "is_external": False,
    "restarts": 0,
    "max_restarts": 0,
}


def outcome(cause: Cause | None = None, *, is_finished: bool = False, goes_on: bool = False) -> AttemptOutcome:
    failed = None
    if cause is not None:
        end = End(cause, 1, None, f"{cause} it was", ended_at=1.0)
        failed = first_failure(PLAN, {"worker-0": end}, of=(cause,))
    assert (failed is None) == (cause is None)
    return AttemptOutcome(
        is_running=False, has_run=True, is_settled=True, is_finished=is_finished, goes_on=goes_on, failed=failed
    )


def test_an_attempt_that_finished_succeeds_even_if_it_was_stopped_too_late() -> None:
    assert decide(outcome(is_finished=True), **{**AFTER, "stop": "by its user"}).action == Action.SUCCEED


def test_a_request_to_stop_wins_over_a_failure_and_over_the_next_segment() -> None:
    for ended in (outcome(Cause.ERROR), outcome(goes_on=True)):
        assert decide(ended, **{**AFTER, "stop": "by its user", "max_restarts": 3}) == Decision(
            Action.STOP, "by its user"
        )


def test_the_next_segment_is_no_restart() -> None:
    assert decide(outcome(goes_on=True), **{**AFTER, "restarts": 5}).action == Action.RESUME


@pytest.mark.parametrize(("restarts", "action"), [(0, Action.RESTART), (1, Action.RESTART), (2, Action.FAIL)])
def test_a_failure_restarts_as_often_as_the_file_allows(restarts: int, action: Action) -> None:
    decision = decide(outcome(Cause.ERROR), **{**AFTER, "restarts": restarts, "max_restarts": 2})
    assert decision.action == action
    assert ("restart" in decision.reason) == (action == Action.RESTART)


def test_a_job_that_its_engine_ended_on_request_is_stopped_not_restarted() -> None:
    decision = decide(outcome(Cause.STOPPED), **{**AFTER, "stopped_by_engine": "cancelled by root", "max_restarts": 2})
    assert decision == Decision(Action.STOP, "cancelled by root")


def test_an_external_run_that_its_owner_ended_is_stopped() -> None:
    assert decide(outcome(Cause.STOPPED), **{**AFTER, "is_external": True}).action == Action.STOP


def test_an_agent_that_someone_else_ended_counts_as_a_failure() -> None:
    decision = decide(outcome(Cause.STOPPED), **AFTER)
    assert decision.action == Action.FAIL
    assert decision.reason.startswith("worker-0: ")
