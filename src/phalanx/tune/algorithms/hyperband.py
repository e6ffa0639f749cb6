"""Hyperband: brackets of successive halving. All trials of a rung end before the best of them go on.

While a bracket waits for its last trials, free slots go to the next bracket. A failed trial of the first rung is
replaced by a new one, a failed promotion by the next best of the rung below.
"""

from __future__ import annotations

from phalanx.tune.history import FAILED, INVALID, REPORTED, RUNNING, Rung
from phalanx.tune.model import Create, Finish, Promote
from phalanx.tune.rungs import RungPlan, bracket, highest_rung
from phalanx.tune.space import point_key
from phalanx.tune.view import SearchView


def full_resource(view: SearchView) -> float:
    return float(view.settings.options["max_iter"])


def next_action(view: SearchView) -> Create | Promote | Finish | None:
    options = view.settings.options
    max_iter, eta = options["max_iter"], options["eta"]
    brackets, trials = 0, 0
    while brackets <= highest_rung(max_iter, eta) if view.n is None else trials < view.n:
        rungs = bracket(max_iter, eta, brackets)
        found = _Bracket(view, brackets, rungs).next_action()
        if found is not None:
            return found
        brackets, trials = brackets + 1, trials + rungs[0].trials
    return view.finish()


class _Bracket:
    def __init__(self, view: SearchView, number: int, rungs: list[RungPlan]) -> None:
        self.view = view
        self.number = number
        self.plan = rungs

    def next_action(self) -> Create | Promote | None:
        is_over = self._first_rung()
        if isinstance(is_over, Create):
            return is_over
        for place in range(len(self.plan) - 1):
            if not is_over:
                return None
            promoted = self._promotion(place)
            if promoted is not None:
                return promoted
            is_over = not self._rung(place + 1).counts[RUNNING]
        return None

    def _rung(self, place: int) -> Rung:
        return self.view.history.rung(self.number, place)

    def _first_rung(self) -> Create | bool:
        """The next trial, or whether all of them have ended."""
        view, rung, wanted = self.view, self._rung(0), self.plan[0]
        standing = len(rung.members) - rung.counts[INVALID] - rung.counts[FAILED]
        may_replace = view.history.own[FAILED] <= view.may_fail(wanted.trials)
        if standing < wanted.trials and (may_replace or standing + rung.counts[FAILED] < wanted.trials):
            point = view.new_point()
            if point is None:  # the space is smaller than the table: once in each bracket
                point = view.new_point({point_key(trial.params, view.names) for trial in rung.members})
            if point is not None:
                said = f"bracket {self.number}: trial {standing + 1} of {wanted.trials} with {wanted.amount:g}"
                return view.create(point, said, wanted.amount, self.number)
        return not rung.counts[RUNNING]

    def _promotion(self, place: int) -> Promote | None:
        """The next of the best trials of a rung that all have ended."""
        view, here, above, wanted = self.view, self._rung(place), self._rung(place + 1), self.plan[place + 1]
        if len(above.members) - above.counts[FAILED] - above.counts[INVALID] >= wanted.trials:
            return None
        for rank, (loss, number) in enumerate(here.ranking(view.maximize)):
            trial = view.history.trials[number]
            if trial.state == REPORTED and trial.rung == place:
                amounts = (self.plan[place].amount, wanted.amount)
                why = view.promotion_words(loss, rank, here.n_ranked, wanted.trials, amounts)
                resume = view.settings.options.get("resume", False)
                return view.promote(number, wanted.amount, f"bracket {self.number}: {why}", resume=resume)
        return None
