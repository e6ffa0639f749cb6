"""A site: what one cluster has, allows and asks for. Frozen values; None and empty where nobody has said."""

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
    """Nodes that are alike. `count` is None where only their size is known; `other_gpus` are further types in the
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
        """How many GPUs of a type one such node has; of any one type without a name."""
        kinds = ((self.gpu_type, self.gpus), *self.other_gpus)
        return max((count for name, count in kinds if wanted is None or name == wanted), default=0)


class Partition(NamedTuple):
    name: str
    max_time_s: float | None = None
    is_default: bool = False
    default_time_s: float | None = None
    min_time_s: float | None = None  # instead of the site's
    max_nodes: int | None = None
    is_up: bool = True
    whole_nodes: bool = False
    accounts: tuple[str, ...] = ()  # that alone may use it; empty: all
    qos: tuple[str, ...] = ()


class GpuKind(NamedTuple):
    """One type of GPU: the cores and memory that the site counts with one, and whether it is a slice of a GPU."""

    name: str
    cpus: float | None = None
    memory_mib: float | None = None
    is_mig: bool = False
    aliases: tuple[str, ...] = ()


class Qos(NamedTuple):
    name: str
    max_time_s: float | None = None
    max_gpus: int | None = None  # of one user, over all jobs; so are the others
    max_nodes: int | None = None
    max_cpus: int | None = None


class Site(NamedTuple):
    name: str
    title: str | None = None
    date: str | None = None  # when its facts were looked at
    source: str | None = None
    nodes: tuple[NodeKind, ...] = ()
    partitions: tuple[Partition, ...] = ()
    gpus: tuple[GpuKind, ...] = ()
    qos: tuple[Qos, ...] = ()
    time_required: bool = False
    min_time_s: float | None = None  # shorter is refused
    wanted_time_s: float | None = None  # shorter is frowned upon
    max_time_s: float | None = None
    time_steps_s: tuple[float, ...] = ()  # a job that stays below one of them may run on more nodes
    account_required: bool = False
    accounts: tuple[str, ...] = ()
    partition: str = OPTIONAL
    gpu_type_required: bool = False
    gpu_option: str = "gpus-per-node"
    gpu_multiple: int | None = None  # one GPU, or a multiple of so many
    one_mig_per_job: bool = False
    whole_nodes: bool = False
    het_jobs: bool = True
    default_memory_mib: float | None = None  # for each core, where a job asks for none
    max_jobs: int | None = None  # running
    max_submitted: int | None = None  # waiting and running
    submit_interval_s: float = 0.0
    internet: bool | None = None
    scratch: str | None = None  # a variable with node-local storage
    writable: tuple[str, ...] = ()  # variables with the only folders that nodes may write to; empty: all
    interface: str | None = None
    wheelhouse: str | None = None  # folders of wheels, joined by `:`
    modules: tuple[str, ...] = ()  # to load for a Python, in this order
    notes: tuple[str, ...] = ()

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """Every type of GPU that is known here, by its first name."""
        named = [kind.name for kind in self.gpus]
        for node in self.nodes:
            named += [name for name in (node.gpu_type, *(name for name, _ in node.other_gpus)) if name]
        return tuple(dict.fromkeys(named))

    def gpu(self, name: str | None) -> GpuKind | None:
        """What is known of a type, also by another of its names."""
        found = next((kind for kind in self.gpus if name in (kind.name, *kind.aliases)), None)
        return found or (GpuKind(name, is_mig=is_slice(name)) if name in self.gpu_types and name else None)
