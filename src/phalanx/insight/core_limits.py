"""Trials on one machine: limits each to its requested cores, and measures whether other work used them."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from phalanx.insight.advice import DEFAULT_CORES
from phalanx.stored_plan import StoredPlan


def held_to_cores(
    document: Mapping[str, Any], plan: StoredPlan, cores: Sequence[int], taskset: str
) -> dict[str, Any] | None:
    """A file whose replicas are each pinned to as many cores as they request, without overlap. On a cluster the
    scheduler does that; locally there is no other limit. None when it is not possible: too few cores, or ranks that a
    launcher starts. `taskset` is the path of that program."""
    if plan.launch != "each":
        return None
    free, sets = list(cores), {}
    for replica in plan.replicas:
        if replica.local:
            continue
        asked = replica.amount("cpu").reserved
        count = max(1, math.ceil(DEFAULT_CORES if asked is None else asked))
        if count > len(free):
            return None
        sets[replica.name] = ",".join(map(str, free[:count]))
        free = free[count:]
    hold = f"{shlex.quote(taskset)} -cp"
    if len(sets) == 1:
        line = f"{hold} {next(iter(sets.values()))} $$ > /dev/null"
    else:
        cases = " ".join(f"{name}) {hold} {listed} $$;;" for name, listed in sets.items())
        line = f"case $PHALANX_ROLE-$PHALANX_INDEX in {cases} esac > /dev/null"
    run = document.get("run")
    if not isinstance(run, dict):  # the whole section may be a template
        return None
    if isinstance(run.get("script"), str):
        return {**document, "run": {"script": f"{line} || exit 1\n{run['script']}"}}
    if "cmd" not in run:
        return None
    command = run["cmd"]
    return {**document, "run": {"cmd": [line, *(command if isinstance(command, list) else [command])]}}


_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE = (3, 4)  # columns of /proc/stat: idle, and waiting for disks
_COUNTED_TWICE = (8, 9)  # guest time is already included in the first columns


def busy_s(cores: Collection[int], stat: Path = Path("/proc/stat")) -> float | None:
    """Busy seconds of these cores since boot, summed over all processes; None where the system does not report it."""
    total = 0
    try:
        for line in stat.read_text().splitlines():
            name, *columns = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
                total += sum(
                    int(ticks) for place, ticks in enumerate(columns) if place not in (*_IDLE, *_COUNTED_TWICE)
                )
    except (OSError, ValueError):
        return None
    return total / _TICKS if total else None
