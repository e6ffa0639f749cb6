"""Data-parallel training with whatever `tinynet` the node has installed; goes on from its last checkpoint.

The environment is the one that torchrun sets: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE; without it, one rank trains.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import time
from array import array
from pathlib import Path

import tinynet

from phalanx import tracking

CHECKPOINT = Path(os.environ.get("PHALANX_OUTPUTS", ".")) / "checkpoint.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step, for a longer run")
    options = parser.parse_args()
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    address = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500")))
    state = {"step": 0, "weights": [0.0] * (tinynet.CLASSES * tinynet.INPUTS)}
    if CHECKPOINT.exists():
        state = json.loads(CHECKPOINT.read_text())
    print(f"rank {rank} of {size} on {socket.gethostname()}, from step {state['step']}", flush=True)

    group = tinynet.Group(rank, size, address)
    is_time = []  # to save and leave, as one of the ranks was told; all do so after the same step
    tracking.on_checkpoint(lambda: is_time.append(True))
    while state["step"] < options.steps:
        step, weights = state["step"], array("d", state["weights"])
        batch = tinynet.examples(64 // size, random.Random(f"{rank} {step}"))
        slope, loss = tinynet.gradient(weights, batch)
        *slope, loss, told = group.mean(array("d", [*slope, loss, len(is_time)]))
        state = {"step": step + 1, "weights": [w - options.lr * slope[i] for i, w in enumerate(weights)]}
        if rank == 0:
            tracking.log(step=step, loss=loss)
            if step % 10 == 0:
                print(f"step {step}  loss {loss:.4f}", flush=True)
        if told:
            save(state, rank)
            raise SystemExit(85)  # saved: go on in the next segment
        time.sleep(options.pause)
    save(state, rank)
    print(f"rank {rank} of {size} done, weights {sum(state['weights']):+.6f} {state['weights'][0]:+.6f}", flush=True)


def save(state: dict, rank: int) -> None:
    """Whole or not at all."""
    if rank == 0:
        draft = CHECKPOINT.with_suffix(".draft")
        draft.write_text(json.dumps(state))
        draft.replace(CHECKPOINT)


if __name__ == "__main__":
    main()
