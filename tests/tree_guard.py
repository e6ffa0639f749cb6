"""A pytest plugin that fails a session whose tests leave files in the repository.

What counts is what git does not track: new files, and new files that .gitignore names. Ignored folders (caches, virtual
environments, builds) do not. Where there is no git, as in an unpacked sdist, nothing is checked.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

BEFORE = pytest.StashKey[set[str]]()
LEFT = pytest.StashKey[list[str]]()
STATUS = ("git", "status", "--porcelain", "-z", "-uall", "--ignored=matching", "--no-renames", "--", ".")


def untracked(folder: Path) -> set[str] | None:
    """The untracked files below a folder; None where git cannot tell."""
    try:
        answer = subprocess.run(STATUS, cwd=folder, capture_output=True, text=True, timeout=120, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    entries = [(entry[:2], entry[3:]) for entry in answer.split("\0") if entry]
    return {path for kind, path in entries if kind == "??" or (kind == "!!" and not path.endswith("/"))}


def pytest_sessionstart(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):  # one of xdist's workers: the controller checks for all
        return
    before = untracked(session.config.rootpath)
    if before is not None:
        session.config.stash[BEFORE] = before


def pytest_sessionfinish(session: pytest.Session) -> None:
    before = session.config.stash.get(BEFORE, None)
    after = untracked(session.config.rootpath) if before is not None else None
    if before is None or after is None:
        return
    left = sorted(after - before)
    session.config.stash[LEFT] = left
    if left and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left = config.stash.get(LEFT, [])
    if left:
        terminalreporter.section("files left in the repository", sep="=", red=True, bold=True)
        terminalreporter.line("Tests must write below tmp_path. These files appeared during the session:")
        for path in left:
            terminalreporter.line(f"  {path}")
