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
from pathlib import Path

from measuring import report

SCRIPT = Path(__file__).with_name("track_one.py")
CALLS = {"bare": 50_000, "phalanx": 50_000, "tensorboardx": 50_000, "trackio": 20_000, "dvclive": 3_000, "aim": 10_000}
CALLS |= {"wandb": 20_000, "mlflow": 300}
# How many times less than theirs ours must be, counted until everything is on the disk.
FACTORS = {"trackio": 8, "tensorboardx": 8, "aim": 40, "wandb": 100, "mlflow": 1_000}
MOST_WRITES = 2.5
MOST_IMPORT_MS = 40.0
ROUNDS = 5

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
    times: dict[str, list[float]] = {"pass": [], "import phalanx.tracking": []}
    code = "import time, sys; begun = time.perf_counter(); exec(sys.argv[1]); print(time.perf_counter() - begun)"
    for _ in range(11):
        for what, found in times.items():
            answer = subprocess.run([sys.executable, "-c", code, what], stdout=subprocess.PIPE, check=True)
            found.append(float(answer.stdout) * 1e3)
    return statistics.median(times["pass"]), statistics.median(times["import phalanx.tracking"])


def main() -> None:
    peers = os.environ.get("PEERS")
    tools = {"bare": sys.executable, "phalanx": sys.executable}
    tools |= {tool: peers for tool in CALLS if peers and tool not in tools}
    costs: dict[str, list[Cost]] = {tool: [] for tool in tools}
    for _ in range(ROUNDS):
        for tool, python in tools.items():
            cost = measure(tool, python)
            if cost is not None:
                costs[tool].append(cost)
    medians = {
        tool: {key: statistics.median(cost[key] for cost in found) for key in found[0]}
        for tool, found in costs.items()
        if found
    }
    print(f"{'tool':<14}{'import ms':>12}{'a call µs':>12}{'until on disk µs':>18}")
    for tool, cost in medians.items():
        print(f"{tool:<14}{cost['import_ms']:>12.0f}{cost['call_us']:>12.2f}{cost['whole_us']:>18.2f}")
    ours, floor = medians["phalanx"], medians["bare"]
    ratio = ours["call_us"] / floor["call_us"]
    report("log() against one bare write", f"{ratio:.2f}x", f"{MOST_WRITES}x", met=ratio <= MOST_WRITES)
    for tool, factor in FACTORS.items():
        if tool in medians:
            times = medians[tool]["whole_us"] / ours["whole_us"]
            report(
                f"{tool}, until all is on the disk, against ours", f"{times:,.0f}x", f"{factor:,}x", met=times >= factor
            )
    bare, with_us = import_ms()
    report(
        "import of phalanx.tracking",
        f"{with_us - bare:.0f} ms",
        f"{MOST_IMPORT_MS:.0f} ms",
        met=with_us - bare <= MOST_IMPORT_MS,
    )


if __name__ == "__main__":
    main()
