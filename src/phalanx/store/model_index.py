"""The index of the model registry for lists and pages. The home's journal is the source of truth.

A deleted version stays as a row with `deleted_at`, so that its number is never reused and its creating event is
recognised when it is read again. Owns the tables `models`, `versions`, `aliases` and `model_events`.
"""

# ruff: noqa: S608 - SQL is built only from constants of this package; user input is passed as parameters

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from phalanx.store.records import Artifact, microseconds, utc
from phalanx.store.run_lists import of_projects
from phalanx.store.sql import columns, insertion
from phalanx.store.store import Store

_ALL = 2**62
_BATCH = 500
_VERSION = (
    *("model", "number", "run_id", "source", "user", "digest", "size", "files"),
    *("created_at", "updated_at", "metrics", "lineage", "labels", "description"),
)
_EVENT = ("number", "at", "user", "kind", "model", "version", "reason", "text")
_ARTIFACT = ("path", "type", "name", "size", "digest", "at")
_ADD_EVENT = insertion("model_events", (*_EVENT, "journal_end"), "number")
_ADD_MODEL = insertion("models", ("name", "description", "labels", "created_at", "updated_at"), "name")
_PUT_VERSION = insertion("versions", _VERSION, "model, number", update=True)
_PUT_ALIAS = insertion("aliases", ("model", "alias", "number"), "model, alias", update=True)
_MODEL_ROW = ("models", "name = ?")
_VERSION_ROW = ("versions", "model = ? AND number = ?")


class Model(NamedTuple):
    """A name under which versions are registered. `latest` is the highest number that was not deleted."""

    name: str
    description: str
    labels: Mapping[str, str]
    created_at: datetime
    updated_at: datetime
    latest: int | None
    versions: int
    aliases: Mapping[str, int]


class ModelVersion(NamedTuple):
    """A version: what one run made, with its origin and metrics. `digest` is None until its files are read; `files` is
    None when only its source is known."""

    model: str
    number: int
    run_id: str | None
    source: str
    user: str
    digest: str | None
    size: int | None
    files: int | None
    created_at: datetime
    updated_at: datetime
    metrics: Mapping[str, float]
    lineage: Mapping[str, Any]
    labels: Mapping[str, str]
    description: str
    aliases: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.model}/{self.number}"


class ModelEvent(NamedTuple):
    """One record of the journal. Numbers count 1, 2, 3… over all models."""

    number: int
    at: datetime
    user: str
    kind: str
    model: str
    version: int | None
    reason: str
    data: Mapping[str, Any]


class ModelIndex:
    """Models, their versions and aliases, and their history. Every method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._database = store._database

    # writing: only from the journal ---------------------------------------------------------------------------------

    def add(self, events: Iterable[ModelEvent], journal_end: int) -> None:
        """Index records of the journal, all or none; known ones are skipped. `journal_end`: the offset to continue
        from."""
        with self._database.transaction():
            for event in events:
                row = [event.number, microseconds(event.at), *event[2:7], json.dumps(dict(event.data)), journal_end]
                if self._database.change(_ADD_EVENT, row):
                    self._apply(event, microseconds(event.at))

    def clear(self) -> None:
        """Remove everything, to rebuild the index from the journal."""
        with self._database.transaction():
            for table in ("model_events", "aliases", "versions", "models"):
                self._database.change(f"DELETE FROM {table}")

    def position(self) -> tuple[int, int]:
        """The number of the last indexed record, and the journal offset of the next one."""
        found = self._database.rows("SELECT coalesce(max(number), 0), coalesce(max(journal_end), 0) FROM model_events")
        return int(found[0][0]), int(found[0][1])

    def _apply(self, event: ModelEvent, at: int) -> None:
        data, change = event.data, self._database.change
        match event.kind:
            case "create":
                self._revive(event.model, at)
                self._put_texts(event)
            case "register":
                self._revive(event.model, at)
                texts = [json.dumps(data.get(name) or {}) for name in ("metrics", "lineage", "labels")]
                row = [event.model, event.version, data.get("run"), data.get("source", ""), event.user]
                row += [data.get("digest"), data.get("size"), data.get("files"), at, at, *texts]
                change(_PUT_VERSION, [*row, data.get("description", "")])
            case "settle":
                values = [data.get(name) for name in ("digest", "size", "files")]
                sql = "UPDATE versions SET digest = ?, size = ?, files = ? WHERE model = ? AND number = ?"
                change(sql, [*values, event.model, event.version])
                self._merge(event, "lineage", data.get("lineage", {}))
            case "alias" if self._exists(event):
                change(_PUT_ALIAS, [event.model, data["alias"], event.version])
            case "unalias":
                change("DELETE FROM aliases WHERE model = ? AND alias = ?", [event.model, data["alias"]])
            case "describe" | "label":
                self._put_texts(event)
            case "delete":
                self._delete(event, at)
            # any other kind was written by a newer Phalanx: it is kept as history
        if event.kind != "describe" or event.version is None:  # the text of a version says nothing new of the model
            change("UPDATE models SET updated_at = ? WHERE name = ?", [at, event.model])
        change("UPDATE versions SET updated_at = ? WHERE model = ? AND number = ?", [at, event.model, event.version])

    def _revive(self, model: str, at: int) -> None:
        """Ensure that a model of this name exists; a deleted one starts anew."""
        self._database.change(_ADD_MODEL, [model, "", "{}", at, at])
        revived = "UPDATE models SET deleted_at = NULL, created_at = ? WHERE name = ? AND deleted_at IS NOT NULL"
        self._database.change(revived, [at, model])

    def _exists(self, event: ModelEvent) -> bool:
        """A damaged journal may lack the record that created it."""
        this = [event.model, event.version]
        return bool(self._database.rows("SELECT 1 FROM versions WHERE model = ? AND number = ?", this))

    def _put_texts(self, event: ModelEvent) -> None:
        if "description" in event.data:
            (table, where), this = _row_of(event)
            text = event.data["description"]
            self._database.change(f"UPDATE {table} SET description = ? WHERE {where}", [text, *this])
        if "labels" in event.data:
            self._merge(event, "labels", event.data["labels"])

    def _merge(self, event: ModelEvent, column: str, changes: Mapping[str, Any]) -> None:
        """Set entries of a JSON column; None removes an entry."""
        (table, where), this = _row_of(event)
        for (text,) in self._database.rows(f"SELECT {column} FROM {table} WHERE {where}", this):
            merged = {name: value for name, value in {**json.loads(text), **changes}.items() if value is not None}
            self._database.change(f"UPDATE {table} SET {column} = ? WHERE {where}", [json.dumps(merged), *this])

    def _delete(self, event: ModelEvent, at: int) -> None:
        one = " AND number = ?" if event.version is not None else ""
        this = [event.model] if event.version is None else [event.model, event.version]
        self._database.change(f"DELETE FROM aliases WHERE model = ?{one}", this)
        sql = f"UPDATE versions SET deleted_at = ? WHERE model = ? AND deleted_at IS NULL{one}"
        self._database.change(sql, [at, *this])
        if event.version is None:
            sql = "UPDATE models SET deleted_at = ?, description = '', labels = '{}' WHERE name = ?"
            self._database.change(sql, [at, event.model])

    # reading -------------------------------------------------------------------------------------------------------

    def models(self, text: str = "", limit: int | None = None, offset: int = 0) -> list[Model]:
        """By name; `text` is a substring of the name, ignoring case."""
        fits, pattern = self._named(text)
        return self._models(fits, [pattern, _ALL if limit is None else max(0, limit), max(0, offset)])

    def count(self, text: str = "") -> int:
        """How many models `models` has without a limit."""
        fits, pattern = self._named(text)
        sql = f"SELECT count(*) FROM models WHERE deleted_at IS NULL AND {fits}"
        return int(self._database.rows(sql, [pattern])[0][0])

    def _named(self, text: str) -> tuple[str, str]:
        """The condition for a substring of the name, ignoring case, and its parameter."""
        pattern = text.replace("!", "!!").replace("%", "!%").replace("_", "!_").lower()
        return f"{self._database.lower.format('name')} LIKE ? ESCAPE '!'", f"%{pattern}%"

    def model(self, name: str) -> Model | None:
        return next(iter(self._models("name = ?", [name, 1, 0])), None)

    def versions(self, model: str | None = None, run_id: str | None = None) -> list[ModelVersion]:
        """Of a model, of a run, or all: by model, newest first."""
        return self._versions(
            *(["model = ?"] if model is not None else []),
            *(["run_id = ?"] if run_id is not None else []),
            args=[value for value in (model, run_id) if value is not None],
        )

    def version(self, model: str, number: int) -> ModelVersion | None:
        found = self._versions("model = ?", "number = ?", args=[model, number])
        return found[0] if found else None

    def aliases(self, model: str) -> dict[str, int]:
        return self._aliases([model])[model]

    def next_number(self, model: str) -> int:
        """A number that was never used."""
        found = self._database.rows("SELECT coalesce(max(number), 0) FROM versions WHERE model = ?", [model])
        return int(found[0][0]) + 1

    def registered(self, model: str, run_id: str, source: str) -> int | None:
        """The version that was made from this source, even if it was deleted since."""
        sql = "SELECT min(number) FROM versions WHERE run_id = ? AND model = ? AND source = ?"
        found = self._database.rows(sql, [run_id, model, source])[0][0]
        return None if found is None else int(found)

    def events(self, model: str | None = None, after: int = 0) -> list[ModelEvent]:
        """The history of a model, or of all, oldest first; only events with a higher number than `after`."""
        of_model, args = ("", []) if model is None else (" AND model = ?", [model])
        sql = f"SELECT {columns(_EVENT)} FROM model_events WHERE number > ?{of_model} ORDER BY number"
        found = self._database.rows(sql, [after, *args])
        return [ModelEvent._make([row[0], utc(row[1]), *row[2:7], json.loads(row[7])]) for row in found]

    def _models(self, wanted: str, args: Sequence[Any]) -> list[Model]:
        of_this = "FROM versions WHERE model = models.name AND versions.deleted_at IS NULL"
        found = self._database.rows(
            f"""SELECT name, description, labels, created_at, updated_at,
                (SELECT max(number) {of_this}), (SELECT count(*) {of_this})
            FROM models WHERE deleted_at IS NULL AND {wanted} ORDER BY name LIMIT ? OFFSET ?""",
            args,
        )
        aliases = self._aliases([row[0] for row in found])
        return [
            Model(name, description, json.loads(labels), utc(created), utc(updated), latest, count, aliases[name])
            for name, description, labels, created, updated, latest, count in found
        ]

    def _versions(self, *conditions: str, args: Sequence[Any]) -> list[ModelVersion]:
        wanted = " AND ".join(["deleted_at IS NULL", *conditions])
        sql = f"SELECT {columns(_VERSION)} FROM versions WHERE {wanted} ORDER BY model, number DESC"
        found = self._database.rows(sql, args)
        aliases = self._aliases(sorted({row[0] for row in found}))
        return [
            ModelVersion._make(
                [
                    *row[:8],
                    *map(utc, row[8:10]),
                    *map(json.loads, row[10:13]),
                    row[13],
                    tuple(alias for alias, number in aliases[row[0]].items() if number == row[1]),
                ]
            )
            for row in found
        ]

    def _aliases(self, models: Sequence[str]) -> defaultdict[str, dict[str, int]]:
        found: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for start in range(0, len(models), _BATCH):
            batch = models[start : start + _BATCH]
            these = ", ".join("?" * len(batch))
            sql = f"SELECT model, alias, number FROM aliases WHERE model IN ({these}) ORDER BY model, alias"
            for model, alias, number in self._database.rows(sql, batch):
                found[model][alias] = number
        return found

    # across runs ---------------------------------------------------------------------------------------------------

    def project_artifacts(self, project: str, limit: int | None = None) -> list[Artifact]:
        """The kept artifacts of the runs of a project and those nested in it: newest run first, then by path."""
        these = of_projects(self._database, project)
        found = self._database.rows(
            f"""SELECT runs.id, {", ".join(f"artifacts.{name}" for name in _ARTIFACT)}
            FROM artifacts JOIN runs ON runs.key = artifacts.run_key WHERE {these.sql}
            ORDER BY runs.created_at DESC, runs.key, artifacts.path LIMIT ?""",
            [*these.args, _ALL if limit is None else limit],
        )
        return [Artifact._make([*row[:-1], utc(row[-1])]) for row in found]

    def runs_with(self, digests: Iterable[str]) -> dict[str, list[str]]:
        """For each digest, the runs that keep an artifact with this content, oldest first."""
        wanted, found = sorted(set(digests)), defaultdict[str, list[str]](list)
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            rows = self._database.rows(
                f"""SELECT DISTINCT artifacts.digest, runs.created_at, runs.key, runs.id
                FROM artifacts JOIN runs ON runs.key = artifacts.run_key
                WHERE artifacts.digest IN ({", ".join("?" * len(batch))})
                ORDER BY runs.created_at, runs.key""",
                batch,
            )
            for digest, _, _, run_id in rows:
                found[digest].append(run_id)
        return dict(found)

    def runs_with_params(self, values: Iterable[str], limit: int) -> list[tuple[str, str, str]]:
        """Runs with a param that has one of these values, newest first, as (run, param, value)."""
        wanted = sorted(set(values))
        found = []
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            found += self._database.rows(
                f"""SELECT runs.created_at, runs.key, runs.id, params.name, params.text
                FROM params JOIN runs ON runs.key = params.run_key
                WHERE params.text IN ({", ".join("?" * len(batch))})
                ORDER BY runs.created_at DESC, runs.key DESC LIMIT ?""",
                [*batch, limit],
            )
        return [(run_id, name, text) for _, _, run_id, name, text in sorted(found, reverse=True)[:limit]]


def _row_of(event: ModelEvent) -> tuple[tuple[str, str], list[Any]]:
    if event.version is None:
        return _MODEL_ROW, [event.model]
    return _VERSION_ROW, [event.model, event.version]
