"""The report on a set of trials: the recommendation and its basis, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from phalanx.insight.advice import FEW_LOOKS
from phalanx.insight.amounts import time_words
from phalanx.insight.sizing import OTHERS_CORES, SizingVerdict, Trial, label, recommend
from phalanx.insight.throughput import Measure, SpeedComparison, choose


class SizingReport:
    """`trials` are the finished ones, in order; `not_run` those that were not started."""

    def __init__(
        self, trials: Sequence[Trial], within: float, metric: str | None = None, not_run: Sequence[Any] = ()
    ) -> None:
        self.trials, self.within, self.metric, self.not_run = trials, within, metric, not_run
        self.chosen = choose([trial.speeds for trial in trials], metric)
        self.speeds: Sequence[float | None] = self.chosen.speeds if self.chosen is not None else (None,) * len(trials)
        self.verdict: SizingVerdict | None = recommend(trials, self.speeds, within)

    @property
    def interrupted(self) -> bool:
        return bool(self.not_run) or any(trial.state == "interrupted" for trial in self.trials)

    def label(self, place: int) -> str:
        return label(self.trials[place].choice)

    def share(self, place: int, of: int) -> float:
        one, other = self.speeds[place], self.speeds[of]
        return one / other if one is not None and other else 0.0

    def speed_words(self, place: int) -> str:
        speed = self.speeds[place]
        return "-" if speed is None or self.chosen is None else speed_words(self.chosen, speed)

    def note(self, place: int) -> str:
        """A remark on one trial."""
        trial = self.trials[place]
        if trial.state != "measured":
            return f"{'too little memory' if trial.state == 'memory' else trial.state}: {trial.reason}"[:70]
        if trial.is_loose:
            return "used more cores than requested: not comparable"
        chosen = self.verdict is not None and place == self.verdict.chosen
        parts = ["<- the smallest that is fast enough"] if chosen else []
        if self.speeds[place] is None:
            parts.append(trial.reason)
        if trial.is_disturbed:
            parts.append(f"other work used {trial.others_cores:.1f} cores meanwhile")
        return "; ".join(parts)

    def sentences(self) -> Iterator[str]:
        yield from self._measured_by()
        others = max((trial.others_cores or 0.0 for trial in self.trials), default=0.0)
        if others > OTHERS_CORES:
            yield (
                f"careful: other work used up to {others:.1f} cores of this machine meanwhile: the speeds are "
                "rough, measure again when it is idle"
            )
        if self.interrupted:
            left = f"; {len(self.not_run)} trials were not started" if self.not_run else ""
            yield f"interrupted: these are the results so far{left}"
        if self.verdict is None:
            yield self._why_not()
        else:
            yield from self._recommended(self.verdict)
        yield from self._gpus()

    def _gpus(self) -> Iterator[str]:
        for place, trial in enumerate(self.trials):
            if trial.has_idle_gpu and trial.gpu is not None:
                each = "the GPU" if trial.cost.gpus == 1 else "its GPUs"
                yield (
                    f"{self.label(place)}: {each} stayed idle ({trial.gpu.mean_percent:.0f} % busy on average): "
                    "others could use it"
                )
        if any(trial.gpu is not None and trial.gpu.looks < FEW_LOOKS for trial in self.trials if trial.cost.gpus):
            yield "GPUs are sampled every few seconds: use a longer --for to measure their utilisation"

    def _measured_by(self) -> Iterator[str]:
        """How the trials were compared, and how reliable that is."""
        if self.chosen is None:
            return
        name = self.chosen.metric
        yield {
            Measure.METRIC: f"measured by the mean of `{name}` in the second half of each trial",
            Measure.STEPS: f"measured by the steps of `{name}` per second in the second half of each trial",
            Measure.DURATION: "measured by the duration of each trial; one that did not finish was slower",
            Measure.LINES: (
                "measured by log lines per second, which is unreliable; track a metric (`tracking.log(loss=…, "
                "step=…)`), or let the program finish within the time"
            ),
        }[self.chosen.measure]
        if self.chosen.measure is Measure.STEPS and "workers" in self.trials[0].choice:
            yield (
                "a step with more workers may be more work: if so, track samples per second and select it with --metric"
            )

    def _why_not(self) -> str:
        if not any(trial.state == "measured" for trial in self.trials):
            return "no recommendation: no trial ran long enough to be measured"
        if self.chosen is None and self.metric is not None:
            return f"no recommendation: no trial tracked `{self.metric}` in its second half"
        if self.chosen is None:
            return (
                "no recommendation: the program tracks nothing, did not finish in time and wrote no lines; track "
                "a metric (`tracking.log(loss=…, step=…)`), or give it more time with --for"
            )
        return "no recommendation: every trial used more cores than requested"

    def _recommended(self, verdict: SizingVerdict) -> Iterator[str]:
        name = self.label(verdict.chosen)
        if len([speed for speed in self.speeds if speed is not None]) == 1:
            yield f"{name} is the only trial with a measurement: there is no other to compare it with"
            return
        if verdict.chosen == verdict.best and verdict.smaller is None:
            yield f"{name} is both the smallest and the fastest"
        elif verdict.chosen == verdict.best:
            yield f"{name} is the fastest, and no smaller one is within {100 * self.within:.0f} % of it"
        else:
            share = 100 * self.share(verdict.chosen, verdict.best)
            yield f"{name} is the smallest that is fast enough: {share:.0f} % of the best, {self.label(verdict.best)}"
            if share < 100 * self.within:
                yield "a GPU that does not make it at least half as fast again is better left to others"
        if verdict.larger is not None:
            gain = 100 * (self.share(verdict.larger, verdict.chosen) - 1)
            brings = f"brings {gain:.0f} % more" if gain >= 0.5 else "brings nothing" if gain > -5 else "is even slower"
            yield f"the next larger, {self.label(verdict.larger)}, {brings}"
        if verdict.smaller is not None:
            loss = 100 * (1 - self.share(verdict.smaller, verdict.chosen))
            yield f"the next smaller, {self.label(verdict.smaller)}, is {loss:.0f} % slower"

    def as_data(self) -> dict[str, Any]:
        chosen = self.chosen
        return {
            "ok": self.verdict is not None,
            "trials": [self._trial_data(place) for place in range(len(self.trials))],
            "not_run": [dict(choice) for choice in self.not_run],
            "interrupted": self.interrupted,
            "measure": None if chosen is None else str(chosen.measure),
            "metric": None if chosen is None else chosen.metric,
            "recommended": None if self.verdict is None else self._verdict_data(self.verdict),
            "remarks": list(self.sentences()),
        }

    def _trial_data(self, place: int) -> dict[str, Any]:
        trial = self.trials[place]
        return {
            "choice": dict(trial.choice),
            "asked": trial.cost._asdict(),
            "run": trial.run_id,
            "state": trial.state,
            "reason": trial.reason,
            "seconds": trial.seconds,
            "speed": self.speeds[place],
            "cores_p95": trial.cores_p95,
            "memory_mib": trial.memory_mib,
            "gpu": None if trial.gpu is None else trial.gpu._asdict(),
            "kept_to_its_cores": not trial.is_loose,
            "others_cores": trial.others_cores,
        }

    def _verdict_data(self, verdict: SizingVerdict) -> Mapping[str, Any]:
        def about(place: int | None) -> dict[str, Any] | None:
            if place is None:
                return None
            return {"choice": dict(self.trials[place].choice), "of_best": self.share(place, verdict.best)}

        places = {"best": verdict.best, "larger": verdict.larger, "smaller": verdict.smaller}
        return {**(about(verdict.chosen) or {}), **{name: about(place) for name, place in places.items()}}


def speed_words(chosen: SpeedComparison, speed: float) -> str:
    if chosen.measure is Measure.DURATION:
        return time_words(1 / speed)
    unit = {Measure.STEPS: " steps/s", Measure.LINES: " lines/s"}.get(chosen.measure, "")
    return f"{speed:.3g}{unit}" if speed < 100 else f"{speed:.0f}{unit}"
