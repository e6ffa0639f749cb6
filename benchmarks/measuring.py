"""How the benchmarks measure: whole commands, interleaved with their floor, and medians: no machine is quiet."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = [sys.executable]
PHALANX = [str(Path(sys.executable).with_name("phalanx"))]


def run_s(command: Sequence[str]) -> float:
    """Seconds of one run of a command. Raises when it fails: a failing command is fast."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def interleaved_s(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, float]:
    """The median seconds of each command, all of them run in turn so that noise meets them alike."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        run_s(command)  # warm the page cache
    for _ in range(rounds):
        for name, command in commands.items():
            times[name].append(run_s(command))
    return {name: statistics.median(values) for name, values in times.items()}


def children_peak_mib() -> float:
    """The largest resident size of any command run so far."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def report(what: str, value: str, target: str, *, met: bool) -> None:
    print(f"{what:<58} {value:>14}   target {target:<12} {'met' if met else 'MISSED'}")
