"""Synchronous data-parallel training with nothing but the standard library.

Every replica draws its own share of the data, computes the gradient of a softmax classifier on a small batch, and
averages it with all others over TCP: rank 0 gathers, adds up and sends back. The weights so stay the same
everywhere. The environment is the one that torchrun sets: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import socket
import struct
import time
from array import array

try:
    from phalanx import tracking
except ImportError:  # a Python without Phalanx trains all the same
    tracking = None  # type: ignore[assignment]

CLASSES, PIXELS = 10, 64  # digits of 8 x 8 pixels

# What each digit looks like, as rows of eight pixels.
GLYPHS = [
    "3c6666666666663c", "1838181818181c3c", "3c66060c1830607e", "3c66061c0606663c", "0c1c2c4c7e0c0c0c",
    "7e60607c0606663c", "3c60607c6666663c", "7e060c1818303030", "3c66663c6666663c", "3c6666663e06063c",
]  # fmt: skip


def draw(digit: int, noise: random.Random) -> list[float]:
    """A noisy picture of a digit."""
    bits = int(GLYPHS[digit], 16)
    return [((bits >> (PIXELS - 1 - pixel)) & 1) + noise.gauss(0, 0.6) for pixel in range(PIXELS)]


def gradient(weights: array[float], batch: list[tuple[int, list[float]]]) -> tuple[array[float], float, float]:
    """The gradient of the mean cross-entropy, the loss itself, and the share of right answers."""
    slope = array("d", bytes(8 * len(weights)))
    loss = right = 0.0
    for label, pixels in batch:
        scores = [sum(weights[k * PIXELS + i] * x for i, x in enumerate(pixels)) for k in range(CLASSES)]
        top = max(scores)
        powers = [math.exp(score - top) for score in scores]
        total = sum(powers)
        loss -= math.log(powers[label] / total)
        right += scores.index(top) == label
        for k in range(CLASSES):
            error = powers[k] / total - (k == label)
            for i, x in enumerate(pixels):
                slope[k * PIXELS + i] += error * x / len(batch)
    return slope, loss / len(batch), right / len(batch)


class AllReduce:
    """Sums over all replicas, through rank 0."""

    def __init__(self, rank: int, size: int, address: tuple[str, int]) -> None:
        self.rank = rank
        self.peers: list[socket.socket] = []
        if rank == 0:
            with socket.create_server(address) as server:
                self.peers = [server.accept()[0] for _ in range(size - 1)]
        else:
            self.peers = [connect(address)]

    def sum(self, values: array[float]) -> array[float]:
        if self.rank == 0:
            for received in [receive(peer) for peer in self.peers]:
                for i, value in enumerate(received):
                    values[i] += value
            for peer in self.peers:
                send(peer, values)
            return values
        send(self.peers[0], values)
        return receive(self.peers[0])


def connect(address: tuple[str, int], patience_s: float = 30.0) -> socket.socket:
    """Replicas start in any order: wait for rank 0."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return socket.create_connection(address, timeout=patience_s)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def send(peer: socket.socket, values: array[float]) -> None:
    data = values.tobytes()
    peer.sendall(struct.pack("!I", len(data)) + data)


def receive(peer: socket.socket) -> array[float]:
    (length,) = struct.unpack("!I", exactly(peer, 4))
    values = array("d")
    values.frombytes(exactly(peer, length))
    return values


def exactly(peer: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = peer.recv(length - len(data))
        if not part:
            raise ConnectionResetError("Connection closed by peer")
        data += part
    return bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learning-rate", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=64, help="over all replicas")
    parser.add_argument("--broken-rank", type=int, default=-1, help="this rank fails, to show how that is reported")
    options = parser.parse_args()
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    address = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500")))
    noise = random.Random(1000 + rank)
    reduce = AllReduce(rank, size, address)
    weights = array("d", bytes(8 * CLASSES * PIXELS))
    for step in range(options.steps):
        if rank == options.broken_rank and step == options.steps // 2:
            raise RuntimeError(f"rank {rank} is broken on purpose, at step {step}")
        batch = [(digit := noise.randrange(CLASSES), draw(digit, noise)) for _ in range(options.batch_size // size)]
        slope, loss, right = gradient(weights, batch)
        mean = reduce.sum(array("d", [*slope, loss, right]))
        for i in range(len(weights)):
            weights[i] -= options.learning_rate * mean[i] / size
        if tracking is not None and rank == 0:
            tracking.log(step=step, loss=mean[-2] / size, accuracy=mean[-1] / size)
        if rank == 0 and (step % 10 == 0 or step == options.steps - 1):
            print(f"step {step:3d}  loss {mean[-2] / size:.4f}  accuracy {mean[-1] / size:.3f}", flush=True)
    print(f"rank {rank} of {size} done, weights {sum(weights):+.9f} {weights[0]:+.9f}", flush=True)


if __name__ == "__main__":
    main()
