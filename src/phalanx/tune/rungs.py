"""Rungs of hyperband and asha: how many trials run with how much of the resource. Exact where floating point is not.

Standard library only, Python 3.8+.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

_ROUNDING = 1e-9


class RungPlan(NamedTuple):
    """`trials` of them run with `amount` of the resource each."""

    trials: int
    amount: float


def highest_rung(ratio: float, eta: float) -> int:
    """How often the resource can be multiplied by `eta` within this ratio: 243 by 3 is 5, in spite of rounding."""
    return int(math.log(ratio) / math.log(eta) + _ROUNDING)


def bracket(max_iter: float, eta: float, number: int) -> list[RungPlan]:
    """The rungs of hyperband's bracket, counted from 0 (the one with most trials and the smallest resource)."""
    top = highest_rung(max_iter, eta)
    rungs = top - number % (top + 1)
    count = math.ceil((top + 1) * eta**rungs / (rungs + 1) - _ROUNDING)
    return [RungPlan(int(count / eta**rung + _ROUNDING), max_iter / eta ** (rungs - rung)) for rung in range(rungs + 1)]


def hyperband_trials(max_iter: float, eta: float) -> int:
    """How many trials hyperband creates in all its brackets."""
    return sum(bracket(max_iter, eta, number)[0].trials for number in range(highest_rung(max_iter, eta) + 1))


def first_amount(options: Mapping[str, Any]) -> float:
    """What a trial of the first rung gets, by the options of its algorithm."""
    if "interval" in options:
        return float(min(options["interval"], options["max_iter"]))
    least = options.get("min_iter", 1)
    return float(
        max(least, options["max_iter"] / options["eta"] ** highest_rung(options["max_iter"] / least, options["eta"]))
    )


def ladder(min_iter: float, max_iter: float, eta: float) -> list[float]:
    """The resource of each rung of asha: `max_iter` at the top, divided by `eta` down to at least `min_iter`."""
    rungs = highest_rung(max_iter / min_iter, eta)
    return [max_iter / eta ** (rungs - rung) for rung in range(rungs + 1)]
