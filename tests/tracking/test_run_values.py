"""What users of W&B and MLflow reach for: config, summary, name, url; and arguments that we do not have."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from phalanx import tracking
from phalanx.tracking import TrackedRun, external_folder
from tests.tracking.reading import Replica, only_run, script


def test_the_config_is_read_and_written_like_a_dict(home: Path) -> None:
    run = tracking.start(config={"lr": 0.1, "model": {"depth": 3}}, notes="hello", params={"seed": 1})
    run.config.epochs = 5
    run.config["batch"] = 32
    run.config.update(argparse.Namespace(width=7), dropout=0.5)
    run.config.setdefaults({"lr": 9.0, "extra": 1})
    run.params(late=True)
    assert (run.config.lr, run.config["model"], run.config.epochs) == (0.1, {"depth": 3}, 5)
    assert (run.config.get("none"), "batch" in run.config, run.config.late) == (None, True, True)
    assert run.config.as_dict()["extra"] == 1
    assert only_run(home).params() == {
        "lr": 0.1,
        "model.depth": 3,
        "seed": 1,
        "epochs": 5,
        "batch": 32,
        "width": 7,
        "dropout": 0.5,
        "extra": 1,
        "late": True,
    }
    assert json.loads((only_run(home).run / "run.json").read_bytes())["description"] == "hello"
    with pytest.raises(AttributeError, match="no param 'missing'"):
        run.config.missing  # noqa: B018
    with pytest.raises(KeyError):
        run.config["missing"]


def test_the_config_of_a_started_run_has_the_params_of_its_file(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_PARAMS", '{"lr": 0.5, "depth": 2}')
    monkeypatch.setenv("PHALANX_RUN_NAME", "from-the-file")
    run = tracking.start(config={"depth": 3})
    assert (run.config.lr, run.config.depth, run.name) == (0.5, 3, "from-the-file")
    assert replica.params() == {"depth": 3}


def test_the_summary_keeps_final_values_beside_the_series(home: Path) -> None:
    run = tracking.start()
    for step in range(3):
        run.log(loss=float(step), step=step)
    run.summary["best"] = 0.9
    run.summary["best"] = 0.95
    run.summary["loss"] = 0.0
    run.summary.update({"verdict": "good"}, epochs=3)
    assert run.summary["loss"] == 0.0
    assert (run.summary["best"], run.summary["verdict"], run.summary["epochs"]) == (0.95, "good", 3)
    run.log(accuracy=0.5)
    assert run.summary["accuracy"] == 0.5
    assert set(run.summary) >= {"loss", "best", "accuracy", "verdict"}
    kept = only_run(home)
    assert kept.values("loss") == [0.0, 1.0, 2.0]
    assert (kept.values("summary/loss"), kept.values("best")) == ([0.0], [0.9, 0.95])
    assert kept.event("labels")["values"] == {"verdict": "good"}


def test_a_run_has_a_name_and_on_a_server_a_page(home: Path) -> None:
    run = tracking.start()
    assert (run.name, run.url) == (run.id, None)
    run.name = "better"
    assert run.name == "better"
    assert only_run(home).event("describe")["name"] == "better"
    assert tracking.start(name="given").name == "given"
    server = {**external_folder.this_process(), "url": "http://127.0.0.1:8000"}
    (home / "server.json").write_text(json.dumps(server))
    assert run.url == f"http://127.0.0.1:8000/runs/{run.id}"
    (home / "server.json").write_text(json.dumps({**server, "started": 1}))  # it has ended
    assert run.url is None


def test_unknown_arguments_are_noted_once(tmp_path: Path) -> None:
    text = """
from phalanx import tracking
for _ in range(2):
    with tracking.start(run_name="n", entity="me", mode="online", reinit=True) as run:
        run.text("t", "x", color="red")
        run.image("i", [[0]], masks=None)
        run.finish(exit_code=3, quiet=True)
print(run.name)
"""
    answer = script(text, PHALANX_HOME=str(tmp_path))
    assert (answer.code, answer.out) == (0, "n\n")
    noted = [line.split("; ")[0] for line in answer.err.splitlines()]
    assert noted == [
        f"phalanx: {call}() ignores the argument `{word}`"
        for call, word in [
            *[("start", "entity"), ("start", "mode"), ("start", "reinit")],
            *[("text", "color"), ("image", "masks"), ("finish", "quiet")],
        ]
    ]


def test_an_exit_code_ends_a_run_as_failed(home: Path) -> None:
    tracking.start().finish(exit_code=0)
    tracking.start().finish(exit_code=2)
    ends = [Replica(path) for path in sorted((home / "runs").iterdir())]
    assert sorted((one.end()["cause"], one.end()["message"]) for one in ends) == [
        ("error", "exit code 2"),
        ("finished", "finished"),
    ]


def test_nothing_is_written_when_tracking_is_off(tmp_path: Path) -> None:
    text = """
from phalanx import tracking
with tracking.start(config={"lr": 0.1}) as run:
    run.config.depth = 3
    run.summary["best"] = 1.0
    run.alert("a")
    run.image("i", [[0]])
    assert run.config.lr == 0.1 and run.config["depth"] == 3
    assert tracking.start() is run
@tracking.track
def train(lr): return {"x": lr}
assert train(0.5) == {"x": 0.5}
"""
    assert script(text, PHALANX_HOME=str(tmp_path / "h"), PHALANX_TRACKING="off") == (0, "", "")
    assert not (tmp_path / "h").exists()


def test_the_handle_of_a_run_is_not_shared_by_accident(run: TrackedRun) -> None:
    assert run.config is run.config
    assert run.summary is run.summary
    assert run.resumed is False


def test_the_config_is_there_when_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    text = """
from phalanx import tracking
tracking.start(config={"lr": 0.1})
assert tracking.start().config.lr == 0.1
with tracking.start(name="child", nested=True) as child:
    child.config.depth = 3
tracking.start().log(loss=1.0)
"""
    answer = script(text, PHALANX_HOME=str(tmp_path / "file" / "home"))
    assert (answer.code, answer.out) == (0, "")
    assert set(answer.err.splitlines()) == {"phalanx: this run is not tracked: Not a directory"}
