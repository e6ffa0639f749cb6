"""Commands with a deadline, virtual environments, and homes that a package installed in one of them works on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.cli.homes import Place
from tests.cli.running import Answer

ROOT = Path(__file__).resolve().parent.parent.parent
VERSIONS = ("3.11", "3.12", "3.13")
OWN_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
INSTALL_S = 600.0
VERB_S = 60.0
# Of whoever runs the tests: a command under test must not find them
OURS = ("PHALANX_", "PYTHON", "VIRTUAL_ENV", "CONDA_", "KUBE", "SLURM_", "MAKE", "MFLAGS")


def surroundings(**more: str) -> dict[str, str]:
    """The environment of a person who has just logged in."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {**kept, **more}


def run(
    command: Sequence[str | Path],
    *,
    within_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
) -> Answer:
    """What a command answers. All of its process group is killed when it is over, or late."""
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env=surroundings() if env is None else env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(stdin, timeout=within_s)
    finally:
        kill_group(process)
    return Answer(process.returncode, out, err)


def must(command: Sequence[str | Path], *, within_s: float = INSTALL_S, **more: object) -> Answer:
    """The same of a command that has to succeed."""
    answer = run(command, within_s=within_s, **more)  # type: ignore[arg-type]
    assert answer.code == 0, f"{' '.join(map(str, command))}\n{answer.out[-4000:]}\n{answer.err[-4000:]}"
    return answer


def kill_group(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def path_without(folder: Path, *names: str) -> str:
    """A PATH with every command of this machine but those, which are linked into a new folder."""
    folder.mkdir()
    for place in os.get_exec_path():
        with suppress(OSError):
            for entry in os.scandir(place):
                if entry.name not in names and not (folder / entry.name).is_symlink():
                    (folder / entry.name).symlink_to(entry.path)
    return str(folder)


def interpreter(version: str) -> str | None:
    """A Python of that version which works, where this machine has one."""
    if version == OWN_VERSION:
        return sys.executable
    managed = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for candidate in (*sorted(managed.glob(f"{version}.*/bin/python")), shutil.which(f"python{version}")):
        if candidate is not None:
            asked = [candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
            if run(asked, within_s=VERB_S).out.strip() == version:
                return str(candidate)
    return None


class Environment:
    """A virtual environment. `python`: of which it is made."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        if python == sys.executable:
            venv.create(folder, with_pip=True)
        else:
            must([python, "-m", "venv", folder])

    def install(self, *words: str | Path) -> None:
        must([self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words])

    def packages(self) -> set[str]:
        listed = must([self.python, "-m", "pip", "list", "--format=freeze"], within_s=VERB_S).out
        return {line.partition("==")[0].lower() for line in listed.splitlines()}


class Installed(Place):
    """A home and a working folder, for the `phalanx` of an environment."""

    def __init__(self, base: Path, environment: Environment) -> None:
        super().__init__(base)
        self.base = base
        self.bin = environment.folder / "bin"
        self.path = f"{self.bin}{os.pathsep}{path_without(base / 'commands', 'phalanx', 'sbatch', 'sinfo')}"

    def environment(self, **more: str) -> dict[str, str]:
        named = {
            "PATH": self.path,
            "HOME": str(self.base),
            "PHALANX_HOME": str(self.home),
            "KUBECONFIG": str(self.base / "no-kubeconfig"),
        }
        return surroundings(**{**named, **more})

    def call(self, *arguments: str, stdin: bytes = b"", **environment: str) -> Answer:
        env = self.environment(**environment)
        command: list[str | Path] = [self.bin / "phalanx", *arguments]
        return run(command, within_s=VERB_S, cwd=self.folder, env=env, stdin=stdin.decode())

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(self.bin / "phalanx"), *arguments],
            cwd=self.folder,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """Nothing of this home goes on."""
        for process in self.started:
            kill_group(process)
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
