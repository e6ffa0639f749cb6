"""How the benchmarks measure: whole commands, interleaved with their floor, and medians: no machine is quiet."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from table import ROOT

PYTHON = [sys.executable]
PHALANX = [str(Path(sys.executable).with_name("phalanx"))]

__all__ = ["PHALANX", "PYTHON", "ROOT", "Cost", "command_cost", "interleaved"]


class Cost(NamedTuple):
    """What a command and the processes that it waited for took."""

    cpu_s: float
    wall_s: float
    peak_mib: float
    code: int


def command_cost(command: Sequence[str], *, cwd: Path | None = None, may_fail: bool = False) -> Cost:
    """Of one run of a command. A failing command is fast, so it is an error unless it may fail."""
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL if may_fail else None) as process:  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not may_fail:
        raise subprocess.CalledProcessError(process.returncode, list(command))
    wall_s = time.perf_counter() - began
    return Cost(used.ru_utime + used.ru_stime, wall_s, used.ru_maxrss / 1024, process.returncode)


def interleaved(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, Cost]:
    """The medians of each command, all of them run in turn so that noise meets them alike. ROUNDS=1 is a quick look."""
    rounds = int(os.environ.get("ROUNDS", rounds))
    seen: dict[str, list[Cost]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            cost = command_cost(command)
            if turn:  # the first one warms the page cache
                seen[name].append(cost)
    return {name: Cost(*(statistics.median(column) for column in zip(*costs, strict=True)))
            for name, costs in seen.items()}  # fmt: skip
