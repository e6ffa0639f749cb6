"""Find the minimum of a parabola by gradient descent."""

import argparse

from phalanx import tracking

arguments = argparse.ArgumentParser()
arguments.add_argument("--lr", type=float, required=True)
rate = arguments.parse_args().lr

weight = 5.0
for step in range(20):
    weight -= rate * 2 * (weight - 1)
    tracking.log(loss=(weight - 1) ** 2, step=step)
