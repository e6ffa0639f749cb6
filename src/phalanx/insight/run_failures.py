"""Which replicas failed in an attempt of a run, the first failure in front: read from the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phalanx.home.attempts import read_ends
from phalanx.home.run_folder import RunFolder
from phalanx.insight.autopsy import ReplicaFailure, failures
from phalanx.stored_plan import PlanDamaged, StoredPlan, read_plan


def read_failures(folder: RunFolder, attempt: int, facts: Mapping[str, Any]) -> list[ReplicaFailure]:
    """`facts` are those that the store has of the run. A run without a readable plan has failures too."""
    return failures(_plan(folder), read_ends(folder, attempt), attempt, facts.get("failure"))


def _plan(folder: RunFolder) -> StoredPlan:
    try:
        return read_plan(folder.path)
    except (OSError, PlanDamaged):
        return StoredPlan()
