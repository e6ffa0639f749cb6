"""New values of the metrics that early stopping watches, from trials that run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.store import Store
from phalanx.store.series.run_series import RunSeries
from phalanx.tune.model import Measured, SearchSettings


class WatchedMetrics:
    """A policy compares curves, so it needs every point; a condition on a value only needs the extremes."""

    def __init__(self, home: Home, store: Store, settings: SearchSettings) -> None:
        self.home = home
        self.store = store
        rules = settings.early_stopping
        self.curves = {rule.metric.name for rule in rules if rule.policy is not None}
        self.values = {rule.metric.name: rule.metric.maximize for rule in rules if rule.value is not None}
        self.series: dict[str, RunSeries] = {}
        self.reached: dict[tuple[str, str], int] = {}  # last step of a run's metric
        self.extremes: dict[tuple[str, str], float] = {}

    def keep_only(self, run_ids: Iterable[str]) -> None:
        """Forget runs that have ended."""
        kept = set(run_ids)
        self.series = {run_id: series for run_id, series in self.series.items() if run_id in kept}

    def news(self, run_id: str, number: int) -> Iterator[Measured]:
        """What a trial logged since the last call."""
        if self.values:
            summaries = self.store.summaries(run_id)
            for name, maximize in self.values.items():
                found = summaries.get(name)
                best = None if found is None else found.max if maximize else found.min
                if found is not None and best is not None and self.extremes.get((run_id, name)) != best:
                    self.extremes[run_id, name] = best
                    if name not in self.curves:
                        yield Measured(number, found.step or 0, best, name)
        if self.curves:
            yield from self._points(run_id, number)

    def _points(self, run_id: str, number: int) -> Iterator[Measured]:
        series = self.series.get(run_id)
        if series is None:
            series = self.series[run_id] = RunSeries(self.home.run(run_id).path)
        try:
            series.poll()
            for name in self.curves.intersection(series.names()):
                line = series.series(name, series.replicas(name)[0])[0]
                after = self.reached.get((run_id, name))
                for step, value in zip(line.steps, line.values, strict=True):
                    if after is None or step > after:
                        self.reached[run_id, name] = after = step
                        yield Measured(number, step, value, name)
        except (OSError, CallError):
            return  # unreadable now, or compacted while pyarrow is missing
