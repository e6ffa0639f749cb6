"""The decision after an attempt has ended: the run succeeds, stops, resumes, restarts or fails. Pure."""

from __future__ import annotations

from enum import StrEnum, auto
from typing import NamedTuple

from phalanx.ends import Cause
from phalanx.scheduler.active_runs import AttemptOutcome
from phalanx.scheduler.engine_executor import SEGMENT_OVER


class Action(StrEnum):
    SUCCEED = auto()
    STOP = auto()
    RESUME = auto()  # the next segment; does not count as a restart
    RESTART = auto()
    FAIL = auto()


class Decision(NamedTuple):
    action: Action
    reason: str


def decide(  # noqa: PLR0913 - everything a decision depends on
    outcome: AttemptOutcome,
    *,
    stop: str | None,
    stopped_by_engine: str | None,
    is_external: bool,
    restarts: int,
    max_restarts: int,
) -> Decision:
    """`stop`: why a user stopped the run, if one did. `stopped_by_engine`: why its engine ended the job at someone
    else's request, if it did. `is_external`: Phalanx only tracks the run, so a signal from its owner stops it.
    `restarts`: how often it restarted since it was submitted or resumed."""
    if outcome.is_finished:
        return Decision(Action.SUCCEED, "finished")
    if stop is not None:
        return Decision(Action.STOP, stop)
    if outcome.goes_on:
        return Decision(Action.RESUME, SEGMENT_OVER)
    failed = outcome.failed
    assert failed is not None, "an attempt that neither finished nor was stopped has failed"
    reason = failed.reason
    if failed.end.cause == Cause.STOPPED:
        if is_external or stopped_by_engine is not None:
            return Decision(Action.STOP, stopped_by_engine or failed.end.message)
        reason = f"{failed.replica}: its agent was stopped from outside Phalanx"
    if restarts < max_restarts:
        return Decision(Action.RESTART, f"{reason}; restart {restarts + 1} of {max_restarts} follows")
    return Decision(Action.FAIL, reason)
