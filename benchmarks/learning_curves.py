"""Makes learning_curves.csv: 384 configurations of a small network on scikit-learn's digits, 27 epochs each.

`search_cost.py` plays searches over the table. It was made once; run this script to make it again:

    python benchmarks/learning_curves.py > benchmarks/learning_curves.csv
"""

from __future__ import annotations

import csv
import itertools
import sys
import warnings
from importlib import import_module
from typing import Any

EPOCHS = 27
LEARNING_RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
HIDDEN = (8, 16, 32, 64)
BATCHES = (16, 64, 256)
ALPHAS = (1e-5, 1e-3, 1e-1, 1.0)
WORST = 9.999  # also for what diverged


def losses(rate: float, hidden: int, batch: int, alpha: float, data: Any) -> list[float]:
    """The validation loss after each epoch."""
    numpy = import_module("numpy")
    train_x, test_x, train_y, test_y = data
    network = import_module("sklearn.neural_network").MLPClassifier(
        (hidden,), solver="sgd", learning_rate_init=rate, batch_size=batch, alpha=alpha, random_state=0
    )
    found = []
    for _ in range(EPOCHS):
        try:
            network.partial_fit(train_x, train_y, classes=range(10))
            chances = network.predict_proba(test_x)[numpy.arange(len(test_y)), test_y]
            loss = float(-numpy.log(numpy.maximum(chances, 1e-12)).mean())
        except ValueError:  # its weights are no longer finite
            loss = WORST
        found.append(min(loss, WORST) if loss == loss else WORST)  # noqa: PLR0124 (NaN)
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    x, y = import_module("sklearn.datasets").load_digits(return_X_y=True)
    data = import_module("sklearn.model_selection").train_test_split(x / 16, y, test_size=0.33, random_state=0)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["rate", "hidden", "batch", "alpha", *range(1, EPOCHS + 1)])
    for point in itertools.product(LEARNING_RATES, HIDDEN, BATCHES, ALPHAS):
        table.writerow([*point, *(f"{loss:.4g}" for loss in losses(*point, data))])


if __name__ == "__main__":
    main()
