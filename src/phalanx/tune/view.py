"""What an algorithm sees: the settings and the history of a search, and how actions are made from them.

Standard library only, Python 3.8+.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from phalanx.tune.history import FAILED, INVALID, REPORTED, STATES, STOPPED, History
from phalanx.tune.model import OUTSIDE, Create, Finish, Promote, SearchSettings
from phalanx.tune.space import draw, draw_new, size

LEAST_REPLACED = 5  # failed trials that are replaced, however small the search


class SearchView:
    def __init__(self, settings: SearchSettings, history: History) -> None:
        self.settings = settings
        self.history = history
        self.names = tuple(dimension.name for dimension in settings.dimensions)
        self.size = size(settings.dimensions)

    @classmethod
    def of(cls, settings: SearchSettings, history: History) -> SearchView:
        """The view of a history, made once: it takes time to count a large space."""
        view = history.view
        if not isinstance(view, cls) or view.settings is not settings:
            view = history.view = cls(settings, history)
        return view

    @property
    def number(self) -> int:
        """Of the next trial."""
        return len(self.history.trials)

    @property
    def n(self) -> int | None:
        """Trials in total."""
        return self.settings.n if self.history.n is None else self.history.n

    @property
    def maximize(self) -> bool:
        return self.settings.metric is None or self.settings.metric.maximize

    @property
    def n_created(self) -> int:
        """Trials that the search created and that count: those of users and invalid ones do not."""
        return sum(self.history.own.values()) - self.history.own[INVALID]

    def n_replaced(self, planned: int) -> int:
        """Failed trials that get a replacement: all, but not more than planned. What always fails must end."""
        return min(self.history.own[FAILED], self.may_fail(planned))

    def may_fail(self, planned: int) -> int:
        allowed = self.settings.max_failed
        return max(planned, LEAST_REPLACED) if allowed is None else allowed

    def new_point(self, known: Collection[str] | None = None) -> dict[str, Any] | None:
        """A random point for the next trial that no trial has; None when none is left."""
        if known is None:
            known = self.history.points(self.names)
        return draw_new(self.settings.dimensions, self.settings.seed, self.number, known)

    def resource(self, amount: float | None) -> dict[str, Any]:
        """The param of the resource with its amount, as the type that the file says."""
        if amount is None:
            return {}
        section = self.settings.options["resource"]
        return {section["name"]: int(amount) if section.get("type") == "int" else float(amount)}

    def create(self, point: Mapping[str, Any], why: str, amount: float | None = None, bracket: int = 0) -> Create:
        resource = self.resource(amount)
        return Create(self.number, {**point, **resource}, 0, next(iter(resource.values()), None), why, bracket)

    def promotion_words(self, loss: float, rank: int, ranked: int, go_on: int, amounts: Sequence[float]) -> str:
        """Why a trial goes on: `0.61 is number 3 of 9 with 3; 3 go on with 9`. `rank`: from 0. `amounts`: of the
        resource, at this rung and at the next."""
        value, (here, above) = -loss if self.maximize else loss, amounts
        return f"{value:.6g} is number {rank + 1} of {ranked} with {here:g}; {go_on} go on with {above:g}"

    def promote(self, trial: int, amount: float, why: str, *, resume: bool) -> Promote:
        resource = self.resource(amount)
        (value,) = resource.values()
        return Promote(trial, self.history.trials[trial].rung + 1, value, resource, why, resume)

    def open_point(self, amount: float | None) -> Create | None:
        """The trial of the oldest point that a user added; what it leaves out is drawn at random."""
        if not self.history.open_points:
            return None
        point = {**draw(self.settings.dimensions, self.settings.seed, self.number), **self.history.open_points[0]}
        bracket = 0 if amount is None else OUTSIDE
        return self.create(point, "added by a user", amount, bracket)._replace(added=True)

    def finish(self) -> Finish | None:
        """The end of the search, once nothing runs."""
        if self.history.running:
            return None
        counts = self.history.counts
        parts = [f"{counts[state]} {state}" for state in STATES if counts[state]]
        if parts and not counts[REPORTED] + counts[STOPPED]:
            return Finish(f"no trial reported a result: {', '.join(parts)}", "failed")
        return Finish(f"all trials have ended: {', '.join(parts)}" if parts else "there is no point to try")

    def count_words(self, wanted: int) -> str:
        """Which of how many trials the next one is."""
        replaced = self.n_created >= wanted
        return f"{self.n_created + 1} of {wanted}{', in place of a failed one' if replaced else ''}"
