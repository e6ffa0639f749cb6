"""The budget of a search: core-hours, GPU-hours, and a time at which it ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from phalanx.backends.local.capacity import requested_by
from phalanx.spec.quantities import seconds
from phalanx.store import Run, StatusChange
from phalanx.store.records import STARTED
from phalanx.stored_plan import StoredPlan


class SearchUsage(NamedTuple):
    """What attempts of trials have used: the cores and GPUs that they requested, for as long as they ran."""

    core_s: float = 0.0
    gpu_s: float = 0.0

    def __add__(self, other: object) -> SearchUsage:
        assert isinstance(other, SearchUsage)
        return SearchUsage(self.core_s + other.core_s, self.gpu_s + other.gpu_s)


class SearchBudget(NamedTuple):
    core_hours: float | None = None
    gpu_hours: float | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, written: Mapping[str, Any] | None, began_at: datetime) -> SearchBudget | None:
        """`began_at`: when the group was submitted, from which a duration counts."""
        if written is None:
            return None
        return cls(written.get("core_hours"), written.get("gpu_hours"), end_time(written.get("until"), began_at))

    def exhausted(self, used: SearchUsage, now: datetime) -> str | None:
        """Why the search ends now; None while it may go on."""
        for name, most, used_s in (("core", self.core_hours, used.core_s), ("GPU", self.gpu_hours, used.gpu_s)):
            if most is not None and used_s >= most * 3600:
                return f"the budget is used: {used_s / 3600:.3g} of {most:g} {name}-hours"
        if self.until is not None and now >= self.until:
            return f"the budget ended at {self.until.astimezone():%Y-%m-%d %H:%M}"
        return None


def end_time(text: str | None, began_at: datetime) -> datetime | None:
    """A time such as `2026-11-18 08:00`, local without a zone, or a duration from the start such as `8h`."""
    if text is None:
        return None
    duration = seconds(text)
    if duration is not None:
        return began_at + timedelta(seconds=duration)
    return datetime.fromisoformat(text).astimezone(UTC)


def used_by(run: Run, statuses: list[StatusChange], plan: StoredPlan) -> SearchUsage:
    """What the last attempt of a run has used."""
    begun = [change.at for change in statuses if change.attempt == run.attempt and change.status in STARTED]
    if not begun or run.finished_at is None:
        return SearchUsage()
    took_s = max(0.0, (run.finished_at - begun[0]).total_seconds())
    asked = requested_by(plan)
    return SearchUsage(took_s * asked.cpus, took_s * asked.gpus)
