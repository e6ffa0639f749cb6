"""The rank that a launcher (mpirun, srun, torchrun) gave to a process of a replica.

A run may be submitted from a task of such a launcher, and inherits its variables. The agent therefore records the
variables that a command starts with: only a launcher that the command itself runs changes them.
Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import NamedTuple

AT_START = "PHALANX_RANKS_AT_START"


class Launcher(NamedTuple):
    rank: str
    size: str | None
    marks: tuple[str, ...]  # differ between two jobs of the launcher, whose ranks may be the same number


MPI_LAUNCHERS = (
    Launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    Launcher("PMIX_RANK", None, ("PMIX_NAMESPACE",)),
    Launcher("PMI_RANK", "PMI_SIZE", ("PMI_JOBID", "PMI_PORT", "PMI_FD")),
    Launcher("HOROVOD_RANK", "HOROVOD_SIZE", ("HOROVOD_GLOO_RENDEZVOUS_PORT",)),
    Launcher("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)
TORCH = ("RANK", "LOCAL_RANK", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE")
VARIABLES = tuple(
    dict.fromkeys([*TORCH, *(name for one in MPI_LAUNCHERS for name in (one.rank, one.size, *one.marks) if name)])
)


class LaunchedRank(NamedTuple):
    """`rank` counts the processes of the launcher, `size` is their number, if it says so."""

    rank: int
    size: int


class TorchRank(NamedTuple):
    """As torchrun and others set them: `rank` over all nodes, `local` on one; Lightning sets only `local`."""

    rank: int | None = None
    local: int | None = None


def record(environment: Mapping[str, str]) -> str:
    """The value of AT_START for a command that starts with these variables."""
    return json.dumps({name: environment[name] for name in VARIABLES if name in environment})


def mpi_rank(environment: Mapping[str, str] = os.environ) -> LaunchedRank | None:
    """The rank from the first launcher that set one; with a record, only from one that the command ran."""
    before = _at_start(environment)
    for one in MPI_LAUNCHERS:
        rank = number(environment.get(one.rank))
        if rank is not None and _is_changed((one.rank, *one.marks), environment, before):
            return LaunchedRank(rank, number(environment.get(one.size or "")) or 1)
    return None


def torch_rank(environment: Mapping[str, str] = os.environ) -> TorchRank:
    """The ranks of a process of torchrun, in the same way."""
    if not _is_changed(TORCH, environment, _at_start(environment)):
        return TorchRank()
    return TorchRank(number(environment.get("RANK")), number(environment.get("LOCAL_RANK")))


def is_recorded(environment: Mapping[str, str] = os.environ) -> bool:
    return _at_start(environment) is not None


def number(text: str | None) -> int | None:
    """A non-negative whole number, or None."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


def _at_start(environment: Mapping[str, str]) -> Mapping[str, str] | None:
    """None: no agent, or one of an earlier version, started the command."""
    try:
        found = json.loads(environment[AT_START])
    except (KeyError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _is_changed(names: tuple[str, ...], environment: Mapping[str, str], before: Mapping[str, str] | None) -> bool:
    return before is None or any(environment.get(name) != before.get(name) for name in names)
