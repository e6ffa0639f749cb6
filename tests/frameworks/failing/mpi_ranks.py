import faults

faults.at_start()
faults.at_arrival()
import numpy
from mpi4py import MPI

for step in range(faults.STEPS):
    faults.at_step(step)
    MPI.COMM_WORLD.Allreduce(numpy.ones(8), numpy.empty(8))
