"""What other tools tracked in the working folder becomes part of the run, once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from phalanx.ends import Cause, End
from phalanx.ingest.rebuild import rebuild_store
from phalanx.working_files import SHARED, WorkingFile, WorkingFiles
from tests.formats.encoding import wandb_config, wandb_history, wandb_run, write_wandb
from tests.formats.mlflow_stores import OTHER, RUN, database, experiment, file_run, put, sql_run
from tests.ingest.indexed import Gathered

EMPTY: Mapping[str, str] = {}


@pytest.fixture(name="it")
def it_fixture(tmp_path: Path) -> Iterator[Gathered]:
    found = Gathered(tmp_path)
    yield found
    found.close()


def leave(
    it: Gathered, working: Path, began: float = 1.6e9, state: str = "left", facts: Mapping[str, str] = EMPTY
) -> None:
    """The agent's list of everything in the working folder, and the end of the replica."""
    paths = sorted(path for path in working.rglob("*") if path.is_file())
    files = tuple(WorkingFile(str(path.relative_to(working)), 1, time.time(), state=state) for path in paths)
    put(it.attempt() / "working-files.json", json.dumps(WorkingFiles(files, is_final=True).to_json()))
    end = End(Cause.FINISHED, 0, None, "finished", started_at=began, ended_at=time.time())
    put(it.attempt() / "end.json", json.dumps(end.to_json()))
    put(it.folder / "job" / "attempt-1.json", json.dumps({"attempt": 1, "working": str(working), **facts}))


def add_file_run(working: Path, run_id: str, name: str, loss: float, start_ms: int = 1_700_000_000_000) -> Path:
    run = file_run(experiment(working / "mlruns"), run_id, run_name=name, start_time=start_ms)
    put(run / "metrics" / "loss", f"{start_ms} 9.0 0\n{start_ms} {loss} 1\n")
    put(run / "params" / "lr", "0.1")
    put(run / "artifacts" / "net" / "weights.txt", name)
    return run


def test_the_first_run_of_mlflow_is_the_run_and_more_have_its_name_before_theirs(it: Gathered, tmp_path: Path) -> None:
    working = tmp_path / "work"
    add_file_run(working, RUN, "parent", 0.5)
    add_file_run(working, OTHER, "fold-1", 0.25, 1_700_000_001_000)
    leave(it, working)
    it.turn(is_over=True)
    assert it.points("loss") == [(0, 9.0), (1, 0.5)]
    assert it.points("fold-1/loss") == [(0, 9.0), (1, 0.25)]
    assert it.found().params == {"seed": 1, "lr": "0.1", "fold-1/lr": "0.1"}
    assert (it.folder / "artifacts" / "fold-1" / "net" / "weights.txt").read_text() == "fold-1"
    assert [row["name"] for row in it.facts()["trackers"]] == ["parent", "fold-1"]
    assert it.facts().get("files") is None


def test_reading_again_and_after_a_kill_gives_the_same(
    it: Gathered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = tmp_path / "work"
    add_file_run(working, RUN, "one", 0.5)
    leave(it, working)
    put(it.attempt() / "trackers.points.draft", b"half a record")
    put(it.folder / "artifacts" / "net" / "weights.txt", "one")
    it.turn(is_over=True)
    before = it.everything()
    it.new_gatherer()
    it.turn(is_over=True)
    assert it.everything() == before
    assert it.points("loss") == [(0, 9.0), (1, 0.5)]
    assert [artifact.path for artifact in it.store.artifacts(it.run.id)] == ["artifacts/net/weights.txt"]
    put(working / "mlruns" / "1" / RUN / "metrics" / "loss", "1700000000000 7 7\n")  # another program wrote there since
    it.close()
    monkeypatch.setenv("PHALANX_HOME", str(it.home.path))
    rebuild_store()
    assert it.points("loss") == [(0, 9.0), (1, 0.5)]


def test_a_database_has_only_the_runs_since_the_start(it: Gathered, tmp_path: Path) -> None:
    working = tmp_path / "work"
    working.mkdir()
    connection = database(working / "mlflow.db", "3")
    sql_run(connection, OTHER, name="yesterday", start_time=1_600_000_000_000)
    sql_run(connection, RUN, name="today")
    for run_id, value in ((OTHER, 1.0), (RUN, 2.0)):
        connection.execute("INSERT INTO metrics VALUES ('acc', ?, 1700000000000, ?, 0, 0)", [value, run_id])
    connection.commit()
    connection.close()
    put(working / "broken.db", b"SQLite format 3\0 but not")
    leave(it, working, began=1.65e9)
    it.turn(is_over=True)
    assert it.points("acc") == [(0, 2.0)]
    assert [row["name"] for row in it.facts()["trackers"]] == ["today"]


def test_offline_runs_of_wandb_are_read(it: Gathered, tmp_path: Path) -> None:
    working = tmp_path / "work"
    records = [wandb_run("abc", name="dawn"), wandb_config({"lr": 0.1}), wandb_history(0, {"loss": 0.5})]
    write_wandb(working / "wandb", "abc", records)
    leave(it, working)
    it.turn(is_over=True)
    assert it.points("loss") == [(0, 0.5)]
    assert it.found().params["lr"] == 0.1


@pytest.mark.parametrize("how", ["shared", "pod", "gone", "replay"])
def test_nothing_is_read_that_may_be_of_others(it: Gathered, tmp_path: Path, how: str) -> None:
    """Files of an unknown run, and paths that a pod named: the folder of that name here is another one."""
    working = tmp_path / "work"
    add_file_run(working, RUN, "one", 0.5)
    leave(it, working, state=SHARED if how == "shared" else "left", facts={"pod": "p"} if how == "pod" else EMPTY)
    if how == "gone":
        (it.folder / "job" / "attempt-1.json").unlink()
    it.gatherer.is_replay = how == "replay"
    it.turn(is_over=True)
    assert it.names() == []
    assert "trackers" not in it.facts()
