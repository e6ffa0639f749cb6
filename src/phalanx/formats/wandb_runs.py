"""Runs of W&B's folders: `wandb/offline-run-*/run-*.wandb` and the files beside it."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from phalanx.formats import wandb_log, wandb_records
from phalanx.formats.foreign_run import (
    Ending,
    ForeignEvent,
    ForeignFile,
    ForeignImage,
    ForeignLog,
    ForeignModel,
    ForeignRun,
    FoundRuns,
    ImportLosses,
    Points,
    Record,
)
from phalanx.formats.protobuf import Malformed
from phalanx.formats.safe_files import FileRefused, digest, read_bytes, walk
from phalanx.formats.wandb_log import WandbPosition
from phalanx.formats.wandb_records import RunRecord

MAX_TABLE = 16 << 20  # bytes
MAX_ROWS = 10_000
MAX_CELLS = 200_000
DEEPEST = 8
HEAD_RECORDS = 500  # records searched for the identity of a run
_OWN_FILES = frozenset(["wandb-metadata.json", "wandb-summary.json", "config.yaml", "output.log"])
_OWN_ARTIFACTS = ("run_table", "job", "wandb-")  # internal artifacts of W&B
_ODD = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LEFT_BEHIND = {
    wandb_records.STATS: "samples of machine usage",
    wandb_records.ALERT: "alerts",
    wandb_records.METRIC: "definitions of metrics (x axis, summary)",
    wandb_records.TENSORBOARD: "links to TensorBoard folders (import those separately)",
}


def logs_in(source: Path) -> list[Path]:
    """The files of runs: the one named, or those in a folder, in the `wandb` below it or in the runs' own."""
    if source.is_file():
        return [source] if wandb_log.is_log(source) else []
    found = {
        path.resolve()
        for pattern in ("*.wandb", "*run-*/*.wandb", "wandb/*run-*/*.wandb")
        for path in source.glob(pattern)
        if not path.parent.is_symlink() and not path.is_symlink() and path.is_file()
    }
    return sorted(found)


def find(source: Path) -> FoundRuns:
    losses = ImportLosses()
    root = source.parent if source.is_file() else source
    return FoundRuns("wandb", _runs(logs_in(source), root.resolve(), losses), losses)


def _runs(logs: list[Path], root: Path, losses: ImportLosses) -> Iterator[ForeignRun]:
    heads: dict[str, RunRecord] = {}
    files: dict[str, list[Path]] = {}
    for path in logs:
        head = _head(path)
        if head is None:
            losses.add("files of runs without content", example=path.name)
            continue
        files.setdefault(head.run_id, []).append(path)  # a run that was resumed has several
        heads.setdefault(head.run_id, head)
    for run_id, head in heads.items():
        labels = {"entity": head.entity, "group": head.group, "job_type": head.job_type, "sweep": head.sweep}
        yield ForeignRun(
            source=f"wandb:{run_id}",
            name=head.name or run_id,
            project=head.project or None,
            started=head.started,
            params=_params(head.config),
            tags=head.tags,
            labels={f"wandb.{name}": text for name, text in labels.items() if text},
            description=head.notes,
            read=partial(_read, files[run_id], root, head),
        )


def _head(path: Path) -> RunRecord | None:
    try:
        for number, record in enumerate(wandb_log.records(path, path.parent, Counter())):
            kind, message = wandb_records.kind_of(record)
            if kind == wandb_records.RUN:
                head = wandb_records.run_record(message)
                return head._replace(run_id=head.run_id or path.stem.removeprefix("run-"))
            if number > HEAD_RECORDS:
                break
    except (Malformed, OSError, FileRefused):
        pass
    return None


def _params(config: Any) -> dict[str, Any]:
    """The params of a config, without W&B's internal keys."""
    found: dict[str, Any] = {}
    for path, value in config:
        if path[0] != "_wandb":
            found.update(_flat(".".join(path), value))
    return found


def _flat(name: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value and depth < DEEPEST:
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner, depth + 1)
    else:
        yield name, value


def _read(paths: list[Path], root: Path, head: RunRecord, losses: ImportLosses) -> Iterator[Record]:
    run = _Run(head, root)
    for path in paths:
        run.files = path.parent / "files"
        skipped: Counter[str] = Counter()
        for record in wandb_log.records(path, path.parent, skipped):
            try:
                yield from run.take(record, losses)
            except Malformed:
                losses.add("records that could not be read", example=path.name)
        losses.add("damaged bytes", skipped["damage"], example=path.name)
        losses.add("records that are too large", skipped["too large"], example=path.name)
        yield from run.leave_files()
    yield from run.end()


class WandbLogReader:
    """Follows the file of a run that is being logged. `poll` returns what was logged since the last call."""

    def __init__(self, path: Path, position: WandbPosition) -> None:
        self.path, self.position = path, position
        self._run: _Run | None = None
        self._losses = ImportLosses()

    def poll(self) -> Iterator[Record]:
        """Raises OSError, FileRefused."""
        if self._run is None:
            head = _head(self.path)
            if head is None:
                return  # not written yet
            self._run = _Run(head, self.path.parent)
            self._run.files = self.path.parent / "files"
            if self.position == WandbPosition() and self._run.params:
                yield ForeignEvent("params", head.started or 0.0, {"values": self._run.params})
        for record, position in wandb_log.records_after(self.path, self.path.parent, self.position):
            with suppress(Malformed):
                yield from self._run.take(record, self._losses)
            self.position = position

    def end(self) -> Iterator[Record]:
        """What is known only when nothing follows."""
        if self._run is not None:
            yield from self._run.leave_files()
            yield from self._run.end()


class _Run:
    """The state of reading a run."""

    def __init__(self, head: RunRecord, root: Path) -> None:
        self.head = head
        self.root = root  # `wandb.save` leaves links to where a file lies: those within the source are followed
        self.files = Path()
        self.params: dict[str, Any] = _params(head.config)
        self.summary: dict[str, Any] = {}
        self.known: set[str] = set()  # names in the history
        self.shown: set[str] = set()  # files that became pictures or tables
        self.time = head.started or 0.0
        self.exit: tuple[int, int] | None = None

    def take(self, record: bytes, losses: ImportLosses) -> Iterator[Record]:
        kind, message = wandb_records.kind_of(record)
        if kind == wandb_records.HISTORY:
            yield from self._history(message, losses)
        elif kind == wandb_records.SUMMARY:
            self.summary.update({"/".join(path): value for path, value in wandb_records.items(message)})
            for path in wandb_records.removed(message):
                self.summary.pop("/".join(path), None)
        elif kind == wandb_records.CONFIG:
            changed = _params(wandb_records.items(message))
            self.params.update(changed)
            yield ForeignEvent("params", self.time, {"values": changed})
        elif kind == wandb_records.EXIT:
            self.exit = wandb_records.exit_record(message)
        elif kind == wandb_records.RUN:
            commit = wandb_records.run_record(message).commit
            if commit:
                yield ForeignEvent("describe", self.time, {"commit": commit})
        elif kind == wandb_records.ARTIFACT:
            yield from self._artifact(wandb_records.artifact_record(message), losses)
        elif kind in (wandb_records.OUTPUT, wandb_records.RAW_OUTPUT):
            if not (self.files / "output.log").is_file():  # which has the same
                yield ForeignLog(wandb_records.printed(message))
        elif kind in _LEFT_BEHIND:
            losses.add(_LEFT_BEHIND[kind])

    def _history(self, message: bytes, losses: ImportLosses) -> Iterator[Record]:
        tree: dict[str, Any] = {}
        for path, value in wandb_records.items(message):
            _put(tree, path, value)
        step = wandb_records.step_of(message)
        if step is None and isinstance(tree.get("_step"), int):
            step = tree["_step"]
        time = tree.get("_timestamp")
        if isinstance(time, int | float) and math.isfinite(time):
            self.time = float(time)
        values: dict[str, float] = {}
        others: list[Record] = []
        for name, value in _leaves(tree):
            self.known.add(name)
            number = _number(value)
            if number is not None:
                values[name] = number
            elif value is not None:
                others += self._other(name, step, value, losses)
        if values:
            yield Points(step, self.time, values)
        yield from others

    def _other(self, name: str, step: int | None, value: Any, losses: ImportLosses) -> list[Record]:
        if isinstance(value, str):
            return [ForeignEvent("text", self.time, {"name": name, "step": step, "text": value})]
        if not isinstance(value, dict):
            losses.add("lists that were logged as metrics", example=name)
            return []
        kind = value.get("_type")
        if kind == "image-file" or (isinstance(kind, str) and kind.startswith("images")):
            return self._pictures(name, step, value)
        if kind == "histogram" and (spread := _spread(value)) is not None:
            return [ForeignEvent("histogram", self.time, {"name": name, "step": step, **spread})]
        if kind == "table-file" and (table := self._table(value.get("path"))) is not None:
            return [ForeignEvent("table", self.time, {"name": name, "step": step, **table})]
        losses.add(f"values of the type {str(kind)[:50]} (their files are kept as artifacts)", example=name)
        return []

    def _pictures(self, name: str, step: int | None, value: Mapping[str, Any]) -> list[Record]:
        listed = value.get("filenames")
        paths = listed if isinstance(listed, list) else [value.get("path")]
        captions = value.get("captions") or [value.get("caption")]
        found: list[Record] = []
        for place, path in enumerate(paths):
            if isinstance(path, str):
                caption = captions[place] if isinstance(captions, list) and place < len(captions) else None
                self.shown.add(path)
                found.append(
                    ForeignImage(
                        f"{name}/{place}" if place else name,
                        step,
                        self.time,
                        self.files / path,
                        self.files,
                        caption if isinstance(caption, str) else None,
                    )
                )
        return found

    def _table(self, path: Any) -> dict[str, Any] | None:
        try:
            data = json.loads(read_bytes(self.files / str(path), self.files, MAX_TABLE))
            columns = [str(column) for column in data["columns"]]
            rows = data["data"][: min(MAX_ROWS, MAX_CELLS // max(1, len(columns)))]
        except (OSError, FileRefused, ValueError, KeyError, TypeError, RecursionError):
            return None
        if not all(isinstance(row, list) for row in rows):
            return None
        if len(rows) == len(data["data"]):
            self.shown.add(str(path))
        return {"columns": columns, "rows": rows}

    def _artifact(self, artifact: wandb_records.ArtifactRecord, losses: ImportLosses) -> Iterator[Record]:
        """W&B stores files to upload outside of the run's folder. Only files with the digest that the record claims
        are read from there: a run file must not be able to have arbitrary local files copied."""
        if artifact.type.startswith(_OWN_ARTIFACTS):
            return
        kept = 0
        for content in artifact.contents:
            where = Path(content.local_path)
            if content.reference or not content.local_path or not _has_content(where, content.digest):
                losses.add("files of artifacts that are stored elsewhere or were deleted", example=artifact.name)
                continue
            kept += 1
            yield ForeignFile(f"{artifact.name}/{content.path}", where, where.parent, artifact.type or "file")
        if kept and artifact.type == "model":
            version = artifact.aliases[0] if artifact.aliases else "latest"
            labels = {"wandb.aliases": ",".join(artifact.aliases)} if artifact.aliases else {}
            place = f"artifacts/{artifact.name}"
            yield ForeignModel(artifact.name, version, place, None, self.time, artifact.description, labels)

    def leave_files(self) -> Iterator[Record]:
        for name, path in walk(self.files):
            if name not in _OWN_FILES and name not in self.shown:
                yield ForeignFile(name, path, self.root)
        if (self.files / "output.log").is_file():
            yield ForeignLog(self.files / "output.log", self.root)

    def end(self) -> Iterator[Record]:
        """Values found only in the summary were set by hand: they are the last ones of the run."""
        only = {}
        for name, value in self.summary.items():
            number = _number(value)
            steps = name.split("/")
            above = {"/".join(steps[: place + 1]) for place in range(len(steps))}
            if number is not None and not above & self.known and not name.startswith("_"):
                only[name] = number
        if only:
            yield Points(None, self.time, only)
        if self.exit is None:
            yield Ending("stopped", "W&B did not record its end", self.time or None)
            return
        code, runtime = self.exit
        at = max(self.time, (self.head.started or 0.0) + runtime) or None
        yield Ending("failed", f"exit code {code}", at) if code else Ending("succeeded", "finished in W&B", at)


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1][:DEEPEST]:
        inner = tree.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        tree = inner
    tree[path[-1]] = value


def _leaves(tree: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if not before and key.startswith("_"):
            continue
        if isinstance(value, dict) and "_type" not in value and depth < DEEPEST:
            yield from _leaves(value, f"{before}{key}/", depth + 1)
        else:
            yield f"{before}{key}", value


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return _ODD.get(value)
    try:
        return float(value) if isinstance(value, bool | int | float) else None
    except OverflowError:
        return None


def _spread(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """Edges and counts of a histogram."""
    counts, edges, packed = value.get("values"), value.get("bins"), value.get("packedBins")
    try:
        if edges is None and isinstance(packed, dict):
            size, many = float(packed["size"]), int(packed["count"])
            edges = [float(packed["min"]) + size * place for place in range(min(many, MAX_ROWS) + 1)]
        if not isinstance(edges, list) or not isinstance(counts, list) or len(edges) != len(counts) + 1:
            return None
        return {"edges": [float(edge) for edge in edges], "counts": [float(count) for count in counts]}
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _has_content(path: Path, claimed: str) -> bool:
    try:
        return base64.b64encode(digest(path, path.parent, "md5")).decode() == claimed
    except (OSError, FileRefused, ValueError):
        return False
