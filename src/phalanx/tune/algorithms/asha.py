"""ASHA: asynchronous successive halving. A trial goes on as soon as it is among the best 1/eta of its rung.

Nothing waits: a free slot promotes the best trial that may go on, or else starts a new one. When all trials are
created and none may go on, the best one is still taken up to `max_iter`.
"""

from __future__ import annotations

from phalanx.tune.history import FAILED, REPORTED
from phalanx.tune.model import Create, Finish, Promote
from phalanx.tune.rungs import ladder
from phalanx.tune.view import SearchView


def full_resource(view: SearchView) -> float:
    return float(view.settings.options["max_iter"])


def next_action(view: SearchView) -> Create | Promote | Finish | None:
    options, history = view.settings.options, view.history
    eta = options["eta"]
    amounts = ladder(options.get("min_iter", 1), options["max_iter"], eta)
    top = len(amounts) - 1
    for place in range(top - 1, -1, -1):
        go_on = int(history.rung(0, place).n_ranked / eta + 1e-9)
        found = _promotion(view, place, go_on, amounts)
        if found is not None:
            return found
    wanted = view.n
    if wanted is None:
        return Finish("asha needs `n_experiments`", "failed")
    if view.n_created < wanted + view.n_replaced(wanted):
        point = view.new_point()
        if point is not None:
            return view.create(point, f"trial {view.count_words(wanted)} with {amounts[0]:g}", amounts[0])
    if history.running or history.own[FAILED] > view.may_fail(wanted):
        return view.finish()
    highest = max((place for place in range(top + 1) if history.rung(0, place).ranking(view.maximize)), default=top)
    for place in range(highest, -1, -1) if highest < top else ():
        found = _promotion(view, place, 1, amounts)
        if found is not None:
            return found
    return view.finish()


def _promotion(view: SearchView, place: int, go_on: int, amounts: list[float]) -> Promote | None:
    """The best trial of a rung that is among those that go on and has not gone on yet."""
    rung = view.history.rung(0, place)
    for rank, (loss, number) in enumerate(rung.ranking(view.maximize)[:go_on]):
        trial = view.history.trials[number]
        if trial.rung == place and trial.state == REPORTED:
            why = view.promotion_words(loss, rank, rung.n_ranked, go_on, amounts[place : place + 2])
            resume = view.settings.options.get("resume", True)
            return view.promote(number, amounts[place + 1], why, resume=resume)
    return None
