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

from phalanx.launched_ranks import is_recorded, mpi_rank, number, torch_rank


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
    if environment.get("PHALANX_LAUNCH"):
        return _of_whole_run(own, environment)
    return _of_replica(own, environment)


def _of_whole_run(own: WriterIdentity, environment: Mapping[str, str]) -> WriterIdentity:
    """The launcher of the user starts the processes of all replicas."""
    launched = mpi_rank(environment)
    name = None if launched is None else _name_of(launched.rank, environment.get("PHALANX_CLUSTER", ""))
    return own if launched is None or name is None else _beside(own, name, launched.rank)


def _of_replica(own: WriterIdentity, environment: Mapping[str, str]) -> WriterIdentity:
    """The command of a replica may run a launcher for itself."""
    replica = os.path.basename(os.path.dirname(own.folder))
    rank, local = torch_rank(environment)
    launched = mpi_rank(environment) if is_recorded(environment) else None
    if launched is not None:
        if local is None or rank is None:  # else torchrun, in a task of mpirun or srun
            return _beside(own, _numbered(replica, launched.rank), own.rank * launched.size + launched.rank)
        return _beside(own, _numbered(replica, rank), rank)
    if local is not None and rank is not None:
        own = own._replace(rank=rank)  # torchrun in a replica counts all processes of all replicas
    if local is None or local == (number(environment.get("PHALANX_LOCAL_RANK")) or 0):
        return own
    # without a rank: Lightning's launcher only numbers the processes of a node
    return _beside(own, _numbered(replica, local), own.rank + local if rank is None else rank)


def _numbered(replica: str, number: int) -> str:
    return f"{replica}.{number}" if number else replica


def _beside(own: WriterIdentity, name: str, rank: int) -> WriterIdentity:
    """The identity with that name, next to the replica whose command started the process."""
    replica, attempt = os.path.split(own.folder)
    if name == os.path.basename(replica):
        return own._replace(rank=rank)
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
