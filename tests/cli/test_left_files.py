"""What scripts that do nothing special leave behind, through `phalanx run`."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from phalanx.store.series.run_series import RunSeries
from phalanx.working_files import read_working_files
from tests.cli.homes import THREE, Place, place_fixture, wait_for  # noqa: F401 - found by its name
from tests.cli.unchanged import BOARD, MLRUNS, SAVES, write_script


def outputs_of(place: Place, run_id: str) -> dict[str, int]:
    folder = place.home / "runs" / run_id / "outputs"
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_script_that_only_prints_and_saves_leaves_its_model(place: Place) -> None:
    answer = place.run(write_script(place.folder, SAVES))
    (run_id,) = place.run_ids()
    assert outputs_of(place, run_id) == {"mnist_cnn.pt": 700}
    assert "collected: 1 file, 700 B" in answer.err
    assert "left in the working folder: history.csv (15 B)" in answer.err
    line = 'outputs: {collect: ["history.csv", "mnist_cnn.pt"]}'
    assert f"to keep them, write `{line}` in the file" in answer.err
    assert line in place.call("show", run_id).out
    shown = place.call("show", run_id, "--json").data
    assert shown["files"]["collected"] == {"count": 1, "size": 700}
    assert (place.folder / "mnist_cnn.pt").exists()

    offered = place.call("models")
    assert f"{run_id}  -     outputs/mnist_cnn.pt  700 B" in offered.out
    assert place.call("models", "--json").data["candidates"][0]["path"] == "outputs/mnist_cnn.pt"
    register = f"phalanx models register {run_id} outputs/mnist_cnn.pt --name"
    assert register in offered.out
    assert place.call("models", "register", run_id, "mnist_cnn.pt", "--name", "mnist").code == 0
    after = place.call("models", "--json").data
    assert [model["name"] for model in after["models"]] == ["mnist"]
    assert after["candidates"] == []


@pytest.mark.slow
def test_the_example_of_the_docs_does_what_they_say(place: Place) -> None:
    page = (Path(__file__).parents[2] / "docs" / "track" / "outputs.md").read_text()
    blocks = re.findall(r"```(?:python|yaml|console)\n(.*?)```", page, re.DOTALL)
    for block in blocks:
        if name := re.match(r"# (train\.py|polyaxonfile\.yml)\n", block):
            (place.folder / name[1]).write_text(block)
    answer = place.call("run", "-f", "polyaxonfile.yml")
    said = next(block for block in blocks if block.startswith("$ phalanx run -f polyaxonfile.yml"))
    assert answer.code == 0, answer.err
    assert said.splitlines()[-3:] == answer.err.splitlines()[-3:]


@pytest.mark.slow
def test_what_the_file_says_is_collected(place: Place) -> None:
    command = write_script(place.folder, SAVES)
    run_id = place.ran(command, outputs={"collect": ["*.csv", "logs/**"]})
    assert outputs_of(place, run_id) == {"history.csv": 15}
    run_id = place.ran(command, outputs={"collect": []})
    assert outputs_of(place, run_id) == {}


@pytest.mark.slow
def test_limits_hold_and_are_named(place: Place) -> None:
    answer = place.run("head -c 3000000 /dev/zero > large.pt; head -c 10 /dev/zero > small.pt", outputs={"max_size": 1})
    (run_id,) = place.run_ids()
    assert outputs_of(place, run_id) == {"small.pt": 10}
    assert "not collected: large.pt (2.9 MiB): more than `max_size`" in answer.err
    run_id = place.ran("touch a.pt; sleep 0.05; touch b.pt", outputs={"max_files": 1})
    assert outputs_of(place, run_id) == {"b.pt": 0}


@pytest.mark.slow
def test_event_files_of_the_working_folder_are_followed_while_it_runs(place: Place) -> None:
    (place.folder / "hold").touch()
    command = write_script(place.folder, BOARD)
    process = place.start("run", "-f", place.file(command))
    run_id = wait_for(lambda: place.run_ids() if (place.home / "runs").exists() else [])[0]
    wait_for(lambda: "loss" in place.call("metrics", run_id).out)
    assert process.poll() is None
    (place.folder / "hold").unlink()
    assert process.wait(90) == 0
    out = place.call("metrics", run_id).out
    assert "loss" in out
    (row,) = [line for line in out.splitlines() if line.startswith("loss")]
    assert "0.2" in row
    (event_file, hparams) = sorted(outputs_of(place, run_id))
    assert event_file.startswith("runs/now/events.out.tfevents.")
    assert hparams == "runs/now/hparams.yaml"
    listed = read_working_files(next((place.home / "runs" / run_id / "replicas").glob("*/*")))
    assert listed is not None
    assert [file.is_own for file in listed.files if "tfevents" in file.path] == [True]


@pytest.mark.slow
def test_mlruns_are_read_when_the_run_has_ended(place: Place) -> None:
    write_script(place.folder, MLRUNS, "before.py")
    os.system(f"cd {place.folder} && python3 before.py")
    answer = place.run(write_script(place.folder, MLRUNS), "--json")
    run_id = answer.data["id"]
    shown = place.call("show", run_id, "--json").data
    assert shown["params"] == {"lr": "0.1"}
    assert shown["summary"] == {"accuracy": 0.75}
    assert shown["labels"]["team"] == "vision"
    assert [row["tool"] for row in shown["facts"]["trackers"]] == ["mlflow"]
    assert place.call("outputs", run_id, "--show", "artifacts/plot.txt").out.endswith("\na plot\n")
    assert "mlruns" not in str(shown["files"])


@pytest.mark.slow
def test_models_of_the_file_are_registered(place: Place) -> None:
    models = [
        {"name": "net", "path": "*.ckpt", "metric": {"name": "loss", "optimization": "minimize"}},
        {"name": "other", "path": "missing/**"},
    ]
    command = "for loss in 0.3 0.1 0.2; do echo $loss > epoch-loss=$loss.ckpt; done"
    run_id = place.ran(command, models=models)
    wait_for(lambda: place.call("models", "--json").data["models"])
    version = place.call("models", "show", "net/1", "--json").data
    assert (version["run_id"], version["source"]) == (run_id, "outputs/epoch-loss=0.1.ckpt")
    assert version["metrics"] == {"loss": 0.1}
    wait_for(lambda: "models" in place.call("show", run_id, "--json").data["facts"])
    shown = place.call("show", run_id).out
    assert "net/1 from outputs/epoch-loss=0.1.ckpt" in shown
    assert "other: no output matches `missing/**`" in shown


@pytest.mark.slow
def test_a_failed_run_registers_no_model(place: Place) -> None:
    run_id = place.ran("echo 1 > net.pt; exit 1", models=[{"name": "net", "path": "*.pt"}])
    assert outputs_of(place, run_id) == {"net.pt": 2}
    assert place.call("models", "--json").data["models"] == []


@pytest.mark.slow
def test_two_runs_in_one_folder_keep_their_own_files(place: Place) -> None:
    """Event files name their process; files beside them belong to the same run; others are nobody's."""
    command = write_script(place.folder, BOARD)
    (place.folder / "hold").touch()
    ids = [place.queued(f"{command} {name}; touch done-{name}.pt") for name in ("a", "b")]
    folders = [place.folder / "runs" / name for name in ("a", "b")]
    wait_for(lambda: all(folder.exists() for folder in folders))
    lists = [place.home / "runs" / run_id / "replicas/master-0/attempt-1/working-files.json" for run_id in ids]
    wait_for(lambda: all(path.exists() for path in lists))
    (place.folder / "hold").unlink()
    for run_id, name in zip(ids, "ab", strict=True):
        place.until(run_id, "succeeded")
        kept = outputs_of(place, run_id)
        assert {path.rpartition("/")[0] for path in kept} == {f"runs/{name}"}
        assert "loss" in place.call("metrics", run_id).out
        shown = place.call("show", run_id).out
        assert "used the folder at the same time" in shown


@pytest.mark.slow
def test_replicas_that_share_a_folder_collect_once_and_keep_their_own_series(place: Place) -> None:
    command = write_script(place.folder, BOARD)
    (place.folder / "hold").touch()
    process = place.start("run", "-f", place.file(f"{command} $RANK", framework="pytorch", environment=THREE))
    run_id = wait_for(lambda: place.run_ids() if (place.home / "runs").exists() else [])[0]
    replicas = place.home / "runs" / run_id / "replicas"
    wait_for(lambda: len(list(replicas.glob("*/*/working-files.json"))) == 3)
    (place.folder / "hold").unlink()
    assert process.wait(90) == 0
    assert sorted({path.rpartition("/")[0] for path in outputs_of(place, run_id)}) == ["runs/0", "runs/1", "runs/2"]
    series = RunSeries(place.home / "runs" / run_id)
    assert series.names() == ["loss", "runs/1/loss", "runs/2/loss"]
    assert [series.replicas(name) for name in series.names()] == [["master-0"], ["worker-0"], ["worker-1"]]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["link", "pipe", "name", "folder", "mode"])
def test_odd_files_do_no_harm(place: Place, tmp_path: Path, how: str) -> None:
    secret = tmp_path / "secret.pt"
    secret.write_text("secret")
    command = {
        "link": f"ln -s {secret} model.pt; mkdir sub; ln -s {tmp_path} sub/up",
        "pipe": "mkfifo model.pt",
        "name": r"""touch "$(printf 'a\377\n\033[31m.pt')" """,
        "folder": f"ln -s {tmp_path} $PHALANX_OUTPUTS/runs; mkdir runs; echo 1 > runs/model.pt",
        "mode": "mkdir closed; echo 1 > closed/x.pt; chmod 0 closed; echo 1 > own.pt",
    }[how]
    answer = place.run(command)
    assert answer.code == 0, answer.err
    (run_id,) = place.run_ids()
    kept = outputs_of(place, run_id)
    assert "secret" not in "".join((place.home / "runs" / run_id / "outputs" / path).read_text() for path in kept)
    assert not (tmp_path / "model.pt").exists()
    assert "\033[31m" not in answer.err
    assert place.call("show", run_id).code == 0
    if how == "name":
        assert len(kept) == 1
    (place.folder / "closed").chmod(0o700) if how == "mode" else None


@pytest.mark.slow
def test_the_files_of_the_code_and_of_environments_are_not_listed(place: Place) -> None:
    (place.folder / "old.pt").write_text("from before")
    (place.folder / ".git").mkdir()
    time.sleep(0.05)
    run_id = place.ran(
        "mkdir -p env/lib __pycache__ && touch env/pyvenv.cfg env/lib/x.pt __pycache__/x.pt .git/x.pt .hidden.pt new.pt"
    )
    assert list(outputs_of(place, run_id)) == ["new.pt"]
    assert place.call("show", run_id, "--json").data["files"]["left"] == []
