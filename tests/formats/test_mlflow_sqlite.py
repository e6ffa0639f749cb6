from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import pytest

from phalanx.errors import CallError
from phalanx.formats import mlflow_sqlite
from phalanx.formats.foreign_run import ImportLosses
from phalanx.formats.sqlite_tables import ReadOnlyDatabase
from tests.exchange.homes import Target, collected, ending, events, file_names, series
from tests.formats.mlflow_stores import OTHER, RUN, START_MS, database, put, sql_run


@pytest.mark.parametrize("generation", ["0.9", "1", "3"])
def test_runs_of_every_generation_are_read(tmp_path: Path, generation: str) -> None:
    path = tmp_path / "mlflow.db"
    with database(path, generation) as connection:
        sql_run(connection)
        sql_run(connection, OTHER, lifecycle_stage="deleted")
        connection.execute("INSERT INTO params VALUES ('lr', '0.1', ?)", [RUN])
        connection.execute("INSERT INTO tags VALUES ('mlflow.note.content', 'why', ?)", [RUN])
        connection.execute("INSERT INTO tags VALUES ('team', 'vision', ?)", [RUN])
        extra = "" if generation == "0.9" else ", 7, 0"
        connection.execute(f"INSERT INTO metrics VALUES ('loss', 0.5, {START_MS}, ?{extra})", [RUN])
    connection.close()
    put(tmp_path / "mlruns" / "0" / RUN / "artifacts" / "a" / "b.txt", "hello")
    assert mlflow_sqlite.is_database(path)
    found = mlflow_sqlite.find(path)
    (run,) = found.runs
    assert (run.name, run.project, run.params, run.labels) == ("first", "cifar", {"lr": "0.1"}, {"team": "vision"})
    assert run.description == "why"
    records = collected(run)
    assert series(records) == {"loss": [(None if generation == "0.9" else 7, 0.5)]}
    assert file_names(records) == ["a/b.txt"]
    assert ending(records).status == "succeeded"
    assert found.losses.counts["runs that were deleted in MLflow"] == 1


def test_nan_and_infinities_are_what_they_were(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with database(path, "1") as connection:
        sql_run(connection)
        rows = [("a", 0.0, 1, 1), ("a", 1.7976931348623157e308, 2, 0), ("a", -1.7976931348623157e308, 3, 0)]
        connection.executemany(f"INSERT INTO metrics VALUES (?, ?, {START_MS}, '{RUN}', ?, ?)", rows)
    connection.close()
    (run,) = mlflow_sqlite.find(path).runs
    values = [value for _, value in series(collected(run))["a"]]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf]


def test_models_and_datasets_of_mlflow_3_come_too(tmp_path: Path, target: Target) -> None:
    path = tmp_path / "m.db"
    with database(path, "3") as connection:
        sql_run(connection)
        place = "./mlruns/0/models/m-1/artifacts"
        connection.execute("INSERT INTO logged_models VALUES ('m-1', 0, 'net', ?, 1, 'active', ?)", [place, RUN])
        version = ("registered", 2, START_MS, "good", "Staging", "models:/m-1", RUN, place)
        connection.execute("INSERT INTO model_versions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", version)
        connection.execute("INSERT INTO registered_model_aliases VALUES ('best', 2, 'registered')")
        connection.execute(
            "INSERT INTO datasets VALUES ('d', 0, 'train', 'abc', 'local', '{\"path\": \"/d\"}', '', '')"
        )
        connection.execute("INSERT INTO inputs VALUES ('i', 'DATASET', 'd', 'RUN', ?)", [RUN])
        connection.execute("INSERT INTO input_tags VALUES ('i', 'mlflow.data.context', 'training')")
        connection.execute("INSERT INTO trace_info VALUES ('t')")
    connection.close()
    put(tmp_path / "mlruns" / "0" / "models" / "m-1" / "artifacts" / "model.bin", "123")
    found = mlflow_sqlite.find(path)
    (run,) = found.runs
    outcome = target.bring_in(run)
    (model,) = target.events(outcome.run_id, "model")
    assert (model["name"], model["size"], model["description"]) == ("registered", 3, "good")
    assert model["labels"] == {"mlflow.version": "2", "mlflow.stage": "Staging", "mlflow.aliases": "best"}
    (dataset,) = events(collected(run), "dataset")
    assert (dataset["name"], dataset["uri"], dataset["info"]["context"]) == ("train", "/d", "training")
    assert found.losses.counts["traces"] == 1


def test_a_database_cannot_name_our_own_files_as_its_artifacts(tmp_path: Path) -> None:
    secret = put(tmp_path / "private" / "id_rsa", "secret").parent
    (tmp_path / OTHER).mkdir()
    (tmp_path / OTHER / "artifacts").symlink_to(secret)
    path = tmp_path / "m.db"
    with database(path, "1") as connection:
        sql_run(connection, artifact_uri=str(secret))
        sql_run(connection, OTHER, artifact_uri=str(tmp_path / OTHER / "artifacts"))
    connection.close()
    for run in mlflow_sqlite.find(path).runs:
        assert file_names(collected(run)) == []


def test_remote_artifacts_are_listed_and_a_served_folder_is_found(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with database(path, "1") as connection:
        sql_run(connection, artifact_uri=f"mlflow-artifacts:/0/{RUN}/artifacts")
        sql_run(connection, OTHER, artifact_uri="gs://bucket/x/artifacts")
    connection.close()
    put(tmp_path / "mlartifacts" / "0" / RUN / "artifacts" / "kept.txt", "x")
    losses = ImportLosses()
    names = [file_names(collected(run, losses)) for run in mlflow_sqlite.find(path).runs]
    assert names == [["kept.txt"], []]
    assert list(losses.counts.values()) == [1]


def test_the_database_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with database(path, "1") as connection:
        sql_run(connection)
    connection.close()
    before, names = path.read_bytes(), sorted(tmp_path.iterdir())
    for run in mlflow_sqlite.find(path).runs:
        collected(run)
    assert (path.read_bytes(), sorted(tmp_path.iterdir())) == (before, names)
    opened = ReadOnlyDatabase(path)
    with pytest.raises(sqlite3.OperationalError):
        opened.connection.execute("DELETE FROM runs")


def test_views_that_compute_for_ever_are_not_asked(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with database(path, "1") as connection:
        sql_run(connection)
        connection.execute("DROP TABLE params")
        connection.execute(
            "CREATE VIEW params AS WITH RECURSIVE n(key) AS (SELECT 1 UNION ALL SELECT key + 1 FROM n) "
            "SELECT key, key AS value, key AS run_uuid FROM n"
        )
    connection.close()
    (run,) = mlflow_sqlite.find(path).runs
    assert run.params == {}


def test_what_is_no_database_is_none(tmp_path: Path) -> None:
    (tmp_path / "half.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    (tmp_path / "text.db").write_text("hello")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE things (x)")
    other.close()
    assert not any(map(mlflow_sqlite.is_database, tmp_path.iterdir()))
    with pytest.raises(CallError, match=r"half\.db is not a readable database"):
        list(mlflow_sqlite.find(tmp_path / "half.db").runs)


def test_values_of_any_type_and_names_of_any_bytes_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with database(path, "1") as connection:
        sql_run(connection, start_time="never", status=None, name=b"\xff")
        connection.execute(f"INSERT INTO metrics VALUES ('m', 'x', 'y', '{RUN}', 'z', 0)")
        connection.execute(f"INSERT INTO metrics VALUES (NULL, 1.5, 1e300, '{RUN}', 3, NULL)")
        connection.execute(f"INSERT INTO params VALUES (CAST(x'ff41' AS TEXT), NULL, '{RUN}')")
    connection.close()
    (run,) = mlflow_sqlite.find(path).runs
    losses = ImportLosses()
    records = collected(run, losses)
    assert run.params == {"\ufffdA": ""}
    assert run.started is None
    assert series(records) == {"None": [(3, 1.5)]}
    assert losses.counts == {"points that could not be read": 1}
    assert ending(records).status == "stopped"
