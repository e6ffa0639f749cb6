from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GUARD = Path(__file__).with_name("tree_guard.py")
LEAVES = "from pathlib import Path\n\ndef test_it():\n    Path({!r}).{}\n"


@pytest.fixture(name="repository")
def repository_fixture(tmp_path: Path) -> Path:
    """A repository with the guard in it, whose .gitignore names a cache and the files of a tool."""
    shutil.copy(GUARD, tmp_path / "tree_guard.py")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tree_guard"]\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n/cache/\n*.out\n")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def session(repository: Path, test: str, *options: str) -> tuple[int, str]:
    (repository / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "options",
    [(), pytest.param(("-p", "xdist.plugin", "-n", "1"), marks=pytest.mark.slow)],
    ids=["alone", "with workers"],
)
def test_a_file_left_in_the_repository_fails_the_session_and_is_named(
    repository: Path, options: tuple[str, ...]
) -> None:
    code, shown = session(repository, LEAVES.format("deep.db", "touch()"), *options)
    assert code == 1, shown
    assert "1 passed" in shown
    assert shown.count("  deep.db\n") == 1


@pytest.mark.slow
def test_a_file_that_git_ignores_counts_too(repository: Path) -> None:
    code, shown = session(repository, LEAVES.format("slurm-9.out", "touch()"))
    assert code == 1
    assert "  slurm-9.out\n" in shown


def test_ignored_folders_and_files_that_were_there_before_do_not_count(repository: Path) -> None:
    (repository / "mine.txt").touch()
    code, shown = session(repository, LEAVES.format("cache", "mkdir()") + "    Path('cache/x').touch()\n")
    assert code == 0, shown
    assert "left in the repository" not in shown


@pytest.mark.slow
def test_without_git_nothing_is_checked(repository: Path) -> None:
    shutil.rmtree(repository / ".git")
    code, shown = session(repository, LEAVES.format("deep.db", "touch()"))
    assert code == 0, shown
