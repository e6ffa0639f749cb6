"""Data that training code tracked. Owns the tables `params`, `labels`, `facts`, `artifacts` and `summaries`."""

# ruff: noqa: S608 - SQL is built only from constants of this package; user input is passed as parameters

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from phalanx.errors import CallError
from phalanx.store.database import Database, Row
from phalanx.store.query import number
from phalanx.store.records import Artifact, Summary, microseconds, utc
from phalanx.store.sql import insertion, label

_BATCH = 500
_KEY = "(SELECT key FROM runs WHERE id = ?)"
_SUMMARY = ("value", "min", "max", "count", "step", "at")
_ARTIFACT = Artifact._fields[1:]
PUT_PARAM = insertion("params", ("run_key", "name", "number", "is_json", "text"), "run_key, name", update=True)
PUT_SUMMARY = insertion("summaries", ("run_key", "metric", *_SUMMARY), "run_key, metric", update=True)
_PUT_LABEL = insertion("labels", ("run_key", "name", "text"), "run_key, name", update=True)
_PUT_FACT = insertion("facts", ("run_key", "name", "text"), "run_key, name", update=True)
_PUT_ARTIFACT = insertion("artifacts", ("run_key", *_ARTIFACT), "run_key, path", update=True)


def param_row(key: int, name: str, value: Any) -> Row:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return key, label(name), number(text), int(not isinstance(value, str)), text


def summary_row(key: int, metric: str, value: Summary | float) -> Row:
    """SQLite cannot store NaN: a last value of NaN is NULL. A bare value has no other fields."""
    last = value.last if isinstance(value, Summary) else float(value)
    rest = value[1:] if isinstance(value, Summary) else [None] * (len(_SUMMARY) - 1)
    return key, label(metric), None if math.isnan(last) else last, *rest


class TrackedValueQueries:
    """A part of `Store`. Every method that takes a run may raise CallError when the run does not exist."""

    _database: Database

    def transaction(self) -> AbstractContextManager[None]:
        return self._database.transaction()

    def _key(self, run_id: str) -> int:
        found = self._database.rows("SELECT key FROM runs WHERE id = ?", [run_id])
        if not found:
            raise CallError(f"there is no run `{run_id}`")
        return int(found[0][0])

    @contextmanager
    def summarising(self, run_id: str) -> Iterator[None]:
        """A transaction in which no other one changes the summaries of a run. Who reads the run's files and stores what
        they contain does both inside of it: so no older summary replaces a newer one."""
        with self.transaction():
            self._database.rows(f"SELECT key FROM runs WHERE id = ?{self._database.row_lock}", [run_id])
            yield

    def put_summaries(self, run_id: str, values: Mapping[str, Summary | float]) -> None:
        """Store metric summaries; the run's other metrics stay."""
        with self.transaction():
            key = self._key(run_id)
            self._database.change_many(PUT_SUMMARY, [summary_row(key, *item) for item in values.items()])

    def summaries(self, run_id: str, metrics: Sequence[str] | None = None) -> dict[str, Summary]:
        """By metric: of all, or of some."""
        columns = ", ".join(f'"{name}"' for name in ("metric", *_SUMMARY))
        select = f"SELECT {columns} FROM summaries WHERE run_key = {_KEY}"
        found = []
        if metrics is None:
            found = self._database.rows(f"{select} ORDER BY metric", [run_id])
        for start in range(0, len(metrics or ()), _BATCH):
            names = [label(name) for name in (metrics or ())[start : start + _BATCH]]
            found += self._database.rows(f"{select} AND metric IN ({', '.join('?' * len(names))})", [run_id, *names])
        return {name: Summary(math.nan if last is None else last, *rest) for name, last, *rest in found}

    def put_params(self, run_id: str, values: Mapping[str, Any], *, reset: bool = False) -> None:
        """Set params; `reset` removes the others."""
        with self.transaction():
            key = self._key(run_id)
            if reset:
                self._database.change("DELETE FROM params WHERE run_key = ?", [key])
            self._database.change_many(PUT_PARAM, [param_row(key, *item) for item in values.items()])

    def put_labels(self, run_id: str, values: Mapping[str, str | None]) -> None:
        """Set labels; None removes one."""
        with self.transaction():
            key = self._key(run_id)
            gone = [(key, label(name)) for name, text in values.items() if text is None]
            self._database.change_many("DELETE FROM labels WHERE run_key = ? AND name = ?", gone)
            kept = [(key, label(name), text) for name, text in values.items() if text is not None]
            self._database.change_many(_PUT_LABEL, kept)

    def labels(self, run_id: str) -> dict[str, str]:
        return dict(self._texts("labels", run_id))

    def labelled(self, name: str) -> dict[str, str]:
        """The runs that have a label, by its text."""
        found = self._database.rows(
            "SELECT labels.text, runs.id FROM labels JOIN runs ON runs.key = labels.run_key WHERE labels.name = ?",
            [name],
        )
        return dict(found)

    def put_fact(self, run_id: str, name: str, value: Any) -> None:
        """A fact about a run that is not searchable: any JSON value under a name."""
        with self.transaction():
            self._database.change(_PUT_FACT, [self._key(run_id), label(name), json.dumps(value)])

    def facts(self, run_id: str) -> dict[str, Any]:
        return {name: json.loads(text) for name, text in self._texts("facts", run_id)}

    def put_artifacts(self, run_id: str, artifacts: Iterable[Artifact]) -> None:
        """Insert or update artifacts; one of the same path is replaced."""
        with self.transaction():
            key = self._key(run_id)
            rows = [(key, *item[1:-1], microseconds(item.at)) for item in artifacts]
            self._database.change_many(_PUT_ARTIFACT, rows)

    def artifacts(self, run_id: str) -> list[Artifact]:
        """By path."""
        columns = ", ".join(_ARTIFACT)
        found = self._database.rows(f"SELECT {columns} FROM artifacts WHERE run_key = {_KEY} ORDER BY path", [run_id])
        return [Artifact._make([run_id, *row[:-1], utc(row[-1])]) for row in found]

    def _texts(self, table: str, run_id: str) -> list[Row]:
        return self._database.rows(f"SELECT name, text FROM {table} WHERE run_key = {_KEY} ORDER BY name", [run_id])
