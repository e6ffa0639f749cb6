"""Runs of MLflow's SQLite database, of any version since 1.0: the columns of each table are looked up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from phalanx.formats import mlflow
from phalanx.formats.foreign_run import ForeignRun, FoundRuns, ImportLosses, Record
from phalanx.formats.mlflow import MlflowRunFacts, MlflowVersion
from phalanx.formats.sqlite_tables import ReadOnlyDatabase, Row, has_tables

_INFINITE = 1.7976931348623157e308  # what MLflow stores for infinity
_LEFT_BEHIND = {
    "trace_info": "traces",
    "assessments": "assessments of traces",
    "evaluation_datasets": "evaluation sets",
}


def is_database(path: Path) -> bool:
    """Whether a file is a SQLite database with runs in it."""
    return has_tables(path, {"runs", "experiments", "metrics"})


def find(path: Path) -> FoundRuns:
    """Raises CallError; so does the reading of its runs."""
    losses = ImportLosses()
    return FoundRuns("mlflow", _runs(ReadOnlyDatabase(path), losses), losses)


def _runs(database: ReadOnlyDatabase, losses: ImportLosses) -> Iterator[ForeignRun]:
    for table, what in _LEFT_BEHIND.items():
        losses.add(what, database.count(table))
    experiments = {
        row["experiment_id"]: row for row in database.rows("experiments", ("experiment_id", "name", "lifecycle_stage"))
    }
    registered, logged = _registered(database), _logged(database)
    columns = (
        *("run_uuid", "name", "user_id", "status", "start_time", "end_time", "lifecycle_stage"),
        *("artifact_uri", "experiment_id"),
    )
    for row in list(database.rows("runs", columns, "ORDER BY start_time")):
        experiment = experiments.get(row["experiment_id"], {})
        if "deleted" in (row["lifecycle_stage"], experiment.get("lifecycle_stage")):
            losses.add("runs that were deleted in MLflow")
            continue
        facts = mlflow.facts_of(row, row["run_uuid"], str(experiment.get("name") or row["experiment_id"]))
        params, tags = _texts(database, "params", facts.run_id), _texts(database, "tags", facts.run_id)
        versions = registered.get(facts.run_id, [])
        known = {version.model_id for version in versions}
        versions = versions + [version for version in logged.get(facts.run_id, []) if version.model_id not in known]
        yield mlflow.foreign(facts, params, tags, partial(_read, database, facts, versions))


def _texts(database: ReadOnlyDatabase, table: str, run_id: str) -> dict[str, str]:
    found = database.rows(table, ("key", "value"), "WHERE run_uuid = ? ORDER BY key", run_id)
    return {str(row["key"]): "" if row["value"] is None else str(row["value"]) for row in found}


def _read(
    database: ReadOnlyDatabase, facts: MlflowRunFacts, versions: list[MlflowVersion], losses: ImportLosses
) -> Iterator[Record]:
    near = database.path.resolve().parent
    order = "WHERE run_uuid = ? ORDER BY timestamp" + (", step" if "step" in database.tables["metrics"] else "")
    for row in database.rows("metrics", ("key", "value", "timestamp", "step", "is_nan"), order, facts.run_id):
        found = mlflow.point(str(row["key"]), _number(row), row["timestamp"], row["step"])
        if found is not None:
            yield found
        else:
            losses.add("points that could not be read", example=str(row["key"]))
    yield from _datasets(database, facts)
    yield from mlflow.artifacts(mlflow.local_folder(facts.artifact_uri, facts.run_id, near), facts, losses)
    folders = {
        version.model_id: mlflow.local_folder(version.source, version.model_id, near)
        for version in versions
        if version.model_id
    }
    yield from mlflow.models(versions, facts, folders, losses)
    yield mlflow.ending(facts)


def _number(row: Row) -> object:
    value = row["value"]
    if row["is_nan"]:
        return "nan"
    if isinstance(value, float) and abs(value) >= _INFINITE:
        return "inf" if value > 0 else "-inf"
    return value


def _datasets(database: ReadOnlyDatabase, facts: MlflowRunFacts) -> Iterator[Record]:
    columns = ("input_uuid", "source_id")
    where = "WHERE destination_id = ? AND source_type = 'DATASET'"
    for link in list(database.rows("inputs", columns, where, facts.run_id)):
        contexts = database.rows("input_tags", ("name", "value"), "WHERE input_uuid = ?", link["input_uuid"])
        context = next((str(row["value"]) for row in contexts if row["name"] == "mlflow.data.context"), "")
        names = ("name", "digest", "dataset_source_type", "dataset_source", "dataset_schema", "dataset_profile")
        for row in database.rows("datasets", names, "WHERE dataset_uuid = ?", link["source_id"]):
            about = {name.removeprefix("dataset_"): value for name, value in row.items()}
            yield mlflow.dataset(about, context, mlflow.seconds(facts.start_ms) or 0.0)


def _registered(database: ReadOnlyDatabase) -> dict[str, list[MlflowVersion]]:
    """The versions of registered models, by the run that made them."""
    aliases: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for row in database.rows("registered_model_aliases", ("name", "version", "alias")):
        aliases[str(row["name"]), str(row["version"])].append(str(row["alias"]))
    columns = (
        *("name", "version", "creation_time", "description", "current_stage", "source", "run_id", "storage_location"),
    )
    found: defaultdict[str, list[MlflowVersion]] = defaultdict(list)
    for row in database.rows("model_versions", columns, "ORDER BY name, version"):
        name, version, source = str(row["name"]), str(row["version"]), str(row["source"] or "")
        model_id = source.removeprefix("models:/") if source.startswith("models:/m-") else ""
        made = mlflow.registered(row, version, aliases[name, version], model_id, row["creation_time"])
        found[str(row["run_id"])].append(made)
    return found


def _logged(database: ReadOnlyDatabase) -> Mapping[str, list[MlflowVersion]]:
    """The models that MLflow 3 keeps beside the runs, by the run that made them."""
    columns = ("model_id", "name", "artifact_location", "creation_timestamp_ms", "source_run_id", "lifecycle_stage")
    found: defaultdict[str, list[MlflowVersion]] = defaultdict(list)
    for row in database.rows("logged_models", columns):
        if row["lifecycle_stage"] != "deleted" and row["source_run_id"]:
            model_id, source = str(row["model_id"]), str(row["artifact_location"] or "")
            name, made = str(row["name"] or model_id), row["creation_timestamp_ms"]
            found[str(row["source_run_id"])].append(MlflowVersion(name, model_id, source, model_id, made, "", {}))
    return found
