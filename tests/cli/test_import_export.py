from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name
from tests.cli.running import COMMAND
from tests.formats.encoding import tf_scalar, wandb_exit, wandb_history, wandb_run, write_wandb
from tests.formats.mlflow_stores import RUN, START_MS, database, experiment, file_run, put, sql_run


def mlruns(folder: Path) -> Path:
    """A run that succeeded, one that failed, one that was deleted."""
    place = experiment(folder / "mlruns")
    run = file_run(place)
    put(run / "metrics" / "loss", "".join(f"{START_MS + step} {step / 2} {step}\n" for step in range(4)))
    put(run / "params" / "lr", "0.1")
    put(run / "artifacts" / "a.txt", "hello")
    file_run(place, "a" * 32, status=4, run_name="broken")
    file_run(place, "b" * 32, lifecycle_stage="deleted")
    return folder / "mlruns"


def test_runs_of_mlflow_come_in_and_can_be_asked_for(place: Place) -> None:
    answer = place.call("import", str(mlruns(place.folder)))
    assert answer.code == 0, answer.err
    assert "2 runs imported, with 4 points" in answer.out
    assert "not imported:\n  1 runs that were deleted in MLflow" in answer.out
    listed = place.call("ps", "--json", "-q", "params.lr:<0.2, metric.loss:>1").data["runs"]
    (found,) = listed
    assert (found["name"], found["project"], found["status"]) == ("first", "cifar", "succeeded")
    assert found["summary"] == {"loss": 1.5}
    assert found["created_at"].startswith("2023-11-14T22:13:20")
    (failed,) = place.call("ps", "--json", "-q", "status:failed").data["runs"]
    assert (failed["name"], "failed in MLflow" in failed["reason"]) == ("broken", True)


@pytest.mark.slow
def test_a_second_import_leaves_alone_what_is_here(place: Place) -> None:
    source = str(mlruns(place.folder))
    first = place.call("import", source, "--json").data
    again = place.call("import", source, "--json").data
    assert [run["state"] for run in again["runs"]] == ["known", "known"]
    assert [run["run_id"] for run in again["runs"]] == [run["run_id"] for run in first["runs"]]
    assert "2 runs skipped: imported before" in place.call("import", source).out
    assert place.call("ps", "--json").data["count"] == 2


def test_a_dry_run_says_everything_and_changes_nothing(place: Place) -> None:
    answer = place.call("import", str(mlruns(place.folder)), "--dry-run", "--json").data
    assert (answer["ok"], answer["kind"], answer["dry_run"]) == (True, "mlflow", True)
    assert answer["runs"][0]["counts"] == {"points": 4, "artifacts": 1}
    assert [(run["name"], run["status"]) for run in answer["runs"]] == [("first", "succeeded"), ("broken", "failed")]
    assert answer["not_carried_over"] == [{"what": "runs that were deleted in MLflow", "count": 1, "examples": []}]
    assert list((place.home / "runs").iterdir()) == []


def test_every_kind_is_recognised(place: Place) -> None:
    (place.folder / "db").mkdir()
    with database(place.folder / "db" / "mlflow.db", "3") as sql:
        sql_run(sql, "c" * 32)
    sql.close()
    write_wandb(place.folder / "w" / "wandb", "r", [wandb_run("r"), wandb_history(0, {"x": 1}), wandb_exit()])
    (place.folder / "tb").mkdir()
    (place.folder / "tb" / "events.out.tfevents.1").write_bytes(tf_scalar("x", 1.0, 0))
    (place.folder / "log.csv").write_text("step,x\n0,1\n")
    (place.folder / "pl" / "version_0").mkdir(parents=True)
    (place.folder / "pl" / "version_0" / "metrics.csv").write_text("step,x\n0,2\n")
    mlruns(place.folder / "m")
    kinds = {
        "db": "mlflow",
        "db/mlflow.db": "mlflow",
        f"sqlite:///{place.folder}/db/mlflow.db": "mlflow",
        "m": "mlflow",
        "m/mlruns": "mlflow",
        "m/mlruns/1": "mlflow",
        "w": "wandb",
        "w/wandb": "wandb",
        "w/wandb/offline-run-20260101_000000-r/run-r.wandb": "wandb",
        "tb": "tensorboard",
        "tb/events.out.tfevents.1": "tensorboard",
        "log.csv": "csv",
        "pl": "csv",
    }
    for source, kind in kinds.items():
        path = source if "://" in source else str(place.folder / source)
        answer = place.quick("import", path, "--dry-run", "--json").data
        assert (answer["kind"], len(answer["runs"]) > 0) == (kind, True), source


def test_a_table_gets_the_given_name_and_project(place: Place) -> None:
    (place.folder / "log.csv").write_text("epoch,loss\n0,1.5\n1,0.5\n")
    answer = place.call("import", "log.csv", "--run-name", "my run", "--project", "mine")
    assert answer.code == 0, answer.err
    (run,) = place.call("ps", "--json").data["runs"]
    assert (run["name"], run["project"], run["summary"]) == ("my run", "mine", {"loss": 0.5})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "cannot read nowhere: no such file or directory"),
        (["s3://bucket/mlruns"], "only local files and folders can be imported"),
        (["."], "has no known format"),
        (["x.csv", "--as-new"], "--as-new is only for Phalanx runs"),
        ([".", "--from", "mlflow"], "is not an MLflow store"),
        ([".", "--from", "phalanx"], "no Phalanx run in"),
        ([".", "--from", "tensorboard", "--run-name", "x"], "--run-name is only for tables"),
        (["a\0b"], "is not a valid file name"),
    ],
)
def test_calls_that_are_wrong_are_reported(place: Place, arguments: list[str], said: str) -> None:
    (place.folder / "x.csv").write_text("step,a\n1,2\n")
    paths = [str(place.folder / item) if item in (".", "x.csv") else item for item in arguments]
    answer = place.quick("import", *paths)
    assert answer.code == 2
    assert said in answer.err
    assert place.quick("import", *paths, "--json").data["ok"] is False


def test_a_folder_with_two_stores_asks_which(place: Place) -> None:
    mlruns(place.folder)
    with database(place.folder / "mlflow.db", "1") as sql:
        sql_run(sql, RUN)
    sql.close()
    answer = place.quick("import", str(place.folder))
    assert answer.code == 2
    assert "several MLflow stores: import one of" in answer.err


@pytest.mark.slow
def test_a_real_run_goes_out_and_comes_back(place: Place, tmp_path: Path) -> None:
    run_id = place.ran("echo printed; echo kept > $PHALANX_OUTPUTS/a.txt")
    answer = place.call("export", run_id, "-o", "out")
    assert (answer.code, answer.err) == (0, "")
    folder = place.folder / "out" / run_id
    assert (folder / "outputs" / "a.txt").read_text() == "kept\n"
    (tmp_path / "there").mkdir()
    other = Place(tmp_path / "there")
    back = other.call("import", str(place.folder / "out"), "--json").data
    assert [(run["state"], run["run_id"]) for run in back["runs"]] == [("imported", run_id)]
    assert other.call("show", run_id, "--json").data["status"] == "succeeded"
    assert "printed" in other.call("logs", run_id).out
    again = other.call("import", str(place.folder / "out"))
    assert f"imported before, such as {run_id}" in again.out
    assert other.call("import", str(place.folder / "out"), "--as-new", "--project", "p").code == 0
    assert sorted(run["project"] for run in other.call("ps", "--json").data["runs"]) == ["default", "p"]
    assert other.call("doctor").code == 0


@pytest.mark.slow
def test_a_zip_goes_out_and_comes_back(place: Place, tmp_path: Path) -> None:
    run_id = place.ran("echo printed")
    assert place.call("export", run_id, "-o", "out.zip").code == 0
    (tmp_path / "there").mkdir()
    other = Place(tmp_path / "there")
    assert other.call("import", str(place.folder / "out.zip"), "--json").data["runs"][0]["run_id"] == run_id
    assert [path.name for path in other.home.iterdir() if path.name.startswith(".import")] == []


def test_a_hostile_zip_writes_nothing_elsewhere(place: Place) -> None:
    with zipfile.ZipFile(place.folder / "evil.zip", "w") as archive:
        archive.writestr("../../evil", "x")
        archive.writestr("run/run.json", "{}")
        archive.writestr("run/history", "")
    answer = place.quick("import", str(place.folder / "evil.zip"), "--json")
    assert answer.data["runs"] == []
    assert {row["what"] for row in answer.data["not_carried_over"]} == {
        "folders that are not runs",
        "names in the archive that are not relative paths",
    }
    assert not list(place.folder.parent.rglob("evil"))


@pytest.mark.parametrize("form", ["files", "csv", "jsonl", "parquet"])
@pytest.mark.slow
def test_imported_runs_go_out_in_every_form(place: Place, form: str) -> None:
    place.call("import", str(mlruns(place.folder)))
    answer = place.call(
        "export", "--project", "cifar", "-q", "status:succeeded", "-o", "out", "--format", form, "--json"
    )
    assert answer.code == 0, answer.err
    assert (answer.data["points"], len(answer.data["runs"])) == (4, 1)
    (run_id,) = answer.data["runs"]
    names = {
        str(path.relative_to(place.folder / "out")) for path in (place.folder / "out").rglob("*") if path.is_file()
    }
    if form == "files":
        assert {f"{run_id}/run.json", f"{run_id}/metrics/loss.csv", f"{run_id}/artifacts/a.txt"} <= names
        labels = json.loads((place.folder / "out" / run_id / "labels.json").read_bytes())
        assert labels["phalanx.source"] == f"mlflow:{RUN}"
    else:
        assert names == {f"runs.{form}", f"metrics.{form}"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name runs"),
        (["nobody"], "there is no run `nobody`"),
        (["--project", "none"], "no matching runs"),
        (["x", "--project", "p"], "but not both"),
        (["-q", "colour:red"], "colour"),
    ],
)
def test_exports_that_are_wrong_are_reported(place: Place, arguments: list[str], said: str) -> None:
    answer = place.quick("export", *arguments, "-o", str(place.folder / "out"))
    assert answer.code == 2
    assert said in answer.err
    assert not (place.folder / "out").exists()


def test_an_export_does_not_write_over_anything(place: Place) -> None:
    run_id = place.remember("aaaa2").id
    (place.folder / "full").mkdir()
    (place.folder / "full" / "x").touch()
    answer = place.quick("export", run_id, "-o", str(place.folder / "full"))
    assert (answer.code, "already exists" in answer.err) == (2, True)


@pytest.mark.slow
def test_the_examples_of_the_docs_do_what_they_say(place: Place) -> None:
    page = Path(__file__).resolve().parent.parent.parent / "docs" / "track" / "import-export.md"
    script = "\n".join(re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=place.folder,
        env={**place.environment(), "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (place.folder / "tables" / "metrics.csv").read_text().count("\n") == 3
    there = Place.__new__(Place)
    there.home, there.folder = place.folder / "elsewhere", place.folder
    runs = there.quick("ps", "--json").data["runs"]
    assert sorted((run["name"], run["project"]) for run in runs) == [
        ("baseline", "default"),
        ("baseline", "default"),
        ("long", "tables"),
    ]
