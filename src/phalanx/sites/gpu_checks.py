"""GPU checks: unknown types, slices, whole nodes, and cores and memory per GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from phalanx.plan.model import Plan
from phalanx.sites import node_layout
from phalanx.sites.findings import ADVICE, ERROR, SiteFinding, counted, join_names
from phalanx.sites.model import Site
from phalanx.sites.profile_writer import memory_text
from phalanx.sites.request import SiteRequest, component_name, role_path
from phalanx.spec.suggestions import did_you_mean

_CPU_ONLY = re.compile(r"[\w.-]*[-_]cpu(?![\w-])|[\w.-]+(?:\[.*\])?\s*===?\s*[\w.]+\+cpu\b|jax\[cpu\]", re.IGNORECASE)


def gpu_type_rule(asked: SiteRequest) -> Iterator[SiteFinding]:
    site, path = asked.site, "environment.slurm.gpu_type"
    if not asked.gpus:
        return
    types = site.gpu_types
    if site.nodes and not types and not any(kind.gpus for kind in site.nodes):
        gpu_part = next(part for part in asked.parts if part.size.gpus)
        yield SiteFinding(ERROR, f"{role_path(gpu_part)}.gpu", f"{site.name} has no known GPUs")
        return
    own = dict(asked.plan.slurm.directives)
    if asked.gpu_type is None:
        if any(name.startswith("gpus") or name == "gres" for name in own):
            return  # the file requests GPUs with its own directives
        if site.gpu_type_required:
            known = f": available are {join_names(types)}" if types else ""
            message = f"{site.name} requires a GPU type"
            yield SiteFinding(ERROR, path, message, f"write `environment: {{slurm: {{gpu_type: ...}}}}`{known}")
        elif len(types) > 1:
            message = f"no GPU type is set: the job may get any of {join_names(types)}"
            yield SiteFinding(ADVICE, path, message, "set `gpu_type` if your code needs a specific one")
    elif types and site.gpu(asked.gpu_type) is None:
        every = [*types, *(alias for kind in site.gpus for alias in kind.aliases)]
        hint = did_you_mean(asked.gpu_type, every) or f"available: {join_names(types)}"
        yield SiteFinding(ERROR, path, f"{site.name} has no GPU `{asked.gpu_type}`", hint)


def idle_gpus(plan: Plan, site: Site | None) -> Iterator[SiteFinding]:
    """GPUs that the run cannot use at any site."""
    with_gpus = [part for part in node_layout.components(plan, site) if part.size.gpus]
    for part in with_gpus:
        role = part.names[0].partition("-")[0]
        if role in ("ps", "server", "scheduler"):
            message = f"{component_name(part)}: GPUs are requested for a {role}, which does not compute"
            yield SiteFinding(ADVICE, f"{role_path(part)}.gpu", message, "request GPUs for the workers only")
    packages = [item for item in plan.python.requirements if _CPU_ONLY.match(item)]
    if with_gpus and packages:
        message = f"GPUs are requested, but {join_names(packages)} cannot use one"
        hint = (
            "install a build with GPU support, or request no GPU; `phalanx size --try gpu=0,1` measures what one brings"
        )
        yield SiteFinding(ADVICE, "environment.python.requirements", message, hint)


def slices_rule(asked: SiteRequest) -> Iterator[SiteFinding]:
    site, kind = asked.site, asked.gpu_kind
    if kind is None or not kind.is_mig or asked.gpus <= 1:
        return
    whole = [name for name in site.gpu_types if (found := site.gpu(name)) and not found.is_mig]
    message = f"`{asked.gpu_type}` is a GPU slice, and the run requests {asked.gpus}"
    hint = f"request whole GPUs: `gpu_type: {whole[0]}`" if whole else "request whole GPUs"
    if site.one_mig_per_job:
        yield SiteFinding(ERROR, "environment.slurm.gpu_type", f"{message}: {site.name} allows one per job", hint)
    else:
        yield SiteFinding(ADVICE, "environment.slurm.gpu_type", f"{message}: slices cannot communicate directly", hint)


def whole_gpus_rule(asked: SiteRequest) -> Iterator[SiteFinding]:
    """GPUs must fill whole nodes, or be a single one."""
    site = asked.site
    for part in asked.parts:
        total = part.size.gpus * part.replicas
        if not total or (asked.gpu_kind is not None and asked.gpu_kind.is_mig):
            continue
        path = f"{role_path(part)}.gpu"
        if site.gpu_multiple and total != 1 and total % site.gpu_multiple:
            allowed = f"{site.name} allows 1 or a multiple of {site.gpu_multiple}"
            message = f"{component_name(part)}: {counted(total, 'GPU')}, and {allowed}"
            yield SiteFinding(ERROR, path, message, _nearest_multiple(total, site.gpu_multiple))
        elif site.whole_nodes and not site.gpu_multiple:
            sizes = sorted({asked.gpus_in(kind) for kind in asked.kinds} - {0})
            if sizes and not any(total % size == 0 for size in sizes):
                words = " or ".join(map(str, sizes))
                message = (
                    f"{component_name(part)}: {counted(total, 'GPU')}, but {site.name} allocates whole nodes of {words}"
                )
                yield SiteFinding(ERROR, path, message, _nearest_multiple(total, sizes[0]))


def _nearest_multiple(total: int, unit: int) -> str:
    above = math.ceil(total / unit) * unit
    below = above - unit
    return f"request {above} in total" + (f", or {below}" if below else "")


def shares_rule(asked: SiteRequest) -> Iterator[SiteFinding]:
    """More cores or memory than the share of a GPU: the remaining GPUs become unusable for others."""
    kind = asked.gpu_kind
    for part in asked.parts if kind is not None else ():
        assert kind is not None
        size = part.size
        if not size.gpus:
            continue
        cores, memory = size.cpus / size.gpus, (size.memory_mib or 0) / size.gpus
        path = role_path(part)
        if kind.cpus is not None and cores > kind.cpus:
            counted_cores = f"{asked.site.name} allots {kind.cpus:g} per GPU"
            message = f"{component_name(part)}: {cores:g} cores per GPU, but {counted_cores}"
            hint = f"request at most {kind.cpus * size.gpus:g} cores: more is charged as more GPUs and waits longer"
            yield SiteFinding(ADVICE, f"{path}.cpu", message, hint)
        if kind.memory_mib is not None and memory > kind.memory_mib:
            message = (
                f"{component_name(part)}: {memory_text(memory)} per GPU, but {asked.site.name} allots "
                f"{memory_text(kind.memory_mib)} per GPU"
            )
            hint = f"request at most {memory_text(kind.memory_mib * size.gpus)}: more is charged as more GPUs"
            yield SiteFinding(ADVICE, f"{path}.memory", message, hint)
