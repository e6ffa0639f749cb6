"""Which replicas are behind the others, from the last step that each logged. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from phalanx.store.series.replica_steps import ReplicaStep

NO_LAG_STEPS = 2  # replicas log at different moments: one or two steps are never a lag
NO_LAG_SHARE = 0.005  # of the steps that the leading replica has done
SLIGHT_SHARE = 0.03
BEHIND_SHARE = 0.15


class Lag(IntEnum):
    """How far a replica is behind the leading one, relative to the steps done."""

    NONE = 0
    SLIGHT = 1
    BEHIND = 2
    FAR = 3


class ReplicaProgress(NamedTuple):
    step: int
    step_at: float  # seconds since the epoch
    behind: int  # steps behind the leading replica
    lag: Lag


class RunProgress(NamedTuple):
    """`front` is the highest step of any replica, `straggler` the running replica that lags most."""

    front: int | None
    straggler: str | None
    replicas: Mapping[str, ReplicaProgress]  # those that logged a step


def lag_of(behind: int, front: int) -> Lag:
    share = behind / max(front, 1)
    if behind <= NO_LAG_STEPS or share <= NO_LAG_SHARE:
        return Lag.NONE
    if share <= SLIGHT_SHARE:
        return Lag.SLIGHT
    return Lag.BEHIND if share <= BEHIND_SHARE else Lag.FAR


def progress_of(steps: Mapping[str, ReplicaStep], running: Container[str]) -> RunProgress:
    """`running` are the replicas that can be stragglers: one that has ended is behind, but delays no other."""
    if not steps:
        return RunProgress(None, None, {})
    front = max(step.step for step in steps.values())
    replicas = {
        name: ReplicaProgress(step.step, step.at, front - step.step, lag_of(front - step.step, front))
        for name, step in steps.items()
    }
    lagging = [name for name, one in replicas.items() if name in running and one.lag is not Lag.NONE]
    return RunProgress(front, max(lagging, key=lambda name: replicas[name].behind, default=None), replicas)


def progress_row(progress: ReplicaProgress | None) -> dict[str, Any]:
    """The JSON fields of a replica, the same in REST and in `--json`; null for a replica that logged no step."""
    if progress is None:
        return dict.fromkeys(ReplicaProgress._fields)
    return {**progress._asdict(), "lag": int(progress.lag)}
