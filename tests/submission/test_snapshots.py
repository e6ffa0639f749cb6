"""Which files a snapshot of the code takes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from phalanx.home.home import Home
from phalanx.submission.snapshots import files_of


@pytest.mark.parametrize("is_repository", [True, False])
def test_a_home_inside_of_the_code_is_left_out_with_the_secrets_of_its_runs(
    tmp_path: Path, is_repository: bool
) -> None:
    if is_repository:
        subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True)
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "notes.txt").write_text("no home has only this folder")
    home = Home(tmp_path / ".demo")
    home.keep_environment("run1", {"API_TOKEN": "hunter2"})
    assert files_of(tmp_path) == [Path("runs/notes.txt"), Path("train.py")]
