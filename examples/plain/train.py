"""A small regression by replicas that no framework brings together: the standard library, and a parameter server.

The master and the workers each draw their own share of the data. The parameter server averages their gradients, so that
all of them hold the same weights. Everyone finds its place by PHALANX_ROLE and PHALANX_RANK, and the others by
PHALANX_CLUSTER. Metrics are logged by Polyaxon's client. It goes on from its last checkpoint when there is one.
"""

import argparse
import json
import os
import random
import time
from array import array
from contextlib import suppress
from multiprocessing.connection import Client, Listener
from pathlib import Path

from polyaxon_client.tracking import Experiment, get_outputs_path

from phalanx import tracking

TRUTH = [1.0, -2.0, 3.0, 0.5]


def serve(address: tuple[str, int], trainers: int) -> None:
    """Answers each round of gradients with their mean, until one of the trainers is done."""
    with Listener(address, backlog=trainers) as listener, suppress(EOFError, ConnectionError):
        peers = [listener.accept() for _ in range(trainers)]
        while True:
            gradients = [array("d", peer.recv_bytes()) for peer in peers]
            mean = array("d", [sum(parts) / trainers for parts in zip(*gradients, strict=True)])
            for peer in peers:
                peer.send_bytes(mean)


def connect(address: tuple[str, int]):
    while True:
        try:
            return Client(address)
        except ConnectionRefusedError:  # it is about to listen
            time.sleep(0.05)


def train(rank: int, size: int, server: tuple[str, int] | None) -> None:
    experiment = Experiment()
    checkpoint = Path(get_outputs_path()) / "checkpoint.json"
    weights, first = [0.0] * len(TRUTH), 0
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        weights, first = saved["weights"], saved["step"] + 1
    draw = random.Random(rank)
    peer = connect(server) if server else None
    for step in range(first, options.steps):
        loss, gradient = 0.0, array("d", bytes(8 * len(TRUTH)))
        for _ in range(64):
            x = [draw.gauss(0, 1) for _ in TRUTH]
            error = sum((w - t) * value for w, t, value in zip(weights, TRUTH, x, strict=True)) - draw.gauss(0, 0.1)
            loss += error**2 / 64
            for i, value in enumerate(x):
                gradient[i] += 2 * error * value / 64
        # Logged before the ranks meet: after that all of them have, and a checkpoint of this step leaves no gap.
        experiment.log_metrics(step=step, loss=loss)
        if peer:
            peer.send_bytes(gradient)
            gradient = array("d", peer.recv_bytes())
        weights = [weight - options.lr * slope for weight, slope in zip(weights, gradient, strict=True)]
        if rank == 0:
            draft = checkpoint.with_suffix(".draft")
            draft.write_text(json.dumps({"weights": weights, "step": step}))
            draft.replace(checkpoint)
        time.sleep(options.pause)
    print(f"rank {rank} of {size} done, weights {' '.join(f'{weight:.9f}' for weight in weights)}", flush=True)
    if rank == 0:
        tracking.model(checkpoint, name="plain-example")


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step, for those who watch")
options = parser.parse_args()

cluster = json.loads(os.environ["PHALANX_CLUSTER"])  # {"master": ["host:port"], "worker": […], "ps": […]}
trainers = len(cluster["master"]) + len(cluster.get("worker", []))
address = None
if "ps" in cluster:
    host, _, port = cluster["ps"][0].rpartition(":")
    address = host, int(port)
if os.environ["PHALANX_ROLE"] == "ps":
    serve(address, trainers)
else:
    train(int(os.environ["PHALANX_RANK"]), trainers, address)
