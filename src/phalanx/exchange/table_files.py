"""Runs and their metrics as two tables: one row per run, one row per point. CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from phalanx import extras, strict_json
from phalanx.formats import safe_files
from phalanx.home.home import Home
from phalanx.store import Run, Store
from phalanx.store.series.run_series import RunSeries, Series

COLUMNS = ("run", "replica", "rank", "attempt", "metric", "step", "time", "value")
GROUP = 500_000  # rows written at once
MOST_WAITING = 2_000  # series
_PLAIN = ("id", "project", "kind", "name", "description", "framework", "backend", "user", "status", "reason", "attempt")
_TIMES = ("created_at", "started_at", "finished_at")


def write(home: Home, store: Store, runs: Sequence[Run], folder: Path, form: str) -> int:
    """Write `runs` and `metrics` in that format; return the number of points. Raises OSError, CallError."""
    if form == "parquet":
        return _write_parquet(home, store, runs, folder)
    points = 0
    with safe_files.new_text(folder / f"metrics.{form}") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if form == "csv":
            writer.writerow(COLUMNS)
        for run in runs:
            for line in lines(home, run):
                rows = _rows(run.id, line)
                if form == "csv":
                    writer.writerows(rows)
                else:
                    stream.writelines(json_line(dict(zip(COLUMNS, row, strict=True))) for row in rows)
                points += len(line.steps)
    described = [about(store, run) for run in runs]
    with safe_files.new_text(folder / f"runs.{form}") as stream:
        if form == "csv":
            flat = [flattened(row) for row in described]
            names = list(dict.fromkeys(name for row in flat for name in row))
            table = csv.DictWriter(stream, names, lineterminator="\n")
            table.writeheader()
            table.writerows(flat)
        else:
            stream.writelines(json_line(row) for row in described)
    return points


def json_line(data: Any) -> str:
    return strict_json.dumps(data) + "\n"


def lines(home: Home, run: Run) -> Iterator[Series]:
    series = RunSeries(home.run(run.id).path)
    for metric in series.names():
        yield from series.series(metric)


def _rows(run_id: str, line: Series) -> Iterator[list[Any]]:
    for attempt, step, time, value in zip(line.attempts, line.steps, line.times, line.values, strict=True):
        yield [run_id, line.replica, line.rank, attempt, line.metric, step, time, value]


def about(store: Store, run: Run) -> dict[str, Any]:
    """A run as JSON, with the last values of its metrics."""
    row = {name: getattr(run, name) for name in _PLAIN}
    row |= {name: None if (time := getattr(run, name)) is None else time.isoformat() for name in _TIMES}
    inner = {"params": dict(run.params), "metrics": dict(run.summary), "labels": store.labels(run.id)}
    return {**row, "tags": list(run.tags), **inner}


def flattened(row: dict[str, Any]) -> dict[str, Any]:
    """One column for each param, metric and label."""
    flat = {name: value for name, value in row.items() if not isinstance(value, dict | list)}
    flat["tags"] = ",".join(row["tags"])
    for name, value in row["params"].items():
        flat[f"params.{name}"] = value if isinstance(value, str) else json.dumps(value)
    flat.update({f"metrics.{name}": value for name, value in row["metrics"].items()})
    flat.update({f"labels.{name}": value for name, value in row["labels"].items()})
    return flat


def _write_parquet(home: Home, store: Store, runs: Sequence[Run], folder: Path) -> int:
    with extras.needed("series", "writing Parquet"):
        import pyarrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    points = 0
    with parquet.ParquetWriter(folder / "metrics.parquet", _schema(pyarrow)) as writer:
        waiting: list[Any] = []
        for run in runs:
            for line in lines(home, run):
                waiting.append(_table(run.id, line, pyarrow))
                points += len(line.steps)
                if sum(map(len, waiting)) >= GROUP or len(waiting) >= MOST_WAITING:
                    writer.write_table(pyarrow.concat_tables(waiting).unify_dictionaries())
                    waiting.clear()
        if waiting:
            writer.write_table(pyarrow.concat_tables(waiting).unify_dictionaries())
    flat = [flattened(about(store, run)) for run in runs]
    names = list(dict.fromkeys(name for row in flat for name in row))
    found = {name: pyarrow.array([row.get(name) for row in flat], _column_type(name, pyarrow)) for name in names}
    parquet.write_table(pyarrow.table(found), folder / "runs.parquet")
    return points


def _schema(pyarrow: Any) -> Any:
    text, short, long = pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), pyarrow.int32(), pyarrow.int64()
    types = (text, text, short, short, text, long, pyarrow.float64(), pyarrow.float64())
    return pyarrow.schema(list(zip(COLUMNS, types, strict=True)))


def _table(run_id: str, line: Series, pyarrow: Any) -> Any:
    count = len(line.steps)

    def same(text: str) -> Any:
        places = pyarrow.repeat(pyarrow.scalar(0, pyarrow.int32()), count)
        return pyarrow.DictionaryArray.from_arrays(places, pyarrow.array([text]))

    rank = pyarrow.repeat(pyarrow.scalar(line.rank, pyarrow.int32()), count)
    attempts = pyarrow.array(line.attempts, pyarrow.int32())
    numbers = [pyarrow.array(column) for column in (line.steps, line.times, line.values)]
    columns = [same(run_id), same(line.replica), rank, attempts, same(line.metric), *numbers]
    return pyarrow.Table.from_arrays(columns, schema=_schema(pyarrow))


def _column_type(name: str, pyarrow: Any) -> Any:
    """The type of a column, the same in every export."""
    if name.startswith("metrics."):
        return pyarrow.float64()
    return pyarrow.int64() if name == "attempt" else pyarrow.string()
