"""Runs of MLflow's file store: a folder `mlruns` with one folder per experiment and run."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from phalanx.formats import mlflow
from phalanx.formats.foreign_run import ForeignRun, FoundRuns, ImportLosses, Record
from phalanx.formats.mlflow import MAX_TEXT, MlflowRunFacts, MlflowVersion
from phalanx.formats.safe_files import FileRefused, open_within, read_bytes, walk

MAX_META = 64 << 10
LONGEST_LINE = 10_000  # of a metric's file
MOST_REMEMBERED = 1_000_000
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Run(NamedTuple):
    """What is needed to read a run."""

    folder: Path
    root: Path
    facts: MlflowRunFacts
    versions: list[MlflowVersion]
    model_folders: Mapping[str, Path]


def is_experiment(folder: Path) -> bool:
    return "experiment_id" in (meta := _meta(folder, folder)) and "run_id" not in meta


def is_store(folder: Path) -> bool:
    """Whether a folder is such a store: some folder in it is an experiment."""
    return any("experiment_id" in _meta(inside, folder) for inside in islice(_folders(folder), 1000))


def find(folder: Path, only: Collection[str] | None = None) -> FoundRuns:
    """The runs of a store, or of one experiment in it; with `only` just those with these ids."""
    losses = ImportLosses()
    if is_experiment(folder):
        return FoundRuns("mlflow", _runs(folder.parent, [folder], losses, only), losses)
    return FoundRuns("mlflow", _runs(folder, list(_folders(folder)), losses, only), losses)


def _meta(folder: Path, root: Path) -> dict[str, Any]:
    """The content of `meta.yaml`; empty when unreadable."""
    try:
        data = yaml.load(read_bytes(folder / "meta.yaml", root, MAX_META), Loader=Loader)  # noqa: S506 - a safe one
    except (OSError, FileRefused, yaml.YAMLError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _folders(parent: Path) -> Iterator[Path]:
    try:
        names = sorted(entry.name for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    yield from (parent / name for name in names if name != ".trash")


def _runs(
    root: Path, experiments: list[Path], losses: ImportLosses, only: Collection[str] | None
) -> Iterator[ForeignRun]:
    registered = _registered(root)
    for experiment in experiments:
        meta = _meta(experiment, root)
        if "experiment_id" not in meta:
            continue
        name = str(meta.get("name") or experiment.name)
        logged = _logged_models(experiment, root)
        losses.add("traces", sum(1 for _ in _folders(experiment / "traces")))
        for folder in _folders(experiment):
            if only is not None and folder.name not in only:
                continue
            run = _meta(folder, root)
            run_id = run.get("run_id") or run.get("run_uuid")
            if not run_id or "status" not in run:
                continue
            if run.get("lifecycle_stage") == "deleted" or meta.get("lifecycle_stage") == "deleted":
                losses.add("runs that were deleted in MLflow")
                continue
            facts = mlflow.facts_of(run, run_id, name)
            versions = _versions(registered.get(facts.run_id, []), logged, facts.run_id)
            params, tags = _texts(folder / "params", root, losses), _texts(folder / "tags", root, losses)
            places = {model_id: place for model_id, (_, place) in logged.items()}
            reading = partial(_read, _Run(folder, root, facts, versions, places))
            yield mlflow.foreign(facts, params, tags, reading)


def _texts(folder: Path, root: Path, losses: ImportLosses) -> dict[str, str]:
    """Params or tags: one file each, named by its path."""
    found = {}
    for name, path in walk(folder):
        try:
            found[name] = read_bytes(path, root, MAX_TEXT).decode("utf-8", "replace")
        except (OSError, FileRefused):
            losses.add("params and tags that could not be read", example=name)
    return found


def _read(run: _Run, losses: ImportLosses) -> Iterator[Record]:
    folder, root, facts = run.folder, run.root, run.facts
    for name, path in walk(folder / "metrics"):
        try:
            yield from _points(name, path, root, losses)
        except (OSError, FileRefused):
            losses.add("metrics that could not be read", example=name)
    yield from _datasets(folder, root, mlflow.seconds(facts.start_ms) or 0.0)
    held = folder / "artifacts"
    place = held if held.is_dir() and not held.is_symlink() else None
    if place is None:
        place = mlflow.local_folder(facts.artifact_uri, facts.run_id, root.parent)
    yield from mlflow.artifacts(place, facts, losses)
    yield from mlflow.models(run.versions, facts, run.model_folders, losses)
    yield mlflow.ending(facts)


def _points(name: str, path: Path, root: Path, losses: ImportLosses) -> Iterator[Record]:
    """Lines of time, value and step. MLflow 3 writes the last one again when a model is logged: once is enough."""
    seen: set[bytes] = set()
    with os.fdopen(open_within(path, root), "rb") as stream:
        while line := stream.readline(LONGEST_LINE):
            if line in seen:
                continue
            if len(seen) < MOST_REMEMBERED:
                seen.add(line)
            parts = line.decode("utf-8", "replace").split()
            found = (
                mlflow.point(name, parts[1], parts[0], parts[2] if len(parts) > 2 else None) if len(parts) > 1 else None
            )
            if found is not None:
                yield found
            elif parts:
                losses.add("points that could not be read", example=name)


def _datasets(run: Path, root: Path, time: float) -> Iterator[Record]:
    for place in _folders(run / "inputs"):
        link = _meta(place, root)
        source = str(link.get("source_id") or "")
        tags = link.get("tags")
        if source and "/" not in source and source not in (".", ".."):
            about = _meta(run.parent / "datasets" / source, root)
            context = tags.get("mlflow.data.context", "") if isinstance(tags, dict) else ""
            if about:
                yield mlflow.dataset(about, str(context), time)


def _logged_models(experiment: Path, root: Path) -> dict[str, tuple[dict[str, Any], Path]]:
    """The models that MLflow 3 keeps beside the runs of an experiment, and where their files are."""
    found = {}
    for folder in _folders(experiment / "models"):
        meta = _meta(folder, root)
        if meta.get("model_id") and (folder / "artifacts").is_dir() and not (folder / "artifacts").is_symlink():
            found[str(meta["model_id"])] = meta, folder / "artifacts"
    return found


def _registered(root: Path) -> dict[str, list[MlflowVersion]]:
    """The versions of registered models, by the run that made them."""
    found: defaultdict[str, list[MlflowVersion]] = defaultdict(list)
    for model in _folders(root / "models"):
        aliases = _meta(model, root).get("aliases")
        for folder in _folders(model):
            meta = _meta(folder, root)
            if not meta.get("run_id") or not meta.get("name"):
                continue
            version = str(meta.get("version"))
            named = [str(a) for a, v in aliases.items() if str(v) == version] if isinstance(aliases, dict) else []
            model_id, made = str(meta.get("model_id") or ""), meta.get("creation_timestamp")
            found[str(meta["run_id"])].append(mlflow.registered(meta, version, named, model_id, made))
    return found


def _versions(
    registered: list[MlflowVersion], logged: Mapping[str, tuple[dict[str, Any], Path]], run_id: str
) -> list[MlflowVersion]:
    """Registered versions, and those that were logged but never registered."""
    known = {version.model_id for version in registered}
    found = list(registered)
    for model_id, (meta, _) in logged.items():
        if meta.get("source_run_id") == run_id and model_id not in known:
            name = str(meta.get("name") or model_id)
            found.append(MlflowVersion(name, model_id, "", model_id, meta.get("creation_timestamp"), "", {}))
    return found
