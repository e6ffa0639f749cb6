"""Which checkpoints stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.artifacts.trees import FILE, FOLDER, LINK, TreeEntry
from phalanx.errors import SpecErrors
from phalanx.plan.framework_checks import load
from phalanx.retention.checkpoints import Checkpoint, choose, find_checkpoints, read_keep, step_of
from phalanx.spec.model import KeepOptions

NAN = float("nan")


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("checkpoints/step-12.pt", "checkpoints/step-{step}.pt", 12),
        ("a/b/step-12.pt", "step-{step}.pt", 12),
        ("step-007.pt", "step-{step}.pt", 7),
        ("epoch=3-step=100.ckpt", "*step={step}.ckpt", 100),
        ("checkpoint-500", "checkpoint-{step}", 500),
        ("checkpoint-500/model.safetensors", "checkpoint-{step}", None),
        ("checkpoint-500/rank-3.pt", "checkpoint-{step}/rank-?.pt", 500),
        ("x/checkpoint-500/a/b.pt", "**/checkpoint-{step}/a/*.pt", 500),
        ("step-12.pt.tmp", "step-{step}.pt", None),
        ("step-.pt", "step-{step}.pt", None),
        ("step-1x2.pt", "step-{step}.pt", None),
        ("step-12", "*{step}", 12),
        ("step--12.pt", "step-{step}.pt", None),
        (f"step-{'9' * 40}.pt", "step-{step}.pt", None),
        ("", "{step}", None),
    ],
)
def test_the_step_is_read_from_the_path(path: str, pattern: str, expected: int | None) -> None:
    assert step_of(path, pattern) == expected


def found(*steps: int) -> list[Checkpoint]:
    return [Checkpoint(step, (f"outputs/{step}.pt",)) for step in steps]


def kept(steps: tuple[int, ...], values: dict[int, float], keep: KeepOptions) -> list[int]:
    return [one.step for one in choose(found(*steps), values, keep).kept]


def test_the_best_and_the_last_stay() -> None:
    values = {1: 5.0, 2: 1.0, 3: 4.0, 4: 0.5, 5: 3.0}
    assert kept((1, 2, 3, 4, 5), values, KeepOptions("{step}", 1, 2, "val_loss")) == [2, 4, 5]
    assert kept((1, 2, 3, 4, 5), values, KeepOptions("{step}", 1, 1, "accuracy")) == [1, 5]
    assert kept((1, 2, 3, 4, 5), values, KeepOptions("{step}", 1, 1, "accuracy", is_largest_best=False)) == [4, 5]
    assert kept((1, 2, 3, 4, 5), {}, KeepOptions("{step}", 2)) == [4, 5]
    assert kept((), {}, KeepOptions("{step}", 2)) == []


def test_what_has_no_value_stays_when_the_best_are_asked_for() -> None:
    assert kept((1, 2, 3, 4), {2: 1.0, 3: NAN}, KeepOptions("{step}", 1, 1, "loss")) == [1, 2, 3, 4]
    assert kept((1, 2, 3, 4), {1: 2.0, 2: 1.0}, KeepOptions("{step}", 1, 1, "loss")) == [2, 3, 4]


def test_links_and_other_folders_are_no_checkpoints() -> None:
    def entry(path: str, kind: str) -> TreeEntry:
        return TreeEntry(path, kind, 1, 1, 1)

    entries = [
        entry("outputs/step-1.pt", FILE),
        entry("outputs/step-2.pt", LINK),
        entry("artifacts/step-3.pt", FILE),
        entry("outputs/step-4.pt", FOLDER),
        entry("outputs/other.pt", FILE),
    ]
    assert [one.step for one in find_checkpoints(entries, "step-{step}.pt")] == [1, 4]


def test_a_damaged_rule_is_no_rule(tmp_path: Path) -> None:
    assert read_keep(tmp_path) is None
    for data in (
        {"path": "../{step}"},
        {"path": "/etc/{step}"},
        {"path": "x"},
        {"path": "{step}", "last": 0},
        {"x": 1},
        5,
    ):
        (tmp_path / "keep.json").write_text(json.dumps(data))
        assert read_keep(tmp_path) is None, data
    (tmp_path / "keep.json").write_text(json.dumps({"path": "{step}"}))
    assert read_keep(tmp_path) == KeepOptions("{step}")


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ({"path": "../{step}.pt"}, "not a pattern of paths"),
        ({"path": "/etc/{step}"}, "not a pattern of paths"),
        ({"path": "*.pt"}, "where the step is"),
        ({"path": "{step}/**"}, "where the step is"),
        ({"path": "**{step}*{step}"}, "where the step is"),
        ({"path": "{step}", "best": 3}, "`best` needs `of`"),
        ({"path": "{step}", "of": "loss"}, "`best` needs `of`"),
        ({"path": "{step}", "last": 0}, "last"),
        ({"best": 3, "of": "loss"}, "needs `path`"),
    ],
)
def test_rules_that_would_remove_the_wrong_files_are_refused(keep: dict[str, object], said: str) -> None:
    file = {"version": 1, "kind": "experiment", "run": {"cmd": "true"}, "outputs": {"keep": keep}}
    with pytest.raises(SpecErrors) as fault:
        load([("file.yml", json.dumps(file).encode())], {})
    assert any(said in str(error) for error in fault.value.errors), fault.value.errors
