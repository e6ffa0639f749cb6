"""Models that no code registered: which outputs of a run look like models, and which ones its file says to register."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.artifacts.trees import FILE, FOLDER, Tree, TreeEntry
from phalanx.errors import CallError
from phalanx.path_patterns import SAVED_MODEL, is_model_file, matches
from phalanx.registry.registry import Registry
from phalanx.store import Store
from phalanx.store.model_index import ModelIndex
from phalanx.store.run_lists import Projects
from phalanx.store.series.run_series import RunSeries
from phalanx.stored_plan import ModelRule, PlanDamaged, read_plan

FACT = "candidates"  # of a run: its outputs that look like models
REGISTERED_FACT = "models"  # of a run: what became of `models` in its file
MOST_ENTRIES = 20_000  # of outputs to look at
MOST_CANDIDATES = 100  # of one run
RUNS_SEARCHED = 500
# The files of a folder that only together are a model
_WHOLE_FOLDERS: dict[str, tuple[str, ...]] = {
    SAVED_MODEL: (),
    "model.safetensors": ("config.json",),
    "pytorch_model.bin": ("config.json",),
    "adapter_model.safetensors": ("adapter_config.json",),
}


class Candidate(NamedTuple):
    """A file or folder among the outputs of a run that looks like a model and is not registered."""

    run_id: str
    run_name: str | None
    project: str
    path: str
    size: int
    at: datetime

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "at": self.at.isoformat()}


def find_candidates(run_folder: Path) -> list[dict[str, Any]]:
    """The outputs that look like models, newest first. Raises OSError."""
    entries = [entry for entry in _outputs(run_folder) if entry.kind == FILE]
    paths = {entry.path for entry in entries}
    folders = {path.rpartition("/")[0] for path in paths if _is_part(path, paths)}
    found: dict[str, tuple[int, float]] = {}
    for entry in entries:
        within = next((folder for folder in sorted(folders) if entry.path.startswith(f"{folder}/")), None)
        if within is not None or is_model_file(entry.path):
            size, at = found.get(within or entry.path, (0, 0.0))
            found[within or entry.path] = size + entry.size, max(at, entry.mtime_ns / 1e9)
    rows = [{"path": path, "size": size, "at": at} for path, (size, at) in found.items()]
    return sorted(rows, key=lambda row: (-float(str(row["at"])), str(row["path"])))[:MOST_CANDIDATES]


def _is_part(path: str, paths: Collection[str]) -> bool:
    """Whether a model is a whole folder, because of this file and those beside it."""
    folder, _, name = path.rpartition("/")
    beside = _WHOLE_FOLDERS.get(name)
    return beside is not None and "/" in folder and all(f"{folder}/{other}" in paths for other in beside)


def _outputs(run_folder: Path) -> list[TreeEntry]:
    return list(islice(Tree(run_folder, (run_paths.OUTPUTS,)).walk(run_paths.OUTPUTS), MOST_ENTRIES))


def candidates(store: Store, project: Projects = None, limit: int = 20, run_id: str | None = None) -> list[Candidate]:
    """The candidates of the newest runs, or of one run, without those that are registered."""
    found: list[Candidate] = []
    index = ModelIndex(store)
    for made_by, run_name, owner, rows in store.latest_facts(FACT, project, RUNS_SEARCHED, run_id):
        registered = {version.source for version in index.versions(run_id=made_by)}
        for row in rows or ():
            if row["path"] not in registered and len(found) < limit:
                at = datetime.fromtimestamp(row["at"], UTC)
                found.append(Candidate(made_by, run_name, owner, row["path"], row["size"], at))
        if len(found) >= limit:
            break
    return found


# the file's `models` -------------------------------------------------------------------------------------------------


def register_models(registry: Registry, run_id: str) -> None:
    """Register what the file of a succeeded run says, once. Raises OSError, CallError."""
    folder = registry.home.run(run_id).path
    run = registry.store.find(run_id)
    try:
        rules = read_plan(folder).models if run.status == "succeeded" else ()
    except (PlanDamaged, FileNotFoundError):
        return
    rows = []
    for rule in rules:
        outputs = _outputs(folder)
        chosen, metrics = choose(folder, [entry for entry in outputs if _is_matched(entry, rule.path)], rule)
        row: dict[str, Any] = {"name": rule.name, "path": chosen, "version": None}
        if chosen is None:
            row["why"] = f"no output matches `{rule.path}`"
        else:
            row["version"] = registry.index.registered(rule.name, run_id, chosen)
        if chosen is not None and row["version"] is None:
            with suppress(CallError):  # a name that is not allowed, or another process was faster
                values = {**run.summary, **metrics}
                version = registry.register(
                    rule.name,
                    run_id,
                    chosen,
                    metrics=values,
                    reason="requested by its polyaxonfile",
                    user=run.user,
                    once=True,
                )
                row["version"] = version.number
        rows.append(row)
    if rows:
        registry.store.put_fact(run_id, REGISTERED_FACT, rows)


def _is_matched(entry: TreeEntry, pattern: str) -> bool:
    """Whether a pattern matches the entry itself, and not a folder above it."""
    path = entry.path.partition("/")[2]
    above = path.rpartition("/")[0]
    return entry.kind in (FILE, FOLDER) and matches(path, [pattern]) and not (above and matches(above, [pattern]))


def choose(folder: Path, found: Sequence[TreeEntry], rule: ModelRule) -> tuple[str | None, dict[str, float]]:
    """The path of the entry to register, and the value of the metric that it was chosen by. With a metric: the entry
    whose name has the best value (`loss=0.1`), or the one saved nearest to the time of the best value. Else the newest.
    """
    if not found:
        return None, {}
    newest = max(found, key=lambda entry: (entry.mtime_ns, entry.path))
    if rule.metric is None:
        return newest.path, {}
    sign = 1.0 if rule.is_largest_best else -1.0
    named = {entry.path: value for entry in found if (value := _value_in(entry.name, rule.metric)) is not None}
    if named:
        path = max(named, key=lambda path: (sign * named[path], path))
        return path, {rule.metric: named[path]}
    points = [
        (sign * value, -at, value)
        for line in RunSeries(folder).series(rule.metric)[:1]
        for at, value in zip(line.times, line.values, strict=True)
        if value == value  # noqa: PLR0124 - not NaN
    ]
    if not points:
        return newest.path, {}
    _, at, value = max(points)
    nearest = min(found, key=lambda entry: (abs(entry.mtime_ns / 1e9 + at), entry.path))
    return nearest.path, {rule.metric: value}


def _value_in(name: str, metric: str) -> float | None:
    found = re.search(rf"(?<![A-Za-z0-9]){re.escape(metric)}=(-?\d+(?:\.\d+)?(?:e-?\d+)?)", name)
    return float(found[1]) if found else None
