import faults

faults.at_start()
import os

import torch
import torch.distributed as dist

faults.at_arrival()
size = int(os.environ["WORLD_SIZE"]) + (faults.HOW == "world")
dist.init_process_group("gloo", world_size=size, rank=int(os.environ["RANK"]))
for step in range(faults.STEPS):
    faults.at_step(step)
    dist.all_reduce(torch.ones(8))
dist.destroy_process_group()  # without it PyTorch may abort as it ends
