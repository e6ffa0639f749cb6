"""The allocation of a packed group: a run whose nodes run the trials, with the group's search on the first of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any

from phalanx.errors import CallError
from phalanx.home.group_folder import allocation_id
from phalanx.placeholders import OwnValues, is_safe
from phalanx.plan import make, replica_variables
from phalanx.plan.framework_checks import load
from phalanx.plan.model import Member, Plan, Replica
from phalanx.sites.model import Site
from phalanx.spec import Spec
from phalanx.spec.model import Amount, ReplicaSettings, Resources
from phalanx.spec.tree import Node
from phalanx.store.filesystems import filesystem_of, is_network, read_mountinfo
from phalanx.submission.earlier_times import EarlierTimes, requested
from phalanx.submission.trial_jobs import TrialJobs, trial_jobs

ROLE = "master"
OWN_MIB = 256.0  # of memory on each node, for the processes that run the trials
_COMMAND = (
    "python={python}; \"$python\" -c 'import phalanx' || "
    '{{ echo "phalanx: $(hostname) cannot use the Python of Phalanx, $python: install Phalanx where the nodes see it, '
    'or write hptuning.slurm.trials: single"; exit 78; }}; exec "$python" -m phalanx.scheduler.packed {home} {group}'
)


def jobs_of_group(  # noqa: PLR0913, PLR0917 - what the choice depends on
    home: Path,
    group: Spec,
    trial: Plan,
    site: Site | None,
    environment: Mapping[str, str],
    earlier: EarlierTimes | None = None,
) -> tuple[TrialJobs, Plan]:
    """How the trials of a group become jobs on Slurm, and the plan that is submitted: that of a trial, or that of the
    allocation. `trial`: the plan of its first suggestion, with the id of the group. `earlier`: how long earlier runs of
    the same command took. Raises CallError."""
    assert group.search is not None
    jobs = trial_jobs(group.search, trial, site, environment, earlier)
    if not jobs.is_packed:
        return jobs, trial
    spec, _ = allocation_spec(home, trial.run_id, group.name)
    return jobs, allocation_plan(spec, trial.run_id, trial, jobs)


def unshared_python(home: Path) -> str | None:
    """A warning if the nodes may not see the Python that runs the search there; None if they see it, or nothing is
    known: the home is on no network filesystem that this Python could be on, too."""
    place = Path(sys.prefix)
    mounts = read_mountinfo(place)
    if not is_network(filesystem_of(home, mounts)) or is_network(filesystem_of(place, mounts)):
        return None
    return (
        f"Phalanx is installed in {place}, on a disk of this machine: packed runs need it on the nodes, too; "
        "install it on a shared filesystem, or write `hptuning.slurm.trials: single`"
    )


def allocation_spec(home: Path, group_id: str, name: str | None) -> tuple[Spec, Node]:
    """What the allocation of a group runs. Raises CallError for paths that cannot be passed to a shell."""
    for path in (sys.executable, str(home)):
        if not is_safe(path):
            raise CallError(f"{path!r} has quotes or other characters that cannot be passed to a job of packed runs")
    words = {"python": sys.executable, "home": str(home), "group": group_id}
    command = _COMMAND.format(**{key: quote(word) for key, word in words.items()})
    written: dict[str, Any] = {"version": 1, "kind": "job", "run": {"cmd": command}}
    if name:
        written["name"] = f"{name}-allocation"
    return load([("allocation", json.dumps(written).encode())], {})


def allocation_plan(spec: Spec, group_id: str, trial: Plan, jobs: TrialJobs, project: str = "default") -> Plan:
    """Each node is one replica, as large as its slots. `spec`: as above; `trial`: the plan of a trial."""
    made = make(spec, allocation_id(group_id), project)
    size = ReplicaSettings(resources=_resources(trial, jobs.slots))
    roles = MappingProxyType({ROLE: jobs.nodes})
    shared = {
        **made.shared,
        "PHALANX_WORLD_SIZE": str(jobs.nodes),
        "PHALANX_CLUSTER": replica_variables.cluster(roles),
    }
    first = replace(made.replicas[0], role=ROLE, settings=size)
    environment = replica_variables.environment(Member(ROLE, 0, 0), first.environment)
    return replace(
        made,
        roles=roles,
        replicas=tuple(_node(first, environment, number) for number in range(jobs.nodes)),
        shared=MappingProxyType(shared),
        totals=_resources(trial, jobs.slots * jobs.nodes),
        slurm=trial.slurm._replace(replicas_per_node=1, segment_s=jobs.time_s, layout=None),
        python=trial.python,
        build=trial.build,
        collect=None,
    )


def _node(first: Replica, environment: OwnValues, number: int) -> Replica:
    own = OwnValues(environment.template, Member(ROLE, number, number, number))
    return replace(first, index=number, rank=number, environment=own)


def _resources(trial: Plan, slots: int) -> Resources:
    """What so many trials request."""
    share, memory = requested(trial), trial.totals.memory
    memory_mib = (memory.limits if memory.limits is not None else memory.requests) if memory is not None else None
    return Resources(
        cpu=_amount(share.cpus * slots),
        memory=None if memory_mib is None else _amount(memory_mib * slots + OWN_MIB),
        gpu=_amount(share.gpus * slots) if share.gpus else None,
    )


def _amount(number: float) -> Amount:
    return Amount(number, number)
