"""Identifies which series of a run this process writes.

A replica's agent sets the path for its command. Processes that the command starts itself (with mpirun, torchrun)
inherit it: they get their rank from their own launcher and write beside it, each for its own rank.
Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import NamedTuple

LAUNCHED_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "HOROVOD_RANK", "SLURM_PROCID")


class WriterIdentity(NamedTuple):
    folder: str  # of the replica's attempt
    rank: int
    has_agent: bool  # an agent syncs the files to disk


def this_writer(environment: Mapping[str, str] = os.environ) -> WriterIdentity | None:
    """The identity of this process; None outside of a run."""
    folder = environment.get("PHALANX_TRACK")
    if not folder:
        return None
    has_agent = "PHALANX_OUTSIDE" not in environment
    own = WriterIdentity(folder, number(environment.get("PHALANX_RANK")) or 0, has_agent)
    if not has_agent:
        return own
    rank: int | None
    name: str | None
    if environment.get("PHALANX_LAUNCH"):
        rank = next((found for name in LAUNCHED_RANKS if (found := number(environment.get(name))) is not None), None)
        name = None if rank is None else _name_of(rank, environment.get("PHALANX_CLUSTER", ""))
    else:
        local = number(environment.get("LOCAL_RANK"))
        rank = number(environment.get("RANK"))
        if local is not None and rank is not None:
            own = own._replace(rank=rank)  # torchrun in a replica counts all processes of all replicas
        is_other = local is not None and local != (number(environment.get("PHALANX_LOCAL_RANK")) or 0)
        name = f"{os.path.basename(os.path.dirname(folder))}.{local}" if is_other else None
        if rank is None:
            rank = own.rank + (local or 0)  # no rank set: Lightning's launcher only numbers the processes of a node
    replica, attempt = os.path.split(folder)
    if name is None or rank is None or name == os.path.basename(replica):
        return own
    return WriterIdentity(os.path.join(os.path.dirname(replica), name, attempt), rank, has_agent=False)


def _name_of(rank: int, cluster: str) -> str | None:
    """The replica of that rank, counted over the roles; None when the cluster is unknown."""
    try:
        roles = json.loads(cluster)
        names = [f"{role}-{index}" for role, places in roles.items() for index in range(len(places))]
    except (ValueError, TypeError, AttributeError):
        return None
    if rank < len(names):
        return names[rank]
    return f"{names[0]}.{rank}" if names else None


def number(text: str | None) -> int | None:
    """A non-negative whole number, or None."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None
