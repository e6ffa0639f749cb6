"""A small regression, trained by all processes together: one array spans them all, and jit averages over it.

Every process draws its own share of the data. Nothing in the script knows of Phalanx but the lines that log. It goes on
from its last checkpoint when there is one.
"""

import argparse
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from phalanx import tracking

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step, for those who watch")
options = parser.parse_args()

jax.config.update("jax_enable_preemption_service", False)  # it only takes note of SIGTERM: nobody could stop us
if "JAX_COORDINATOR_ADDRESS" in os.environ:  # not when it runs alone
    jax.distributed.initialize()  # finds the others by what Phalanx set
rank, size = jax.process_index(), jax.process_count()
checkpoint = Path(os.environ.get("PHALANX_OUTPUTS", "outputs")) / "checkpoint.npz"
checkpoint.parent.mkdir(parents=True, exist_ok=True)

mesh = Mesh(jax.devices(), "process")
shared, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("process"))


@jax.jit
def loss_of(weights, x, y):
    return jnp.mean((x @ weights - y) ** 2)


@jax.jit
def update(weights, x, y):
    """x and y are the shares of all: their mean, and so its gradient, is taken over all processes."""
    return weights - options.lr * jax.grad(loss_of)(weights, x, y)


generator = np.random.default_rng(rank)
truth = np.array([1.0, -2.0, 3.0, 0.5], dtype=np.float32)
first, start = 0, np.zeros(4, dtype=np.float32)
if checkpoint.exists():
    with np.load(checkpoint) as saved:
        first, start = int(saved["step"]) + 1, saved["weights"]
weights = jax.device_put(start, shared)  # fails when they are not the same everywhere

for step in range(first, options.steps):
    x = generator.standard_normal((64, 4), dtype=np.float32)
    y = x @ truth + 0.1 * generator.standard_normal(64, dtype=np.float32)
    # Of this process's own share; before the update, which nobody ends before all have begun it: so all of them have
    # logged a step when its checkpoint is written.
    tracking.log(step=step, loss=float(loss_of(weights.addressable_data(0), x, y)))
    weights = update(weights, *(jax.make_array_from_process_local_data(split, share) for share in (x, y)))
    if rank == 0:
        draft = checkpoint.with_suffix(".draft.npz")
        np.savez(draft, weights=weights, step=step)
        draft.replace(checkpoint)
    time.sleep(options.pause)

print(f"rank {rank} of {size} done, weights {' '.join(f'{weight:.9f}' for weight in weights.tolist())}", flush=True)
if rank == 0:
    np.save(checkpoint.with_name("model.npy"), weights)
    tracking.model(checkpoint.with_name("model.npy"), name="jax-example")
