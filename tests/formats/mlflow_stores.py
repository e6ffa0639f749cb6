"""MLflow's stores as its versions lay them out, written by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RUN = "0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210"
START_MS = 1_700_000_000_000


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def yaml_of(values: Mapping[str, Any]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in values.items())


def experiment(root: Path, number: str = "1", name: str = "cifar", stage: str = "active") -> Path:
    about = {"experiment_id": f"'{number}'", "name": name, "lifecycle_stage": stage, "artifact_location": "x"}
    put(root / number / "meta.yaml", yaml_of(about))
    return root / number


def file_run(folder: Path, run_id: str = RUN, **about: Any) -> Path:
    meta = {
        "run_id": f"'{run_id}'",
        "run_name": "'first'",
        "experiment_id": f"'{folder.name}'",
        "status": 3,
        "start_time": START_MS,
        "end_time": START_MS + 60_000,
        "lifecycle_stage": "active",
        "user_id": "ann",
        "artifact_uri": f"file:///gone/{run_id}/artifacts",
    }
    put(folder / run_id / "meta.yaml", yaml_of({**meta, **about}))
    return folder / run_id


def database(path: Path, generation: str) -> sqlite3.Connection:
    """The tables of MLflow 0.9 (no steps, no NaN), of 1.x, and of 3.x (datasets, logged models, aliases)."""
    connection = sqlite3.connect(path)
    old = generation == "0.9"
    is_new = generation == "3"
    metric = "key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT" + ("" if old else ", step BIGINT, is_nan BOOLEAN")
    run = "run_uuid TEXT PRIMARY KEY, name TEXT, user_id TEXT, status TEXT, start_time BIGINT, end_time BIGINT"
    version = "name TEXT, version INTEGER, creation_time BIGINT, description TEXT, current_stage TEXT, source TEXT"
    connection.executescript(
        f"""
        CREATE TABLE experiments (
            experiment_id INTEGER PRIMARY KEY, name TEXT, artifact_location TEXT, lifecycle_stage TEXT);
        CREATE TABLE runs ({run}, lifecycle_stage TEXT, artifact_uri TEXT, experiment_id INTEGER);
        CREATE TABLE metrics ({metric});
        CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT);
        CREATE TABLE tags (key TEXT, value TEXT, run_uuid TEXT);
        INSERT INTO experiments VALUES (0, 'cifar', 'x', 'active');
        """
    )
    if not old:
        connection.execute(
            f"CREATE TABLE model_versions ({version}, run_id TEXT{', storage_location TEXT' if is_new else ''})"
        )
    if is_new:
        connection.executescript(
            """
            CREATE TABLE registered_model_aliases (alias TEXT, version INTEGER, name TEXT);
            CREATE TABLE logged_models (model_id TEXT, experiment_id INTEGER, name TEXT, artifact_location TEXT,
                creation_timestamp_ms BIGINT, lifecycle_stage TEXT, source_run_id TEXT);
            CREATE TABLE datasets (dataset_uuid TEXT, experiment_id INTEGER, name TEXT, digest TEXT,
                dataset_source_type TEXT, dataset_source TEXT, dataset_schema TEXT, dataset_profile TEXT);
            CREATE TABLE inputs (input_uuid TEXT, source_type TEXT, source_id TEXT, destination_type TEXT,
                destination_id TEXT);
            CREATE TABLE input_tags (input_uuid TEXT, name TEXT, value TEXT);
            CREATE TABLE trace_info (request_id TEXT);
            """
        )
    return connection


def sql_run(connection: sqlite3.Connection, run_id: str = RUN, **about: Any) -> None:
    row = {
        "name": "first",
        "user_id": "ann",
        "status": "FINISHED",
        "start_time": START_MS,
        "end_time": START_MS + 60_000,
        "lifecycle_stage": "active",
        "artifact_uri": f"./mlruns/0/{run_id}/artifacts",
        "experiment_id": 0,
        **about,
    }
    marks = ", ".join("?" * (len(row) + 1))
    connection.execute(f"INSERT INTO runs (run_uuid, {', '.join(row)}) VALUES ({marks})", [run_id, *row.values()])
