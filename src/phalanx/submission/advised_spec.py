"""The file of a run with the advice of `insight.advice` applied, and that advice as JSON: for CLI and server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from phalanx import plan, spec
from phalanx.backends import is_batch
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.insight.advice import Advice, RecordedRun, RoleAdvice, advise
from phalanx.insight.resource_edits import changed
from phalanx.insight.run_usage import read_usage
from phalanx.spec import Spec
from phalanx.spec.model import thaw
from phalanx.spec.yaml_writer import modern_document, to_yaml
from phalanx.store import Run
from phalanx.stored_plan import PlanDamaged
from phalanx.submission.clone import spec_of
from phalanx.tracking.external_folder import BACKEND as OUTSIDE


class RunAdvice(NamedTuple):
    """The recorded usage of a run, and the advice for it."""

    seen: RecordedRun
    advice: Advice


def advice_for(home: Home, run: Run) -> RunAdvice:
    """Raises CallError if the usage of the run was not measured."""
    if run.backend == OUTSIDE:
        raise CallError(f"run {run.id} was tracked, not started, by Phalanx: its resource usage was not measured")
    try:
        seen = read_usage(home.run(run.id).path, status=run.status, is_batch=is_batch(run.backend), attempt=run.attempt)
    except (OSError, PlanDamaged):
        raise CallError(f"the folder of run {run.id} has no readable plan") from None
    return RunAdvice(seen, advise(seen))


def advised_document(home: Home, run: Run, found: RunAdvice) -> dict[str, Any] | None:
    """The run's file with the advice applied; None if nothing changes. Raises CallError or SpecErrors if the advice
    cannot be applied."""
    seen, advice = found
    if not advice.changes and advice.timeout is None:
        return None
    document = changed(modern_document(spec_of(home, run)), seen.plan.roles, advice.changes, advice.timeout)
    return modern_document(load_document(document, f"the file of run {run.id}, as advised"))


def load_document(document: Mapping[str, Any], name: str) -> Spec:
    """Load a document like the file that it will become, so that printed and written files are valid. Raises
    SpecErrors."""
    return spec.load([(name, to_yaml(document).encode())], inspect=plan.inspect)


def advice_row(advice: Advice, document: Mapping[str, Any] | None) -> dict[str, Any]:
    """The JSON of an advice: part of `advise --json`, and of `use` in REST."""
    return {
        "caveats": list(advice.caveats),
        "roles": [_role_row(role) for role in advice.roles],
        "time_s": advice.time._asdict(),
        "idle_hours": _idle_hours(advice),
        "environment": None if document is None else thaw(document.get("environment", {})),
    }


def _role_row(role: RoleAdvice) -> dict[str, Any]:
    return {
        "role": role.group.role,
        "indices": list(role.group.indices),
        "cores": {**role.cpu._asdict(), "mean": role.cores_mean},
        "memory_mib": role.memory._asdict(),
        "gpus": {**role.gpu._asdict(), "use": None if role.gpu_use is None else role.gpu_use._asdict()},
        "seconds": role.seconds,
        "remarks": list(role.remarks),
    }


def _idle_hours(advice: Advice) -> dict[str, float]:
    """Idle hours of cores, GiB of memory and GPUs."""
    total = {"core": 0.0, "GiB": 0.0, "GPU": 0.0}
    for role in advice.roles:
        for unit, sizing in zip(total, (role.cpu, role.memory, role.gpu), strict=True):
            total[unit] += sizing.idle_hours or 0.0
    return total
