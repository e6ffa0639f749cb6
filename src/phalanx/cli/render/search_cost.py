"""The cost of a search before it runs: trials, rungs, and how long they take one after another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

from phalanx.cli.render.tables import span_text
from phalanx.plan import Plan
from phalanx.spec import Spec
from phalanx.spec.groups import search_settings
from phalanx.spec.model import Search
from phalanx.submission.earlier_times import EarlierTimes, requested
from phalanx.tune.model import Create, Metric, Promote
from phalanx.tune.rungs import bracket, highest_rung, hyperband_trials, ladder
from phalanx.tune.simulation import Duration, Played, Simulation

MOST_SIMULATED = 4_000  # attempts: playing more takes too long


def cost_of(search: Search) -> dict[str, Any] | None:
    """What a search costs; None if its number of trials is not known. A search with rungs is played with made-up
    values. `attempts`, `units` (of the resource, over all attempts) and `rounds` (units one after another) are None if
    that would take too long."""
    size = _size(search)
    if size is None:
        return None
    repeats, concurrency = search.repeats, search.concurrency
    found: dict[str, Any] = {"runs": size * repeats, "repeats": repeats, "rungs": []}
    if "max_iter" not in search.settings:
        rounds = -(-size * repeats // concurrency)
        return {**found, "attempts": found["runs"], "units": found["runs"], "rounds": rounds}
    if _most_attempts(search, size) > MOST_SIMULATED:
        return {**found, "attempts": None, "units": None, "rounds": None}
    played = _played(search)
    rungs: dict[tuple[int, int], dict[str, Any]] = {}
    brackets: dict[int, int] = {}
    for entry in played.entries:
        if isinstance(entry, Create | Promote):
            if isinstance(entry, Create):
                brackets[entry.trial] = entry.bracket
            key = (brackets[entry.trial], entry.rung)
            row = {"bracket": key[0], "rung": entry.rung, "resource": entry.resource, "runs": 0}
            rungs.setdefault(key, row)["runs"] += repeats
    return {
        "runs": len(played.history.trials) * repeats,
        "repeats": repeats,
        "attempts": sum(row["runs"] for row in rungs.values()),
        "rungs": list(rungs.values()),
        "units": played.units * repeats,
        "rounds": _length(search, played),
    }


def _played(search: Search, duration: Duration | None = None) -> Played:
    """The search with made-up values. A trial holds as many slots as it has repeats."""
    settings = search_settings(search, "cost")._replace(early_stopping=(), metric=Metric("value"))
    return Simulation(settings, _made_up, max(1, search.concurrency // search.repeats), duration=duration).run()


def _length(search: Search, played: Played) -> float:
    """How long it takes, also if there are fewer slots than repeats."""
    return played.time * -(-search.repeats // search.concurrency)


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


def hours_of(
    search: Search, cost: Mapping[str, Any] | None, made: Plan, earlier: EarlierTimes | None
) -> dict[str, Any] | None:
    """Core-hours, GPU-hours and hours at this concurrency, by the times of earlier runs, or else at most, by the limit
    of a run; None if neither tells."""
    if cost is None or cost["attempts"] is None:
        return None
    if earlier is not None:
        total, wall = cost["units"] * earlier.per_unit / 3600, cost["rounds"] * earlier.per_unit / 3600
        by = {"by": "history", "earlier_runs": earlier.runs, "seconds_per_unit": earlier.per_unit}
    elif made.timeout_s is not None:
        turns = _length(search, _played(search, lambda *_: 1.0)) if cost["rungs"] else cost["rounds"]
        total, wall = cost["attempts"] * made.timeout_s / 3600, turns * made.timeout_s / 3600
        by = {"by": "limit", "limit_s": made.timeout_s}
    else:
        return None
    asked = requested(made)
    return {**by, "core_hours": total * asked.cpus, "gpu_hours": total * asked.gpus, "wall_hours": wall}


def cost_lines(loaded: Spec, made: Plan, earlier: EarlierTimes | None = None) -> Iterator[str]:
    """`17 runs, 4 at a time; …`, the rungs, and the hours. `earlier`: the times of earlier runs, if there are any."""
    search = loaded.search
    assert search is not None
    cost = cost_of(search)
    if cost is None:
        yield "number of runs: not known; write `random_search: {n_experiments: N}`"
        return
    attempts = cost["attempts"]
    again = ", each in one or more attempts" if attempts is None else ""
    again = f" in {attempts} attempts" if attempts not in (None, cost["runs"]) else again
    each = f", {search.repeats} of each point" if search.repeats > 1 else ""
    yield f"{cost['runs']} runs{again}{each}, {search.concurrency} at a time"
    unit = (search.settings.get("resource") or {}).get("name")
    if cost["rungs"]:
        yield f"{cost['units']:g} {unit} in total, {cost['rounds']:g} one after another"
        by_bracket: dict[int, list[str]] = {}
        for row in cost["rungs"]:
            by_bracket.setdefault(row["bracket"], []).append(f"{row['runs']} @ {row['resource']:g}")
        for number, steps in by_bracket.items():
            yield f"  bracket {number}: {', '.join(steps)}"
    yield from _hours_lines(made, cost, hours_of(search, cost, made, earlier), unit)


def _hours_lines(
    made: Plan, cost: Mapping[str, Any], hours: Mapping[str, Any] | None, unit: str | None
) -> Iterator[str]:
    asked = requested(made)
    yield f"each run: {_count(asked.cpus, 'core')}" + (f" and {_count(asked.gpus, 'GPU')}" if asked.gpus else "")
    if hours is None:
        if cost["attempts"] is not None:
            yield (
                "hours: not known; they follow from an earlier run of this command (run one trial), or at most from "
                "`environment: {timeout: 2h}`"
            )
        return
    parts = [f"{_figure(hours['core_hours'])} core-hours"]
    parts += [f"{_figure(hours['gpu_hours'])} GPU-hours"] if asked.gpus else []
    text = f"{', '.join(parts)}, {span_text(hours['wall_hours'] * 3600)} at this concurrency"
    if hours["by"] == "limit":
        yield f"at most {text}: by the time limit of a run, {span_text(hours['limit_s'])}"
    else:
        runs = _count(hours["earlier_runs"], "earlier run")
        per = f"for each of {unit}" if unit else "each"
        yield f"about {text}: {span_text(hours['seconds_per_unit'])} {per} in {runs} of this command"


def _count(amount: float, word: str) -> str:
    return f"{amount:g} {word}{'' if amount == 1 else 's'}"


def _figure(amount: float) -> str:
    return f"{amount:.3g}" if amount < 1000 else f"{amount:,.0f}"
