"""Layout of a plan's replicas on the nodes of a cluster: equal requests and replicas per node. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from phalanx.naming import LAUNCHER
from phalanx.plan.model import Plan, Replica
from phalanx.sites.model import NodeKind, Site
from phalanx.spec.model import Amount

HOMOGENEOUS = "homogeneous"


class Size(NamedTuple):
    """What one replica requests: whole CPUs and MiB, as a scheduler counts them. None: not set."""

    cpus: int
    memory_mib: int | None
    gpus: int
    processes: int

    def fits(self, kind: NodeKind, gpu_type: str | None) -> int:
        """Number of such replicas that one node of a kind holds."""
        held = kind.cpus // self.cpus
        if self.memory_mib:
            held = min(held, int(kind.memory_mib // self.memory_mib))
        if self.gpus:
            held = min(held, kind.gpus_of(gpu_type) // self.gpus)
        return held


class Component(NamedTuple):
    """Replicas with the same placement: a whole job, or a component of a heterogeneous one. `names` are all its
    processes, as the scheduler will number them. `per_node`: replicas per node; None: chosen by the scheduler."""

    names: tuple[str, ...]
    size: Size
    per_node: int | None

    @property
    def replicas(self) -> int:
        return len(self.names) // self.size.processes

    @property
    def nodes(self) -> int | None:
        return None if self.per_node is None else math.ceil(self.replicas / self.per_node)

    @property
    def cpus_per_task(self) -> int:
        return max(1, self.size.cpus // self.size.processes)


def components(plan: Plan, site: Site | None = None) -> list[Component]:
    """Where the launcher numbers the ranks, keep their order; otherwise group all replicas with equal requests,
    since components never share a node."""
    groups: list[tuple[Size, list[str]]] = []
    by_size: dict[Size, list[str]] = {}
    in_order = plan.launch not in ("each", "own")
    for replica, size in _sizes(plan):
        if in_order:
            is_known = bool(groups) and (replica.local > 0 or groups[-1][0] == size)
            names = groups[-1][1] if is_known else []
        else:
            is_known = size in by_size
            names = by_size.setdefault(size, [])
        if not is_known:
            groups.append((size, names))
        names.append(replica.name)
    if plan.slurm.layout == HOMOGENEOUS and len(groups) > 1:
        groups = [(_largest([size for size, _ in groups]), [name for _, names in groups for name in names])]
    return [_component(plan, site, size, tuple(names)) for size, names in groups]


def _sizes(plan: Plan) -> Iterable[tuple[Replica, Size]]:
    """Every process with the size of its replica, which is stored with the first process."""
    placed = [replica for replica in plan.replicas if replica.role != LAUNCHER]
    further: dict[tuple[str, int], int] = {}  # processes besides the first
    for replica in placed:
        if replica.local:
            further[replica.role, replica.index] = further.get((replica.role, replica.index), 0) + 1
    known: dict[tuple[int, int], Size] = {}  # replicas share their settings
    size = Size(1, None, 0, 1)
    for replica in placed:
        if not replica.local:
            processes = 1 + (further.get((replica.role, replica.index), 0) if further else 0)
            key = (id(replica.settings), processes)
            if key not in known:
                known[key] = size_of(replica, processes)
            size = known[key]
        yield replica, size


def size_of(replica: Replica, processes: int = 1) -> Size:
    """Memory by its limit, because exceeding it kills the process; other resources by their requests."""
    asked = replica.resources
    memory = _either(asked.memory, "limits", "requests")
    return Size(
        cpus=max(1, processes, math.ceil(_either(asked.cpu, "requests", "limits") or 0)),
        memory_mib=math.ceil(memory) if memory else None,
        gpus=math.ceil(_either(asked.gpu, "requests", "limits") or 0),
        processes=processes,
    )


def _either(amount: Amount | None, first: str, second: str) -> float | None:
    if amount is None:
        return None
    value: float | None = getattr(amount, first)
    return getattr(amount, second) if value is None else value


def _largest(sizes: list[Size]) -> Size:
    """The largest size of replicas with the same number of processes: only those fit in one grid."""
    memory = [size.memory_mib for size in sizes if size.memory_mib is not None]
    return Size(
        cpus=max(size.cpus for size in sizes),
        memory_mib=max(memory, default=None),
        gpus=max(size.gpus for size in sizes),
        processes=max(size.processes for size in sizes),
    )


def _component(plan: Plan, site: Site | None, size: Size, names: tuple[str, ...]) -> Component:
    count = len(names) // size.processes
    per_node = plan.slurm.replicas_per_node
    if per_node is None and site is not None:
        known = site.gpu(plan.slurm.gpu_type)  # by any of its names
        gpu_type = known.name if known is not None else plan.slurm.gpu_type
        held = [size.fits(kind, gpu_type) for kind in kinds_for(plan, site)]
        per_node = min((number for number in held if number > 0), default=None)  # so that any node fits
    if per_node is None and (count == 1 or size.gpus or size.processes > 1):
        per_node = 1
    return Component(names, size, None if per_node is None else min(per_node, count))


def kinds_for(plan: Plan, site: Site) -> list[NodeKind]:
    """The kinds of nodes that the run may get."""
    wanted = plan.slurm.partition
    names = set(wanted.split(",")) if wanted else {part.name for part in site.partitions if part.is_default}
    there = [kind for kind in site.nodes if not names or not kind.partitions or names.intersection(kind.partitions)]
    return there or list(site.nodes)
