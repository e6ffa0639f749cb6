"""How long earlier runs of the same command took: what a search will cost is estimated from it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.backends.local.capacity import Capacity, requested_by
from phalanx.home.home import Home
from phalanx.plan import Plan
from phalanx.plan.document import document
from phalanx.spec import Spec
from phalanx.spec.yaml_writer import modern_document, to_yaml
from phalanx.store import StatusChange, Store
from phalanx.store.records import DONE, STARTED
from phalanx.stored_plan import PlanDamaged, decode_plan, read_plan

MOST_SEARCHED = 500  # runs, the newest first
MOST_RUNS = 50  # that count


class EarlierTimes(NamedTuple):
    """`units`: of the resource that these runs used; the number of runs for a search without one."""

    runs: int
    seconds: float
    units: float

    @property
    def per_unit(self) -> float:
        return self.seconds / self.units


def requested(made: Plan) -> Capacity:
    """What a run of a plan requests, as budgets and queues count it."""
    return requested_by(decode_plan(document(made)))


def earlier_times(home: Home, store: Store, group: Spec, made: Plan) -> EarlierTimes | None:
    """The times of runs with the command of a group that requested as much as `made`, a run of it; None without any."""
    assert group.search is not None
    settings = group.search.settings
    resource = settings.get("resource", {}).get("name")
    resumes = settings.get("resume", group.search.algorithm != "hyperband")
    command, wanted = _command(to_yaml(modern_document(group))), requested(made)
    found = EarlierTimes(0, 0.0, 0.0)
    for run in store.runs("kind:experiment, status:succeeded", limit=MOST_SEARCHED):
        units = 1 if resource is None else run.params.get(resource)
        if not isinstance(units, int | float) or units <= 0:
            continue
        folder = home.run(run.id).path
        with suppress(OSError, ValueError, PlanDamaged):
            if _command((folder / run_paths.SPEC).read_text(encoding="utf-8")) != command:
                continue
            asked = requested_by(read_plan(folder))
            if (asked.cpus, asked.gpus) != (wanted.cpus, wanted.gpus):
                continue
            seconds = _seconds(store.statuses(run.id), None if resumes else run.attempt)
            found = EarlierTimes(found.runs + 1, found.seconds + seconds, found.units + units)
        if found.runs == MOST_RUNS:
            break
    return found if found.seconds > 0 else None


def _command(text: str) -> list[str]:
    """The lines of the section `run` of a file as it is kept with each run."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("run:")), len(lines))
    end = next((number for number, line in enumerate(lines) if number > start and line[:1].isalpha()), len(lines))
    return lines[start:end]


def _seconds(statuses: list[StatusChange], attempt: int | None) -> float:
    """How long one attempt ran, or all of them together."""
    began: dict[int, Any] = {}
    total = 0.0
    for change in statuses:
        if change.status in STARTED and attempt in (None, change.attempt):
            began.setdefault(change.attempt, change.at)
        elif change.status in DONE and change.attempt in began:
            total += (change.at - began.pop(change.attempt)).total_seconds()
    return total
