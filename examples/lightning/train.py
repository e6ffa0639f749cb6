"""A small regression by Lightning: of the cluster it is told nothing but the number of nodes.

A replica is a node with one process, and draws its own share of the data. Lightning goes on from its last checkpoint
when there is one.
"""

import argparse
import os
import time

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

from phalanx.tracking.callbacks import PhalanxLightning

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step, for those who watch")
options = parser.parse_args()


class Line(LightningModule):
    def __init__(self, lr: float) -> None:  # noqa: ARG002 - save_hyperparameters finds it
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(4, 1)

    def train_dataloader(self):
        draw = torch.Generator().manual_seed(self.global_rank)
        x = torch.randn(256, 4, generator=draw)
        y = x @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]]) + 0.1 * torch.randn(256, 1, generator=draw)
        return DataLoader(TensorDataset(x, y), batch_size=64)  # an epoch of four steps

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss)
        time.sleep(options.pause)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


trainer = Trainer(
    max_steps=options.steps,
    accelerator="cpu",
    devices=1,
    num_nodes=int(os.environ.get("WORLD_SIZE", "1")),
    use_distributed_sampler=False,  # each node has data of its own
    logger=PhalanxLightning(log_model=True, name="lightning-example"),
    callbacks=[ModelCheckpoint(save_last=True)],  # in the run's outputs, after every epoch
    log_every_n_steps=1,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Line(options.lr)
trainer.fit(model, ckpt_path="last")

weights = torch.cat([parameter.flatten() for parameter in model.parameters()]).tolist()
shown = " ".join(f"{weight:.9f}" for weight in weights)
print(f"rank {trainer.global_rank} of {trainer.world_size} done, weights {shown}", flush=True)
