"""`phalanx_lightgbm()`: `lightgbm.train(…, callbacks=[phalanx_lightgbm()])`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from phalanx.tracking.callbacks.base import CallbackRun, safely, set_framework
from phalanx.tracking.callbacks.ranks import rank_duties


def phalanx_lightgbm(run: Any = None) -> Any:
    """Logs every evaluation as `valid_0/auc` and so on, and the params. `log_booster` keeps the model afterwards: with
    early stopping no callback is called at the end."""
    return _Callback(run)


class _Callback(CallbackRun):
    order = 25  # after LightGBM's own, and before early stopping, which ends the round
    before_iteration = False

    @safely
    def __call__(self, env: Any) -> None:
        spoken = rank_duties()
        if spoken.leads and env.iteration == env.begin_iteration:
            set_framework(self.run, "lightgbm")
            self.run.params({name: value for name, value in env.params.items() if not callable(value)})
        if spoken.speaks:
            self.run.log(dict(_latest(env.evaluation_result_list or ())), step=env.iteration)
            self.run.progress(env.iteration + 1, env.end_iteration, "rounds")


def _latest(results: Any) -> Iterator[tuple[str, float]]:
    """A result is a tuple of data, metric, value, whether more is better, and in a cross-validation the deviation.
    There some versions put the data into the metric name."""
    for result in results:
        data, metric, value, _, *deviation = tuple(result)
        if data == "cv_agg":
            data, _, metric = metric.rpartition(" ")
        name = f"{data}/{metric}" if data else metric
        yield name, value
        if deviation and deviation[0] is not None:
            yield f"{name}_std", deviation[0]
