"""GPUs: types that a site has not, slices, whole nodes, and what goes with one GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator

from phalanx.sites.findings import ADVICE, ERROR, SiteFinding, counted, join_names
from phalanx.sites.profile_writer import memory_text
from phalanx.sites.request import SiteRequest, component_name, role_path
from phalanx.spec.suggestions import did_you_mean


def gpu_type_rule(asked: SiteRequest) -> Iterator[SiteFinding]:
    site, path = asked.site, "environment.slurm.gpu_type"
    if not asked.gpus:
        return
    types = site.gpu_types
    if site.nodes and not types and not any(kind.gpus for kind in site.nodes):
        gpu_part = next(part for part in asked.parts if part.size.gpus)
        yield SiteFinding(ERROR, f"{role_path(gpu_part)}.gpu", f"{site.name} has no GPUs that we know of")
        return
    own = dict(asked.plan.slurm.directives)
    if asked.gpu_type is None:
        if any(name.startswith("gpus") or name == "gres" for name in own):
            return  # the file asks in words of its own
        if site.gpu_type_required:
            known = f": there are {join_names(types)}" if types else ""
            message = f"{site.name} wants to know which GPUs"
            yield SiteFinding(ERROR, path, message, f"write `environment: {{slurm: {{gpu_type: ...}}}}`{known}")
        elif len(types) > 1:
            message = f"no type of GPU is named: any will do, of {join_names(types)}"
            yield SiteFinding(ADVICE, path, message, "name one, if they are not alike to your code")
    elif types and site.gpu(asked.gpu_type) is None:
        every = [*types, *(alias for kind in site.gpus for alias in kind.aliases)]
        hint = did_you_mean(asked.gpu_type, every) or f"there are {join_names(types)}"
        yield SiteFinding(ERROR, path, f"{site.name} has no GPU `{asked.gpu_type}`", hint)


def slices_rule(asked: SiteRequest) -> Iterator[SiteFinding]:
    site, kind = asked.site, asked.gpu_kind
    if kind is None or not kind.is_mig or asked.gpus <= 1:
        return
    whole = [name for name in site.gpu_types if (found := site.gpu(name)) and not found.is_mig]
    message = f"`{asked.gpu_type}` is a slice of a GPU, and the run asks for {asked.gpus}"
    hint = f"ask for whole GPUs: `gpu_type: {whole[0]}`" if whole else "ask for whole GPUs"
    if site.one_mig_per_job:
        yield SiteFinding(ERROR, "environment.slurm.gpu_type", f"{message}: {site.name} gives a job one", hint)
    else:
        yield SiteFinding(
            ADVICE, "environment.slurm.gpu_type", f"{message}: slices do not reach each other directly", hint
        )


def whole_gpus_rule(asked: SiteRequest) -> Iterator[SiteFinding]:
    """GPUs by whole nodes, or one alone."""
    site = asked.site
    for part in asked.parts:
        total = part.size.gpus * part.replicas
        if not total or (asked.gpu_kind is not None and asked.gpu_kind.is_mig):
            continue
        path = f"{role_path(part)}.gpu"
        if site.gpu_multiple and total != 1 and total % site.gpu_multiple:
            allowed = f"{site.name} gives one, or a multiple of {site.gpu_multiple}"
            message = f"{component_name(part)}: {counted(total, 'GPU')}, and {allowed}"
            yield SiteFinding(ERROR, path, message, _nearest_multiple(total, site.gpu_multiple))
        elif site.whole_nodes and not site.gpu_multiple:
            sizes = sorted({asked.gpus_in(kind) for kind in asked.kinds} - {0})
            if sizes and not any(total % size == 0 for size in sizes):
                words = " or ".join(map(str, sizes))
                message = (
                    f"{component_name(part)}: {counted(total, 'GPU')}, and {site.name} gives whole nodes, of {words}"
                )
                yield SiteFinding(ERROR, path, message, _nearest_multiple(total, sizes[0]))


def _nearest_multiple(total: int, unit: int) -> str:
    above = math.ceil(total / unit) * unit
    below = above - unit
    return f"ask for {above} in all" + (f", or for {below}" if below else "")


def shares_rule(asked: SiteRequest) -> Iterator[SiteFinding]:
    """More cores or memory than goes with a GPU: others cannot use the GPUs that are left."""
    kind = asked.gpu_kind
    for part in asked.parts if kind is not None else ():
        assert kind is not None
        size = part.size
        if not size.gpus:
            continue
        cores, memory = size.cpus / size.gpus, (size.memory_mib or 0) / size.gpus
        path = role_path(part)
        if kind.cpus is not None and cores > kind.cpus:
            counted_cores = f"{asked.site.name} counts {kind.cpus:g} with one"
            message = f"{component_name(part)}: {cores:g} cores with a GPU, where {counted_cores}"
            hint = f"ask for at most {kind.cpus * size.gpus:g} cores: more is charged as more GPUs, and waits for them"
            yield SiteFinding(ADVICE, f"{path}.cpu", message, hint)
        if kind.memory_mib is not None and memory > kind.memory_mib:
            message = (
                f"{component_name(part)}: {memory_text(memory)} with a GPU, where {asked.site.name} counts "
                f"{memory_text(kind.memory_mib)} with one"
            )
            hint = f"ask for at most {memory_text(kind.memory_mib * size.gpus)}: more is charged as more GPUs"
            yield SiteFinding(ADVICE, f"{path}.memory", message, hint)
