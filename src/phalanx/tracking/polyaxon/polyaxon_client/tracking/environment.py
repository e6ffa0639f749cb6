"""Where the training runs, and from which code."""

from __future__ import annotations

import json
import os
import sys

GIT_S = 10.0


def run_environment() -> str:
    """As JSON; the installed packages too, which is why it is not gathered without being asked for."""
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
    """What git says of this folder; nothing where there is no git, or no repository."""
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
