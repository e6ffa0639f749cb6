from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from phalanx.errors import CallError
from phalanx.formats import metric_tables
from phalanx.formats.foreign_run import ForeignRun, ImportLosses, Points
from tests.exchange.homes import Target, collected, series


def table(path: Path, text: str) -> ForeignRun:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (run,) = metric_tables.find(path).runs
    return run


def test_keras_counts_epochs(tmp_path: Path) -> None:
    run = table(tmp_path / "training.csv", "epoch,accuracy,loss\n0,0.5,1.5\n1,0.75,1.0\n")
    assert run.name == "training"
    assert series(collected(run)) == {"accuracy": [(0, 0.5), (1, 0.75)], "loss": [(0, 1.5), (1, 1.0)]}


def test_lightning_leaves_cells_empty_and_writes_hyperparameters_beside(tmp_path: Path) -> None:
    (tmp_path / "version_0").mkdir()
    (tmp_path / "version_0" / "hparams.yaml").write_text("lr: 0.1\nnet:\n  depth: 3\n")
    run = table(tmp_path / "version_0" / "metrics.csv", "epoch,step,train_loss,val_loss\n0,9,0.5,\n0,19,,0.25\n")
    assert (run.name, run.params) == ("version_0", {"lr": 0.1, "net.depth": 3})
    found = series(collected(run))
    assert (found["train_loss"], found["val_loss"], found["epoch"]) == ([(9, 0.5)], [(19, 0.25)], [(9, 0.0), (19, 0.0)])


def test_hugging_face_keeps_a_history(tmp_path: Path) -> None:
    state = {
        "max_steps": 20,
        "log_history": [{"loss": 2.0, "epoch": 0.5, "step": 10}, {"eval_loss": 1.0, "epoch": 1.0, "step": 20}],
    }
    run = table(tmp_path / "checkpoint-20" / "trainer_state.json", json.dumps(state, indent=2))
    assert (run.name, run.params) == ("checkpoint-20", {"max_steps": 20})
    assert series(collected(run)) == {
        "loss": [(10, 2.0)],
        "epoch": [(10, 0.5), (20, 1.0)],
        "eval_loss": [(20, 1.0)],
    }


def test_one_row_per_value_is_understood(tmp_path: Path) -> None:
    run = table(tmp_path / "m.csv", "metric;step;value\nloss;1;0.5\nval/acc;1;0.9\nloss;2;0.25\n")
    assert series(collected(run)) == {"loss": [(1, 0.5), (2, 0.25)], "val/acc": [(1, 0.9)]}


def test_what_tensorboard_saves_has_one_metric_named_by_the_file(tmp_path: Path) -> None:
    run = table(tmp_path / "run-tag-loss.csv", "Wall time,Step,Value\n1700000000.5,1,0.5\n")
    (points, _) = collected(run)
    assert points == Points(1, 1700000000.5, {"run-tag-loss": 0.5})


def test_lines_of_json_nest(tmp_path: Path) -> None:
    lines = ['{"step": 1, "loss": 0.5, "val": {"acc": 0.25}, "note": "hi"}', "", "not json", '{"step": 2, "loss": NaN}']
    run = table(tmp_path / "m.jsonl", "\n".join(lines))
    losses = ImportLosses()
    found = series(collected(run, losses))
    assert found["val/acc"] == [(1, 0.25)]
    assert math.isnan(found["loss"][1][1])
    assert losses.counts == {"values that are not numbers": 1, "lines that are not JSON objects": 1}


@pytest.mark.parametrize(
    "text",
    [
        '[{"step": 0, "loss": 1}, {"step": 1, "loss": 2}]',
        '{"loss": [1, 2]}',
        '{"step": 0, "loss": 1}\n{"step": 1, "loss": 2}\n',
        '{\n "loss": [1,\n 2]\n}',
    ],
)
def test_json_comes_in_several_shapes(tmp_path: Path, text: str) -> None:
    assert series(collected(table(tmp_path / "m.json", text))) == {"loss": [(0, 1.0), (1, 2.0)]}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("1700000000", 1.7e9),
        ("1700000000000", 1.7e9),
        ("2023-11-14T22:13:20+00:00", 1.7e9),
        ("2023-11-14 22:13:20", 1.7e9),
    ],
)
def test_times_are_understood(tmp_path: Path, written: str, seconds: float) -> None:
    run = table(tmp_path / "m.csv", f"step,timestamp,loss\n1,{written},0.5\n")
    assert collected(run)[0] == Points(1, seconds, {"loss": 0.5})


def test_how_long_something_took_is_a_metric(tmp_path: Path) -> None:
    run = table(tmp_path / "m.csv", "step,time,loss\n1,3.5,0.5\n")
    assert series(collected(run)) == {"time": [(1, 3.5)], "loss": [(1, 0.5)]}


def test_steps_that_are_no_whole_numbers_are_counted_on(tmp_path: Path) -> None:
    run = table(tmp_path / "m.csv", "step,x\n0.5,1\n3.0,2\n9007199254740993,3\n,4\nx,5\n")
    losses = ImportLosses()
    assert series(collected(run, losses))["x"] == [(None, 1), (3, 2), (9007199254740993, 3), (None, 4), (None, 5)]
    assert losses.counts == {"steps that are not whole numbers (row numbers were used instead)": 1}


def test_a_table_without_steps_is_counted(tmp_path: Path) -> None:
    assert series(collected(table(tmp_path / "m.tsv", "a\tb\n1\t2\n3\t4\n"))) == {
        "a": [(None, 1.0), (None, 3.0)],
        "b": [(None, 2.0), (None, 4.0)],
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "\0\0\0",
        "a,b\n" + "x" * 200_000,
        ",".join("abc") + "\n1,2,3,4,5,6\n",
        "\ufeff",
        '"',
        "," * 20_000 + "\n1",
    ],
    ids=range(8),
)
@pytest.mark.parametrize("name", ["m.csv", "m.jsonl", "m.json"])
def test_hostile_tables_do_no_harm(tmp_path: Path, name: str, text: str) -> None:
    collected(table(tmp_path / name, text))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "9" * 100_000, '{"x": ' + "9" * 5000 + "}"], ids=range(4)
)
def test_hostile_json_does_no_harm(tmp_path: Path, text: str) -> None:
    for name in ("m.json", "m.jsonl", "trainer_state.json"):
        assert series(collected(table(tmp_path / name, text))) == {}


def test_hyperparameters_are_read_by_the_safe_loader(tmp_path: Path) -> None:
    (tmp_path / "hparams.yaml").write_text("!!python/object/apply:os.system ['touch hacked']")
    (tmp_path / "metrics.csv").write_text("step,x\n1,1\n")
    found = metric_tables.find(tmp_path / "metrics.csv")
    (run,) = found.runs
    assert run.params == {}
    assert found.losses.counts == {"hyperparameters that could not be read": 1}


def test_hyperparameters_whose_aliases_unfold_without_end_are_cut(tmp_path: Path, target: Target) -> None:
    lines = ["a0: &a0 {x: 1, y: 2, z: 3}"]
    lines += [
        f"a{n}: &a{n} {{b: *a{n - 1}, c: *a{n - 1}, d: *a{n - 1}, e: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 40)
    ]
    (tmp_path / "hparams.yaml").write_text("\n".join(lines))
    (tmp_path / "metrics.csv").write_text("step,x\n1,1\n")
    found = metric_tables.find(tmp_path / "metrics.csv")
    (run,) = found.runs
    assert len(run.params) == metric_tables.MOST_PARAMS
    assert found.losses.counts == {"files with too many hyperparameters": 1}
    target.bring_in(ForeignRun("x", "x", run.read, params=dict(list(run.params.items())[:20])))


def test_a_folder_has_a_run_for_each_table_that_a_logger_wrote(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"version_{number}").mkdir()
        (tmp_path / f"version_{number}" / "metrics.csv").write_text(f"step,x\n1,{number}\n")
    (tmp_path / "dataset.csv").write_text("a,b\n1,2\n")
    assert [run.name for run in metric_tables.find(tmp_path).runs] == ["version_0", "version_1"]
    assert len(list(metric_tables.find(tmp_path, of_any_name=True).runs)) == 3
    with pytest.raises(CallError, match="--run-name needs exactly one"):
        metric_tables.find(tmp_path, "both")


def test_the_same_content_is_the_same_run_wherever_it_lies(tmp_path: Path) -> None:
    first = table(tmp_path / "a.csv", "step,x\n1,1\n")
    assert first.source == table(tmp_path / "b" / "c.csv", "step,x\n1,1\n").source
    assert first.source != table(tmp_path / "a.csv", "step,x\n1,2\n").source
