"""Node checks: replicas that fit no node, more nodes than exist, and nodes allocated whole."""

from __future__ import annotations

import math
from collections.abc import Iterator

from phalanx.sites.findings import ADVICE, ERROR, SiteFinding, counted, join_names
from phalanx.sites.model import NodeKind
from phalanx.sites.node_layout import Component
from phalanx.sites.profile_writer import memory_text
from phalanx.sites.request import SiteRequest, component_name, role_path


def fewest_nodes(asked: SiteRequest, part: Component) -> int | None:
    if part.nodes is not None:
        return part.nodes
    held = max((asked.held(part, kind) for kind in asked.kinds), default=0)
    return math.ceil(part.replicas / held) if held else None


def sizes_rule(asked: SiteRequest) -> Iterator[SiteFinding]:
    """A replica that no node can hold."""
    kinds = asked.kinds
    if not kinds:
        return
    for part in asked.parts:
        if any(asked.held(part, kind) for kind in kinds):
            yield from _crowded(asked, part, kinds)
            continue
        elsewhere = join_names(
            dict.fromkeys(name for kind in asked.site.nodes if asked.held(part, kind) for name in kind.partitions)
        )
        other = f"; partitions with such nodes: {elsewhere}" if elsewhere else ""
        yield from _too_large(asked, part, kinds, other)


def _too_large(asked: SiteRequest, part: Component, kinds: list[NodeKind], other: str) -> Iterator[SiteFinding]:
    size, site, path = part.size, asked.site, role_path(part)
    most_gpus = max(asked.gpus_in(kind) for kind in kinds)
    if size.gpus > most_gpus:
        if not most_gpus:
            if site.gpu_types and asked.gpu_kind is not None:
                message = f"{component_name(part)}: no node available to the run has such GPUs"
                yield SiteFinding(ERROR, f"{path}.gpu", message, other.lstrip("; ") or None)
            return  # an unknown type, or no GPUs at all: already reported
        message = (
            f"{component_name(part)}: {counted(size.gpus, 'GPU')}, but a node of {site.name} has at most {most_gpus}"
        )
        hint = f"request {most_gpus} and more workers{other}"
        yield SiteFinding(ERROR, f"{path}.gpu", message, hint)
        return
    fitting = [kind for kind in kinds if asked.gpus_in(kind) >= size.gpus] if size.gpus else kinds
    with_them = " with such GPUs" if size.gpus else ""
    most_cpus, most_memory = max(kind.cpus for kind in fitting), max(kind.memory_mib for kind in fitting)
    both, name = True, component_name(part)
    if size.cpus > most_cpus:
        both = False
        message = f"{name}: {counted(size.cpus, 'core')}, but a node of {site.name}{with_them} has at most {most_cpus}"
        yield SiteFinding(ERROR, f"{path}.cpu", message, f"request {most_cpus}, or more but smaller workers{other}")
    if size.memory_mib and size.memory_mib > most_memory:
        both = False
        message = (
            f"{name}: {memory_text(size.memory_mib)} of memory, but a node of {site.name}{with_them} has at most "
            f"{memory_text(most_memory)}"
        )
        yield SiteFinding(ERROR, f"{path}.memory", message, f"request at most {memory_text(most_memory)}{other}")
    if both:
        there = "; ".join(_kind_words(kind) for kind in fitting[:4])
        yield SiteFinding(
            ERROR,
            path,
            f"{component_name(part)}: no node of {site.name} has all the requested resources",
            f"available: {there}",
        )


def _kind_words(kind: NodeKind) -> str:
    gpus = f", {kind.gpus} {kind.gpu_type or 'GPUs'}" if kind.gpus else ""
    return f"nodes of {kind.cpus} cores, {memory_text(kind.memory_mib)}{gpus}"


def _crowded(asked: SiteRequest, part: Component, kinds: list[NodeKind]) -> Iterator[SiteFinding]:
    wanted = asked.plan.slurm.replicas_per_node
    most = max(asked.held(part, kind) for kind in kinds)
    if wanted is not None and min(wanted, part.replicas) > most:
        message = f"{component_name(part)}: {wanted} per node, but a node of {asked.site.name} holds {most}"
        yield SiteFinding(ERROR, "environment.slurm.replicas_per_node", message, f"write at most {most}")


def nodes_rule(asked: SiteRequest) -> Iterator[SiteFinding]:
    """More nodes than exist. Components never share a node, and the run would wait forever for a missing one."""
    site, kinds, parts = asked.site, asked.kinds, asked.parts
    if len(parts) > 1 and not site.het_jobs:
        message = f"the replicas have {len(parts)} different sizes, but {site.name} does not allow heterogeneous jobs"
        hint = "write `environment.slurm.layout: homogeneous`, or give all replicas the same resources"
        yield SiteFinding(ERROR, "environment.slurm.layout", message, hint)
    needed = [fewest_nodes(asked, part) for part in parts]
    if any(number is None for number in needed):
        return  # a replica that no node holds: already reported
    total = sum(number or 0 for number in needed)
    caps = [row.max_nodes for row in asked.partition_rows]
    most = max((cap for cap in caps if cap is not None), default=None)
    largest = max((number or 0 for number in needed), default=0)
    if most is not None and all(cap is not None for cap in caps) and largest > most:
        message = f"the run needs {counted(largest, 'node')}, but the partition allows at most {most} per job"
        yield SiteFinding(ERROR, "environment.slurm.partition", message, "request fewer or smaller replicas")
        return
    if any(kind.count is None for kind in kinds) or not kinds:
        return
    for part, number in zip(parts, needed, strict=True):
        there = sum(kind.count or 0 for kind in kinds if asked.held(part, kind))
        if number is not None and number > there > 0:
            message = (
                f"{component_name(part)}: it needs {counted(number, 'node')}, but {site.name} has {there} suitable"
            )
            yield SiteFinding(ERROR, role_path(part), message, "request fewer or smaller replicas")
            return
    there = sum(kind.count or 0 for kind in kinds)
    if total > there:
        why = f" in {len(parts)} components, which never share a node" if len(parts) > 1 else ""
        message = f"the run needs {counted(total, 'node')}{why}, but {site.name} has {there}: it would wait forever"
        yield SiteFinding(ERROR, "environment.slurm.layout" if why else "environment.replicas", message, _denser(asked))


def _denser(asked: SiteRequest) -> str:
    if len(asked.parts) > 1:
        return "give all replicas the same resources, or write `environment.slurm.layout: homogeneous`"
    per_node = asked.plan.slurm.replicas_per_node
    return "put more replicas on a node with `replicas_per_node`" if per_node else "request fewer or smaller replicas"


def whole_nodes_rule(asked: SiteRequest) -> Iterator[SiteFinding]:
    """Nodes that are allocated and charged whole."""
    rows = asked.partition_rows
    if not asked.site.whole_nodes and not (rows and all(row.whole_nodes for row in rows)):
        return
    for part in asked.parts:
        if part.size.gpus:
            continue
        fitting = [kind for kind in asked.kinds if asked.held(part, kind) and not kind.gpus]
        if not fitting:
            continue
        cores = min(kind.cpus for kind in fitting)
        used = part.size.cpus * min(part.per_node or part.replicas, part.replicas)
        if used < cores:
            message = (
                f"{component_name(part)}: {used} of the {cores} cores, but {asked.site.name} allocates whole nodes"
            )
            yield SiteFinding(ADVICE, f"{role_path(part)}.cpu", message, "use more cores, or another partition or site")
