"""The Python that a run asks for, on a machine without containers: made once per node, in its own storage. And the code
of a run, where it travels as an archive.

All ranks of a node call this at the same moment. The first makes the virtual environment; the others wait for it.
Standard library only, Python 3.8+.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from phalanx.locks import locked

STEP_LINES = 30
# Of a Python: whether it has pip, and where its packages are when that is a virtual environment.
_ABOUT = """
import importlib.util, json, sys, sysconfig
paths = {sysconfig.get_paths()[name] for name in ("purelib", "platlib")} if sys.prefix != sys.base_prefix else ()
print(json.dumps([importlib.util.find_spec("pip") is not None, sorted(paths)]))
"""


class VirtualenvError(Exception):
    """Why not, in words for the user, and what was said last."""

    def __init__(self, message: str, lines: list[str]) -> None:
        super().__init__(message)
        self.lines = lines


class PreparedPython(NamedTuple):
    """The variables that make it the Python of a command, what stands before the command, and what was installed."""

    variables: dict[str, str]
    before: list[str]
    packages: list[str]


def prepare(asked: Mapping[str, Any], scratch: str, archive: str | None, working: str) -> PreparedPython:
    """`archive`: a virtual environment that was made elsewhere. Raises NotPrepared."""
    if asked.get("venv") or asked.get("conda"):
        return _existing(asked)
    if asked.get("image"):
        return PreparedPython({}, _container(expand(asked["image"]), working), [])
    if archive is not None:
        return _made(scratch, _key(asked, archive), lambda place, _: _unpack(archive, place))
    if asked.get("requirements") or asked.get("steps"):
        return _made(scratch, _key(asked, working), lambda place, say: install(asked, place, working, say))
    return PreparedPython({}, [], [])


def expand(path: str) -> str:
    """`~` and `$NAME`, as a shell has them, and nothing else that a shell would do."""
    return os.path.abspath(os.path.expanduser(os.path.expandvars(path)))


def _existing(asked: Mapping[str, Any]) -> PreparedPython:
    kind = "venv" if asked.get("venv") else "conda"
    place = expand(asked[kind])
    if not os.access(os.path.join(place, "bin", "python"), os.X_OK):
        raise VirtualenvError(f"`environment.python.{kind}`: there is no bin/python in {place} on this node", [])
    name = "VIRTUAL_ENV" if kind == "venv" else "CONDA_PREFIX"
    return PreparedPython({name: place, "PATH": _first(place)}, [], [])


def _first(place: str) -> str:
    return os.path.join(place, "bin") + os.pathsep + os.environ.get("PATH", "")


def _container(image: str, working: str) -> list[str]:
    program = shutil.which("apptainer") or shutil.which("singularity")
    if program is None:
        raise VirtualenvError("`environment.python.image` needs apptainer, which is not on this node's PATH", [])
    if not os.path.exists(image):
        raise VirtualenvError(f"`environment.python.image`: there is no {image} on this node", [])
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


def _made(scratch: str, key: str, make: Callable[[str, Callable[[str], None]], None]) -> PreparedPython:
    """By whoever comes first; those who wait take what it made."""
    place = os.path.join(scratch, f"phalanx-{os.environ.get('SLURM_JOB_ID', 'job')}-{key}")
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        if os.stat(place).st_uid != os.getuid():
            raise VirtualenvError(f"{place} belongs to somebody else", [])
        with locked(os.path.join(place, "lock")), open(os.path.join(place, "log"), "a") as log:
            _raise_as_before(place)
            venv = os.path.join(place, "venv")
            if not os.path.exists(os.path.join(place, "done")):
                shutil.rmtree(venv, ignore_errors=True)
                try:
                    make(venv, lambda text: _tell(log, text))
                except VirtualenvError as fault:
                    shutil.rmtree(venv, ignore_errors=True)
                    _write(os.path.join(place, "failed"), json.dumps([str(fault), fault.lines]))
                    raise
                _write(os.path.join(place, "packages"), "\n".join(packages_of(venv)))
                _write(os.path.join(place, "done"), "")
    except OSError as fault:
        raise VirtualenvError(
            f"the virtual environment cannot be made in {scratch}: {fault.strerror or fault}", []
        ) from None
    with open(os.path.join(place, "packages")) as stream:
        packages = stream.read().splitlines()
    return PreparedPython({"VIRTUAL_ENV": venv, "PATH": _first(venv)}, [], packages)


def _raise_as_before(place: str) -> None:
    """Whoever waited for another that failed says what that one said."""
    try:
        with open(os.path.join(place, "failed")) as stream:
            message, lines = json.load(stream)
    except FileNotFoundError:
        return
    raise VirtualenvError(message, lines)


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
        raise VirtualenvError(f"{archive} cannot be unpacked: {fault}", []) from None


def unpack_code(archive: str, place: str) -> None:
    """Files and folders, and links among them; nothing that leads elsewhere. Raises NotPrepared."""
    os.makedirs(place, exist_ok=True)
    root = os.path.realpath(place)
    links = []
    try:
        with tarfile.open(archive, "r:gz") as stream:
            for entry in stream:
                target = _inside(root, entry.name)
                if entry.isdir():
                    os.makedirs(target, exist_ok=True)
                elif entry.isreg():
                    _write_entry(stream, entry, target)
                elif entry.issym():
                    links.append((target, entry.linkname))
                else:
                    raise VirtualenvError(
                        f"the code holds `{entry.name[:200]}`, which is neither a file nor a folder", []
                    )
        for target, goal in links:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            _remove(target)
            os.symlink(goal, target)
        for target, _ in links:  # now that all of them are there, and each may change where another leads
            if not f"{os.path.realpath(target)}{os.sep}".startswith(f"{root}{os.sep}"):
                os.unlink(target)
                raise VirtualenvError(f"the code holds a link out of it: `{os.path.relpath(target, root)[:200]}`", [])
    except (OSError, EOFError, zlib.error, tarfile.TarError) as fault:
        raise VirtualenvError(f"the code cannot be unpacked: {fault}", []) from None


def _inside(root: str, name: str) -> str:
    """Where an entry belongs. Links come last, so no step of it is one, unless it was there before."""
    steps = [step for step in name.split("/") if step not in ("", ".")]
    target = os.path.join(root, *steps)
    if name.startswith("/") or ".." in steps or os.path.dirname(os.path.realpath(target)) != os.path.dirname(target):
        raise VirtualenvError(f"the code holds a path out of it: `{name[:200]}`", [])
    return target


def _write_entry(stream: tarfile.TarFile, entry: tarfile.TarInfo, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    _remove(target)
    source = stream.extractfile(entry)
    mode = 0o755 if entry.mode & 0o100 else 0o644
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        if source is not None:
            shutil.copyfileobj(source, file)


def _remove(path: str) -> None:
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)


def install(
    asked: Mapping[str, Any],
    place: str,
    working: str,
    say: Callable[[str], None],
    make: Callable[..., None] | None = None,
) -> None:
    """A new virtual environment with what a file asks for. `make`: how, where not from nothing. Raises NotPrepared."""
    (make or make_venv)(place, working, say)
    inside = {**os.environ, "VIRTUAL_ENV": place, "PATH": _first(place)}
    inside.pop("PYTHONHOME", None)
    command = [os.path.join(place, "bin", "python"), *pip_words(asked)]
    if asked.get("requirements"):
        call(f"pip install {' '.join(asked['requirements'][:8])}", command, working, inside, say)
    for step in asked.get("steps") or ():
        call(step, [shutil.which("bash") or "sh", "-c", step], working, inside, say)


def make_venv(place: str, working: str, say: Callable[[str], None]) -> None:
    call("python -m venv", [sys.executable, "-m", "venv", place], working, dict(os.environ), say)


def make_venv_above(place: str, working: str, say: Callable[[str], None]) -> None:
    """One that has what the image has, pip included: a Python of an image may itself be that of a virtual environment.
    Raises NotPrepared."""
    asked = subprocess.run(
        [sys.executable, "-c", _ABOUT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=working, check=False
    )
    has_pip, folders = json.loads(asked.stdout) if asked.returncode == 0 else (False, [])
    command = [sys.executable, "-m", "venv", "--system-site-packages", *(["--without-pip"] if has_pip else []), place]
    call("python -m venv", command, working, dict(os.environ), say)
    programs = os.path.join(place, "bin")
    for packages in glob.glob(os.path.join(glob.escape(place), "lib", "python*", "site-packages")) if folders else ():
        _write(os.path.join(packages, "phalanx-image.pth"), "".join(f"{folder}\n" for folder in folders))
    for name in ("pip", "pip3") if has_pip else ():
        path = os.path.join(programs, name)
        _write(path, f'#!/bin/sh\nexec "{programs}/python" -m pip "$@"\n')
        os.chmod(path, 0o700)


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
        raise VirtualenvError(f"cannot start {command[0]}: {fault.strerror or fault}", []) from None
    text = done.stdout.decode("utf-8", "replace")
    say(text)
    if done.returncode:
        lines = [line for line in text.splitlines() if line.strip()]
        raise VirtualenvError(f"`{what[:200]}` failed with code {done.returncode}", lines[-STEP_LINES:])


def packages_of(venv: str) -> list[str]:
    """What is in it, as `name==version`."""
    command = [os.path.join(venv, "bin", "python"), "-m", "pip", "freeze", "--disable-pip-version-check", "--local"]
    try:
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return answer.stdout.decode("utf-8", "replace").split("\n")
