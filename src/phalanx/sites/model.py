"""A site: the nodes, limits and policy of one cluster. Frozen values; None or empty where unknown."""

from __future__ import annotations

import re
from typing import NamedTuple

GPU_OPTIONS = ("gpus-per-node", "gres")
FORBIDDEN, OPTIONAL, REQUIRED = "forbidden", "optional", "required"
PARTITION_RULES = (FORBIDDEN, OPTIONAL, REQUIRED)
_SLICE = re.compile(r"[0-9]+g\.[0-9]+gb")


def is_slice(gpu_type: str) -> bool:
    """Whether a type is a MIG slice, by how NVIDIA names those: `a100_1g.5gb`."""
    return _SLICE.search(gpu_type) is not None


class NodeKind(NamedTuple):
    """Identical nodes. `count` is None where only their size is known; `other_gpus` are further types in the
    same node, such as MIG slices, each with its number."""

    count: int | None  # type: ignore[assignment] # what tuples count is of no use here
    cpus: int
    memory_mib: float
    gpus: int = 0
    gpu_type: str | None = None
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    other_gpus: tuple[tuple[str, int], ...] = ()

    def gpus_of(self, wanted: str | None) -> int:
        """Number of GPUs of a type in one such node; without a name, of its most common type."""
        kinds = ((self.gpu_type, self.gpus), *self.other_gpus)
        return max((count for name, count in kinds if wanted is None or name == wanted), default=0)


class Partition(NamedTuple):
    name: str
    max_time_s: float | None = None
    is_default: bool = False
    default_time_s: float | None = None
    min_time_s: float | None = None  # overrides that of the site
    max_nodes: int | None = None
    is_up: bool = True
    whole_nodes: bool = False
    accounts: tuple[str, ...] = ()  # the only ones allowed; empty: all
    qos: tuple[str, ...] = ()


class GpuKind(NamedTuple):
    """One GPU type: the cores and memory that the site allots per GPU, and whether it is a slice."""

    name: str
    cpus: float | None = None
    memory_mib: float | None = None
    is_mig: bool = False
    aliases: tuple[str, ...] = ()


class Qos(NamedTuple):
    name: str
    max_time_s: float | None = None
    max_gpus: int | None = None  # these limits are per user, over all jobs
    max_nodes: int | None = None
    max_cpus: int | None = None


class Site(NamedTuple):
    name: str
    title: str | None = None
    date: str | None = None  # when the facts were collected
    source: str | None = None
    nodes: tuple[NodeKind, ...] = ()
    partitions: tuple[Partition, ...] = ()
    gpus: tuple[GpuKind, ...] = ()
    qos: tuple[Qos, ...] = ()
    time_required: bool = False
    min_time_s: float | None = None  # shorter jobs are rejected
    wanted_time_s: float | None = None  # shorter jobs are discouraged
    max_time_s: float | None = None
    time_steps_s: tuple[float, ...] = ()  # a job below one of them can run on more nodes
    account_required: bool = False
    accounts: tuple[str, ...] = ()
    partition: str = OPTIONAL
    gpu_type_required: bool = False
    gpu_option: str = "gpus-per-node"
    gpu_multiple: int | None = None  # one GPU, or a multiple of this
    one_mig_per_job: bool = False
    whole_nodes: bool = False
    het_jobs: bool = True
    default_memory_mib: float | None = None  # per core, if a job requests none
    max_jobs: int | None = None  # running
    max_submitted: int | None = None  # pending and running
    submit_interval_s: float = 0.0
    internet: bool | None = None
    node_ssh: bool = True  # whether users can log in to the nodes of their jobs
    scratch: str | None = None  # the variable that holds the path of node-local storage
    writable: tuple[str, ...] = ()  # variables that hold the only writable folders of nodes; empty: all
    interface: str | None = None
    wheelhouse: str | None = None  # folders of wheels, joined by `:`
    modules: tuple[str, ...] = ()  # load these to get Python, in this order
    notes: tuple[str, ...] = ()

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """Every known GPU type, by its first name."""
        named = [kind.name for kind in self.gpus]
        for node in self.nodes:
            named += [name for name in (node.gpu_type, *(name for name, _ in node.other_gpus)) if name]
        return tuple(dict.fromkeys(named))

    def gpu(self, name: str | None) -> GpuKind | None:
        """The GPU type with that name or alias."""
        found = next((kind for kind in self.gpus if name in (kind.name, *kind.aliases)), None)
        return found or (GpuKind(name, is_mig=is_slice(name)) if name in self.gpu_types and name else None)
