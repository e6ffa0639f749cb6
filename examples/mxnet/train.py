"""A small regression that workers train together through MXNet's key-value store.

The scheduler and the servers run this same script: in them `import mxnet` serves until the workers are done, and never
returns. The script is written for Polyaxon's client: nothing in it knows of Phalanx but the line that registers the
model. It goes on from its last checkpoint when there is one.
"""

import argparse
import os
import time
from pathlib import Path

import mxnet as mx
from mxnet import autograd, gluon
from polyaxon_client.tracking import Experiment, get_outputs_path

from phalanx import tracking

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step, for those who watch")
options = parser.parse_args()

experiment = Experiment()
# the scheduler is found by DMLC_PS_ROOT_URI and the variables beside it; one process alone has no such store
store = mx.kvstore.create("dist_sync" if "DMLC_ROLE" in os.environ else "local")
rank, size = store.rank, store.num_workers
checkpoint = Path(get_outputs_path()) / "checkpoint.params"

mx.random.seed(0)  # all begin with the same parameters
truth = mx.nd.array([[1.0], [-2.0], [3.0], [0.5]])
model = gluon.nn.Dense(1, in_units=4)
model.initialize(mx.init.Normal(0.5))
# the servers apply the gradients, and plain SGD leaves no state with them that a checkpoint would have to hold
trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": options.lr}, kvstore=store)
first = 0
if checkpoint.exists():
    saved = mx.nd.load(str(checkpoint))
    model.weight.set_data(saved["weight"])
    model.bias.set_data(saved["bias"])
    first = int(saved["step"].asscalar()) + 1

mx.random.seed(1 + rank)  # each its own share of the data
for step in range(first, options.steps):
    x = mx.nd.random.normal(shape=(64, 4))
    y = mx.nd.dot(x, truth) + 0.1 * mx.nd.random.normal(shape=(64, 1))
    with autograd.record():
        loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    # Logged before the step: once that is through, all workers have logged it, and a checkpoint of it leaves no gap.
    experiment.log_metrics(step=step, loss=loss.asscalar())
    trainer.step(size)  # the servers add up the gradients of all workers; this makes it their mean
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
    tracking.model(checkpoint.with_name("model.params"), name="mxnet-example")
