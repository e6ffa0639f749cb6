"""Which run a user means: one rule for every verb, for the local home, a server and Python.

An exact id comes first, then an exact name, then the first characters of an id. Of several runs with the name, the
newest is chosen; the first characters of an id must be those of one run only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.errors import CallError
from phalanx.store.records import Run

MOST_LISTED = 6  # runs to look for by the first characters of their id; the message lists one less
NO_NAME = "name a run: its id, its name, or the first characters of its id"


def choose_run(text: str, where: str, named: Callable[[], Sequence[Run]], begun: Callable[[], Sequence[Run]]) -> Run:
    """The run that a text which is no exact id means. `named` returns the runs of that name, the newest first; `begun`
    those whose id begins with it. Raises CallError when there is none, or several ids begin like that."""
    found = list(named()[:1]) or list(begun())
    if len(found) == 1:
        return found[0]
    if not found:
        raise CallError(f"there is no run `{text[:100]}`{where}: `phalanx ps` lists all runs")
    listed = ", ".join(f"{run.id} ({run.name or 'no name'}, {run.status})" for run in found[: MOST_LISTED - 1])
    more = ", and more" if len(found) >= MOST_LISTED else ""
    raise CallError(f"`{text[:100]}` is ambiguous: {listed}{more}; give more of the id")
