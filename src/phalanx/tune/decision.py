"""Decisions of a search: `decide` is a pure function of the settings and the recorded history.

The same history gives the same actions in every process. Actions are decided for the slots that are free now; those
that need others before them (a promotion within a rung, a liar for a running trial) see them as recorded.
Standard library only, Python 3.8+.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from phalanx.tune import early_stopping
from phalanx.tune.history import FAILED, INVALID, History
from phalanx.tune.model import Finish, SearchAction, SearchSettings
from phalanx.tune.view import SearchView

MOST_INVALID = 100  # invalid points in a row of trials without any other end
_ALGORITHMS = "phalanx.tune.algorithms"


class UnknownAlgorithm(ValueError):
    """No module of this name."""


def algorithm(name: str) -> Any:
    """The module of an algorithm."""
    if not name.isidentifier():
        raise UnknownAlgorithm(f"unknown search algorithm `{name}`")
    try:
        return import_module(f"{_ALGORITHMS}.{name}")
    except ModuleNotFoundError as fault:
        if fault.name != f"{_ALGORITHMS}.{name}":
            raise
        raise UnknownAlgorithm(f"unknown search algorithm `{name}`") from None


def packages(name: str) -> tuple[str, ...]:
    """Packages that an algorithm needs: if any, ask for decisions in a process of their own (`suggestions.py`)."""
    found: tuple[str, ...] = getattr(algorithm(name), "PACKAGES", ())
    return found


def decide(settings: SearchSettings, history: History, free_slots: int) -> list[SearchAction]:
    """The next actions: stops of running trials, then at most `free_slots` new or promoted trials, or the end."""
    if history.finish is not None:
        return []
    view = SearchView.of(settings, history)
    end = _early_end(view)
    if end is not None:
        return [end]
    actions: list[SearchAction] = [*early_stopping.stops(settings, history)]
    searched = algorithm(settings.algorithm)
    full = searched.full_resource(view) if hasattr(searched, "full_resource") else None
    with history.draft():
        for action in actions:
            history.record(action)
        while free_slots > 0:
            found: SearchAction | None = view.open_point(full) or searched.next_action(view)
            if found is None:
                break
            actions.append(found)
            history.record(found)
            free_slots -= 1
            if isinstance(found, Finish):
                break
    return actions


def _early_end(view: SearchView) -> Finish | None:
    history, settings = view.history, view.settings
    reached = early_stopping.reached(settings, history)
    if reached is not None:
        return Finish(reached, "stopped")
    failed, invalid = history.own[FAILED], history.own[INVALID]
    if settings.max_failed is not None and failed > settings.max_failed:
        return Finish(f"{failed} trials failed; `max_failed` allows {settings.max_failed}", "failed")
    if invalid >= MOST_INVALID and invalid > 10 * view.n_created:
        return Finish(f"{invalid} of {invalid + view.n_created} points were invalid", "failed")
    return None
