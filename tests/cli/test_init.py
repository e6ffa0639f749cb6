from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from phalanx import plan, spec
from phalanx.cli import phalanx
from phalanx.cli.starter_files import SINGLE, STARTERS, starter_text
from phalanx.plan import frameworks


def init(*arguments: str) -> Result:
    return CliRunner().invoke(phalanx, ["init", *arguments])


@pytest.mark.parametrize("framework", STARTERS)
def test_every_starter_is_a_file_without_faults_or_surprises(framework: str) -> None:
    loaded = spec.load([("polyaxonfile.yml", starter_text(framework).encode())])
    made = plan.make(loaded, "run")
    assert loaded.notes == ()
    assert made.is_distributed == (framework != SINGLE)
    assert made.framework == (None if framework == SINGLE else framework)
    assert made.command == "python train.py --lr=0.01 --epochs=3" + (
        " --kv-store=dist_sync" if framework == "mxnet" else ""
    )


def test_there_is_a_starter_for_every_framework() -> None:
    assert set(STARTERS) == {SINGLE, *frameworks.known()}


def test_it_writes_the_file_and_says_what_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = init("--framework", "pytorch")
    assert result.exit_code == 0
    assert "phalanx check -f polyaxonfile.yml" in result.output
    assert Path("polyaxonfile.yml").read_text() == starter_text("pytorch")
    assert [path.name for path in tmp_path.iterdir()] == ["polyaxonfile.yml"]


def test_it_never_writes_over_a_file_unless_forced(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yml"
    mine.write_text("precious")
    result = init("-o", str(mine))
    assert result.exit_code == 2
    assert "--force" in result.output
    assert mine.read_text() == "precious"
    assert init("-o", str(mine), "--force").exit_code == 0
    assert mine.read_text() == starter_text(SINGLE)


def test_it_prints_the_file_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert init("-o", "-", "--framework", "jax").output == starter_text("jax")
    assert list(tmp_path.iterdir()) == []


def test_its_json_says_where_the_file_is(tmp_path: Path) -> None:
    target = str(tmp_path / "a.yml")
    answer = json.loads(init("-o", target, "--json").output)
    assert answer["ok"] is True
    assert answer["file"] == target


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    result = init("-o", str(tmp_path / "nowhere" / "a.yml"))
    assert result.exit_code == 2
    assert "no such file or directory" in result.output


def test_an_unknown_framework_is_a_wrong_call() -> None:
    assert init("--framework", "caffe").exit_code == 2
