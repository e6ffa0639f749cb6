import faults

faults.at_start()
import os

import jax

faults.at_arrival()
jax.config.update("jax_cpu_collectives_implementation", "gloo")
size = int(os.environ["JAX_NUM_PROCESSES"]) + (faults.HOW == "world")
jax.distributed.initialize(num_processes=size)
from jax.experimental.multihost_utils import process_allgather

for step in range(faults.STEPS):
    faults.at_step(step)
    process_allgather(jax.numpy.ones(8))
