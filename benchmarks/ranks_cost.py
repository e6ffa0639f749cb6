"""64 ranks that log at once on one machine: what a call costs each, beside 64 that only write; and nothing lost."""

from __future__ import annotations

import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from phalanx.store.series.run_series import RunSeries
from table import Beside, Of, Row, at_most

RANKS = 64
CALLS = 5_000
ROUNDS = 3
MOST_WRITES = 2.5


def one() -> None:
    """A rank: waits for the others, logs, says what a call cost it."""
    how, go = sys.argv[2], Path(sys.argv[3])
    if how == "phalanx":
        from phalanx import tracking

        run = tracking.start()
        run.log(loss=0.5, step=0)

        def log(step: int) -> None:
            run.log(loss=0.5, step=step)
    else:
        descriptor = os.open(os.environ["PHALANX_TRACK"] + "/bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        record = struct.pack("<2sBxIIqdId", b"xx", 3, 28, 0, 1, 0.0, 1, 0.5)

        def log(step: int) -> None:  # noqa: ARG001 - the same call
            os.write(descriptor, record)

    while not go.exists():
        time.sleep(0.005)
    used = time.process_time()
    for step in range(1, CALLS):
        log(step)
    print((time.process_time() - used) / CALLS * 1e6)


def together(how: str, base: Path) -> float:
    """The median of what a call cost the ranks, in CPU time: 64 of them share few cores."""
    go = base / "go"
    processes = []
    for rank in range(RANKS):
        folder = base / "replicas" / f"worker-{rank}" / "attempt-1"
        folder.mkdir(parents=True)
        environment = {**os.environ, "PHALANX_TRACK": str(folder), "PHALANX_RANK": str(rank), "PHALANX_RUN_ID": "x"}
        processes.append(
            subprocess.Popen(
                [sys.executable, __file__, "--one", how, str(go)], env=environment, stdout=subprocess.PIPE, text=True
            )
        )
    time.sleep(2.0)
    go.touch()
    return statistics.median(float(process.communicate()[0]) for process in processes)


def ranks() -> Iterator[Row]:
    costs: dict[str, list[float]] = {"bare": [], "phalanx": []}
    lost = 0
    for _ in range(ROUNDS):
        for how, found in costs.items():
            with tempfile.TemporaryDirectory() as name:
                found.append(together(how, Path(name)))
                if how == "phalanx":
                    lines = RunSeries(Path(name)).series("loss")
                    lost += RANKS * CALLS - sum(len(set(line.steps)) for line in lines)
    bare, ours = (statistics.median(found) / 1e6 for found in costs.values())
    floor = Beside("bare write", bare)
    yield Row(f"one log() of {RANKS} ranks at once, CPU", ours, "s", floor, aim=at_most(MOST_WRITES, Of.FLOOR))
    yield Row(f"points lost of {ROUNDS * RANKS * CALLS:,}", lost, "", aim=at_most(0))


PARTS = {"ranks": ranks}

if __name__ == "__main__":
    one()
