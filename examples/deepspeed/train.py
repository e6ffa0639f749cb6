"""A small regression by DeepSpeed, with ZeRO's first stage: each rank keeps a part of the optimizer's state.

Every rank draws its own share of the data. The script is written for the launcher `deepspeed`: nothing in it knows of
Phalanx but the lines that log. It goes on from its last checkpoint when there is one.
"""

import argparse
import os
import shutil
import time
from pathlib import Path

import deepspeed
import torch

from phalanx import tracking

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step, for those who watch")
options = parser.parse_args()

# A faster way between ranks of one machine, which would be compiled first: minutes and gigabytes. Gloo is enough here.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed("gloo")  # finds the others by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE
rank, size = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
outputs = Path(os.environ.get("PHALANX_OUTPUTS", "outputs"))

torch.manual_seed(rank)
truth = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
layer = torch.nn.Linear(4, 1)
model, *_ = deepspeed.initialize(  # all begin with the parameters of rank 0
    model=layer,
    optimizer=torch.optim.SGD(layer.parameters(), lr=options.lr, momentum=0.5),
    config={
        "train_micro_batch_size_per_gpu": 64,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,  # SGD is none of DeepSpeed's own
    },
)
first = 0
saved = max(outputs.glob("checkpoint-*[0-9]"), default=None)
if saved:
    model.load_checkpoint(str(outputs), tag=saved.name)
    first = model.global_steps
deepspeed.comm.barrier()  # nobody may replace the checkpoint before all have read it

for step in range(first, options.steps):
    x = torch.randn(64, 4)
    loss = torch.nn.functional.mse_loss(model(x), x @ truth + 0.1 * torch.randn(64, 1))
    model.backward(loss)
    model.step()
    tracking.log(step=step, loss=loss.item())
    # A checkpoint is a folder to which every rank adds its part. It gets its name when all of them have.
    draft = outputs / f"checkpoint-{step:06}.draft"
    model.save_checkpoint(str(outputs), tag=draft.name, save_latest=False)
    deepspeed.comm.barrier()
    if rank == 0:
        older = list(outputs.glob("checkpoint-*[0-9]"))
        draft.rename(draft.with_suffix(""))
        for folder in older:
            shutil.rmtree(folder)
    time.sleep(options.pause)

weights = torch.cat([parameter.flatten() for parameter in model.module.parameters()]).tolist()
print(f"rank {rank} of {size} done, weights {' '.join(f'{weight:.9f}' for weight in weights)}", flush=True)
if rank == 0:
    torch.save(model.module.state_dict(), outputs / "model.pt")
    tracking.model(outputs / "model.pt", name="deepspeed-example")
deepspeed.comm.destroy_process_group()
