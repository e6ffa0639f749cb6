"""The regression of train.py by Horovod with MXNet: workers average their gradients, without scheduler and servers."""

import argparse
import os
import time
from pathlib import Path

import horovod.mxnet as hvd
import mlflow
import mxnet as mx
from mxnet import autograd, gluon

from phalanx import tracking

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step, for those who watch")
options = parser.parse_args()

hvd.init()
rank, size = hvd.rank(), hvd.size()
checkpoint = Path(os.environ.get("PHALANX_OUTPUTS", "outputs")) / "checkpoint.params"
has_server = "MLFLOW_TRACKING_URI" in os.environ  # without one it trains all the same

mx.random.seed(rank)
truth = mx.nd.array([[1.0], [-2.0], [3.0], [0.5]])
model = gluon.nn.Dense(1, in_units=4)
model.initialize(mx.init.Normal(0.5))
first = 0
if rank == 0 and checkpoint.exists():
    saved = mx.nd.load(str(checkpoint))
    model.weight.set_data(saved["weight"])
    model.bias.set_data(saved["bias"])
    first = int(saved["step"].asscalar()) + 1
first = hvd.broadcast_object(first, root_rank=0)  # all begin where rank 0 does
hvd.broadcast_parameters(model.collect_params(), root_rank=0)
trainer = hvd.DistributedTrainer(model.collect_params(), "sgd", {"learning_rate": options.lr})

for step in range(first, options.steps):
    x = mx.nd.random.normal(shape=(64, 4))
    y = mx.nd.dot(x, truth) + 0.1 * mx.nd.random.normal(shape=(64, 1))
    with autograd.record():
        loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    # Logged before the ranks meet: after that all of them have, and a checkpoint of this step leaves no gap.
    if has_server:
        mlflow.log_metric("loss", float(loss.asscalar()), step=step)
    trainer.step(1)  # with the mean of all ranks' gradients; the loss is a mean already
    if rank == 0:
        draft = checkpoint.with_suffix(".draft")
        parts = {"weight": model.weight.data(), "bias": model.bias.data(), "step": mx.nd.array([step])}
        mx.nd.save(str(draft), parts)
        draft.replace(checkpoint)
    time.sleep(options.pause)

weights = [*model.weight.data().reshape(-1).asnumpy(), *model.bias.data().asnumpy()]
print(f"rank {rank} of {size} done, weights {' '.join(f'{weight:.9f}' for weight in weights)}", flush=True)
if rank == 0:
    model.save_parameters(str(checkpoint.with_name("model.params")))
    tracking.model(checkpoint.with_name("model.params"), name="horovod-mxnet-example")
