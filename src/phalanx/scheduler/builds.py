"""`build_steps` on a machine without containers: run once in a virtual environment, which is kept by their content."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

from phalanx.errors import CallError
from phalanx.spec.model import Build

_REQUIREMENT_FILES = (
    "polyaxon_requirements.txt", "requirements.txt", "setup.py", "pyproject.toml", "polyaxon_setup.sh", "setup.sh",
)  # fmt: skip
Say = Callable[[str], None]


def key_of(build: Build, working: Path) -> str:
    """What a build depends on: its steps, this Python, and the files that its steps read."""
    digest = hashlib.sha256()
    for text in (sys.version, *build.build_steps, *(f"{name}={value}" for name, value in build.env_vars)):
        digest.update(text.encode() + b"\0")
    for name in _REQUIREMENT_FILES:
        path = working / name
        digest.update(name.encode() + (path.read_bytes() if path.is_file() else b"-") + b"\0")
    return digest.hexdigest()[:24]


def ready(build: Build, working: Path, environment: Mapping[str, str], builds: Path, say: Say) -> dict[str, str]:
    """The environment variables of a build that is done, now or before. Raises CallError when a step fails."""
    folder = builds / key_of(build, working)
    inside = inside_of(folder / "venv", {**environment, **dict(build.env_vars)})
    if not (folder / "done").exists() or build.nocache:
        _make(build, working, inside, folder, say)
    return inside


def inside_of(place: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment as it is when a virtual environment is active."""
    path = f"{place / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
    inside = {**environment, "VIRTUAL_ENV": str(place), "PATH": path}
    inside.pop("PYTHONHOME", None)
    return inside


def _make(build: Build, working: Path, inside: dict[str, str], folder: Path, say: Say) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    say("making a virtual environment")
    venv.create(folder / "venv", with_pip=True, system_site_packages=True, symlinks=True)
    log = folder / "log"
    for number, step in enumerate(build.build_steps, start=1):
        say(f"build step {number} of {len(build.build_steps)}: {step}")
        with log.open("ab") as stream:
            done = subprocess.run(
                ["bash", "-c", step],
                cwd=working,
                env=inside,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                check=False,
            )
        if done.returncode:
            last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            why = f"build step {number} failed with code {done.returncode}: {step}"
            raise CallError(f"{why}\n{last}\nThe whole log: {log}")
    (folder / "done").touch()
