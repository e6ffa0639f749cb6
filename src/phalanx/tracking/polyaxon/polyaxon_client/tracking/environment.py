"""The environment of the training, and its code reference."""

from __future__ import annotations

import json
import os
import sys

GIT_S = 10.0


def run_environment() -> str:
    """The environment as JSON. It includes the installed packages, so it is collected only on request."""
    import platform
    import socket
    from importlib.metadata import distributions

    packages = {f"{found.metadata['Name']}=={found.version}" for found in distributions()}
    about = {
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "os": platform.platform(aliased=True),
        "system": platform.system(),
        "python_version": platform.python_version(),
        "sys.argv": sys.argv,
        "is_notebook": "ipykernel" in sys.modules,
        "packages": sorted(packages),
    }
    return json.dumps(about, indent=1)


def code_reference() -> dict[str, str]:
    """The git state of this folder; empty without git or a repository."""
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return {}
    return {
        "commit": commit,
        "branch": _git("rev-parse", "--abbrev-ref", "HEAD"),
        "url": _git("config", "--get", "remote.origin.url"),
        "is_dirty": "true" if _git("status", "--porcelain", "--untracked-files=no") else "false",
    }


def _git(*words: str) -> str:
    import subprocess

    try:
        answer = subprocess.run(["git", *words], capture_output=True, text=True, check=False, timeout=GIT_S)
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
