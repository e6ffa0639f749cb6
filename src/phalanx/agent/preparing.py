"""The Python that a run asks for, on a machine without containers: made once per node, in its own storage.

All ranks of a node call this at the same moment. The first makes the virtual environment; the others wait for it.
Standard library only, Python 3.8+.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

STEP_LINES = 30


class NotPrepared(Exception):
    """Why not, in words for the user, and what was said last."""

    def __init__(self, message: str, lines: list[str]) -> None:
        super().__init__(message)
        self.lines = lines


class Prepared(NamedTuple):
    """The variables that make it the Python of a command, what stands before the command, and what was installed."""

    variables: dict[str, str]
    before: list[str]
    packages: list[str]


def prepare(asked: Mapping[str, Any], scratch: str, archive: str | None, working: str) -> Prepared:
    """`archive`: a virtual environment that was made elsewhere. Raises NotPrepared."""
    if asked.get("venv") or asked.get("conda"):
        return _existing(asked)
    if asked.get("image"):
        return Prepared({}, _container(expand(asked["image"]), working), [])
    if archive is not None:
        return _made(scratch, _key(asked, archive), lambda place, _: _unpack(archive, place))
    if asked.get("requirements") or asked.get("steps"):
        return _made(scratch, _key(asked, working), lambda place, say: install(asked, place, working, say))
    return Prepared({}, [], [])


def expand(path: str) -> str:
    """`~` and `$NAME`, as a shell has them, and nothing else that a shell would do."""
    return os.path.abspath(os.path.expanduser(os.path.expandvars(path)))


def _existing(asked: Mapping[str, Any]) -> Prepared:
    kind = "venv" if asked.get("venv") else "conda"
    place = expand(asked[kind])
    if not os.access(os.path.join(place, "bin", "python"), os.X_OK):
        raise NotPrepared(f"`environment.python.{kind}`: there is no bin/python in {place} on this node", [])
    name = "VIRTUAL_ENV" if kind == "venv" else "CONDA_PREFIX"
    return Prepared({name: place, "PATH": _first(place)}, [], [])


def _first(place: str) -> str:
    return os.path.join(place, "bin") + os.pathsep + os.environ.get("PATH", "")


def _container(image: str, working: str) -> list[str]:
    program = shutil.which("apptainer") or shutil.which("singularity")
    if program is None:
        raise NotPrepared("`environment.python.image` needs apptainer, which is not on this node's PATH", [])
    if not os.path.exists(image):
        raise NotPrepared(f"`environment.python.image`: there is no {image} on this node", [])
    return [program, "exec", "--pwd", working, "--bind", working, image]


def _key(asked: Mapping[str, Any], *more: str) -> str:
    """What the environment depends on."""
    digest = hashlib.sha256(json.dumps([asked, sys.version, more], sort_keys=True).encode())
    for item in asked.get("requirements") or ():
        if is_file(item):
            try:
                with open(os.path.join(more[0], item), "rb") as stream:
                    digest.update(stream.read())
            except OSError:
                pass  # pip says so
    return digest.hexdigest()[:16]


def is_file(requirement: str) -> bool:
    return requirement.endswith(".txt")


def _made(scratch: str, key: str, make: Callable[[str, Callable[[str], None]], None]) -> Prepared:
    """By whoever comes first; those who wait take what it made."""
    place = os.path.join(scratch, f"phalanx-{os.environ.get('SLURM_JOB_ID', 'job')}-{key}")
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        if os.stat(place).st_uid != os.getuid():
            raise NotPrepared(f"{place} belongs to somebody else", [])
        with open(os.path.join(place, "lock"), "w") as lock, open(os.path.join(place, "log"), "a") as log:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _raise_as_before(place)
            venv = os.path.join(place, "venv")
            if not os.path.exists(os.path.join(place, "done")):
                shutil.rmtree(venv, ignore_errors=True)
                try:
                    make(venv, lambda text: _tell(log, text))
                except NotPrepared as fault:
                    shutil.rmtree(venv, ignore_errors=True)
                    _write(os.path.join(place, "failed"), json.dumps([str(fault), fault.lines]))
                    raise
                _write(os.path.join(place, "packages"), "\n".join(packages_of(venv)))
                _write(os.path.join(place, "done"), "")
    except OSError as fault:
        raise NotPrepared(
            f"the virtual environment cannot be made in {scratch}: {fault.strerror or fault}", []
        ) from None
    with open(os.path.join(place, "packages")) as stream:
        packages = stream.read().splitlines()
    return Prepared({"VIRTUAL_ENV": venv, "PATH": _first(venv)}, [], packages)


def _raise_as_before(place: str) -> None:
    """Whoever waited for another that failed says what that one said."""
    try:
        with open(os.path.join(place, "failed")) as stream:
            message, lines = json.load(stream)
    except FileNotFoundError:
        return
    raise NotPrepared(message, lines)


def leave(variables: Mapping[str, str]) -> None:
    """Removes what was made for this job alone, where the site does not do so."""
    place = os.path.dirname(variables.get("VIRTUAL_ENV", ""))
    if os.path.basename(place).startswith(f"phalanx-{os.environ.get('SLURM_JOB_ID', 'job')}-"):
        shutil.rmtree(place, ignore_errors=True)


def _tell(log: Any, text: str) -> None:
    log.write(text + "\n")
    log.flush()


def _write(path: str, text: str) -> None:
    with open(path, "w") as stream:
        stream.write(text)


def _unpack(archive: str, place: str) -> None:
    """Our own archive, from our own home. Scripts in it name the Python that they were made with, which is still
    where it was; what they import is read from here."""
    try:
        with tarfile.open(archive) as stream:
            stream.extractall(place)  # noqa: S202 - it is ours
    except (OSError, tarfile.TarError) as fault:
        raise NotPrepared(f"{archive} cannot be unpacked: {fault}", []) from None


def install(asked: Mapping[str, Any], place: str, working: str, say: Callable[[str], None]) -> None:
    """A new virtual environment with what a file asks for. Raises NotPrepared."""
    call("python -m venv", [sys.executable, "-m", "venv", place], working, dict(os.environ), say)
    inside = {**os.environ, "VIRTUAL_ENV": place, "PATH": _first(place)}
    inside.pop("PYTHONHOME", None)
    command = [os.path.join(place, "bin", "python"), *pip_words(asked)]
    if asked.get("requirements"):
        call(f"pip install {' '.join(asked['requirements'][:8])}", command, working, inside, say)
    for step in asked.get("steps") or ():
        call(step, ["bash", "-c", step], working, inside, say)


def pip_words(asked: Mapping[str, Any]) -> list[str]:
    """What pip is told: folders of wheels are all that there is, where some are named."""
    words = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    houses = [word for folder in asked.get("wheelhouse") or () for word in ("--find-links", expand(folder))]
    if houses or asked.get("no_index"):
        words += ["--no-index", *houses]
    for item in asked.get("requirements") or ():
        words += ["-r", item] if is_file(item) else [item]
    return words


def call(what: str, command: list[str], working: str, environment: dict[str, str], say: Callable[[str], None]) -> None:
    say(f"$ {' '.join(command)}")
    try:
        done = subprocess.run(
            command, cwd=working, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    except OSError as fault:
        raise NotPrepared(f"cannot start {command[0]}: {fault.strerror or fault}", []) from None
    text = done.stdout.decode("utf-8", "replace")
    say(text)
    if done.returncode:
        lines = [line for line in text.splitlines() if line.strip()]
        raise NotPrepared(f"`{what[:200]}` failed with code {done.returncode}", lines[-STEP_LINES:])


def packages_of(venv: str) -> list[str]:
    """What is in it, as `name==version`."""
    command = [os.path.join(venv, "bin", "python"), "-m", "pip", "freeze", "--disable-pip-version-check", "--local"]
    try:
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return answer.stdout.decode("utf-8", "replace").split("\n")
