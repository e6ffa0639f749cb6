"""How the trials of a group become jobs on Slurm: each a job of its own, or packed into one allocation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from phalanx.backends.local.capacity import Capacity, requested_by
from phalanx.errors import CallError
from phalanx.plan.document import document
from phalanx.plan.model import Plan
from phalanx.sites.model import Site
from phalanx.sites.node_layout import kinds_for
from phalanx.sites.profile_writer import time_text
from phalanx.sites.request import asked_of
from phalanx.sites.time_checks import longest_job_s
from phalanx.spec.model import Search
from phalanx.stored_plan import decode_plan

PACKED = "packed"
SINGLE = "single"
DAY_S = 86_400.0
MANY_STARTS = 10.0  # jobs a minute: sites ask for packing above that
_LAYOUT = {"mem", "mem-per-cpu", "mem-per-gpu", "gres", "gpus", "gpus-per-node"}  # directives for one trial


class TrialJobs(NamedTuple):
    """`nodes`, `slots` (trials at a time on each node) and `time_s` are those of the allocation of packed trials."""

    trials: str
    why: str
    nodes: int = 0
    slots: int = 0
    time_s: float = 0.0

    @property
    def is_packed(self) -> bool:
        return self.trials == PACKED

    @property
    def allocation(self) -> dict[str, Any]:
        """As `group.json` keeps it."""
        return {name: value for name, value in self._asdict().items() if name != "trials"}

    @property
    def words(self) -> str:
        if not self.is_packed:
            return f"each run is a job: {self.why}"
        nodes = f"{self.nodes} nodes" if self.nodes > 1 else "1 node"
        size = f"a job of {nodes} for {time_text(self.time_s)}, {self.slots} at a time on each"
        return f"the runs are packed into {size}: {self.why}"


def trial_jobs(search: Search, made: Plan, site: Site | None, environment: Mapping[str, str]) -> TrialJobs:
    """Choose by the file, the length of a trial and the limits of the site. `made` is the plan of a trial. Raises
    CallError if the file asks for what is not possible."""
    written = search.slurm
    asked = written.get("trials") or (PACKED if written else None)
    hindrance = _hindrance(made, site)
    if asked == PACKED and hindrance is not None:
        raise CallError(f"the runs of this group cannot be packed into one job: {hindrance}; write `trials: {SINGLE}`")
    if asked == SINGLE or hindrance is not None:
        return TrialJobs(SINGLE, "the file says so" if asked == SINGLE else hindrance or "")
    reason = "the file says so" if asked == PACKED else _reason_to_pack(search, made, site)
    if reason is None:
        return TrialJobs(SINGLE, _reason_against(made))
    nodes = written.get("nodes") or _fewest_nodes(search.concurrency, made, site)
    nodes = min(nodes, search.concurrency)
    return TrialJobs(
        PACKED,
        reason,
        nodes=nodes,
        slots=math.ceil(search.concurrency / nodes),
        time_s=written.get("time") or _usual_time_s(made, site, environment),
    )


def read_trial_jobs(group: Mapping[str, Any]) -> TrialJobs | None:
    """From the content of `group.json`; None for trials that are jobs of their own."""
    found = group.get(PACKED)
    return TrialJobs(PACKED, **found) if isinstance(found, Mapping) else None


def share_of(made: Plan) -> Capacity:
    """What one trial requests."""
    return requested_by(decode_plan(document(made)))


def _hindrance(made: Plan, site: Site | None) -> str | None:
    """Why trials cannot be packed. A packed trial runs on one node, as on a machine without a scheduler."""
    if made.launch in ("mpirun", "srun"):
        return "srun starts the ranks of MPI"
    if made.python.image is not None:
        return "each run starts in a container"
    layout = sorted(_LAYOUT & dict(made.slurm.directives).keys())
    if layout:
        return f"`environment.slurm.directives.{layout[0]}` is for one run"
    per_node = made.slurm.replicas_per_node
    if per_node is not None and len(made.replicas) > per_node:
        return f"a run takes several nodes, with `replicas_per_node: {per_node}`"
    if site is not None and kinds_for(made, site) and not _slots_per_node(made, site):
        return "a run does not fit on one node of the site"
    return None


def _slots_per_node(made: Plan, site: Site) -> int:
    """How many trials fit on the largest node."""
    share, most = share_of(made), 0
    for kind in kinds_for(made, site):
        held = int(kind.cpus // max(share.cpus, 1e-9))
        if share.memory_mib:
            held = min(held, int(kind.memory_mib // share.memory_mib))
        if share.gpus:
            held = min(held, kind.gpus_of(made.slurm.gpu_type) // share.gpus)
        most = max(most, held)
    return most


def _fewest_nodes(concurrency: int, made: Plan, site: Site | None) -> int:
    held = _slots_per_node(made, site) if site is not None else 0
    return math.ceil(concurrency / held) if held else 1


def _reason_to_pack(search: Search, made: Plan, site: Site | None) -> str | None:
    if site is not None and site.max_submitted is not None and search.concurrency > site.max_submitted:
        return f"{site.name} accepts {site.max_submitted} jobs of a user"
    length_s = made.timeout_s
    if length_s is None:
        return None
    starts = search.concurrency * 60.0 / length_s
    if starts > MANY_STARTS:
        return f"runs of {time_text(length_s)}, {search.concurrency} at a time, are {starts:.0f} jobs a minute"
    least_s = max(site.min_time_s or 0.0, site.wanted_time_s or 0.0) if site is not None else 0.0
    if site is not None and length_s < least_s:
        return f"{site.name} wants jobs of at least {time_text(least_s)}, and a run takes {time_text(length_s)}"
    return None


def _reason_against(made: Plan) -> str:
    if made.timeout_s is not None:
        return f"a run may take {time_text(made.timeout_s)}"
    return "how long a run takes is not known; `environment.timeout` says it, `hptuning.slurm.trials` chooses"


def _usual_time_s(made: Plan, site: Site | None, environment: Mapping[str, str]) -> float:
    longest_s = longest_job_s(asked_of(made, site, environment)) if site is not None else None
    return min(DAY_S, made.slurm.segment_s or DAY_S, longest_s or DAY_S)
