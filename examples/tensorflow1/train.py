"""A small regression, trained by an estimator of TensorFlow 1: the master and the workers compute, the parameter server
holds the weights, and nobody waits for the others.

A script of its time: who is who it reads from TF_CONFIG, and what it writes for TensorBoard is all that Phalanx needs.
It goes on from its last checkpoint, as estimators do.
"""

import argparse
import os
import time

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step")
options = parser.parse_args()

# Workers start 5 seconds after each other if nobody says less. Less than 5 is no gain: a worker that comes before the
# master has made the weights looks again only after 30 seconds.
config = tf.estimator.RunConfig(
    model_dir=os.environ.get("PHALANX_OUTPUTS", "outputs"),  # TF_CONFIG says the same; alone, there is none
    save_checkpoints_steps=1,
    keep_checkpoint_max=2,
    save_summary_steps=0,
    experimental_max_worker_delay_secs=5,
)
rank, size = config.global_id_in_cluster, config.num_worker_replicas
# An estimator with a master would write the summaries of worker 0 alone. Here each rank does, into a folder with the
# replica's name: so Phalanx knows whose they are.
summaries = os.path.join(config.model_dir, os.environ.get("PHALANX_REPLICA", "summaries"))


class AfterEachStep(tf.estimator.SessionRunHook):
    def after_run(self, *_):
        tf.compat.v1.summary.FileWriterCache.get(summaries).flush()  # who is killed loses no step
        time.sleep(options.pause)


def data(seed):
    noise = tf.data.experimental.RandomDataset(seed).batch(2)
    noise = noise.map(lambda seeds: tf.random.stateless_normal([64, 5], seeds))
    truth = tf.constant([[1.0], [-2.0], [3.0], [0.5]])
    return noise.map(lambda drawn: ({"x": drawn[:, :4]}, tf.matmul(drawn[:, :4], truth) + 0.1 * drawn[:, 4:]))


def regression(features, labels, mode):
    weights = tf.compat.v1.get_variable("weights", [4, 1], initializer=tf.zeros_initializer())
    predictions = tf.matmul(features["x"], weights)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"y": predictions})
    loss = tf.reduce_mean((predictions - labels) ** 2)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(options.lr)
    train = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    summary = tf.compat.v1.summary.scalar("loss", loss)
    hooks = [tf.estimator.SummarySaverHook(1, output_dir=summaries, summary_op=summary), AfterEachStep()]
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train, training_hooks=hooks)


estimator = tf.estimator.Estimator(regression, config=config)
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(lambda: data(rank), max_steps=options.steps),  # each rank draws its own share
    tf.estimator.EvalSpec(lambda: data(size), steps=10),
)
if config.is_chief:
    weights = estimator.get_variable_value("weights").flatten()
    print(f"rank {rank} of {size} done, weights {' '.join(f'{weight:.9f}' for weight in weights)}", flush=True)
    x = tf.compat.v1.placeholder(tf.float32, [None, 4])
    receive = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": x})
    estimator.export_saved_model(os.path.join(config.model_dir, "model"), receive)
else:
    print(f"rank {rank} of {size} done", flush=True)  # the weights are the parameter server's
