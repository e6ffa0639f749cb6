"""Scripts written for Polyaxon 1.x and 2.x, run as they are: `polyaxon.tracking` and `traceml`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks_tracking.kept import Kept, outside_run
from tests.test_imports import python_3_8
from tests.tracking.test_polyaxon_client import run_script

SCRIPT = """
from polyaxon import tracking

tracking.init(owner="acme", project="vision", name="mnist", tags=["a", "b"], track_logs=False)
tracking.log_inputs(lr=0.1, layers=[1, 2])
for step in range(3):
    tracking.log_metrics(loss=1.0 / (step + 1), accuracy=step, step=step)
tracking.log_metric("f1", 0.5, step=2, timestamp=None)
tracking.log_outputs(best=0.75, verdict="good")
tracking.log_tags("c, d")
path = tracking.get_outputs_path("deep/model.bin")
with open(path, "w") as stream:
    stream.write("weights")
tracking.log_model(path, name="mnist", framework="pytorch")
tracking.log_artifact(path, kind="file", name="kept.bin")
tracking.log_data_ref(name="train", path="s3://bucket/train", hash="abc")
tracking.log_progress(0.5)
tracking.log_text("note", "words", step=1)
tracking.log_roc_auc_curve("roc", [0.0, 1.0], [0.0, 1.0], auc=0.5)
tracking.log_confusion_matrix("matrix", x=["cat", "dog"], y=["cat", "dog"], z=[[1, 2], [3, 4]])
tracking.log_histogram("weights", [1.0, 2.0, 3.0], bins=2)
tracking.set_description("the first one")
tracking.log_plotly_chart("chart", object())
assert tracking.get_tensorboard_path().endswith("tensorboard")
assert tracking.TRACKING_RUN is not None
tracking.log_succeeded(message="done")
tracking.log_metric("after", 1)
"""


@pytest.fixture(name="kept")
def kept_fixture(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "home" / "runs" / "abc")


def assert_kept(kept: Kept) -> None:
    assert kept.series() == {
        "loss": [(0, 1.0), (1, 0.5), (2, 1 / 3)],
        "accuracy": [(0, 0.0), (1, 1.0), (2, 2.0)],
        "f1": [(2, 0.5)],
        "best": [(None, 0.75)],
        "roc/auc": [(None, 0.5)],
        "after": [(None, 1.0)],
    }
    assert kept.params() == {"lr": 0.1, "layers": [1, 2]}
    assert [tag for event in kept.events("tags") for tag in event["add"]] == ["a", "b", "c", "d"]
    assert kept.events("labels")[0]["values"] == {"verdict": "good"}
    assert [event["name"] for event in kept.events("model")] == ["mnist"]
    assert [event["name"] for event in kept.events("artifact")] == ["kept.bin"]
    assert kept.events("dataset")[0]["uri"] == "s3://bucket/train"
    assert kept.events("table")[1]["rows"] == [["cat", 1, 2], ["dog", 3, 4]]


def test_a_script_of_polyaxon_1_is_kept(kept: Kept, tmp_path: Path) -> None:
    answer = run_script(SCRIPT, tmp_path, **kept.environment())
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.splitlines() == [
        "phalanx: `log_plotly_chart` of Polyaxon's tracking has no meaning in Phalanx: skipped"
    ]
    assert_kept(kept)


def test_traceml_is_the_same_also_in_python_3_8(kept: Kept, tmp_path: Path) -> None:
    interpreter = python_3_8()
    if interpreter is None:
        pytest.skip("there is no Python 3.8 on this machine")
    answer = run_script(SCRIPT.replace("from polyaxon", "from traceml"), tmp_path, interpreter, **kept.environment())
    assert answer.returncode == 0, answer.stderr
    assert_kept(kept)


def test_outside_of_a_run_a_new_one_is_made(tmp_path: Path) -> None:
    text = "from traceml import tracking\ntracking.log_metric('loss', 1.0)\ntracking.end()"
    answer = run_script(text, tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert outside_run(tmp_path / "home").series() == {"loss": [(None, 1.0)]}


def test_nothing_raises_into_the_training(kept: Kept, tmp_path: Path) -> None:
    text = """
from polyaxon import tracking
tracking.init()
tracking.log_metrics(loss=object(), step="x")
tracking.log_model("/no/such/file")
tracking.log_image(3, name=None)
tracking.log_dataframe(None, name="df")
tracking.log_confusion_matrix("m", 1, 2, 3)
tracking.log_mpl_image(None)
tracking.log_tags(None)
tracking.something_of_a_later_release(1, a=2)
run = tracking.Run(project="x")
run.log_metric("ok", 1)
print("done")
"""
    answer = run_script(text, tmp_path, **kept.environment())
    assert answer.stdout == "done\n", answer.stderr
    assert kept.series() == {"ok": [(None, 1.0)]}


def test_modules_of_an_installed_polyaxon_are_found(tmp_path: Path) -> None:
    installed = tmp_path / "site"
    (installed / "polyaxon" / "schemas").mkdir(parents=True)
    (installed / "polyaxon" / "__init__.py").write_text("raise SystemExit('the installed one')")
    (installed / "polyaxon" / "schemas" / "__init__.py").write_text("V1Run = 'theirs'")
    text = f"import sys; sys.path.append({str(installed)!r}); from polyaxon.schemas import V1Run; print(V1Run)"
    assert run_script(text, tmp_path).stdout == "theirs\n"
