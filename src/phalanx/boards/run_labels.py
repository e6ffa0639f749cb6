"""Short names of runs in TensorBoard: by the params that differ, else by the run's name or id."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.insight.comparison import compare
from phalanx.store import Run

MOST_PARAMS = 4  # in a name
LONGEST = 80  # characters of a name
LONGEST_VALUE = 20
_UNSAFE = re.compile(r"[^\w.=,+@-]+")


def labels(runs: Sequence[Run], taken: Mapping[str, str]) -> dict[str, str]:
    """A name for each run that has none among `taken` (names by run id). All names are different, and valid names of a
    folder."""
    differing = [str(row["name"]) for row in compare([run.params for run in runs]) if row["differs"]][:MOST_PARAMS]
    short = _short(differing)
    wanted = {run.id: _wanted(run, short) for run in runs if run.id not in taken}
    used, count = {name.lower() for name in taken.values()}, Counter(name.lower() for name in wanted.values())
    found: dict[str, str] = {}
    for run_id, name in wanted.items():
        is_unique = count[name.lower()] == 1 and name.lower() not in used
        found[run_id] = name if is_unique else f"{name[: LONGEST - len(run_id) - 1]}-{run_id}"
    return found


def _wanted(run: Run, differing: Mapping[str, str]) -> str:
    said = [f"{short}={_value(run.params[name])}" for name, short in differing.items() if name in run.params]
    return _valid(",".join(said) or run.name or run.id) or run.id


def _short(names: Sequence[str]) -> dict[str, str]:
    """The last part of each dotted name, if no other has the same."""
    ends = {name: name.rpartition(".")[2] or name for name in names}
    count = Counter(ends.values())
    return {name: end if count[end] == 1 else name for name, end in ends.items()}


def _value(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text[:LONGEST_VALUE]


def _valid(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("_.")[:LONGEST]
