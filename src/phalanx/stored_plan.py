"""The replicas of a run as its `plan.json` names them, for readers that need no more than names, ranks and commands.

`plan.document` writes the file. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.naming import member_name


class PlanDamaged(ValueError):
    """The file is not a plan."""


class PlannedReplica(NamedTuple):
    """One process of a run. `has_command`: false for a host on which a launcher starts ranks."""

    role: str
    number: int  # within its role
    rank: int | None
    local: int
    has_command: bool

    @property
    def name(self) -> str:
        return member_name(self.role, self.number, self.local)


def decode_replicas(content: Any) -> tuple[PlannedReplica, ...]:
    """The replicas of a decoded `plan.json`, in its order. Raises PlanDamaged."""
    rows = content.get("replicas") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise PlanDamaged("the plan has no list of replicas")
    return tuple(map(_replica, rows))


def read_replicas(run_folder: str | os.PathLike[str]) -> tuple[PlannedReplica, ...]:
    """The replicas in the plan of a run. Raises OSError and PlanDamaged."""
    with open(os.path.join(run_folder, run_paths.PLAN), "rb") as stream:
        data = stream.read()
    try:
        return decode_replicas(json.loads(data))
    except (ValueError, RecursionError) as fault:
        raise PlanDamaged(str(fault)) from None


def _replica(row: Any) -> PlannedReplica:
    if not isinstance(row, dict) or not isinstance(row.get("role"), str) or "/" in row["role"]:
        raise PlanDamaged("a replica of the plan has no role")
    number, rank, local = row.get("index"), row.get("rank"), row.get("local", 0)
    if "rank" not in row or not isinstance(rank, (int, type(None))):
        raise PlanDamaged("a replica of the plan has no rank")
    if not (isinstance(number, int) and isinstance(local, int)):
        raise PlanDamaged("a replica of the plan has no index")
    return PlannedReplica(row["role"], number, rank, local, has_command=bool(row.get("argv")))
