"""The ops of the pipeline: prepare data, fit a line by gradient descent, and evaluate the best fit."""

import argparse
import json
import os
import random
from pathlib import Path

from phalanx import tracking

OUTPUTS = Path(os.environ["PHALANX_OUTPUTS"])
SLOPE = 3.0


def prepare() -> None:
    chance = random.Random(1)
    points = [(x / 10, SLOPE * x / 10 + chance.gauss(0, 0.1)) for x in range(100)]
    (OUTPUTS / "data.json").write_text(json.dumps(points))


def train(data: str, lr: float) -> None:
    points = json.loads(Path(data).read_text())
    slope = 0.0
    for step in range(20):
        slope -= lr * sum(2 * x * (slope * x - y) for x, y in points) / len(points)
        tracking.log(loss=sum((slope * x - y) ** 2 for x, y in points) / len(points), step=step)
    (OUTPUTS / "outputs.json").write_text(json.dumps({"slope": slope}))


def evaluate(slope: float, loss: float) -> None:
    print(f"slope {slope:.2f} (true: {SLOPE}), loss {loss:.4f}")
    if abs(slope - SLOPE) > 0.5:
        raise SystemExit("the fit is poor")


parser = argparse.ArgumentParser()
parser.add_argument("op", choices=["prepare", "train", "evaluate"])
parser.add_argument("--data")
for name in ("lr", "slope", "loss"):
    parser.add_argument(f"--{name}", type=float)
given = vars(parser.parse_args())
op = given.pop("op")
globals()[op](**{name: value for name, value in given.items() if value is not None})
