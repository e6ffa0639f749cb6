"""Virtual environments for `build_steps` and `environment.python`, without containers; cached by their inputs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from phalanx.agent.virtualenv import expand, is_file, pip_words
from phalanx.atomic_files import draft_of
from phalanx.errors import CallError
from phalanx.locks import locked
from phalanx.spec.model import Build, Kind, PythonOptions, Spec
from phalanx.submission.model import Notify, PreparedEnvironment, Remark, RemarkKind, Submission

_REQUIREMENT_FILES = (
    "polyaxon_requirements.txt", "requirements.txt", "setup.py", "pyproject.toml", "polyaxon_setup.sh", "setup.sh",
)  # fmt: skip
Say = Callable[[str], None]


class VirtualenvSpec(NamedTuple):
    """The content of a virtual environment."""

    python: PythonOptions = PythonOptions()
    build: Build = Build()

    @classmethod
    def by(cls, loaded: Spec, *, with_steps: bool) -> VirtualenvSpec | None:
        """None if the file needs no virtual environment."""
        build = loaded.build if with_steps and loaded.build is not None else Build()
        python = loaded.environment.python
        return cls(python, build) if build.build_steps or python.requirements else None


def key_of(wanted: VirtualenvSpec, working: Path) -> str:
    """A hash of a build's inputs: its packages and steps, this Python, and the files that they read."""
    python, build = wanted
    digest = hashlib.sha256()
    variables = (f"{name}={value}" for name, value in build.env_vars)
    for text in (sys.version, *build.build_steps, *variables, repr(tuple(python))):
        digest.update(text.encode() + b"\0")
    for name in (*_REQUIREMENT_FILES, *filter(is_file, python.requirements)):
        path = working / name
        digest.update(name.encode() + (path.read_bytes() if path.is_file() else b"-") + b"\0")
    return digest.hexdigest()[:24]


def prepare(submission: Submission, builds: Path, notify: Notify) -> PreparedEnvironment:
    """The environment of a run: the submitter's, or the one that the file requests. Raises CallError."""
    loaded, environment = submission.spec, submission.environment
    python, steps = loaded.environment.python, loaded.build.build_steps if loaded.build is not None else ()

    def say(text: str) -> None:
        notify(Remark(RemarkKind.PROGRESS, text))

    if loaded.kind is Kind.BUILD:
        return PreparedEnvironment(environment)  # its command makes one
    if not submission.is_local:
        elsewhere = VirtualenvSpec.by(loaded, with_steps=True)
        if elsewhere is None or python.build_on != "login":
            return PreparedEnvironment(environment)
        archive = packed(elsewhere, _folder_to_install(submission), environment, builds, say)
        return PreparedEnvironment(environment, archive=archive)
    if steps and not submission.is_built:
        hint = "; --build runs them in a virtual environment" if submission.may_install else ""
        notify(Remark(RemarkKind.NOTE, f"the build steps are not run{hint}"))
    if python.modules:
        notify(Remark(RemarkKind.NOTE, "`environment.python.modules` are not loaded here: load them in this shell"))
    wanted = VirtualenvSpec.by(loaded, with_steps=submission.is_built)
    if wanted is not None:
        inside = ensure(wanted, _folder_to_install(submission), environment, builds, say)
    else:
        is_there = not any(dependency.is_build for dependency in submission.waits_for)
        inside = existing_python(python, environment, is_there=is_there) or dict(environment)
    return PreparedEnvironment(inside, inside.get("VIRTUAL_ENV") if inside != environment else None)


def _folder_to_install(submission: Submission) -> Path:
    """The folder with the requirement files. Raises CallError in a server: installing packages takes minutes, too long
    for a request."""
    if not submission.may_install or submission.code.folder is None:
        raise CallError(
            "a server does not install packages: name an existing environment with `environment.python.venv` or "
            "`conda`, or use `phalanx run` on the server's machine"
        )
    return submission.code.folder


def ensure(
    wanted: VirtualenvSpec, working: Path, environment: Mapping[str, str], builds: Path, say: Say
) -> dict[str, str]:
    """Build if needed, and return the environment variables of the build. Raises CallError if a step fails."""
    folder = builds / key_of(wanted, working)
    inside = variables(folder / "venv", {**environment, **dict(wanted.build.env_vars)})
    if (folder / "done").exists() and not wanted.build.nocache:
        return inside
    builds.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(builds / f"{folder.name}.lock", wait=False) as is_first:
        if is_first:
            _make(wanted, working, inside, folder, say)
            return inside
    say("waiting for another submission that builds the same virtual environment")
    with locked(builds / f"{folder.name}.lock"):
        if not (folder / "done").exists():  # the other one failed
            _make(wanted, working, inside, folder, say)
    return inside


def packed(wanted: VirtualenvSpec, working: Path, environment: Mapping[str, str], builds: Path, say: Say) -> Path:
    """The same as one archive, for nodes that cannot build it themselves. Raises CallError."""
    inside = ensure(wanted, working, environment, builds, say)
    venv = Path(inside["VIRTUAL_ENV"])
    target = venv.with_name("venv.tar")
    if not target.exists() or target.stat().st_mtime < (venv.parent / "done").stat().st_mtime:
        say("packing the virtual environment")
        with draft_of(target) as draft, tarfile.open(draft, "w") as archive:
            archive.add(venv, arcname=".")
    return target


def existing_python(
    python: PythonOptions, environment: Mapping[str, str], *, is_there: bool = True
) -> dict[str, str] | None:
    """The variables with the virtual or conda environment of the file active; None if the file names none. `is_there`:
    no build has yet to make it. Raises CallError."""
    kind = "venv" if python.venv else "conda"
    named = python.venv or python.conda
    if named is None:
        return None
    place = Path(expand(named))
    if is_there and not os.access(place / "bin" / "python", os.X_OK):
        raise CallError(f"`environment.python.{kind}`: there is no bin/python in {place}")
    inside = variables(place, environment)
    return inside if kind == "venv" else {**inside, "CONDA_PREFIX": inside.pop("VIRTUAL_ENV")}


def variables(place: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with a virtual environment active."""
    path = f"{place / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
    inside = {**environment, "VIRTUAL_ENV": str(place), "PATH": path}
    inside.pop("PYTHONHOME", None)
    return inside


def _make(wanted: VirtualenvSpec, working: Path, inside: dict[str, str], folder: Path, say: Say) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    say("creating a virtual environment")
    venv.create(folder / "venv", with_pip=True, system_site_packages=not wanted.python.requirements, symlinks=True)
    steps = [(step, ["bash", "-c", step]) for step in wanted.build.build_steps]
    if wanted.python.requirements:
        command = [str(folder / "venv" / "bin" / "python"), *pip_words(wanted.python._asdict())]
        steps.insert(0, (f"pip install {' '.join(wanted.python.requirements)}", command))
    log = folder / "log"
    for number, (step, command) in enumerate(steps, start=1):
        say(f"build step {number} of {len(steps)}: {step}")
        with log.open("ab") as stream:
            done = subprocess.run(
                command,
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
            raise CallError(f"{why}\n{last}\nFull log: {log}")
    (folder / "done").touch()
