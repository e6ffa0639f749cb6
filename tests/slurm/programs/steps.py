"""Training that can be ended at any time and goes on from what it saved, a file per rank.

steps.py UNTIL PAUSE_S [--always] [--told] [--leave] [--again]: --always saves at every step, --told when it is told to,
--leave ends then; with --again only a later attempt comes to an end, after UNTIL steps of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from phalanx import tracking

RANK, ATTEMPT = os.environ.get("PHALANX_RANK", "0"), os.environ["PHALANX_ATTEMPT"]
OUTPUTS = Path(os.environ["PHALANX_OUTPUTS"])
STATE = OUTPUTS / f"state-{RANK}"
step = int(STATE.read_text()) if STATE.exists() else 0


def save() -> None:
    part = STATE.with_name(f".state-{RANK}")
    part.write_text(str(step))
    part.rename(STATE)


def save_as_told() -> None:
    save()
    with (OUTPUTS / "told").open("a") as stream:
        stream.write(f"{ATTEMPT} {RANK} {step} {time.time():.1f}\n")
    print(f"told to save at step {step}", flush=True)


def end(_number: int, _frame: FrameType | None) -> None:
    print(f"ended at step {step}", flush=True)
    sys.exit(0)


until, pause_s, wishes = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
if "--told" in wishes or "--leave" in wishes:
    tracking.on_checkpoint(save_as_told, leave="--leave" in wishes)
signal.signal(signal.SIGTERM, end)
if "--again" in wishes:
    until = step + until if ATTEMPT != "1" else sys.maxsize
print(f"begins at step {step} in attempt {ATTEMPT}", flush=True)
while step < until:
    tracking.log(step=step, loss=1 / (1 + step))
    step += 1
    if "--always" in wishes:
        save()
    time.sleep(pause_s)
save()
print("done", flush=True)
