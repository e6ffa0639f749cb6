"""Prepares the Python environment of a run without containers, once per node in local storage. Also unpacks the code
of a run from an archive.

All ranks of a node call this at the same moment. The first creates the virtual environment; the others wait for it.
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

from phalanx.atomic_files import draft_of
from phalanx.locks import locked

STEP_LINES = 30
# About a Python: whether it has pip, and where its packages are if it is a virtual environment.
_ABOUT = """
import importlib.util, json, sys, sysconfig
paths = {sysconfig.get_paths()[name] for name in ("purelib", "platlib")} if sys.prefix != sys.base_prefix else ()
print(json.dumps([importlib.util.find_spec("pip") is not None, sorted(paths)]))
"""


class VirtualenvError(Exception):
    """The environment cannot be prepared. Message for the user, and the last lines of output."""

    def __init__(self, message: str, lines: list[str]) -> None:
        super().__init__(message)
        self.lines = lines


class PreparedPython(NamedTuple):
    """The variables that select this Python, the prefix of the command, and the installed packages."""

    variables: dict[str, str]
    before: list[str]
    packages: list[str]


def prepare(
    asked: Mapping[str, Any],
    scratch: str,
    archive: str | None,
    working: str,
    tell: Callable[[str], None] = lambda _: None,
) -> PreparedPython:
    """`archive`: a virtual environment created elsewhere. `tell` gets each step in words. Raises VirtualenvError."""
    if asked.get("venv") or asked.get("conda"):
        return _existing(asked)
    if asked.get("image"):
        return PreparedPython({}, _container(expand(asked["image"]), working), [])
    if archive is not None:

        def unpack(place: str, _: Callable[[str], None]) -> None:
            tell("unpacking the virtual environment")
            _unpack(archive, place)

        return _made(scratch, _key(asked, archive), unpack)
    if asked.get("requirements") or asked.get("steps"):
        return _made(scratch, _key(asked, working), lambda place, say: install(asked, place, working, say, tell=tell))
    return PreparedPython({}, [], [])


def expand(path: str) -> str:
    """Expand `~` and `$NAME` as a shell does, and nothing else."""
    return os.path.abspath(os.path.expanduser(os.path.expandvars(path)))


def _existing(asked: Mapping[str, Any]) -> PreparedPython:
    kind = "venv" if asked.get("venv") else "conda"
    place = expand(asked[kind])
    if not os.access(os.path.join(place, "bin", "python"), os.X_OK):
        raise VirtualenvError(f"`environment.python.{kind}`: {place} has no bin/python on this node", [])
    name = "VIRTUAL_ENV" if kind == "venv" else "CONDA_PREFIX"
    return PreparedPython({name: place, "PATH": _first(place)}, [], [])


def _first(place: str) -> str:
    return os.path.join(place, "bin") + os.pathsep + os.environ.get("PATH", "")


def _container(image: str, working: str) -> list[str]:
    program = shutil.which("apptainer") or shutil.which("singularity")
    if program is None:
        raise VirtualenvError("`environment.python.image` requires apptainer, which is not on this node's PATH", [])
    if not os.path.exists(image):
        raise VirtualenvError(f"`environment.python.image`: {image} does not exist on this node", [])
    gpus = ["--nv"] if os.environ.get("CUDA_VISIBLE_DEVICES") else []
    return [program, "exec", *gpus, "--pwd", working, "--bind", working, image]


def with_folder(before: list[str], folder: str) -> list[str]:
    """The prefix of a command in a container, with another folder of the node visible there."""
    return [*before[:-1], "--bind", folder, before[-1]] if before else []


def _key(asked: Mapping[str, Any], *more: str) -> str:
    """A key of everything that the environment depends on."""
    digest = hashlib.sha256(json.dumps([asked, sys.version, more], sort_keys=True).encode())
    for item in asked.get("requirements") or ():
        if is_file(item):
            try:
                with open(os.path.join(more[0], item), "rb") as stream:
                    digest.update(stream.read())
            except OSError:
                pass  # pip reports it
    return digest.hexdigest()[:16]


def is_file(requirement: str) -> bool:
    return requirement.endswith(".txt")


def _made(scratch: str, key: str, make: Callable[[str, Callable[[str], None]], None]) -> PreparedPython:
    """Create the environment in the first process; the others wait and use it."""
    place = os.path.join(scratch, f"phalanx-{os.environ.get('SLURM_JOB_ID', 'job')}-{key}")
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        if os.stat(place).st_uid != os.getuid():
            raise VirtualenvError(f"{place} belongs to another user", [])
        with locked(os.path.join(place, "lock")), open(os.path.join(place, "log"), "a") as log:
            _raise_as_before(place)
            venv = os.path.join(place, "venv")
            if not os.path.exists(os.path.join(place, "done")):
                shutil.rmtree(venv, ignore_errors=True)
                try:
                    make(venv, lambda text: _log(log, text))
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
    """Raise the error of the process that tried to create the environment."""
    try:
        with open(os.path.join(place, "failed")) as stream:
            message, lines = json.load(stream)
    except FileNotFoundError:
        return
    raise VirtualenvError(message, lines)


def leave(variables: Mapping[str, str]) -> None:
    """Remove what was created for this job only, where the site does not do so."""
    place = os.path.dirname(variables.get("VIRTUAL_ENV", ""))
    if os.path.basename(place).startswith(f"phalanx-{os.environ.get('SLURM_JOB_ID', 'job')}-"):
        shutil.rmtree(place, ignore_errors=True)


def pack(prepared: PreparedPython, archive: str) -> None:
    """Keep the virtual environment of this node as an archive, for later jobs. Raises OSError."""
    venv = prepared.variables["VIRTUAL_ENV"]
    with draft_of(archive) as draft, tarfile.open(draft, "w") as stream:
        stream.add(venv, arcname=".")


def _log(log: Any, text: str) -> None:
    log.write(text + "\n")
    log.flush()


def _write(path: str, text: str) -> None:
    with open(path, "w") as stream:
        stream.write(text)


def _unpack(archive: str, place: str) -> None:
    """Unpack an archive from the home of the run. Scripts in it refer to the Python that created them: one that was
    made where you submit is still in place, one of another node is not."""
    try:
        with tarfile.open(archive) as stream:
            stream.extractall(place)  # noqa: S202 - it is ours
        _correct_scripts(place)
    except (OSError, tarfile.TarError) as fault:
        raise VirtualenvError(f"{archive} cannot be unpacked: {fault}", []) from None


def _correct_scripts(venv: str) -> None:
    """Let scripts start the Python of this virtual environment if theirs does not exist. Raises OSError."""
    programs = os.path.join(venv, "bin")
    for name in os.listdir(programs):
        path = os.path.join(programs, name)
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        with open(path, "rb") as stream:
            first, rest = stream.readline(), stream.read()
        python = first[2:].strip()
        if first.startswith(b"#!/") and b" " not in python and not os.path.exists(python):
            with open(path, "wb") as stream:
                stream.write(b"#!" + os.path.join(programs, "python").encode() + b"\n" + rest)


def unpack_code(archive: str, place: str) -> None:
    """Unpack files, folders, and links among them; reject anything that leads elsewhere. Raises VirtualenvError."""
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
                        f"the code contains `{entry.name[:200]}`, which is neither a file nor a folder", []
                    )
        for target, goal in links:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            _remove(target)
            os.symlink(goal, target)
        for target, _ in links:  # once all exist, because each may change the target of another
            if not f"{os.path.realpath(target)}{os.sep}".startswith(f"{root}{os.sep}"):
                os.unlink(target)
                raise VirtualenvError(
                    f"the code contains a link that leaves it: `{os.path.relpath(target, root)[:200]}`", []
                )
    except (OSError, EOFError, zlib.error, tarfile.TarError) as fault:
        raise VirtualenvError(f"the code cannot be unpacked: {fault}", []) from None


def _inside(root: str, name: str) -> str:
    """The target path of an entry. Links come last, so no part of it is a link, unless it existed before."""
    steps = [step for step in name.split("/") if step not in ("", ".")]
    target = os.path.join(root, *steps)
    if name.startswith("/") or ".." in steps or os.path.dirname(os.path.realpath(target)) != os.path.dirname(target):
        raise VirtualenvError(f"the code contains a path that leaves it: `{name[:200]}`", [])
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


def install(  # noqa: PLR0913 - a step for the log, and one for people
    asked: Mapping[str, Any],
    place: str,
    working: str,
    say: Callable[[str], None],
    make: Callable[..., None] | None = None,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Create a virtual environment with the requirements. `make`: how to create the base; `tell` gets each step in
    words. Raises VirtualenvError."""
    tell("creating a virtual environment")
    (make or make_venv)(place, working, say)
    inside = {**os.environ, "VIRTUAL_ENV": place, "PATH": _first(place)}
    inside.pop("PYTHONHOME", None)
    command = [os.path.join(place, "bin", "python"), *pip_words(asked)]
    if asked.get("requirements"):
        what = f"pip install {' '.join(asked['requirements'][:8])}"
        tell(what)
        call(what, command, working, inside, say)
    for step in asked.get("steps") or ():
        tell(step)
        call(step, [shutil.which("bash") or "sh", "-c", step], working, inside, say)


def make_venv(place: str, working: str, say: Callable[[str], None]) -> None:
    call("python -m venv", [sys.executable, "-m", "venv", place], working, dict(os.environ), say)


def make_venv_above(place: str, working: str, say: Callable[[str], None]) -> None:
    """Create one that includes the image's packages and pip: the image's Python may itself be a virtual environment.
    Raises VirtualenvError."""
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
    """Arguments of pip: if wheel folders are given, nothing else is searched."""
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
    """The installed packages, as `name==version`."""
    command = [os.path.join(venv, "bin", "python"), "-m", "pip", "freeze", "--disable-pip-version-check", "--local"]
    try:
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return answer.stdout.decode("utf-8", "replace").split("\n")
