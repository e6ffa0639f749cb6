"""A small regression, trained with ParameterServerStrategy: the chief tells the workers what to compute, the parameter
servers hold the weights.

All replicas start this script. Only the chief knows the loss, and writes TensorBoard's event files; nothing else is
needed for Phalanx to follow them. It goes on from its last checkpoint when there is one.
"""

import argparse
import os
import time
from pathlib import Path

import tensorflow as tf

from phalanx import tracking

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step, for those who watch")
options = parser.parse_args()
tf.get_logger().setLevel("ERROR")  # or it would warn of a checkpoint a step, which costs little here

outputs = Path(os.environ.get("PHALANX_OUTPUTS", "outputs"))
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()  # reads TF_CONFIG
cluster = resolver.cluster_spec()
workers = cluster.num_tasks("worker") if "worker" in cluster.jobs else 0


if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(cluster, resolver.task_type, resolver.task_id).join()  # Phalanx ends it after the chief


class Regression(tf.Module):
    def __init__(self):
        super().__init__()
        self.weights = tf.Variable(tf.zeros([4, 1]))

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def __call__(self, x):
        return x @ self.weights


strategy = tf.distribute.ParameterServerStrategy(resolver) if workers else tf.distribute.get_strategy()
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy) if workers else None
with strategy.scope():
    model = Regression()
    next_step = tf.Variable(0)
truth = tf.constant([[1.0], [-2.0], [3.0], [0.5]])
checkpoints = tf.train.CheckpointManager(
    tf.train.Checkpoint(model=model, next_step=next_step), outputs / "checkpoints", max_to_keep=2
)
checkpoints.restore_or_initialize()
writer = tf.summary.create_file_writer(str(outputs / "logs"))


@tf.function
def update(seed):
    """By a worker, whenever it comes to it: nobody waits for the others."""
    noise = tf.random.stateless_normal([64, 5], seed)
    x, y = noise[:, :4], noise[:, :4] @ truth + 0.1 * noise[:, 4:]
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    model.weights.assign_sub(options.lr / max(workers, 1) * tape.gradient(loss, model.weights))
    return loss


for step in range(int(next_step.numpy()), options.steps):
    if coordinator is None:
        loss = update([step, 0])
    else:
        losses = [coordinator.schedule(update, args=([step, share],)) for share in range(workers)]
        coordinator.join()
        loss = tf.reduce_mean(coordinator.fetch(losses))
    with writer.as_default():
        tf.summary.scalar("loss", loss, step=step)
    writer.flush()  # before the checkpoint: a run that is resumed behind it does not log this step again
    next_step.assign(step + 1)
    checkpoints.save()
    time.sleep(options.pause)

weights = " ".join(f"{weight:.9f}" for weight in model.weights.numpy().flatten())
print(f"rank 0 of {workers + 1} done, weights {weights}", flush=True)
tf.saved_model.save(model, outputs / "model")
tracking.model(outputs / "model", name="tensorflow-example")
