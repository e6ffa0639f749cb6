"""A small regression by Horovod with PyTorch, logged by MLflow's client.

Every rank draws its own share of the data. The script is written for horovodrun and an MLflow server: nothing in it
knows of Phalanx but the line that registers the model. It goes on from its last checkpoint when there is one.
"""

import argparse
import os
import time
from pathlib import Path

import horovod.torch as hvd
import mlflow
import torch

from phalanx import tracking

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step, for those who watch")
options = parser.parse_args()

hvd.init()  # finds the others by the variables of horovodrun, or by MPI
rank, size = hvd.rank(), hvd.size()
checkpoint = Path(os.environ.get("PHALANX_OUTPUTS", "outputs")) / "checkpoint.pt"
has_server = "MLFLOW_TRACKING_URI" in os.environ  # without one it trains all the same

torch.manual_seed(rank)
truth = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
first = 0
if rank == 0 and checkpoint.exists():
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"] + 1
first = hvd.broadcast_object(first, root_rank=0)  # all begin where rank 0 does
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

for step in range(first, options.steps):
    x = torch.randn(64, 4)
    loss = torch.nn.functional.mse_loss(model(x), x @ truth + 0.1 * torch.randn(64, 1))
    # Logged before the ranks meet: after that all of them have, and a checkpoint of this step leaves no gap.
    if has_server:
        mlflow.log_metric("loss", loss.item(), step=step)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # waits for the mean of all ranks' gradients
    if rank == 0:
        draft = checkpoint.with_suffix(".draft")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, draft)
        draft.replace(checkpoint)
    time.sleep(options.pause)

weights = torch.cat([parameter.flatten() for parameter in model.parameters()]).tolist()
print(f"rank {rank} of {size} done, weights {' '.join(f'{weight:.9f}' for weight in weights)}", flush=True)
if rank == 0:
    torch.save(model.state_dict(), checkpoint.with_name("model.pt"))
    tracking.model(checkpoint.with_name("model.pt"), name="horovod-example")
