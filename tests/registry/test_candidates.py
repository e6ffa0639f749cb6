"""Which outputs look like models, and which of several a rule chooses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phalanx.artifacts.trees import Tree
from phalanx.registry.candidates import choose, find_candidates
from phalanx.spool import PointWriter
from phalanx.stored_plan import ModelRule


def save(run: Path, *paths: str) -> None:
    for number, path in enumerate(paths):
        file = run / "outputs" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1")
        os.utime(file, (1000.0 + number, 1000.0 + number))


def test_folders_whose_files_belong_together_are_one_candidate(tmp_path: Path) -> None:
    save(
        tmp_path,
        *("tf/saved_model.pb", "tf/variables/a.data", "hf/config.json", "hf/model.safetensors", "hf/optimizer.pt"),
        *("alone.pt", "deep/in/b.onnx", "history.csv", "bare/model.safetensors"),
    )
    (tmp_path / "outputs" / "link.pt").symlink_to("/etc/passwd")
    found = {row["path"]: row["size"] for row in find_candidates(tmp_path)}
    assert found == {
        "outputs/bare/model.safetensors": 1,
        "outputs/deep/in/b.onnx": 1,
        "outputs/alone.pt": 1,
        "outputs/hf": 3,
        "outputs/tf": 2,
    }
    assert find_candidates(tmp_path / "missing") == []


@pytest.mark.parametrize(
    ("metric", "is_largest_best", "expected"),
    [
        (None, True, "outputs/c.pt"),
        ("acc", True, "outputs/b.pt"),
        ("acc", False, "outputs/a.pt"),
        ("no", True, "outputs/c.pt"),
    ],
)
def test_the_metric_chooses_the_file_saved_at_that_time(
    tmp_path: Path, metric: str | None, is_largest_best: bool, expected: str
) -> None:
    save(tmp_path, "a.pt", "b.pt", "c.pt")
    attempt = tmp_path / "replicas" / "master-0" / "attempt-1"
    attempt.mkdir(parents=True)
    points = PointWriter(attempt / "client-1.points")
    for step, value in enumerate([0.1, float("nan"), 0.9, 0.5]):
        points.add(step, [1000.0, 1000.5, 1001.0, 1002.0][step], {"acc": value})
    points.close()
    found = list(Tree(tmp_path).walk("outputs"))
    path, _ = choose(tmp_path, found, ModelRule("net", "*.pt", metric, is_largest_best))
    assert path == expected


def test_a_value_in_the_name_is_exact(tmp_path: Path) -> None:
    save(tmp_path, "epoch=1-val_loss=0.5.ckpt", "epoch=2-val_loss=0.12.ckpt", "epoch=3-val_loss=0.3.ckpt", "last.ckpt")
    found = list(Tree(tmp_path).walk("outputs"))
    rule = ModelRule("net", "*.ckpt", "val_loss", is_largest_best=False)
    assert choose(tmp_path, found, rule) == ("outputs/epoch=2-val_loss=0.12.ckpt", {"val_loss": 0.12})
    assert choose(tmp_path, [], rule) == (None, {})
