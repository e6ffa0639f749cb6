"""Builds the environments of the real frameworks outside the repository, if they are missing.

Frameworks pin conflicting versions (above all of numpy), so each group has a separate environment, named by a digest
of its packages: a changed pin builds another one. Prints `name=python` for each requested environment, named directly
or by one of its frameworks; without arguments, for all:

    python scripts/environments.py torch jax
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("PHALANX_FRAMEWORKS") or Path.home() / ".cache" / "phalanx" / "frameworks")

# Horovod's build passes C++14, which PyTorch's headers reject, and has no option for it: a compiler wrapper changes it.
COMPILER = """#!/bin/sh
for word; do
    shift
    case $word in -std=c++14|-std=gnu++14) word=-std=c++17 ;; -O3) word=-O1 ;; esac
    set -- "$@" "$word"
done
exec g++ -g0 "$@"
"""
HOROVOD = "horovod==0.28.1"
HOROVOD_BUILD = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITH_MXNET": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITH_MPI": "1",
    "MAKEFLAGS": "-j2",
}
BUILT_AGAINST = ("torch==", "mxnet==", "numpy==")


class Environment(NamedTuple):
    """Packages of one Python. `afterwards` are installed without their dependencies."""

    python: str
    packages: tuple[str, ...]
    afterwards: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()
    has_horovod: bool = False

    @property
    def digest(self) -> str:
        return _digest([*self, self.wheel_digest if self.has_horovod else ""])

    @property
    def wheel_digest(self) -> str:
        """The digest of what Horovod is built against: another package does not cause a new build."""
        against = [package for package in self.packages if package.startswith(BUILT_AGAINST)]
        return _digest([self.python, against, HOROVOD, HOROVOD_BUILD, COMPILER])


def _digest(content: list[Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
COMMON = ("tensorboardX==2.6.5", "mlflow-skinny==3.17.2")
ENVIRONMENTS = {
    "torch": Environment(
        "3.11",
        (
            "torch==2.13.0",
            "mxnet==1.9.1",
            "numpy==1.23.5",
            "mpi4py==4.1.2",
            "cloudpickle",
            "psutil",
            "pyyaml",
            "packaging",
            "lightning==2.6.6",
            "accelerate==1.15.0",
            "xgboost-cpu",
            "lightgbm==4.7.0",
            "deepspeed==0.19.8",
            *COMMON,
        ),
        debian=("openmpi-bin", "libopenmpi-dev", "cmake", "g++"),
        has_horovod=True,
    ),
    "tensorflow": Environment(
        "3.11",
        ("tensorflow-cpu==2.21.0", "tensorboard==2.21.0", "jax==0.10.2", *COMMON),
        afterwards=("tf_keras==2.21.0",),
    ),
    "tensorflow1": Environment("3.7", ("tensorflow==1.15.5", "protobuf<3.21")),
    "trackers": Environment(
        HERE,
        (
            "torch==2.13.0",
            "lightning==2.6.6",
            "pytorch-lightning==2.6.6",
            "keras==3.15.1",
            "transformers==5.22.2",
            "accelerate==1.15.0",
            "xgboost==3.2.0",
            "lightgbm==4.7.0",
            "scikit-learn==1.9.1",
            "tensorboardX==2.6.5",
            "wandb==0.31.0",
            "pytest",
            "pytest-timeout",
        ),
    ),
    "mlflow-3": Environment(HERE, ("mlflow==3.17.2", "scikit-learn", "pytest", "pytest-timeout", "setuptools<81")),
    "mlflow-2": Environment(HERE, ("mlflow==2.22.5", "scikit-learn", "pytest", "pytest-timeout", "setuptools<81")),
    "mlflow-own": Environment(  # what MLflow's own tests import
        HERE,
        ("mlflow==3.17.2", "scikit-learn", "polars", "pytest", "pytest-asyncio", "pytest-timeout", "setuptools<81"),
    ),
    "tensorboard": Environment(HERE, ("tensorboard==2.21.0", "setuptools<81")),
    "notebook": Environment(HERE, ("jupyterlab==4.6.6", "ipykernel", "websocket-client")),
    "snakemake": Environment(HERE, ("snakemake==9.27.1",)),
    "schemathesis": Environment(HERE, ("schemathesis>=4.30",)),
}

# The environment of each framework.
FRAMEWORKS = {
    **dict.fromkeys(
        ("pytorch", "lightning", "accelerate", "deepspeed", "mxnet", "horovod", "mpi", "xgboost", "plain"), "torch"
    ),
    "jax": "tensorflow",
    **{name: name for name in ("torch", "tensorflow", "tensorflow1")},
}


def main() -> None:
    is_bare = sys.argv[1:2] == ["--python"]
    asked = [name for word in sys.argv[1 + is_bare :] for name in word.replace(",", " ").split()]
    known = dict.fromkeys((*FRAMEWORKS, *ENVIRONMENTS))
    unknown = [name for name in asked if name not in known]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
    for name in dict.fromkeys(FRAMEWORKS.get(name, name) for name in asked or FRAMEWORKS):
        python = interpreter(ENVIRONMENTS[name].python)
        if python is None:
            print(f"{name}: skipped: Python {ENVIRONMENTS[name].python} is not installed", file=sys.stderr)
            continue
        found = build(name, ENVIRONMENTS[name], python)
        print(found if is_bare else f"{name}={found}", flush=True)


def interpreter(version: str) -> str | None:
    """The full path of a Python, because pyenv's shims are not interpreters."""
    if version == HERE:
        return (
            sys.executable if sys.prefix == sys.base_prefix else str(Path(sys.base_prefix) / "bin" / f"python{version}")
        )
    for found in sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"), reverse=True):
        return str(found)
    named = shutil.which(f"python{version}")
    return named if named and ".pyenv" not in named else None


def built(name: str) -> Path | None:
    """The Python of an environment that is ready."""
    target = place(name)
    return target / "bin" / "python" if (target / "ready").exists() else None


def place(name: str) -> Path:
    return CACHE / f"{name}-{ENVIRONMENTS[name].digest}"


def build(name: str, wanted: Environment, python: str) -> Path:
    """Build an environment and return its Python. An incomplete one lacks its final mark and is built again."""
    target = place(name)
    found = target / "bin" / "python"
    if built(name) is not None:
        return found
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of concurrent calls, one builds and the others wait
        if built(name) is None:
            say(f"building the environment {name}: this takes minutes, once")
            _build(target, wanted, python)
    return found


def _build(target: Path, wanted: Environment, python: str) -> None:
    found = target / "bin" / "python"
    shutil.rmtree(target, ignore_errors=True)
    install_debian(wanted.debian)
    run([python, "-m", "venv", str(target)])  # at its final path, which its scripts contain
    pip = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "wheel", "setuptools<70"])
    run([*pip, *wanted.packages], environment={**os.environ, "DS_BUILD_OPS": "0"})  # no compiling
    if wanted.afterwards:
        run([*pip, "--no-deps", *wanted.afterwards])
    if wanted.has_horovod:
        run([*pip, "--no-deps", str(horovod_wheel(wanted, found))])
    run([str(found), "-m", "compileall", "-q", str(target / "lib")], may_fail=True)
    (target / "ready").touch()


def install_debian(packages: tuple[str, ...]) -> None:
    missing = [
        name for name in packages if subprocess.run(["dpkg", "-s", name], capture_output=True, check=False).returncode
    ]
    if missing:
        run(["apt-get", "update", "-q"])
        run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing])


def horovod_wheel(wanted: Environment, python: Path) -> Path:
    """Build Horovod once per set of dependencies: it takes longer than everything else."""
    folder = CACHE / f"horovod-{wanted.wheel_digest}"
    wheels = list(folder.glob("*.whl"))
    if wheels:
        return wheels[0]
    say("building Horovod: about four minutes")
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        compiler = Path(scratch) / "c++17"
        compiler.write_text(COMPILER)
        compiler.chmod(0o755)
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, **HOROVOD_BUILD, "CXX": str(compiler), "PATH": path}
        wheel = [
            str(python),
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            scratch,
            HOROVOD,
        ]
        run(wheel, environment=environment)
        folder.mkdir(exist_ok=True)
        (built,) = Path(scratch).glob("*.whl")
        shutil.copy(built, folder / f".{built.name}")
        (folder / f".{built.name}").rename(folder / built.name)
    return folder / built.name


def run(command: list[str], environment: dict[str, str] | None = None, *, may_fail: bool = False) -> None:
    """Run a command; print its output only if it fails."""
    answer = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if answer.returncode and not may_fail:
        sys.exit(f"{' '.join(command)} failed:\n{answer.stdout[-4000:]}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
