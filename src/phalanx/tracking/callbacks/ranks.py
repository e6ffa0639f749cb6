"""Decides which processes of a distributed training log metrics, params and models.

Every process that knows its rank has its own series, so each logs its own metrics. Processes that a replica started
itself without setting a rank would share one series: only the first of those logs. Params and models are
the same everywhere: only the very first process logs them. A run that Phalanx did not start has one replica.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from phalanx.launched_ranks import torch_rank
from phalanx.tracking.writer_identity import this_writer

GLOBAL_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


class RankDuties(NamedTuple):
    speaks: bool  # logs metrics
    leads: bool  # logs params and models


def rank_duties(rank: int | None = None, size: int | None = None) -> RankDuties:
    """The duties of this process. `rank`, `size`: as its library knows them."""
    if rank is None or size is None:
        rank, size = _torch_ranks()
    if "PHALANX_TRACK" in os.environ and "PHALANX_OUTSIDE" not in os.environ:
        return _in_replica(rank, size)
    if rank is None:
        rank = next((_number(name) for name in GLOBAL_RANKS if name in os.environ), 0)
    return RankDuties(rank == 0, rank == 0)


def _in_replica(rank: int | None, size: int | None) -> RankDuties:
    local = torch_rank().local
    if rank is None or size is None:
        is_first = not local
    else:
        per_replica = max(1, size // max(1, _number("PHALANX_WORLD_SIZE", 1)))
        is_first = rank % per_replica == 0
    writer = this_writer()
    has_own = local is not None or (writer is not None and writer.folder != os.environ["PHALANX_TRACK"])
    leads = is_first and not rank and _number("PHALANX_RANK") == 0 and (writer is None or writer.rank == 0)
    return RankDuties(has_own or is_first, leads)


def _torch_ranks() -> tuple[int | None, int | None]:
    """Rank and size of PyTorch's process group, without importing PyTorch."""
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
