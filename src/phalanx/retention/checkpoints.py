"""Checkpoints of a run, found by the step in their path, and which of them stay. Nothing is read but names and metrics.

A file that the pattern does not match, or whose value is unknown where a value is asked for, always stays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from phalanx import run_paths
from phalanx.artifacts.trees import FILE, FOLDER, TreeEntry
from phalanx.atomic_files import read_json
from phalanx.path_patterns import matches, pattern_steps
from phalanx.spec.model import KeepOptions
from phalanx.store.metric_direction import is_lower_better

STEP = "{step}"
MOST_DIGITS = 18


class Checkpoint(NamedTuple):
    """The files and folders of one step, by their paths in the run's folder."""

    step: int
    paths: tuple[str, ...]


class Choice(NamedTuple):
    """`removed`: with the reason."""

    kept: tuple[Checkpoint, ...]
    removed: tuple[tuple[Checkpoint, str], ...]


def read_keep(run_folder: Path) -> KeepOptions | None:
    """What its file says; None without it, or if it is damaged."""
    data = read_json(run_folder / run_paths.KEEP)
    try:
        found = KeepOptions(**data) if data else None
        if found is not None:
            pattern_steps(found.path.replace(STEP, "*"))
    except (TypeError, ValueError, AttributeError):
        return None
    return found if found is not None and STEP in found.path and found.last >= 1 else None


def find_checkpoints(entries: Iterable[TreeEntry], pattern: str) -> list[Checkpoint]:
    """The checkpoints among the outputs, by step. Links are none: they are never removed."""
    found: dict[int, list[str]] = {}
    for entry in entries:
        top, _, path = entry.path.partition("/")
        if top == run_paths.OUTPUTS and entry.kind in (FILE, FOLDER):
            step = step_of(path, pattern)
            if step is not None:
                found.setdefault(step, []).append(entry.path)
    return [Checkpoint(step, tuple(sorted(found[step]))) for step in sorted(found)]


def step_of(path: str, pattern: str) -> int | None:
    """The step in a path that the whole pattern matches; None for other paths, and what is below such a folder."""
    wanted = pattern.replace(STEP, "*")
    above = path.rpartition("/")[0]
    if not path or not matches(path, [wanted]) or (above and matches(above, [wanted])):
        return None
    steps = pattern.rstrip("/").split("/")
    behind = next(number for number, step in enumerate(reversed(steps)) if STEP in step)
    names = path.split("/")
    if behind >= len(names):
        return None
    match = _name_pattern(steps[-1 - behind]).fullmatch(names[-1 - behind])
    return int(match[1]) if match is not None else None


def _name_pattern(text: str) -> re.Pattern[str]:
    """Of one name: `*` and `?` as in paths, and the whole number at `{step}`."""
    signs = {"*": "[^/]*?", "?": "[^/]"}
    before, _, after = text.partition(STEP)
    parts = ["".join(signs.get(sign, re.escape(sign)) for sign in part) for part in (before, after)]
    return re.compile(rf"{parts[0]}(?<![0-9])([0-9]{{1,{MOST_DIGITS}}})(?![0-9]){parts[1]}")


def choose(found: Sequence[Checkpoint], values: Mapping[int, float], keep: KeepOptions) -> Choice:
    """Which checkpoints stay: the last ones, the best ones, and those without a value if the best are asked for."""
    stays = {one.step for one in found[-keep.last :]}
    why = f"not among the last {keep.last}"
    if keep.best is not None and keep.metric is not None:
        ranked = [one.step for one in found if math.isfinite(values.get(one.step, math.nan))]
        sign = 1.0 if _is_largest_best(keep) else -1.0
        ranked.sort(key=lambda step: (sign * values[step], step), reverse=True)
        stays |= {*ranked[: keep.best], *(one.step for one in found if one.step not in ranked)}
        why = f"not among the best {keep.best} of {keep.metric}, nor the last {keep.last}"
    kept = tuple(one for one in found if one.step in stays)
    return Choice(kept, tuple((one, why) for one in found if one.step not in stays))


def _is_largest_best(keep: KeepOptions) -> bool:
    return not is_lower_better(keep.metric or "") if keep.is_largest_best is None else keep.is_largest_best
