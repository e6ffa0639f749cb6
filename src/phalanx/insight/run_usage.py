"""The resource use of each replica, from a run's folder."""

from __future__ import annotations

import json
from pathlib import Path

from phalanx import run_paths
from phalanx.insight.advice import RecordedRun, ReplicaKey
from phalanx.insight.samples import read_attempts
from phalanx.insight.usage import ReplicaUsage, use_of
from phalanx.naming import LAUNCHER
from phalanx.stored_plan import StoredPlan, read_plan

SPOOLS_READ = 64  # number of replicas whose samples are read in full; for the others only their end records


def read_usage(run_folder: Path, *, status: str, is_batch: bool, attempt: int, is_trial: bool = False) -> RecordedRun:
    """A run from its folder. For a trial, only GPU samples of the second half count. Raises OSError,
    PlanDamaged."""
    plan = read_plan(run_folder)
    uses = uses_of(run_folder, plan, is_trial=is_trial)
    return RecordedRun(plan, status, is_batch, uses, given_gpus(run_folder, attempt, plan))


def uses_of(run_folder: Path, plan: StoredPlan, *, is_trial: bool = False) -> dict[ReplicaKey, ReplicaUsage]:
    """The use of every replica with data. In a run with very many replicas, most have only their end records: peaks and
    sums, without their distribution over time."""
    processes: dict[ReplicaKey, list[tuple[str, float | None]]] = {}
    for replica in plan.replicas:
        if replica.role != LAUNCHER:
            limit = replica.amount("memory").limits
            processes.setdefault((replica.role, replica.number), []).append((replica.name, limit))
    every = -(-len(processes) // SPOOLS_READ)
    found = {}
    for number, (key, members) in enumerate(processes.items()):
        with_notes = number % every == 0
        attempts = [read_attempts(run_folder, name, with_notes=with_notes, limit_mib=mib) for name, mib in members]
        if is_trial:
            attempts = [{number: one.in_second_half() for number, one in known.items()} for known in attempts]
        use = use_of(attempts)
        if use is not None:
            found[key] = use
    return found


def given_gpus(run_folder: Path, attempt: int, plan: StoredPlan) -> dict[ReplicaKey, int]:
    """The number of GPUs that each replica really had; empty if it was not recorded."""
    try:
        facts = json.loads((run_folder / run_paths.facts_file(attempt)).read_bytes())
    except (OSError, ValueError):
        return {}
    given = facts.get("gpus") if isinstance(facts, dict) else None
    if not isinstance(given, dict):
        return {}
    return {
        (replica.role, replica.number): len(given[replica.name])
        for replica in plan.replicas
        if not replica.local and isinstance(given.get(replica.name), list)
    }
