"""How the trials of a group become jobs on Slurm: each a job, tasks of arrays, or packed into an allocation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from phalanx.errors import CallError
from phalanx.home.group_folder import ARRAY, PACKED, SINGLE
from phalanx.plan.model import Plan
from phalanx.sites.model import Site
from phalanx.sites.node_layout import components, kinds_for
from phalanx.sites.profile_writer import time_text
from phalanx.sites.request import asked_of
from phalanx.sites.time_checks import longest_job_s
from phalanx.spec.model import Search
from phalanx.submission.earlier_times import EarlierTimes, requested
from phalanx.tune.rungs import hyperband_trials

DAY_S = 86_400.0
MANY_STARTS = 10.0  # jobs a minute: sites ask for packing above that
MOST_AHEAD = 1000  # runs in arrays that wait: as many tasks as Slurm allows by default
IN_ADVANCE = ("grid_search", "random_search", "hyperband")  # these know many runs before the first one has ended
_LAYOUT = {"mem", "mem-per-cpu", "mem-per-gpu", "gres", "gpus", "gpus-per-node"}  # directives for one trial
_BY_FILE = "the file says so"


class TrialJobs(NamedTuple):
    """`nodes`, `slots` (trials at a time on each node) and `time_s` are those of the allocation of packed trials.
    `ahead`: how many runs may wait in arrays."""

    trials: str
    why: str
    nodes: int = 0
    slots: int = 0
    time_s: float = 0.0
    ahead: int = 0

    @property
    def is_packed(self) -> bool:
        return self.trials == PACKED

    @property
    def settings(self) -> dict[str, Any]:
        """As `group.json` keeps it."""
        if self.trials == SINGLE:
            return {}
        return {self.trials: {name: value for name, value in self._asdict().items() if name != "trials" and value}}

    def as_json(self) -> dict[str, Any]:
        """For `--json` of commands."""
        kept = next(iter(self.settings.values()), {"why": self.why})
        return {"trials": self.trials, **{name: value for name, value in kept.items() if name != "ahead"}}

    @property
    def words(self) -> str:
        if self.trials == ARRAY:
            return f"the runs are tasks of job arrays: {self.why}"
        if not self.is_packed:
            return f"each run is a job: {self.why}"
        nodes = f"{self.nodes} nodes" if self.nodes > 1 else "1 node"
        size = f"a job of {nodes} for {time_text(self.time_s)}, {self.slots} at a time on each"
        return f"the runs are packed into {size}: {self.why}"


class _Length(NamedTuple):
    """How long a run takes, and how that is known."""

    seconds: float
    words: str


def trial_jobs(
    search: Search,
    made: Plan,
    site: Site | None,
    environment: Mapping[str, str],
    earlier: EarlierTimes | None = None,
) -> TrialJobs:
    """Choose by the file, the length of a trial and the limits of the site. `made`: the plan of a trial. `earlier`: the
    times of earlier ones. Raises CallError if the file asks for what is not possible."""
    asked = search.slurm.get("trials") or (PACKED if search.slurm else None)
    hindrances = {PACKED: _hindrance(made, site), ARRAY: _against_arrays(search, made, site), SINGLE: None}
    if asked is not None and hindrances[asked] is not None:
        cannot = "cannot be packed into one job" if asked == PACKED else "cannot be tasks of arrays"
        raise CallError(f"the runs of this group {cannot}: {hindrances[asked]}; write `trials: {SINGLE}`")
    length = _length(made, earlier)
    reason = _BY_FILE if asked == PACKED else _reason_to_pack(search, length, site)
    if asked == PACKED or (asked is None and reason is not None and hindrances[PACKED] is None):
        return _packed(search, made, site, environment, reason or "")
    not_packed = hindrances[PACKED] or _reason_against(length)
    if asked == ARRAY or (asked is None and hindrances[ARRAY] is None):
        most = site.max_submitted if site is not None and site.max_submitted is not None else MOST_AHEAD
        why = _BY_FILE if asked == ARRAY else f"all of them are known in advance; {not_packed}"
        return TrialJobs(ARRAY, why, ahead=min(MOST_AHEAD, most))
    return TrialJobs(SINGLE, _BY_FILE if asked == SINGLE else f"{hindrances[ARRAY]}; {not_packed}")


def _packed(search: Search, made: Plan, site: Site | None, environment: Mapping[str, str], reason: str) -> TrialJobs:
    nodes = search.slurm.get("nodes") or _fewest_nodes(search.concurrency, made, site)
    nodes = min(nodes, search.concurrency)
    return TrialJobs(
        PACKED,
        reason,
        nodes=nodes,
        slots=math.ceil(search.concurrency / nodes),
        time_s=search.slurm.get("time") or _usual_time_s(made, site, environment),
    )


def read_trial_jobs(group: Mapping[str, Any]) -> TrialJobs | None:
    """From the content of `group.json`; None for trials that are jobs of their own."""
    for way in (PACKED, ARRAY):
        if isinstance(group.get(way), Mapping):
            return TrialJobs(way, **group[way])
    return None


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
    share, most = requested(made), 0
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


def _against_arrays(search: Search, made: Plan, site: Site | None) -> str | None:
    """Why trials cannot be tasks of arrays."""
    if search.algorithm not in IN_ADVANCE:
        return f"the runs of {search.algorithm} follow from the results of others"
    size = search.size
    if search.algorithm == "hyperband":
        size = hyperband_trials(search.settings["max_iter"], search.settings["eta"])
    if size is not None and size * search.repeats < 2:
        return "there is only one run"
    if len(components(made, site)) > 1:
        return "Slurm has no arrays of heterogeneous jobs"
    if "array" in dict(made.slurm.directives):
        return "`environment.slurm.directives.array` is for one run"
    return None


def _length(made: Plan, earlier: EarlierTimes | None) -> _Length | None:
    """How long a run takes: by earlier runs of the same command, or else at most, by its limit."""
    if earlier is not None:
        seconds = earlier.seconds / earlier.runs
        runs = f"{earlier.runs} earlier runs" if earlier.runs > 1 else "an earlier run"
        return _Length(seconds, f"{_time(seconds)} on average in {runs}")
    return None if made.timeout_s is None else _Length(made.timeout_s, f"{_time(made.timeout_s)} at most")


def _time(seconds: float) -> str:
    return time_text(math.ceil(seconds))


def _reason_to_pack(search: Search, length: _Length | None, site: Site | None) -> str | None:
    if site is not None and site.max_submitted is not None and search.concurrency > site.max_submitted:
        return f"{site.name} accepts {site.max_submitted} jobs of a user"
    if length is None:
        return None
    starts = search.concurrency * 60.0 / max(length.seconds, 0.1)
    if starts > MANY_STARTS:
        return f"runs of {length.words}, {search.concurrency} at a time, are {starts:.0f} jobs a minute"
    least_s = max(site.min_time_s or 0.0, site.wanted_time_s or 0.0) if site is not None else 0.0
    if site is not None and length.seconds < least_s:
        return f"{site.name} wants jobs of at least {time_text(least_s)}, and a run takes {length.words}"
    return None


def _reason_against(length: _Length | None) -> str:
    if length is not None:
        return f"a run takes {length.words}"
    return "how long a run takes is not known; `environment.timeout` says it, `hptuning.slurm.trials` chooses"


def _usual_time_s(made: Plan, site: Site | None, environment: Mapping[str, str]) -> float:
    longest_s = longest_job_s(asked_of(made, site, environment)) if site is not None else None
    return min(DAY_S, made.slurm.segment_s or DAY_S, longest_s or DAY_S)
