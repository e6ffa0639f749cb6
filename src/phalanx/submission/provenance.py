"""Provenance of a run: its code, Python and packages, machine, and environment without secrets."""

from __future__ import annotations

import json
import platform
import re
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from phalanx import __version__, run_paths
from phalanx.atomic_files import write_atomic
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.plan.document import HIDDEN, is_secret
from phalanx.store import Run
from phalanx.submission.git import git_state

GitReader = Callable[[Path], Mapping[str, Any] | None]


def record(
    home: Home,
    run: Run,
    environment: Mapping[str, str],
    command_line: Sequence[str] = (),
    read_git: GitReader = git_state,
) -> None:
    """Write the provenance of a new run to its folder. Takes time, so callers do it while the run starts. Raises
    CallError if it cannot be written."""
    records = collect(home, run, environment, command_line, read_git)
    try:
        write_atomic(home.run(run.id).path / run_paths.RECORDS, json.dumps(records, indent=1).encode())
    except OSError as fault:
        raise CallError(f"cannot write the provenance of the run: {fault.strerror}") from None


def collect(
    home: Home,
    run: Run,
    environment: Mapping[str, str],
    command_line: Sequence[str] = (),
    read_git: GitReader = git_state,
) -> dict[str, Any]:
    """The provenance of a run now, with this environment. Never fails: unknown values are left out."""
    return collect_from(home.run(run.id).submitted(), run.params, environment, command_line, read_git)


def collect_from(
    source: Mapping[str, Any],
    params: Mapping[str, Any],
    environment: Mapping[str, str],
    command_line: Sequence[str] = (),
    read_git: GitReader = git_state,
) -> dict[str, Any]:
    """The same from the facts of a submission, before there is a run."""
    working = Path(source.get("from", "."))
    python = shutil.which("python", path=environment.get("PATH")) or shutil.which(
        "python3", path=environment.get("PATH")
    )
    return {
        "phalanx": __version__,
        "command_line": list(command_line),
        "working": str(working),
        "host": socket.gethostname(),
        "system": platform.platform(),
        "python": python,
        "packages": packages_of(Path(python)) if python else {},
        "git": source["git"] if "git" in source else read_git(working),
        "environment": {
            name: HIDDEN if is_secret(name) or has_credentials(value) else value
            for name, value in sorted(environment.items())
        },
        "seeds": seeds(params, environment),
    }


def seeds(params: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    found = {name: value for name, value in params.items() if "seed" in name.lower()}
    return found | {name: environment[name] for name in ("PYTHONHASHSEED",) if name in environment}


def has_credentials(value: str) -> bool:
    """Whether a value contains a URL with a user and password."""
    return re.search(r"://[^/\s:@]+:[^/\s@]+@", value) is not None


def packages_of(python: Path) -> dict[str, str]:
    """The packages of a Python, by the names of their folders, without starting an interpreter."""
    found: dict[str, str] = {}
    prefix = python.parent.parent  # not resolved: a virtual environment's python is a link to another place
    for folder in sorted(prefix.glob("lib/python3*/site-packages/*.dist-info")):
        name, _, version = folder.name.removesuffix(".dist-info").partition("-")
        found[name] = version
    return found


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Differences between two provenances, in words."""
    changed = []
    old, new = then.get("git") or {}, now.get("git") or {}
    if old.get("commit") != new.get("commit"):
        changed.append(f"commit {str(old.get('commit'))[:12]} then, {str(new.get('commit'))[:12]} now")
    elif old.get("diff") != new.get("diff"):
        changed.append("the uncommitted changes differ")
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
