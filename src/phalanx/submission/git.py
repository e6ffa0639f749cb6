"""The git state of a folder of code."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

MAX_DIFF = 1 << 20
_GIT_PATIENCE_S = 20.0


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit, branch and uncommitted changes; None outside of a repository."""
    commit = git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    diff = git(folder, "diff", "HEAD", "--no-ext-diff") or ""
    return {
        "commit": commit.strip(),
        "branch": (git(folder, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "dirty": bool((git(folder, "status", "--porcelain") or "").strip()),
        "diff": diff if len(diff) <= MAX_DIFF else diff[:MAX_DIFF] + "\n… cut\n",
    }


def git(folder: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            timeout=_GIT_PATIENCE_S,
            check=True,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.decode("utf-8", "replace")
