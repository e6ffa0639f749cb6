"""Which replicas failed in an attempt of a run, the first failure in front: read from the run's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from phalanx.home.attempts import read_ends
from phalanx.home.run_folder import RunFolder
from phalanx.insight.autopsy import ReplicaFailure, failures


def read_failures(folder: RunFolder, attempt: int, facts: Mapping[str, Any]) -> list[ReplicaFailure]:
    """`facts` are those that the store has of the run. A run without a readable plan has failures too."""
    return failures(_read_plan(folder), read_ends(folder, attempt), attempt, facts.get("failure"))


def _read_plan(folder: RunFolder) -> dict[str, Any]:
    try:
        plan = json.loads(folder.plan_file.read_bytes())
        return plan if all({"role", "index", "rank"} <= replica.keys() for replica in plan["replicas"]) else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}
