"""One tool logging one metric, many times: `python track_one.py TOOL CALLS` prints what it cost, as JSON.

Run by `tracking_cost.py`, each tool in a process and a folder of its own, in whatever environment has it.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

Tool = tuple[Callable[[int, float], Any], Callable[[], Any]]  # logs, and finishes
BATCH = 100  # calls between two looks at the clock: looking costs a tenth of a call


def bare() -> Tool:
    """The floor: one write of a record that is packed already, and a sync at the end."""
    descriptor = os.open("points", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    record = struct.pack("<2sBxIIqdId", b"xx", 3, 28, 0, 1, time.time(), 1, 0.5)

    def finish() -> None:
        os.fsync(descriptor)
        os.close(descriptor)

    return lambda _, __: os.write(descriptor, record), finish


def phalanx() -> Tool:
    from phalanx import tracking

    run = tracking.start()
    return lambda step, value: run.log(loss=value, step=step), run.finish


def tensorboardx() -> Tool:
    writer = import_module("tensorboardX").SummaryWriter("logs")
    return lambda step, value: writer.add_scalar("loss", value, step), writer.close


def trackio() -> Tool:
    trackio: Any = import_module("trackio")
    trackio.init(project="bench")
    return lambda step, value: trackio.log({"loss": value}, step=step), trackio.finish


def dvclive() -> Tool:
    live = import_module("dvclive").Live("live", save_dvc_exp=False, report=None)

    def log(_: int, value: float) -> None:
        live.log_metric("loss", value)
        live.next_step()

    return log, live.end


def aim() -> Tool:
    run = import_module("aim").Run(repo=".", system_tracking_interval=None, capture_terminal_logs=False)
    return lambda step, value: run.track(value, name="loss", step=step), run.close


def wandb() -> Tool:
    wandb: Any = import_module("wandb")
    run = wandb.init(project="bench", mode="offline", dir=".", settings=wandb.Settings(silent=True))
    return lambda step, value: run.log({"loss": value}, step=step), run.finish


def mlflow() -> Tool:
    mlflow: Any = import_module("mlflow")
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    mlflow.start_run()
    return lambda step, value: mlflow.log_metric("loss", value, step=step), mlflow.end_run


IMPORTS = {"bare": "os", "phalanx": "phalanx.tracking", "tensorboardx": "tensorboardX"}


def main() -> None:
    tool, calls = sys.argv[1], int(sys.argv[2])
    began = time.perf_counter()
    import_module(IMPORTS.get(tool, tool))
    import_s = time.perf_counter() - began
    log, finish = globals()[tool]()
    log(0, 0.5)  # what the first call makes, the others find
    batch = min(BATCH, max(1, calls // 10))
    times: list[float] = []
    begun = time.perf_counter()
    for first in range(1, calls, batch):
        start = time.perf_counter()
        for step in range(first, first + batch):
            log(step, 0.5)
        times.append((time.perf_counter() - start) / batch)
    finish()
    total = (time.perf_counter() - begun) / (len(times) * batch)
    answer = {"import_ms": import_s * 1e3, "call_us": statistics.median(times) * 1e6, "whole_us": total * 1e6}
    print(json.dumps(answer), file=sys.__stdout__)


if __name__ == "__main__":
    main()
