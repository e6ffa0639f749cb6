"""Capacity of this machine, and the requests of runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from phalanx.stored_plan import StoredPlan

REPORTED_S = 10.0  # for which an answer of nvidia-smi counts
DEFAULT_CPUS = 1.0  # of a replica without a request: a thousand of them must not start at once


class Capacity(NamedTuple):
    """CPUs, MiB of memory, and GPUs."""

    cpus: float
    memory_mib: float
    gpus: int

    def __add__(self, other: object) -> Capacity:
        assert isinstance(other, Capacity)
        return Capacity(self.cpus + other.cpus, self.memory_mib + other.memory_mib, self.gpus + other.gpus)

    def fits_in(self, room: Capacity) -> bool:
        return all(mine <= theirs + 1e-9 for mine, theirs in zip(self, room, strict=True))


NOTHING = Capacity(0.0, 0.0, 0)


def requested_by(plan: StoredPlan) -> Capacity:
    """The sum of the requests of all replicas of a plan."""
    total = NOTHING
    for replica in plan.replicas:
        cpus = replica.amount("cpu").reserved
        memory_mib, gpus = replica.amount("memory").reserved or 0.0, int(replica.amount("gpu").reserved or 0)
        total += Capacity(DEFAULT_CPUS if cpus is None else cpus, memory_mib, gpus)
    return total


def allocate(gpus: Sequence[str], busy: Collection[str], plan: StoredPlan) -> dict[str, list[str]]:
    """Assign GPUs to the replicas of a plan, none twice while there are enough; empty on a machine without GPUs."""
    if not gpus:
        return {}
    free = [gpu for gpu in gpus if gpu not in busy]
    given: dict[str, list[str]] = {}
    for replica in plan.replicas:
        if replica.local:  # it shares the GPUs of its replica's first process and selects one by its local rank
            given[replica.name] = given[replica.first_process]
            continue
        count = int(replica.amount("gpu").reserved or 0)
        shared = [gpu for gpu in gpus if gpu not in free]
        given[replica.name] = [*free, *shared][:count]
        free = free[count:]
    return given


def this_machine() -> tuple[Capacity, tuple[str, ...]]:
    """The capacity of this machine, and the names of its GPUs."""
    gpus = _gpu_names()
    memory_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024.0**2
    return Capacity(float(len(os.sched_getaffinity(0))), memory_mib, len(gpus)), gpus


def _gpu_names() -> tuple[str, ...]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(name.strip() for name in visible.split(",") if name.strip() not in ("", "-1", "none"))
    program = shutil.which("nvidia-smi")
    return () if program is None else _reported_gpus(program, int(time.monotonic() // REPORTED_S))


@lru_cache(maxsize=1)  # submissions of many runs ask for each of them
def _reported_gpus(program: str, moment: int) -> tuple[str, ...]:  # noqa: ARG001 - an answer is for its moment only
    query = [program, "--query-gpu=index", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in answer.stdout.decode().splitlines() if line.strip())


def excess(asked: Capacity, room: Capacity) -> str | None:
    """The part of a request that exceeds the capacity, in words; None when it fits."""
    parts = []
    if asked.cpus > room.cpus + 1e-9:
        parts.append(f"{asked.cpus:g} CPU{'' if asked.cpus == 1 else 's'} of {room.cpus:g}")
    if asked.memory_mib > room.memory_mib + 1e-9:
        parts.append(f"{asked.memory_mib / 1024:.1f} GiB of memory of {room.memory_mib / 1024:.1f}")
    if asked.gpus > room.gpus:
        parts.append(f"{asked.gpus} GPU{'' if asked.gpus == 1 else 's'} of {room.gpus}")
    return ", ".join(parts) or None
