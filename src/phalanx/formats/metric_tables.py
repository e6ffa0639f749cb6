"""Reads metrics from CSV and JSON files of Keras, Lightning, Hugging Face and users."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from phalanx.errors import CallError
from phalanx.formats.foreign_run import Ending, ForeignRun, FoundRuns, ImportLosses, Points, Record
from phalanx.formats.safe_files import FileRefused, digest, open_within, read_bytes, walk

ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")
KNOWN_NAMES = ("metrics.csv", "metrics.jsonl", "trainer_state.json")
MAX_JSON = 256 << 20
MAX_YAML = 1 << 20
LONGEST_LINE = 16 << 20
MOST_COLUMNS = 10_000
MOST_PARAMS = 10_000
DEEPEST = 8
EARLIEST = 1e8  # seconds: smaller numbers are not timestamps
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_STEPS = ("step", "global_step", "_step", "iteration", "iter", "epoch")  # the first one present
_TIMES = ("time", "timestamp", "_timestamp", "wall_time", "wall time")
_METRICS = ("metric", "name", "key", "tag")
_HUGGING_FACE = ("max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "eval_steps", "save_steps")

Row = Mapping[str, Any]


def is_table(path: Path) -> bool:
    return path.name.lower().endswith(ENDINGS) and path.is_file()


def tables_in(folder: Path, *, of_any_name: bool = False) -> list[Path]:
    """The files that loggers write; with `of_any_name`, all that look like a table."""
    return [
        path
        for name, path in walk(folder)
        if name.rpartition("/")[2] in KNOWN_NAMES or (of_any_name and name.lower().endswith(ENDINGS))
    ]


def find(source: Path, run_name: str | None = None, *, of_any_name: bool = False) -> FoundRuns:
    """Raises CallError."""
    losses = ImportLosses()
    paths = [source] if source.is_file() else tables_in(source, of_any_name=of_any_name)
    if run_name and len(paths) != 1:
        raise CallError(f"{source} has {len(paths)} tables: --run-name needs exactly one")
    root = source.parent if source.is_file() else source
    return FoundRuns("csv", _runs(paths, root, run_name, losses), losses)


def _runs(paths: Sequence[Path], root: Path, run_name: str | None, losses: ImportLosses) -> Iterator[ForeignRun]:
    for path in paths:
        try:
            mark = digest(path, root).hex()[:20]
            changed = path.stat().st_mtime
        except (OSError, FileRefused):
            losses.add("files that could not be read", example=path.name)
            continue
        yield ForeignRun(
            source=f"csv:{mark}",
            name=run_name or _name(path, root),
            started=changed,
            params=_params(path, root, losses),
            read=partial(_read, path, root, changed),
        )


def _name(path: Path, root: Path) -> str:
    """The name of the file, or of its folder if all files have the same name."""
    place = path.parent if path.name in KNOWN_NAMES else path.with_suffix("")
    name = place.relative_to(root).as_posix()
    return name if name != "." else place.resolve().name


def _params(path: Path, root: Path, losses: ImportLosses) -> dict[str, Any]:
    """Lightning writes `hparams.yaml` beside its metrics; Hugging Face puts some into its file."""
    try:
        if path.name == "trainer_state.json":
            state = json.loads(read_bytes(path, root, MAX_JSON))
            return {name: state[name] for name in _HUGGING_FACE if isinstance(state.get(name), int | float | str)}
        beside = path.with_name("hparams.yaml")
        if not beside.is_file():
            return {}
        found = yaml.load(read_bytes(beside, root, MAX_YAML), Loader=Loader)  # noqa: S506 - a safe one
    except (OSError, FileRefused, ValueError, AttributeError, yaml.YAMLError, RecursionError):
        losses.add("hyperparameters that could not be read", example=path.name)
        return {}
    params = dict(islice(_flat(found, "."), MOST_PARAMS)) if isinstance(found, dict) else {}
    if len(params) == MOST_PARAMS:
        losses.add("files with too many hyperparameters", example=path.name)
    return params


def _flat(row: Mapping[Any, Any], between: str, before: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, dict) and depth < DEEPEST:
            yield from _flat(value, between, f"{before}{key}{between}", depth + 1)
        else:
            yield f"{before}{key}", value


def _read(path: Path, root: Path, time: float, losses: ImportLosses) -> Iterator[Record]:
    try:
        descriptor = open_within(path, root)
    except FileRefused as fault:
        losses.add(str(fault), example=path.name)
        return
    with os.fdopen(descriptor, "rb") as stream:
        reading = _csv_rows if path.suffix.lower() in (".csv", ".tsv") else _json_rows
        try:
            for row in reading(stream, losses):
                found = _points(row, path.stem, time, losses)
                if found is not None:
                    time = found.time
                    yield found
        except (csv.Error, ValueError, RecursionError) as fault:
            losses.add("tables that could not be read to their end", example=f"{path.name}: {fault}")
    yield Ending("succeeded", "imported from a table", time)


def _csv_rows(stream: io.BufferedReader, losses: ImportLosses) -> Iterator[Row]:
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
    try:
        start = text.readline(LONGEST_LINE)
        delimiter = max(",;\t", key=start.count)
        (head,) = list(csv.reader([start], delimiter=delimiter)) or [[]]
        if len(head) > MOST_COLUMNS:
            raise ValueError(f"more than {MOST_COLUMNS} columns")
        for cells in csv.reader(iter(lambda: text.readline(LONGEST_LINE), ""), delimiter=delimiter):
            if len(cells) > len(head):
                losses.add("cells beyond the last column", len(cells) - len(head))
            yield dict(zip(head, cells, strict=False))
    finally:
        text.detach()  # the caller closes the stream


def _json_rows(stream: io.BufferedReader, losses: ImportLosses) -> Iterator[Row]:
    """A row per line; or one document: a list of rows, Hugging Face's `log_history`, or a list per metric."""
    first = stream.readline(LONGEST_LINE)
    try:
        row = json.loads(first)
        is_lines = isinstance(row, dict) and (not _lists(row) or bool(stream.peek(1)))
    except ValueError:
        is_lines = False
    if not is_lines:
        rest = stream.read(MAX_JSON + 1)
        if len(rest) > MAX_JSON:
            raise ValueError("a document of more than 256 MiB")
        yield from _document(json.loads(first + rest))
        return
    yield row
    while line := stream.readline(LONGEST_LINE):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield row
        else:
            losses.add("lines that are not JSON objects")


def _lists(data: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: value for name, value in data.items() if isinstance(value, list)}


def _document(data: Any) -> Iterator[Row]:
    if isinstance(data, dict) and isinstance(data.get("log_history"), list):
        data = data["log_history"]
    if isinstance(data, list):
        yield from (row for row in data if isinstance(row, dict))
    elif isinstance(data, dict):
        columns = _lists(data)
        for step in range(max(map(len, columns.values()), default=0)):
            yield {"step": step, **{name: values[step] for name, values in columns.items() if step < len(values)}}
        if not columns:
            yield data


def _points(row: Row, table: str, time: float, losses: ImportLosses) -> Points | None:
    """One row per step and a column per metric, or one row per value. `table` names the metric of one that does not."""
    given = {str(key).strip(): value for key, value in _flat(row, "/")}
    lower = {key.lower(): key for key in given}
    clock = _first(_TIMES, lower)
    at = _time(given[lower[clock]]) if clock else None
    if clock and at is not None:
        del given[lower[clock]]  # any other time is a duration
    step = _first(_STEPS, lower)
    number = _step(given.get(lower[step]), losses) if step else None
    if step and step != "epoch":
        given.pop(lower[step], None)
    metric = _first(_METRICS, lower)
    if "value" in lower and (metric or set(lower) <= {"value", *_STEPS, *_TIMES}):
        name = str(given.get(lower[metric])) if metric else table
        given = {name: given[lower["value"]]}
    values = dict(_numbers(given, losses))
    if step == "epoch":
        values.pop(lower[step], None)
    return Points(number, time if at is None else at, values) if values else None


def _first(names: Iterable[str], there: Mapping[str, str]) -> str | None:
    return next((name for name in names if name in there), None)


def _numbers(row: Row, losses: ImportLosses) -> Iterator[tuple[str, float]]:
    for name, value in row.items():
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            losses.add("values that are not numbers", example=name)
            continue
        if name:
            yield name, number


def _step(value: Any, losses: ImportLosses) -> int | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not number.is_integer():
        losses.add("steps that are not whole numbers (row numbers were used instead)")
        return None
    try:
        return int(value)  # exactly, also where a float is not
    except ValueError:
        return int(number)  # "3.0"


def _time(value: Any) -> float | None:
    """Seconds, or milliseconds, since 1970; or a date and time as ISO 8601 writes them. None for anything else, also
    for seconds since the beginning."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return _date(value)
    if not EARLIEST < number < math.inf:
        return None
    return number / 1000 if number > 1e11 else number


def _date(value: Any) -> float | None:
    try:
        found = datetime.fromisoformat(str(value).strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
