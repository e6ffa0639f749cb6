from __future__ import annotations

import math
import os
from pathlib import Path

from phalanx.formats import mlflow_files
from phalanx.formats.foreign_run import ForeignModel, ImportLosses
from tests.exchange.homes import Target, collected, ending, events, file_names, series
from tests.formats.mlflow_stores import OTHER, RUN, START_MS, experiment, file_run, put, yaml_of


def full_store(root: Path) -> Path:
    run = file_run(experiment(root))
    put(run / "params" / "lr", "0.1")
    put(run / "params" / "optimizer" / "name", "adam")
    put(run / "tags" / "mlflow.note.content", "a note")
    put(run / "tags" / "mlflow.runName", "renamed")
    put(run / "tags" / "team", "vision\nlab")
    lines = "".join(f"{START_MS + step} {1 / (step + 1)} {step}\n" for step in range(5))
    put(run / "metrics" / "loss", lines + lines.splitlines()[-1] + "\n")
    put(run / "metrics" / "val" / "acc", f"{START_MS} nan 0\n{START_MS} inf 1\n{START_MS} 0.5\n")
    put(run / "artifacts" / "plots" / "a.txt", "hello")
    return root


def test_a_run_comes_with_its_params_tags_metrics_and_artifacts(tmp_path: Path, target: Target) -> None:
    found = mlflow_files.find(full_store(tmp_path / "mlruns"))
    (run,) = found.runs
    assert (run.source, run.name, run.project, run.user) == (f"mlflow:{RUN}", "renamed", "cifar", "ann")
    assert run.params == {"lr": "0.1", "optimizer/name": "adam"}
    assert (run.labels, run.description) == ({"team": "vision\nlab"}, "a note")
    outcome = target.bring_in(run)
    assert target.points(outcome.run_id, "loss") == [(step, 1 / (step + 1)) for step in range(5)]
    (nan, infinite, last) = target.points(outcome.run_id, "val/acc")
    assert math.isnan(nan[1])
    assert infinite == (1, math.inf)
    assert last[1] == 0.5
    assert (target.run_folder(outcome.run_id) / "artifacts" / "plots" / "a.txt").read_text() == "hello"
    (artifact,) = target.events(outcome.run_id, "artifact")
    assert (artifact["path"], artifact["size"]) == ("artifacts/plots/a.txt", 5)
    assert target.labels(outcome.run_id) == {"team": "vision\nlab", "phalanx.source": f"mlflow:{RUN}"}
    assert target.end(outcome.run_id)["ended_at"] == (START_MS + 60_000) / 1000
    assert (target.lost, found.losses.rows()) == ({}, [])


def test_statuses_become_ours_and_a_run_that_was_not_over_is_over(tmp_path: Path) -> None:
    folder = experiment(tmp_path)
    expected = {}
    for number, (status, word) in enumerate([(1, "stopped"), (3, "succeeded"), (4, "failed"), (5, "stopped")]):
        run_id = f"{number:032x}"
        file_run(folder, run_id, status=status)
        expected[f"mlflow:{run_id}"] = word
    assert {run.source: ending(collected(run)).status for run in mlflow_files.find(tmp_path).runs} == expected


def test_deleted_runs_and_experiments_are_counted_and_not_brought(tmp_path: Path) -> None:
    file_run(experiment(tmp_path), lifecycle_stage="deleted")
    file_run(experiment(tmp_path, "2", "gone", stage="deleted"), OTHER)
    file_run(experiment(tmp_path / ".trash", "3"), OTHER)
    found = mlflow_files.find(tmp_path)
    assert list(found.runs) == []
    assert found.losses.counts["runs that were deleted in MLflow"] == 2


def test_one_experiment_can_be_named(tmp_path: Path) -> None:
    file_run(experiment(tmp_path, "1"))
    file_run(experiment(tmp_path, "2", "second"), OTHER)
    assert [run.project for run in mlflow_files.find(tmp_path / "2").runs] == ["second"]


def test_registered_models_lie_in_the_artifacts_or_apart_and_come_with_stage_and_aliases(
    tmp_path: Path, target: Target
) -> None:
    folder = experiment(tmp_path)
    run = file_run(folder)
    put(run / "artifacts" / "net" / "weights.bin", "w" * 10)
    put(tmp_path / "models" / "old" / "meta.yaml", "name: old\naliases: {champion: 1}\n")
    version = {
        "name": "old",
        "version": 1,
        "run_id": RUN,
        "current_stage": "Production",
        "creation_timestamp": START_MS,
    }
    put(tmp_path / "models" / "old" / "version-1" / "meta.yaml", yaml_of({**version, "source": f"{RUN}/artifacts/net"}))
    logged = {"model_id": "m-1", "name": "new", "source_run_id": RUN, "creation_timestamp": START_MS}
    put(folder / "models" / "m-1" / "meta.yaml", yaml_of(logged))
    put(folder / "models" / "m-1" / "artifacts" / "MLmodel", "flavors: {}")
    remote = {**version, "name": "far", "source": "s3://bucket/model"}
    put(tmp_path / "models" / "far" / "version-1" / "meta.yaml", yaml_of(remote))
    (found,) = mlflow_files.find(tmp_path).runs
    outcome = target.bring_in(found)
    models = {event["name"]: event for event in target.events(outcome.run_id, "model")}
    assert set(models) == {"old", "new"}
    assert (models["old"]["path"], models["old"]["size"], models["old"]["files"]) == ("artifacts/net", 10, 1)
    assert models["old"]["labels"] == {
        "mlflow.version": "1",
        "mlflow.stage": "Production",
        "mlflow.aliases": "champion",
    }
    assert (target.run_folder(outcome.run_id) / models["new"]["path"] / "MLmodel").read_text() == "flavors: {}"
    assert target.lost == {"files of models that are stored elsewhere": 1}


def test_datasets_come_as_events(tmp_path: Path) -> None:
    folder = experiment(tmp_path)
    run = file_run(folder)
    put(run / "inputs" / "i" / "meta.yaml", "source_id: d1\ntags: {mlflow.data.context: training}\n")
    source = '\'{"uri": "s3://b/train"}\''
    put(folder / "datasets" / "d1" / "meta.yaml", f"name: train\ndigest: abc\nsource_type: s3\nsource: {source}\n")
    put(run / "inputs" / "j" / "meta.yaml", "source_id: ../../../../etc\n")
    (found,) = mlflow_files.find(tmp_path).runs
    (dataset,) = events(collected(found), "dataset")
    assert (dataset["name"], dataset["digest"], dataset["uri"]) == ("train", "abc", "s3://b/train")
    assert dataset["info"]["context"] == "training"


def test_artifacts_that_are_elsewhere_are_listed(tmp_path: Path) -> None:
    file_run(experiment(tmp_path), artifact_uri="s3://bucket/0/run/artifacts")
    (run,) = mlflow_files.find(tmp_path).runs
    losses = ImportLosses()
    collected(run, losses)
    assert losses.rows() == [
        {
            "what": "artifacts that are stored elsewhere (cloud, server)",
            "count": 1,
            "examples": ["s3://bucket/0/run/artifacts"],
        }
    ]


def test_a_store_cannot_name_our_own_files_as_its_artifacts(tmp_path: Path, target: Target) -> None:
    secret = put(tmp_path / "private" / "id_rsa", "secret")
    run = file_run(experiment(tmp_path / "mlruns"), artifact_uri=f"file://{secret.parent}")
    put(run / "params" / "p", "1")
    (run / "params" / "stolen").symlink_to(secret)
    (run / "metrics").mkdir()
    (run / "metrics" / "m").symlink_to(secret)
    (found,) = mlflow_files.find(tmp_path / "mlruns").runs
    outcome = target.bring_in(found)
    assert found.params == {"p": "1"}
    assert b"secret" not in b"".join(
        path.read_bytes() for path in target.run_folder(outcome.run_id).rglob("*") if path.is_file()
    )


def test_links_that_lead_out_are_not_followed_and_those_that_stay_are(tmp_path: Path, target: Target) -> None:
    secret = put(tmp_path / "secret", "secret")
    run = file_run(experiment(tmp_path / "mlruns"))
    put(run / "artifacts" / "real", "content")
    (run / "artifacts" / "inside").symlink_to("real")
    (run / "artifacts" / "out").symlink_to(secret)
    (run / "artifacts" / "folder").symlink_to(tmp_path)
    (run / "artifacts" / "round").symlink_to("round")
    os.mkfifo(run / "artifacts" / "pipe")
    (found,) = mlflow_files.find(tmp_path / "mlruns").runs
    outcome = target.bring_in(found)
    kept = target.run_folder(outcome.run_id) / "artifacts"
    assert sorted(path.name for path in kept.iterdir()) == ["inside", "real"]
    assert not (kept / "inside").is_symlink()
    assert target.lost["links that leave the source"] == 2
    assert target.lost["what is not a regular file"] == 1


def test_meta_files_are_read_by_the_safe_loader_and_not_when_they_are_huge(tmp_path: Path) -> None:
    for number, text in enumerate(
        [
            "!!python/object/apply:os.system [touch hacked]",
            "experiment_id: 1\n" + "# padding\n" * 100_000,
            "[" * 5000,
            "experiment_id: &a [*a]",
            "- a list",
            "experiment_id: 2001-99-99",
            "\0",
        ]
    ):
        put(tmp_path / str(number) / "meta.yaml", text)
    assert not mlflow_files.is_store(tmp_path / "0")
    found = list(mlflow_files.find(tmp_path).runs)
    assert found == []
    assert not Path("hacked").exists()


def test_lines_of_metrics_that_are_damaged_are_counted(tmp_path: Path) -> None:
    run = file_run(experiment(tmp_path))
    put(run / "metrics" / "m", f"{START_MS} 1.0 0\nnot a line\n\n{START_MS} x 1\n{START_MS} 2.0 2 extra words\n")
    (found,) = mlflow_files.find(tmp_path).runs
    losses = ImportLosses()
    assert series(collected(found, losses)) == {"m": [(0, 1.0), (2, 2.0)]}
    assert losses.counts == {"points that could not be read": 2}


def test_a_param_that_is_endless_is_counted(tmp_path: Path) -> None:
    run = file_run(experiment(tmp_path))
    with put(run / "params" / "huge", "").open("wb") as stream:
        stream.truncate(1 << 40)  # it takes no disk
    found = mlflow_files.find(tmp_path)
    (only,) = found.runs
    assert only.params == {}
    assert found.losses.counts == {"params and tags that could not be read": 1}


def test_a_model_lies_within_the_artifacts_only(tmp_path: Path, target: Target) -> None:
    run = file_run(experiment(tmp_path / "mlruns"))
    put(run / "artifacts" / "a", "x")
    put(
        tmp_path / "mlruns" / "models" / "m" / "version-1" / "meta.yaml",
        yaml_of({"name": "m", "version": 1, "run_id": RUN, "source": f"runs:/{RUN}/../../../../.."}),
    )
    (found,) = mlflow_files.find(tmp_path / "mlruns").runs
    assert [record.name for record in collected(found) if isinstance(record, ForeignModel)] == ["m"]
    outcome = target.bring_in(found)
    assert target.events(outcome.run_id, "model") == []
    assert target.lost == {"names that are not relative paths": 1}


def test_names_of_metrics_may_have_any_letters(tmp_path: Path) -> None:
    run = file_run(experiment(tmp_path))
    put(run / "metrics" / "ünï" / "co dé", f"{START_MS} 1.0 0\n")
    put(run / "artifacts" / "a\nb.txt", "x")
    (found,) = mlflow_files.find(tmp_path).runs
    records = collected(found)
    assert series(records) == {"ünï/co dé": [(0, 1.0)]}
    assert file_names(records) == ["a\nb.txt"]
