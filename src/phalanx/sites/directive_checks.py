"""Directives of sbatch that repeat what other fields of the file request. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.plan.model import Plan
from phalanx.sites import node_layout, slurm_output
from phalanx.sites.findings import ADVICE, ERROR, SiteFinding
from phalanx.sites.model import Site
from phalanx.sites.request import role_path

_PATH = "environment.slurm.directives"
_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
_GPUS = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
_NAMED = ("account", "partition", "qos", "constraint", "reservation")


def directive_findings(plan: Plan, site: Site | None) -> Iterator[SiteFinding]:
    own = dict(plan.slurm.directives)
    parts = node_layout.components(plan, site)
    memory = next((part for part in parts if part.size.memory_mib is not None), None)
    for name in _MEMORY:
        if name in own and memory is not None:
            yield _twice(name, f"{role_path(memory)}.memory")
        elif name in own and len(parts) > 1:
            message = f"`{name}` would apply to each of the {len(parts)} kinds of replicas"
            yield SiteFinding(ERROR, f"{_PATH}.{name}", message, "use `resources: {memory: ...}` of each role")
    gpus = next((part for part in parts if part.size.gpus), None)
    for name in _GPUS:
        if name in own and gpus is not None:
            yield _twice(name, f"{role_path(gpus)}.gpu", _type_hint(own[name].rpartition(":")[0]))
        elif name in own:
            yield _unseen(name)
    kinds = [kind for kind in slurm_output.gpus(own.get("gres", "")) if kind]
    if own.get("gres", "").startswith("gpu"):
        yield _twice("gres", f"{role_path(gpus)}.gpu", _type_hint(*kinds)) if gpus is not None else _unseen("gres")
    for name in _NAMED:
        if name in own and getattr(plan.slurm, name) is not None:
            yield _overrides(name, f"environment.slurm.{name}")
    if "time" in own and plan.slurm.segment_s is not None:
        yield _overrides("time", "environment.slurm.segment")
    elif "time" in own and plan.timeout_s is not None:
        yield _overrides("time", "environment.timeout")


def _twice(name: str, path: str, hint: str = "") -> SiteFinding:
    message = f"`{name}` is requested twice: by this directive and by `{path}`"
    return SiteFinding(ERROR, f"{_PATH}.{name}", message, f"keep `{path}`{hint}")


def _unseen(name: str) -> SiteFinding:
    message = f"Phalanx does not divide the GPUs of `{name}` among replicas"
    hint = "request them with `environment.resources: {gpu: {requests: 1}}` and `environment.slurm.gpu_type`"
    return SiteFinding(ADVICE, f"{_PATH}.{name}", message, hint)


def _overrides(name: str, path: str) -> SiteFinding:
    return SiteFinding(ADVICE, f"{_PATH}.{name}", f"`{name}` overrides `{path}`", f"keep `{path}` only")


def _type_hint(*kinds: str) -> str:
    return f", and name the type with `environment.slurm.gpu_type: {kinds[0]}`" if kinds and kinds[0] else ""
