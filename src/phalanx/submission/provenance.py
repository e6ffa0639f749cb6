"""What it takes to do a run again: its code, Python and packages, machine, and environment without secrets."""

from __future__ import annotations

import platform
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx import __version__
from phalanx.plan.document import HIDDEN, is_secret
from phalanx.submission.git import git_state


def collect(
    working: Path, environment: Mapping[str, str], params: Mapping[str, Any], told: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Everything that can be said of a run's surroundings. Never fails: what cannot be told is left out. `told`: what
    whoever sent the run from elsewhere says of its code."""
    python = shutil.which("python", path=environment.get("PATH")) or shutil.which(
        "python3", path=environment.get("PATH")
    )
    return {
        "phalanx": __version__,
        "command_line": sys.argv if told is None else [],
        "working": str(working),
        "host": socket.gethostname(),
        "system": platform.platform(),
        "python": python,
        "packages": packages_of(Path(python)) if python else {},
        "git": git_state(working) if told is None else told.get("git"),
        "environment": {
            name: HIDDEN if is_secret(name) or has_credentials(value) else value
            for name, value in sorted(environment.items())
        },
        "seeds": {
            **{name: value for name, value in params.items() if "seed" in name.lower()},
            **({"PYTHONHASHSEED": environment["PYTHONHASHSEED"]} if "PYTHONHASHSEED" in environment else {}),
        },
    }


def has_credentials(value: str) -> bool:
    """Inside a URL."""
    return re.search(r"://[^/\s:@]+:[^/\s@]+@", value) is not None


def packages_of(python: Path) -> dict[str, str]:
    """The packages beside a Python, by the names of their folders: no interpreter has to be started for it."""
    found: dict[str, str] = {}
    prefix = python.parent.parent  # not resolved: a virtual environment's python is a link to another place
    for folder in sorted(prefix.glob("lib/python3*/site-packages/*.dist-info")):
        name, _, version = folder.name.removesuffix(".dist-info").partition("-")
        found[name] = version
    return found


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What has changed around a run since it ran, in words."""
    changed = []
    old, new = then.get("git") or {}, now.get("git") or {}
    if old.get("commit") != new.get("commit"):
        changed.append(f"commit {str(old.get('commit'))[:12]} then, {str(new.get('commit'))[:12]} now")
    elif old.get("diff") != new.get("diff"):
        changed.append("the uncommitted changes are others")
    if then.get("python") != now.get("python"):
        changed.append(f"python {then.get('python')} then, {now.get('python')} now")
    before, after = then.get("packages", {}), now.get("packages", {})
    moved = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    if moved:
        shown = ", ".join(f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}" for name in moved[:5])
        changed.append(f"{len(moved)} packages: {shown}" + (" …" if len(moved) > 5 else ""))
    if then.get("host") != now.get("host"):
        changed.append(f"host {then.get('host')} then, {now.get('host')} now")
    return changed
