"""Exports runs as plain files: for people, for other tools, and for `phalanx import`.

An exported folder is a copy of the run's folder, without what belongs to this machine (environment, processes), and
with all binary content also written as text: `metrics/*.csv`, `events.jsonl`.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from phalanx import __version__, run_paths
from phalanx.atomic_files import draft_of
from phalanx.errors import CallError, path_error
from phalanx.exchange import phalanx_runs
from phalanx.exchange.table_files import json_line
from phalanx.formats import safe_files
from phalanx.formats.foreign_run import ImportLosses
from phalanx.formats.safe_files import FileMissing, FileRefused, Names
from phalanx.home.home import Home
from phalanx.home.run_folder import encode_run
from phalanx.spool import JSON, Reader
from phalanx.store import Run, Store
from phalanx.store.series.run_series import RunSeries
from phalanx.stored_plan import decode_plan

MAX_SPEC = 4 << 20
MAX_NODES = 200_000
FILES_OF_RUNS = ("outputs/", "artifacts/", "models/", "code/")
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Exporter:
    """Writes runs below a folder. `on_progress` is called for every file."""

    def __init__(
        self, home: Home, store: Store, *, with_files: bool, on_progress: Callable[[], None] = lambda: None
    ) -> None:
        self.home = home
        self.store = store
        self.with_files = with_files
        self.on_progress = on_progress
        self.losses = ImportLosses()
        self.counts: Counter[str] = Counter()

    def write(self, runs: Sequence[Run], folder: Path) -> None:
        """Write all runs, each in its own folder. Raises OSError, CallError."""
        for run in runs:
            self._write_run(run, folder / run.id)
        listed = [{"id": run.id, "name": run.name, "project": run.project, "status": run.status} for run in runs]
        _write_json(folder / "export.json", {"phalanx": __version__, "format": "files", "runs": listed})

    def _write_run(self, run: Run, folder: Path) -> None:
        source = self.home.run(run.id).path
        if not phalanx_runs.is_run(source):
            raise CallError(f"run {run.id} has no folder in {self.home.runs}: run `phalanx doctor` for details")
        safe_files.make_folder(folder)
        safe_files.write(folder / run_paths.RUN, encode_run(run))
        _write_json(folder / "params.json", dict(run.params))
        _write_json(folder / "labels.json", self.store.labels(run.id))
        self._copy(source, folder, run_paths.HISTORY, source / run_paths.HISTORY)
        self._write_plan(source, folder)
        for name, path in phalanx_runs.files_of(source):
            if name == run_paths.SPEC:
                self._write_spec(path, folder / name)
            elif self.with_files or not (name.startswith(FILES_OF_RUNS) or "/media/" in name):
                self._copy(source, folder, name, path)
        for name, data in phalanx_runs.documents_of(source, self.losses):
            safe_files.write(folder / name, data)
        self._write_metrics(source, folder / "metrics")
        self._write_events(source, folder / "events.jsonl")
        self.counts["runs"] += 1

    def _copy(self, source: Path, folder: Path, name: str, path: Path) -> None:
        try:
            self.counts["bytes"] += safe_files.copy(path, source, folder / name)
            self.counts["files"] += 1
        except FileMissing:
            pass  # points move to `series`, which is copied after them
        except FileRefused as fault:
            self.losses.add(str(fault), example=name)
        self.on_progress()

    def _write_plan(self, source: Path, folder: Path) -> None:
        """Write the plan without variables, which may be secrets."""
        try:
            plan = phalanx_runs.document(source / run_paths.PLAN, source)
            decode_plan(plan)
        except (OSError, FileRefused, ValueError, RecursionError):
            raise CallError(f"the plan of run {source.name} cannot be read: run `phalanx doctor` for details") from None
        bare: dict[str, Any] = {"environment": {}, "defaults": {}}
        listed = {name: [{**row, **bare} for row in plan.get(name) or ()] for name in ("replicas", "templates")}
        _write_json(folder / run_paths.PLAN, {**plan, "environment": {}, **listed})

    def _write_spec(self, path: Path, target: Path) -> None:
        try:
            text = safe_files.read_bytes(path, path.parent, MAX_SPEC)
            spec = _without_variables(yaml.compose(text, Loader=Loader), [MAX_NODES])
        except (OSError, FileRefused, yaml.YAMLError, ValueError, RecursionError):
            self.losses.add("files of runs that could not be read", example=path.parent.name)
            return
        safe_files.write(target, yaml.serialize(spec, Dumper=yaml.SafeDumper, allow_unicode=True).encode())

    def _write_metrics(self, source: Path, folder: Path) -> None:
        series, names, index = RunSeries(source), Names(), {}
        for metric in series.names():
            index[metric] = f"{names.name(metric)}.csv"
            safe_files.make_folder(folder)
            with safe_files.new_text(folder / index[metric]) as stream:
                writer = csv.writer(stream, lineterminator="\n")
                writer.writerow(["replica", "rank", "attempt", "step", "time", "value"])
                for line in series.series(metric):
                    columns = zip(line.attempts, line.steps, line.times, line.values, strict=True)
                    writer.writerows([line.replica, line.rank, *row] for row in columns)
                    self.counts["points"] += len(line.steps)
            self.on_progress()
        if index:
            _write_json(folder / "index.json", index)

    def _write_events(self, source: Path, target: Path) -> None:
        tracked = safe_files.walk(source / run_paths.REPLICAS)
        found = [(name, path) for name, path in tracked if name.endswith(".events")]
        if not found:
            return
        with safe_files.new_text(target) as stream:
            for name, path in found:
                replica, folder, _ = (*name.split("/"), "", "")[:3]
                attempt = run_paths.attempt_number(folder)
                for event in _events(path, self.losses):
                    row = {"replica": replica, "attempt": folder if attempt is None else str(attempt), **event}
                    stream.write(json_line(row))
                    self.counts["events"] += 1


def _events(path: Path, losses: ImportLosses) -> Iterator[dict[str, Any]]:
    for record in Reader(path).poll():
        try:
            event = record.data() if record.kind == JSON else None
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict):
            yield event
        else:
            losses.add("events that could not be read", example=path.name)


def _without_variables(node: yaml.Node | None, left: list[int]) -> yaml.Node:
    """A copy of the nodes of a file, which keeps the characters of its scalars. `left` is the number of nodes still
    allowed: aliases may expand endlessly. Raises ValueError."""
    left[0] -= 1
    if left[0] < 0 or node is None:
        raise ValueError("no node, or too many")
    if isinstance(node, yaml.MappingNode):
        kept = [(key, value) for key, value in node.value if key.value != "env_vars"]
        pairs = [(_without_variables(key, left), _without_variables(value, left)) for key, value in kept]
        return yaml.MappingNode(node.tag, pairs, flow_style=False)
    if isinstance(node, yaml.SequenceNode):
        return yaml.SequenceNode(node.tag, [_without_variables(item, left) for item in node.value], flow_style=False)
    return yaml.ScalarNode(node.tag, node.value, style=getattr(node, "style", None))


@contextmanager
def target_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that becomes the requested folder or zip once complete. Raises CallError."""
    if path.is_symlink() or (path.exists() and not (path.is_dir() and not any(path.iterdir()))):
        raise CallError(f"{path} already exists: choose a new folder with -o")
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        draft.mkdir(mode=0o700)
        yield draft
        if path.suffix.lower() == ".zip":
            with draft_of(path) as archive:
                _pack(draft, archive, path.stem)
        else:
            draft.rename(path)
    except OSError as fault:
        raise path_error(f"cannot write {path}", fault) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _pack(folder: Path, archive: str, name: str) -> None:
    with zipfile.ZipFile(archive, "x", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
        for inside, path in safe_files.walk(folder):
            packed.write(path, f"{name}/{inside}")


def _write_json(path: Path, data: Any) -> None:
    safe_files.write(path, json.dumps(data, indent=1, default=str).encode())
