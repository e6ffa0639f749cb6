"""A small regression by Hugging Face's Accelerate.

Every rank draws its own share of the data. The script is written for `accelerate launch`: nothing in it knows of
Phalanx but the lines that log. It goes on from its last checkpoint when there is one.
"""

import argparse
import os
import shutil
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

from phalanx import tracking

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step, for those who watch")
options = parser.parse_args()

accelerator = Accelerator(cpu=True)
rank, size = accelerator.process_index, accelerator.num_processes
outputs = Path(os.environ.get("PHALANX_OUTPUTS", "outputs"))

set_seed(rank)
truth = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
model = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=options.lr))
first = 0
saved = max(outputs.glob("checkpoint-*[0-9]"), default=None)
if saved:
    accelerator.load_state(str(saved))
    first = int(saved.name.split("-")[1]) + 1
accelerator.wait_for_everyone()  # nobody may replace the checkpoint before all have read it

for step in range(first, options.steps):
    x = torch.randn(64, 4)
    loss = torch.nn.functional.mse_loss(model(x), x @ truth + 0.1 * torch.randn(64, 1))
    optimizer.zero_grad()
    accelerator.backward(loss)  # gradients are averaged over all ranks here
    optimizer.step()
    tracking.log(step=step, loss=loss.item())
    # A checkpoint is a folder to which every rank adds its random state. It gets its name when all of them have.
    draft = outputs / f"checkpoint-{step:06}.draft"
    accelerator.save_state(str(draft))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        older = list(outputs.glob("checkpoint-*[0-9]"))
        draft.rename(draft.with_suffix(""))
        for folder in older:
            shutil.rmtree(folder)
    time.sleep(options.pause)

weights = torch.cat([parameter.flatten() for parameter in model.parameters()]).tolist()
print(f"rank {rank} of {size} done, weights {' '.join(f'{weight:.9f}' for weight in weights)}", flush=True)
if accelerator.is_main_process:
    tracking.model(outputs / f"checkpoint-{options.steps - 1:06}" / "model.safetensors", name="accelerate-example")
accelerator.end_training()
