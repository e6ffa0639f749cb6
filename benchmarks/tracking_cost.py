"""What one logged value costs the training, beside one bare `write` and beside other trackers.

Peers are those that the Python in PEERS has (`make bench-trackers` installs them). Every tool logs in a process and a
folder of its own; rounds are interleaved, and figures are medians of rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from table import Beside, Of, Row, at_most

SCRIPT = Path(__file__).with_name("track_one.py")
CALLS = {"bare": 50_000, "phalanx": 50_000, "tensorboardx": 50_000, "trackio": 20_000, "dvclive": 3_000, "aim": 10_000}
CALLS |= {"wandb": 20_000, "mlflow": 300}
# How many times less than theirs ours must be, counted until everything is on the disk.
FACTORS = {"trackio": 8, "tensorboardx": 8, "aim": 40, "wandb": 100, "mlflow": 1_000}
MOST_WRITES = 2.5
MOST_IMPORT_MS = 40.0
ROUNDS = 5
IMPORT = "from phalanx.tracking import log"

Cost = dict[str, float]


def measure(tool: str, python: str) -> Cost | None:
    """None when that Python does not have the tool."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PHALANX_HOME": folder,
            "TRACKIO_DIR": folder,
            "WANDB_SILENT": "true",
            "HF_HUB_OFFLINE": "1",
            "AIM_TELEMETRY_OPT_OUT": "1",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        answer = subprocess.run(
            [python, str(SCRIPT), tool, str(CALLS[tool])],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    if answer.returncode:
        if "ModuleNotFoundError" not in answer.stderr:
            print(f"{tool} failed: {answer.stderr[-300:]}", file=sys.stderr)
        return None
    found: Cost = json.loads(answer.stdout.strip().splitlines()[-1])
    return found


def import_ms() -> tuple[float, float]:
    """The same interpreter, with and without the import: what a user waits for."""
    times: dict[str, list[float]] = {"pass": [], IMPORT: []}
    code = "import time, sys; begun = time.perf_counter(); exec(sys.argv[1]); print(time.perf_counter() - begun)"
    for _ in range(11):
        for what, found in times.items():
            answer = subprocess.run([sys.executable, "-c", code, what], stdout=subprocess.PIPE, check=True)
            found.append(float(answer.stdout) * 1e3)
    return statistics.median(times["pass"]), statistics.median(times[IMPORT])


def medians() -> dict[str, Cost]:
    """Of every tool that is installed."""
    peers = os.environ.get("PEERS")
    tools = {"bare": sys.executable, "phalanx": sys.executable}
    tools |= {tool: peers for tool in CALLS if peers and tool not in tools}
    costs: dict[str, list[Cost]] = {tool: [] for tool in tools}
    for _ in range(ROUNDS):
        for tool, python in tools.items():
            cost = measure(tool, python)
            if cost is not None:
                costs[tool].append(cost)
    return {
        tool: {key: statistics.median(cost[key] for cost in found) for key in found[0]}
        for tool, found in costs.items()
        if found
    }


def calls() -> Iterator[Row]:
    found = medians()
    ours, bare = found["phalanx"], found["bare"]
    floor = Beside("bare write", bare["call_us"] / 1e6)
    yield Row("one log() of a value", ours["call_us"] / 1e6, "s", floor, aim=at_most(MOST_WRITES, Of.FLOOR))
    floor = Beside("bare write", bare["whole_us"] / 1e6)
    for tool, factor in FACTORS.items():
        if tool in found:
            peer, aim = Beside(tool, found[tool]["whole_us"] / 1e6), at_most(1 / factor, Of.PEER)
            yield Row(f"the same until it is on the disk, beside {tool}", ours["whole_us"] / 1e6, "s", floor, peer, aim)


def imports() -> Iterator[Row]:
    bare, with_us = import_ms()
    yield Row("import of phalanx.tracking", (with_us - bare) / 1e3, "s", aim=at_most(MOST_IMPORT_MS / 1e3))


PARTS = {"calls": calls, "imports": imports}
