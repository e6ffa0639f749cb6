"""Who of a distributed training may say what.

Every process that knows its rank has series of its own, so each logs its own metrics. Processes that a replica started
itself and that were told no rank would write into one series: of those only the first one speaks. Params and models are
the same everywhere: the very first process tells them. A run that Phalanx did not start has one replica.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from phalanx.tracking.writer_identity import this_writer

GLOBAL_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


class RankDuties(NamedTuple):
    speaks: bool  # logs metrics
    leads: bool  # tells what is the same for all


def rank_duties(rank: int | None = None, size: int | None = None) -> RankDuties:
    """Of this process, whose library may know its rank among how many."""
    if rank is None or size is None:
        rank, size = _torch_ranks()
    if "PHALANX_TRACK" in os.environ and "PHALANX_OUTSIDE" not in os.environ:
        return _in_replica(rank, size)
    if rank is None:
        rank = next((_number(name) for name in GLOBAL_RANKS if name in os.environ), 0)
    return RankDuties(rank == 0, rank == 0)


def _in_replica(rank: int | None, size: int | None) -> RankDuties:
    if rank is None or size is None:
        is_first = _number("LOCAL_RANK") == 0
    else:
        per_replica = max(1, size // max(1, _number("PHALANX_WORLD_SIZE", 1)))
        is_first = rank % per_replica == 0
    seat = this_writer()
    has_own = "LOCAL_RANK" in os.environ or (seat is not None and seat.folder != os.environ["PHALANX_TRACK"])
    leads = is_first and not rank and _number("PHALANX_RANK") == 0 and (seat is None or seat.rank == 0)
    return RankDuties(has_own or is_first, leads)


def _torch_ranks() -> tuple[int | None, int | None]:
    """As PyTorch's process group knows them; nobody loads PyTorch for that."""
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    try:
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    except (AttributeError, RuntimeError, ValueError):
        pass
    return None, None


def _number(name: str, default: int = 0) -> int:
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default
