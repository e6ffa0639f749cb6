"""The cost of a search before it runs: trials, rungs, and how long they take one after another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

from phalanx.plan import Plan
from phalanx.spec import Spec
from phalanx.spec.groups import search_settings
from phalanx.spec.model import Search
from phalanx.tune.model import Create, Metric, Promote
from phalanx.tune.rungs import bracket, highest_rung, hyperband_trials, ladder
from phalanx.tune.simulation import Simulation

MOST_SIMULATED = 4_000  # attempts: playing more takes too long


def cost_of(search: Search) -> dict[str, Any] | None:
    """What a search costs; None if its number of trials is not known. A search with rungs is played with made-up
    values. `attempts` is None if that would take too long."""
    size = _size(search)
    if size is None:
        return None
    has_rungs = "max_iter" in search.settings
    if not has_rungs or _most_attempts(search, size) > MOST_SIMULATED:
        attempts = None if has_rungs else size
        return {"runs": size, "attempts": attempts, "rounds": -(-size // search.concurrency), "rungs": []}
    settings = search_settings(search, "cost")._replace(early_stopping=(), metric=Metric("value"))
    played = Simulation(settings, _made_up, search.concurrency).run()
    rungs: dict[tuple[int, int], dict[str, Any]] = {}
    brackets: dict[int, int] = {}
    attempts = 0
    for entry in played.entries:
        if isinstance(entry, Create | Promote):
            attempts += 1
            if isinstance(entry, Create):
                brackets[entry.trial] = entry.bracket
            key = (brackets[entry.trial], entry.rung)
            row = {"bracket": key[0], "rung": entry.rung, "resource": entry.resource, "runs": 0}
            rungs.setdefault(key, row)["runs"] += 1
    found = {
        "runs": len(played.history.trials),
        "attempts": attempts,
        "rungs": list(rungs.values()),
    }
    return {**found, "units": played.units, "rounds": played.time}


def _size(search: Search) -> int | None:
    if search.algorithm != "hyperband":
        return search.size
    wanted = hyperband_trials(search.settings["max_iter"], search.settings["eta"])
    return wanted if search.space is None else min(wanted, search.space)


def _most_attempts(search: Search, size: int) -> int:
    """Of a search with rungs."""
    max_iter, eta = float(search.settings["max_iter"]), float(search.settings.get("eta", 0))
    if "interval" in search.settings:
        return size * math.ceil(max_iter / float(search.settings["interval"]))
    if search.algorithm == "hyperband":
        brackets = range(highest_rung(max_iter, eta) + 1)
        return sum(rung.trials for number in brackets for rung in bracket(max_iter, eta, number))
    return size * len(ladder(search.settings.get("min_iter", 1), max_iter, eta))


def _made_up(params: Mapping[str, Any], _: float | None) -> float:
    return crc32(repr(sorted(params.items())).encode()) / 2**32


def cost_lines(loaded: Spec, made: Plan) -> Iterator[str]:
    """`17 runs, 4 at a time; …`, and the rungs."""
    search = loaded.search
    assert search is not None
    cost = cost_of(search)
    if cost is None:
        yield "number of runs: not known; write `random_search: {n_experiments: N}`"
        return
    attempts = cost["attempts"]
    again = ", each in one or more attempts" if attempts is None else ""
    again = f" in {attempts} attempts" if attempts not in (None, cost["runs"]) else again
    yield f"{cost['runs']} runs{again}, {search.concurrency} at a time"
    resource = search.settings.get("resource") or {}
    unit = resource.get("name", "resource")
    if cost["rungs"]:
        yield f"{cost['units']:g} {unit} in total, {cost['rounds']:g} one after another"
        by_bracket: dict[int, list[str]] = {}
        for row in cost["rungs"]:
            by_bracket.setdefault(row["bracket"], []).append(f"{row['runs']} @ {row['resource']:g}")
        for number, steps in by_bracket.items():
            yield f"  bracket {number}: {', '.join(steps)}"
    yield from _hours(made, cost)


def _hours(made: Plan, cost: Mapping[str, Any]) -> Iterator[str]:
    """Core- and GPU-hours, as far as the file says how long a run may take."""
    per_run = {name: _amount(getattr(made.totals, name)) for name in ("cpu", "gpu")}
    asked = [f"{amount:g} {word}" for amount, word in zip(per_run.values(), ("cores", "GPUs"), strict=True) if amount]
    if asked:
        yield f"each run: {' and '.join(asked)}"
    if made.timeout_s is not None and cost["attempts"] is not None:
        hours = made.timeout_s / 3600
        attempts, rounds = cost["attempts"], cost["rounds"] if not cost["rungs"] else None
        most = [
            f"{amount * attempts * hours:g} {word}-hours"
            for amount, word in zip(per_run.values(), ("core", "GPU"), strict=True)
            if amount
        ]
        wall = [f"{rounds * hours:g} h at this concurrency"] if rounds is not None else []
        if most or wall:
            yield f"at most, by the timeout of a run: {', '.join([*most, *wall])}"


def _amount(amount: Any) -> float | None:
    if amount is None:
        return None
    found: float | None = amount.limits if amount.requests is None else amount.requests
    return found
