"""Bayesian optimisation: a Gaussian process of the results, with the kernel and acquisition function of the file.

Every axis is scaled to [0, 1] (log forms on a logarithmic axis, listed numbers by rank, texts one axis each), values
are normalised, and the length scale is fitted for each axis. Running trials count with the value that the model
expects (a constant liar), so several suggestions at once differ. No point is suggested twice.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from phalanx.tune import surrogates
from phalanx.tune.model import Create, Finish
from phalanx.tune.space import EMPTY, Axis, point_key, seed_number
from phalanx.tune.view import SearchView

PACKAGES = ("sklearn", "scipy", "numpy", "threadpoolctl")
_WARMUP = 500  # random points to start from, at least
_STARTS = 10
_MOST = 300  # results that the model is fitted to
_KAPPA = 2.576
_ROUNDS, _STEPS = 4, 40  # of the local search around each start
_JITTER = 1e-8
_SCALES = (0.01, 100.0)  # of an axis from 0 to 1


def next_action(view: SearchView) -> Create | Finish | None:
    n_initial = int(view.settings.options["n_initial_trials"])
    return surrogates.next_action(view, n_initial, suggest, n_results=min(n_initial, 2))


def suggest(view: SearchView, attempt: int) -> dict[str, Any] | None:
    found = _fewer(surrogates.results(view))
    if not found:
        return None
    with surrogates.package("threadpoolctl").threadpool_limits(1):  # small matrices, and equal answers everywhere
        model = _Model(view, found, seed_number(view.settings.seed, "bo", view.number, attempt))
        rows = model.best_rows()
    known = view.history.points(view.names)
    for row in rows:
        point = model.cube.point(row)
        if point_key(point, view.names) not in known:
            return point
    return None


def _fewer(found: list[surrogates.Result]) -> list[surrogates.Result]:
    """The best and the latest of many results: the time of a fit grows with the cube of their number."""
    if len(found) <= _MOST:
        return found
    best = {result.trial.number for result in sorted(found, key=lambda result: result.loss)[: _MOST // 2]}
    latest = {result.trial.number for result in found[-(_MOST // 2) :]}
    return [result for result in found if result.trial.number in best | latest]


class _Cube:
    """Points as rows of positions, one for each dimension, and as rows of features, in which a text has an axis for
    each of its values."""

    def __init__(self, numpy: Any, axes: list[Axis]) -> None:
        self.numpy = numpy
        self.axes = axes

    def places(self, points: list[Any]) -> Any:
        return self.numpy.array([[axis.position(point[axis.dimension.name]) for axis in self.axes] for point in points])

    def features(self, places: Any) -> Any:
        columns = []
        for index, axis in enumerate(self.axes):
            column = places[:, index]
            if axis.order is None:
                columns.append(column[:, None])
                continue
            cells = self.numpy.clip((column * len(axis.order)).astype(int), 0, len(axis.order) - 1)
            if axis.is_category:
                columns.append(self.numpy.eye(len(axis.order))[cells])
            else:
                columns.append(((cells + 0.5) / len(axis.order))[:, None])
        return self.numpy.hstack(columns)

    def point(self, row: Any) -> dict[str, Any]:
        return {axis.dimension.name: axis.value(float(row[index])) for index, axis in enumerate(self.axes)}


class _Model:
    """The Gaussian process of all results. Scores are losses turned round and normalised: higher is better."""

    def __init__(self, view: SearchView, found: list[surrogates.Result], seed: int) -> None:
        self.numpy = surrogates.package("numpy")
        self.options = view.settings.options.get("utility_function") or EMPTY
        self.cube = _Cube(self.numpy, surrogates.axes(view))
        self.random = self.numpy.random.RandomState(seed)
        self.places = self.cube.places([result.trial.params for result in found])
        scores = -self.numpy.array([result.loss for result in found])
        spread = scores.std()
        self.scores = (scores - scores.mean()) / (spread if spread > 0 else 1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a length scale at its bound is no fault
            self.process = self._fit([trial.params for trial in view.history.running.values()])

    def _fit(self, running: list[Any]) -> Any:
        regressor = surrogates.package("sklearn.gaussian_process").GaussianProcessRegressor
        section = self.options.get("gaussian_process") or EMPTY
        features = self.cube.features(self.places)
        restarts = int(section.get("n_restarts_optimizer", 0))
        seed = int(self.random.randint(2**31 - 1))
        kernel = self._kernel(section, features.shape[1])
        process = regressor(kernel, alpha=_JITTER, n_restarts_optimizer=restarts, random_state=seed)
        process.fit(features, self.scores)
        if not running:
            return process
        liars = self.cube.features(self.cube.places(running))
        believed = process.predict(liars)
        again = regressor(process.kernel_, alpha=_JITTER, optimizer=None)
        return again.fit(self.numpy.vstack([features, liars]), self.numpy.concatenate([self.scores, believed]))

    def _kernel(self, section: Any, width: int) -> Any:
        kernels = surrogates.package("sklearn.gaussian_process.kernels")
        scales = self.numpy.full(width, float(section.get("length_scale", 1.0)))
        if section.get("kernel", "matern") == "rbf":
            shape = kernels.RBF(scales, _SCALES)
        else:
            shape = kernels.Matern(scales, _SCALES, nu=float(section.get("nu", 1.5)))
        return kernels.ConstantKernel(1.0, (0.05, 20.0)) * shape + kernels.WhiteKernel(1e-4, (1e-8, 0.1))

    def _acquire(self, places: Any) -> Any:
        """What trying each row promises, by the acquisition function of the file."""
        numpy, function = self.numpy, self.options.get("acquisition_function", "ucb" if self.options else "ei")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mean, deviation = self.process.predict(self.cube.features(places), return_std=True)
        if function == "ucb":
            return mean + float(self.options.get("kappa", _KAPPA)) * deviation
        special = surrogates.package("scipy.special")
        deviation = numpy.maximum(deviation, 1e-12)
        gain = mean - self.scores.max() - float(self.options.get("eps", 0.0))
        ratio = gain / deviation
        if function == "poi":
            return special.ndtr(ratio)
        return gain * special.ndtr(ratio) + deviation * numpy.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)

    def best_rows(self) -> Any:
        """Positions that promise most, best first: of random points, then of steps around the best of them."""
        numpy, random, width = self.numpy, self.random, len(self.cube.axes)
        rows = random.uniform(size=(max(_WARMUP, int(self.options.get("n_warmup", 0))), width))
        top = self.places[int(self.scores.argmax())]
        rows = numpy.vstack([rows, numpy.clip(top + 0.1 * random.normal(size=(len(rows) // 5, width)), 0, 1)])
        values = self._acquire(rows)
        starts = max(1, int(self.options.get("n_iter", _STARTS)))
        step = 0.1
        for _ in range(_ROUNDS):
            chosen = numpy.argsort(-values, kind="stable")[:starts]
            moves = random.normal(size=(len(chosen), _STEPS, width)) * step
            moves *= random.uniform(size=moves.shape) < max(0.5, 2 / width)  # some axes at a time
            tried = numpy.clip(rows[chosen][:, None, :] + moves, 0, 1).reshape(-1, width)
            values = numpy.concatenate([values, self._acquire(tried)])
            rows = numpy.vstack([rows, tried])
            step /= 3
        return rows[numpy.argsort(-values, kind="stable")]
