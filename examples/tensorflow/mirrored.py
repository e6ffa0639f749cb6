"""A small regression, trained by all replicas together with MultiWorkerMirroredStrategy.

Every rank draws its own share of the data and writes TensorBoard's event files into a folder of its own; nothing else
is needed for Phalanx to follow them. It goes on from its last checkpoint when there is one.
"""

import argparse
import os
import signal
import time
from pathlib import Path

import tensorflow as tf

from phalanx import tracking

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step, for those who watch")
options = parser.parse_args()

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # finds the others by TF_CONFIG; nothing may come before it
signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the strategy only takes note of it, and trains on until it is killed
rank = int(tf.function(strategy.run)(lambda: tf.distribute.get_replica_context().replica_id_in_sync_group))
size = strategy.num_replicas_in_sync
outputs = Path(os.environ.get("PHALANX_OUTPUTS", "outputs"))
# A folder with the replica's name in its path: that is how Phalanx knows whose event files they are.
writer = tf.summary.create_file_writer(str(outputs / "logs" / os.environ.get("PHALANX_REPLICA", f"rank-{rank}")))


class Regression(tf.Module):
    def __init__(self):
        super().__init__()
        self.weights = tf.Variable(tf.zeros([4, 1]), aggregation=tf.VariableAggregation.MEAN)  # of what ranks assign

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def __call__(self, x):
        return x @ self.weights


with strategy.scope():
    model = Regression()
truth = tf.constant([[1.0], [-2.0], [3.0], [0.5]])
next_step = tf.Variable(0)
checkpoints = tf.train.CheckpointManager(
    tf.train.Checkpoint(model=model, next_step=next_step), outputs / "checkpoints", max_to_keep=2
)
checkpoints.restore_or_initialize()


@tf.function
def gradient_of(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    return loss, tape.gradient(loss, model.weights)


@tf.function
def update(gradient):
    strategy.run(lambda: model.weights.assign_sub(options.lr * gradient))  # averaged over all ranks


generator = tf.random.Generator.from_seed(rank)
for step in range(int(next_step), options.steps):
    x = generator.normal([64, 4])
    loss, gradient = gradient_of(x, x @ truth + 0.1 * generator.normal([64, 1]))
    with writer.as_default():
        tf.summary.scalar("loss", loss, step=step)
    # Nobody ends the update before all have begun it: so all of them have logged a step when its checkpoint is written.
    writer.flush()
    update(gradient)
    next_step.assign(step + 1)
    if rank == 0:
        checkpoints.save()
    time.sleep(options.pause)

values = " ".join(f"{weight:.9f}" for weight in model.weights.numpy().flatten())
print(f"rank {rank} of {size} done, weights {values}", flush=True)
if rank == 0:
    tf.saved_model.save(model, outputs / "mirrored")
    tracking.model(outputs / "mirrored", name="tensorflow-example")
