"""GPUs that a file requests though earlier runs of it hardly used theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from phalanx.home.home import Home
from phalanx.insight.advice import FEW_LOOKS, RecordedRun, gpus_of, groups_of, held, idle_gpu_remarks, merged_gpus
from phalanx.insight.run_usage import read_usage
from phalanx.store import Run, Store
from phalanx.store.query import quoted
from phalanx.stored_plan import PlanDamaged, StoredPlan

MOST_RUNS = 3  # that are judged
MOST_SEARCHED = 10


class EarlierRun(NamedTuple):
    run_id: str
    seen: RecordedRun


class GpuRemark(NamedTuple):
    role: str
    text: str
    suggestion: str | None


def gpu_remarks(plan: StoredPlan, earlier: Sequence[EarlierRun]) -> Iterator[GpuRemark]:
    """What earlier runs of a file say about the GPUs that its plan requests; nothing if they were used."""
    for group in groups_of(RecordedRun(plan, "", False, {}, {})):
        asked = held(group, "gpu")
        if not asked:
            continue
        known = {}
        for run_id, seen in earlier:
            use = gpus_of([use for (role, _), use in seen.uses.items() if role == group.role])
            if use is not None and use.looks >= FEW_LOOKS and seen.may_lower:
                known[run_id] = use
        use = merged_gpus(list(known.values()))
        if use is None:
            continue
        is_fewer = use.active < asked <= use.gpus
        runs = f"its last run, {next(iter(known))}" if len(known) == 1 else f"its last {len(known)} runs"
        ids = "" if len(known) == 1 else f" ({', '.join(known)})"
        for remark in idle_gpu_remarks(asked, use, is_fewer=is_fewer):
            suggestion = f"request {use.active}" if is_fewer and use.active else None
            suggestion = "request none" if not use.active else suggestion
            yield GpuRemark(group.role, f"{group.names}: in {runs}{ids}, {remark}", suggestion)


def runs_before(home: Home, store: Store, *, name: str | None, framework: str | None, folder: Path) -> list[EarlierRun]:
    """The last runs of a file: those of its name, or without a name those of the same folder and framework."""
    query = "status:succeeded|stopped|failed" + (f", name:{quoted(name)}" if name else "")
    found = []
    for run in store.runs(query, limit=MOST_SEARCHED):
        if not name and (run.name, run.framework, _folder_of(home, run)) != (None, framework, str(folder)):
            continue
        with suppress(OSError, PlanDamaged):
            seen = read_usage(home.run(run.id).path, status=run.status, is_batch=False, attempt=run.attempt)
            if any(use.gpu is not None for use in seen.uses.values()):
                found.append(EarlierRun(run.id, seen))
        if len(found) == MOST_RUNS:
            break
    return found


def _folder_of(home: Home, run: Run) -> str | None:
    return home.run(run.id).submitted().get("from")
