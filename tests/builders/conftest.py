"""These tests use real builders of images: `make test-build`, or PHALANX_TEST_BUILD=1 with pytest (root, Debian).

Base images are made from files of this machine, since no registry is reachable. Containers are kept below a temporary
folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.homes import Place, wait_for
from tests.ports import free_port
from tests.slurm import apptainer, debian

PROGRAMS = {"buildah": "buildah", "docker-registry": "docker-registry", "podman": "podman", "runc": "runc"}
BUILDERS = ("buildah", "podman", "docker", "buildctl")
BASE = "localhost/base"


class BuildPlace(Place):
    """A home, on a machine with builders and a base image."""

    def __init__(self, base: Path, variables: dict[str, str]) -> None:
        super().__init__(base)
        self.variables = variables

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(**{**self.variables, **more})

    def ask(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment(), cwd=self.folder, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def write_root(root: Path) -> None:
    """The files of a small system: a shell, `cat`, and the libraries that they need."""
    programs = ["/bin/sh", "/bin/cat"]
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    libraries = {word for word in said.split() if word.startswith("/") and ".so" in word}
    for name in ("tmp", "proc", "sys", "dev", "etc"):
        (root / name).mkdir(parents=True)
    for name in (*programs, *libraries):
        (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, root / name[1:])


@pytest.fixture(name="storage", scope="session")
def storage_fixture() -> Iterator[dict[str, str]]:
    """The variables of a storage of containers with the base image."""
    debian.install(
        [package for program, package in PROGRAMS.items() if shutil.which(program, path=debian.PATH) is None]
    )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_root(folder / "root")
        settings = folder / "storage.conf"
        settings.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{made}/graph"\nrunroot = "{made}/run"\n')
        variables = {"PATH": debian.PATH, "CONTAINERS_STORAGE_CONF": str(settings), "TMPDIR": made}
        container = _call("buildah", "from", "scratch", **variables)
        _call("buildah", "copy", container, str(folder / "root"), "/", **variables)
        _call("buildah", "commit", container, BASE, **variables)
        _call("buildah", "push", BASE, f"docker-archive:{made}/base.tar:{BASE}:latest", **variables)
        yield variables


def _call(*command: str, **variables: str) -> str:
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(name="place")
def place_fixture(tmp_path: Path, storage: dict[str, str]) -> Iterator[BuildPlace]:
    place = BuildPlace(tmp_path, storage)
    yield place
    place.close()


@pytest.fixture(name="docker", scope="session")
def docker_fixture(storage: dict[str, str]) -> Iterator[dict[str, str]]:
    """The variables that lead to an engine of Docker of its own, with the base image."""
    if shutil.which("dockerd", path=debian.PATH) is None:
        debian.install(["docker.io"])
    with tempfile.TemporaryDirectory() as made:
        address = f"unix://{made}/socket"
        variables = {"PATH": debian.PATH, "DOCKER_HOST": address, "HOME": made}
        words = ["--data-root", f"{made}/data", "--exec-root", f"{made}/exec", "--pidfile", f"{made}/pid"]
        words += ["-H", address, "--storage-driver=vfs", "--iptables=false", "--bridge=none"]
        with open(f"{made}/log", "wb") as log:
            engine = subprocess.Popen(["dockerd", *words], env=variables, stdout=log, stderr=log)
        try:
            wait_for(lambda: engine.poll() is not None or _is_up(variables))
            assert engine.poll() is None, Path(made, "log").read_text()
            _call("sh", "-c", f"tar -C {storage['TMPDIR']}/root -c . | docker import - {BASE}", **variables)
            yield {"DOCKER_HOST": address, "DOCKER_CONFIG": made}
        finally:
            engine.terminate()
            engine.wait(timeout=60)


def _is_up(variables: dict[str, str]) -> bool:
    asked = subprocess.run(["docker", "version"], env=variables, capture_output=True, check=False, timeout=60)
    return asked.returncode == 0


@pytest.fixture(name="builder", params=["buildah", "podman", "docker"])
def builder_fixture(request: pytest.FixtureRequest, place: BuildPlace, tmp_path: Path) -> str:
    """The only builder on the PATH of the place."""
    chosen, programs = str(request.param), tmp_path / "programs"
    if chosen == "docker":
        place.variables = {**place.variables, **request.getfixturevalue("docker")}
    programs.mkdir()
    for folder in debian.PATH.split(os.pathsep):
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if (name == chosen or name not in BUILDERS) and not (programs / name).is_symlink():
                (programs / name).symlink_to(os.path.join(folder, name))
    place.variables = {**place.variables, "PATH": str(programs)}
    return chosen


@pytest.fixture(name="with_apptainer")
def with_apptainer_fixture(place: BuildPlace) -> BuildPlace:
    found = apptainer.variables(place.variables["PATH"])
    place.variables = {**place.variables, **found, "APPTAINER_BIND": ""}
    return place


@pytest.fixture(name="registry")
def registry_fixture(tmp_path: Path, place: BuildPlace) -> Iterator[str]:
    """The address of a real registry on this machine."""
    port = free_port()
    settings = tmp_path / "registry.yml"
    settings.write_text(
        f"version: 0.1\nlog: {{level: error}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n"
        f"storage: {{filesystem: {{rootdirectory: '{tmp_path}/registry'}}}}\n"
    )
    process = subprocess.Popen(["docker-registry", "serve", str(settings)], env=place.environment())
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
