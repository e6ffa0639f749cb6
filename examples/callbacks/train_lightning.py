import os

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from phalanx.tracking.callbacks import PhalanxLightning


class Line(LightningModule):
    def __init__(self, lr: float = 0.1) -> None:  # noqa: ARG002 - save_hyperparameters finds it
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


points = torch.randn(256, 2)
data = torch.utils.data.TensorDataset(points, points.sum(dim=1, keepdim=True))
loader = torch.utils.data.DataLoader(data, batch_size=16)
nodes = int(os.environ.get("WORLD_SIZE", "1"))  # a replica is a node with one process
trainer = Trainer(
    max_epochs=3,
    num_nodes=nodes,
    strategy="ddp" if nodes > 1 else "auto",
    accelerator="cpu",
    logger=PhalanxLightning(log_model=True),
    callbacks=[ModelCheckpoint(monitor="val_loss")],
    log_every_n_steps=5,
)
trainer.fit(Line(), loader, loader)
