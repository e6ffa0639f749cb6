"""Early stopping: conditions that end a search, and policies that stop single trials.

A policy compares the best value of a trial so far with the other trials at the same report (the first, second, …
value of the metric), so it does not matter how many steps lie between two of them. Standard library only, Python 3.8+.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.tune.curves import Curves
from phalanx.tune.history import History
from phalanx.tune.model import SearchSettings, Stop, StoppingRule

LEAST_OTHERS = 4  # trials that must have reached a report before one of them is stopped there


def reached(settings: SearchSettings, history: History) -> str | None:
    """Which condition is met, in words."""
    for rule in settings.early_stopping:
        extremes = [history.curves.extremes[key] for key in _keys(rule, settings) if key in history.curves.extremes]
        if rule.value is None or not extremes:
            continue
        if rule.metric.maximize:
            best, trial = max((found.high, found.highest) for found in extremes)
            is_met, word = best >= rule.value, "at least"
        else:
            best, trial = min((found.low, found.lowest) for found in extremes)
            is_met, word = best <= rule.value, "at most"
        if is_met:
            return f"early stopping: {rule.metric.name} of trial {trial} is {best:.6g}, {word} {rule.value:.6g}"
    return None


def _keys(rule: StoppingRule, settings: SearchSettings) -> tuple[str, ...]:
    """Under which names the values of a metric are recorded."""
    is_own = settings.metric is not None and settings.metric.name == rule.metric.name
    return (rule.metric.name, "") if is_own else (rule.metric.name,)


def stops(settings: SearchSettings, history: History) -> Iterator[Stop]:
    """Running trials that a policy stops now."""
    stopped = set()
    for rule in settings.early_stopping:
        keys = [key for key in _keys(rule, settings) if key in history.curves.of]
        if rule.policy is None or not keys:
            continue
        for number, trial in history.running.items():
            if trial.is_stopping or number in stopped:
                continue
            why = _why_stopped(rule, keys[0], history.curves, number)
            if why is not None:
                stopped.add(number)
                yield Stop(number, why)


def _why_stopped(rule: StoppingRule, metric: str, curves: Curves, number: int) -> str | None:
    curve = curves.of[metric].get(number)
    report = len(curve) // rule.interval * rule.interval if curve is not None else 0
    if curve is None or report == 0:
        return None
    best, maximize = curve.best(report, rule.metric.maximize), rule.metric.maximize
    said = f"its best {rule.metric.name} after {report} reports is {best:.6g}"
    if rule.policy == "truncation":
        others = curves.bests_of_others(metric, number, report, maximize)
        better = sum(1 for other in others if (other > best if maximize else other < best))
        kept = (len(others) + 1) * (1 - rule.percent / 100)
        if len(others) < LEAST_OTHERS or better < kept:
            return None
        return f"{said}, place {better + 1} of {len(others) + 1}: the last {rule.percent:g} % stop"
    others = curves.means_of_others(metric, number, report)
    if len(others) < LEAST_OTHERS:
        return None
    bar = _median(others) if rule.policy == "median" else sum(others) / len(others)
    if best >= bar if maximize else best <= bar:
        return None
    return f"{said}, worse than the {rule.policy} {bar:.6g} of {len(others)} other trials"


def _median(numbers: list[float]) -> float:
    middle = len(numbers) // 2
    return numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2
