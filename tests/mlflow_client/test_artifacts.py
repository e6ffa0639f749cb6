from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.mlflow_client.conftest import Served


def test_artifacts_of_every_kind(mlflow: Any, client: Any, experiment: str, tmp_path: Path, served: Served) -> None:
    (tmp_path / "one.txt").write_text("one")
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "a.txt").write_text("a")
    (tmp_path / "tree" / "deep" / "ünï cödé (1).bin").write_bytes(b"\x00\xff")
    (tmp_path / "tree" / ".hidden").write_text("h")
    with mlflow.start_run() as run:
        mlflow.log_artifact(str(tmp_path / "one.txt"))
        mlflow.log_artifact(str(tmp_path / "one.txt"), "sub/dir")
        mlflow.log_artifacts(str(tmp_path / "tree"), "tree")
        mlflow.log_text("hello", "texts/x.txt")
        mlflow.log_dict({"a": [1]}, "d.json")
    run_id = run.info.run_id
    assert [one.path for one in client.list_artifacts(run_id)] == ["d.json", "one.txt", "sub", "texts", "tree"]
    found = {one.path: (one.is_dir, one.file_size) for one in client.list_artifacts(run_id, "tree")}
    assert found == {"tree/.hidden": (False, 1), "tree/a.txt": (False, 1), "tree/deep": (True, None)}
    assert client.list_artifacts(run_id, "one.txt") == []
    assert mlflow.artifacts.load_dict(f"runs:/{run_id}/d.json") == {"a": [1]}
    assert mlflow.artifacts.load_text(f"runs:/{run_id}/texts/x.txt") == "hello"
    fetched = Path(
        mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="tree", dst_path=str(tmp_path / "out"))
    )
    assert (fetched / "deep" / "ünï cödé (1).bin").read_bytes() == b"\x00\xff"
    assert sorted(os.listdir(fetched)) == [".hidden", "a.txt", "deep"]
    assert (served.folder(run_id) / "artifacts" / "sub" / "dir" / "one.txt").read_text() == "one"


def test_a_large_artifact_is_the_same_afterwards(mlflow: Any, experiment: str, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 48
    (tmp_path / "large.bin").write_bytes(data)
    with mlflow.start_run() as run:
        mlflow.log_artifact(str(tmp_path / "large.bin"))
    path = mlflow.artifacts.download_artifacts(
        run_id=run.info.run_id, artifact_path="large.bin", dst_path=str(tmp_path / "out")
    )
    assert Path(path).read_bytes() == data


def test_what_is_not_there_is_not_fetched(mlflow: Any, experiment: str, tmp_path: Path) -> None:
    with mlflow.start_run() as run:
        mlflow.log_text("x", "x.txt")
    with pytest.raises(Exception, match=r"404|no file|[Nn]ot [Ff]ound|No such|ensure that the path"):
        mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="nothing.txt", dst_path=str(tmp_path))


def test_figures_and_images(mlflow: Any, client: Any, experiment: str) -> None:
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("PIL")
    with mlflow.start_run() as run:
        mlflow.log_image(numpy.zeros((4, 4, 3), dtype="uint8"), "black.png")
        mlflow.log_table({"a": [1, 2], "b": ["x", "y"]}, "table.json")
    assert [one.path for one in client.list_artifacts(run.info.run_id)] == ["black.png", "table.json"]
    assert mlflow.load_table("table.json", run_ids=[run.info.run_id])["a"].tolist() == [1, 2]
