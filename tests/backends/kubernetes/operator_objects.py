"""The operator's job among rendered objects, and the pod templates in an object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from phalanx.backends.kubernetes.operators.job_kinds import OPERATED, OperatorKind


def operated(obj: Mapping[str, Any]) -> OperatorKind | None:
    """The operator kind of an object; None if it is not an operator's job."""
    found = (known for known in OPERATED if (known.kind, known.api_version) == (obj.get("kind"), obj.get("apiVersion")))
    return next(found, None)


def job_of(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The operator's job among the objects of a run; None if there is none."""
    return next((obj for obj in found if operated(obj) is not None), None)


def templates_of(obj: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every pod template in an object: those of Jobs, of operators' jobs, and the overrides of a TrainJob."""
    spec = obj.get("spec") or {}
    known = operated(obj)
    if known is not None and known.specs is not None:
        yield from (replicas["template"] for replicas in spec[known.specs].values())
    elif known is not None:
        for patch in spec.get("runtimePatches") or ():
            for job in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
                yield job["template"]["spec"]["template"]
    elif obj.get("kind") == "Job":
        yield spec["template"]
