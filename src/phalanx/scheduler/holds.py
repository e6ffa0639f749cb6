"""Holds: what the scheduler records of a failed attempt that agents keep enterable; see `agent.interactive.hold`."""

from __future__ import annotations

from datetime import UTC, datetime

from phalanx.agent.interactive.hold import CAUSES
from phalanx.home import attempts
from phalanx.home.attempts import AttemptFolder
from phalanx.insight import autopsy
from phalanx.insight.autopsy import FirstFailure
from phalanx.scheduler.active_runs import ActiveRun
from phalanx.scheduler.ledger import Ledger
from phalanx.store import Run
from phalanx.store.statuses import HELD, Status


def is_held(watched: ActiveRun, failed: FirstFailure | None) -> bool:
    """Whether a failed attempt is held, or was."""
    return watched.hold_s is not None and failed is not None and failed.end.cause in CAUSES


def note_hold(ledger: Ledger, run: Run, attempt_folder: AttemptFolder) -> None:
    """Record once that a failed attempt is held, with the replica that failed first."""
    watched = ledger.watched[run.id]
    if watched.hold_s is None or watched.is_hold_noted or run.status != Status.RUNNING:
        return
    failed = autopsy.first_failure(watched.plan, attempts.reported_ends(attempt_folder))
    if failed is not None and is_held(watched, failed):
        watched.is_hold_noted = True
        until = datetime.fromtimestamp(failed.end.ended_at + watched.hold_s, UTC)
        ledger.record_failure(run, failed)
        ledger.restate(
            run, f"{HELD} until {until:%H:%M:%S} UTC for `phalanx shell {run.id}`; it failed: {failed.reason}"
        )
