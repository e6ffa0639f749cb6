"""A small regression with NumPy: every rank computes a gradient on its own data, and MPI averages them.

The script is written for mpirun: nothing in it knows of Phalanx but the lines that log. It goes on from its last
checkpoint when there is one.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from phalanx import tracking

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step, for those who watch")
options = parser.parse_args()

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
checkpoint = Path(os.environ.get("PHALANX_OUTPUTS", "outputs")) / "checkpoint.npz"

draw = np.random.default_rng(rank)
truth = np.array([1.0, -2.0, 3.0, 0.5])
weights = np.zeros(4)
first = 0
if checkpoint.exists():
    with np.load(checkpoint) as saved:
        weights, first = saved["weights"], int(saved["step"]) + 1

for step in range(first, options.steps):
    x = draw.normal(size=(64, 4))
    error = x @ weights - (x @ truth + 0.1 * draw.normal(size=64))
    # Logged before the ranks meet: after that all of them have, and a checkpoint of this step leaves no gap.
    tracking.log(step=step, loss=np.mean(error**2))
    gradient = 2 * x.T @ error / len(x)
    world.Allreduce(MPI.IN_PLACE, gradient, op=MPI.SUM)
    weights -= options.lr * gradient / size
    if rank == 0:
        draft = checkpoint.with_suffix(".draft")
        with draft.open("wb") as file:
            np.savez(file, weights=weights, step=step)
        draft.replace(checkpoint)
    time.sleep(options.pause)

print(f"rank {rank} of {size} done, weights {' '.join(f'{weight:.9f}' for weight in weights)}", flush=True)
if rank == 0:
    np.save(checkpoint.with_name("model.npy"), weights)
    tracking.model(checkpoint.with_name("model.npy"), name="mpi-example")
