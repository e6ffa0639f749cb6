import faults

faults.at_start()
import horovod.torch as hvd
import torch

faults.at_arrival()
hvd.init()
for step in range(faults.STEPS):
    faults.at_step(step)
    hvd.allreduce(torch.ones(8), name="ones")
