"""A small regression, trained by all replicas together with DistributedDataParallel.

Every rank draws its own share of the data. The script is written for torchrun: nothing in it knows of Phalanx but the
lines that log. It goes on from its last checkpoint when there is one.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from phalanx import tracking

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step, for those who watch")
options = parser.parse_args()

alone = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
dist.init_process_group("gloo", **alone)  # finds the others by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE
rank, size = dist.get_rank(), dist.get_world_size()
checkpoint = Path(os.environ.get("PHALANX_OUTPUTS", "outputs")) / "checkpoint.pt"

torch.manual_seed(rank)
truth = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
model = DistributedDataParallel(torch.nn.Linear(4, 1))  # all begin with the parameters of rank 0
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
first = 0
if checkpoint.exists():
    saved = torch.load(checkpoint)
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"] + 1
dist.barrier()  # nobody may write the next checkpoint before all have read this one

for step in range(first, options.steps):
    x = torch.randn(64, 4)
    loss = torch.nn.functional.mse_loss(model(x), x @ truth + 0.1 * torch.randn(64, 1))
    # Logged before the ranks meet: after that all of them have, and a checkpoint of this step leaves no gap.
    tracking.log(step=step, loss=loss.item())
    optimizer.zero_grad()
    loss.backward()  # gradients are averaged over all ranks here
    optimizer.step()
    if rank == 0:
        draft = checkpoint.with_suffix(".draft")
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, draft)
        draft.replace(checkpoint)
    time.sleep(options.pause)

weights = torch.cat([parameter.flatten() for parameter in model.parameters()]).tolist()
print(f"rank {rank} of {size} done, weights {' '.join(f'{weight:.9f}' for weight in weights)}", flush=True)
if rank == 0:
    torch.save(model.module.state_dict(), checkpoint.with_name("model.pt"))
    tracking.model(checkpoint.with_name("model.pt"), name="pytorch-example")
dist.destroy_process_group()
