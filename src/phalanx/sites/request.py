"""What a plan requests from a scheduler, in one value: times, names and components from all sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from phalanx.plan.model import Plan
from phalanx.sites import node_layout, slurm_output
from phalanx.sites.model import GpuKind, NodeKind, Partition, Site
from phalanx.sites.node_layout import Component


class SiteRequest(NamedTuple):
    """`time_s` is that of one job: of a segment, if the run has several."""

    plan: Plan
    site: Site
    parts: tuple[Component, ...]
    time_s: float | None
    account: str | None
    partitions: tuple[str, ...]
    qos: str | None
    gpu_type: str | None

    @property
    def gpus(self) -> int:
        return sum(part.size.gpus * part.replicas for part in self.parts)

    @property
    def gpu_kind(self) -> GpuKind | None:
        """The GPU type; the only one of the site, if the file sets none."""
        if self.gpu_type is not None:
            return self.site.gpu(self.gpu_type)
        whole = [kind for kind in self.site.gpus if not kind.is_mig]
        return whole[0] if len(whole) == 1 else None

    @property
    def partition_rows(self) -> list[Partition]:
        """The partitions that the job may run in, as far as the site describes them."""
        if self.partitions:
            return [part for part in self.site.partitions if part.name in self.partitions]
        default = [part for part in self.site.partitions if part.is_default]
        return default if self.site.partition != "forbidden" else list(self.site.partitions)

    @property
    def kinds(self) -> list[NodeKind]:
        """The kinds of nodes that the job may get."""
        return node_layout.kinds_for(self.plan, self.site)

    def gpus_in(self, kind: NodeKind) -> int:
        """Number of GPUs of the requested type in a node: one for a slice that no node lists; for a type unknown to the
        site, which is reported separately, the number of any type."""
        found = self.site.gpu(self.gpu_type) if self.gpu_type is not None else None
        if found is None:
            return kind.gpus_of(None)
        names = (found.name, *found.aliases)
        if found.is_mig and not any(node.gpus_of(name) for node in self.site.nodes for name in names):
            return min(1, kind.gpus)
        return max(kind.gpus_of(name) for name in names)

    def held(self, part: Component, kind: NodeKind) -> int:
        """Number of replicas of a component that one node of a kind holds."""
        size = part.size
        numbers = [kind.cpus // size.cpus]
        if size.memory_mib:
            numbers.append(int(kind.memory_mib // size.memory_mib))
        if size.gpus:
            numbers.append(self.gpus_in(kind) // size.gpus)
        return min(numbers)


def asked_of(plan: Plan, site: Site, environ: Mapping[str, str]) -> SiteRequest:
    """For sbatch, variables override the script, and the file's directives override the rest of the script."""
    slurm = plan.slurm
    own = dict(slurm.directives)
    times = [time for time in (plan.timeout_s, slurm.segment_s) if time is not None]
    time_s = min(times, default=None)
    if "time" in own:
        time_s = slurm_output.seconds(own["time"])
    if environ.get("SBATCH_TIMELIMIT"):
        time_s = slurm_output.seconds(environ["SBATCH_TIMELIMIT"])
    partition = environ.get("SBATCH_PARTITION") or own.get("partition") or slurm.partition
    return SiteRequest(
        plan=plan,
        site=site,
        parts=tuple(node_layout.components(plan, site)),
        time_s=time_s,
        account=environ.get("SBATCH_ACCOUNT") or own.get("account") or slurm.account,
        partitions=tuple(name for name in (partition or "").split(",") if name),
        qos=environ.get("SBATCH_QOS") or own.get("qos") or slurm.qos,
        gpu_type=slurm.gpu_type,
    )


def role_path(part: Component) -> str:
    """The path in the file of the resources of such replicas."""
    return resources_path(part.names[0].partition("-")[0])


def resources_path(role: str) -> str:
    if role in ("master", "chief", "scheduler"):
        return "environment.resources"
    return f"environment.replicas.default_{'ps' if role in ('ps', 'server') else 'worker'}.resources"


def component_name(part: Component) -> str:
    """A component in words: its first replica, and the number of the others."""
    return part.names[0].split(".")[0] + (f" and {part.replicas - 1} more" if part.replicas > 1 else "")
