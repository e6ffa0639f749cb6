"""Debian's packages, installed where they are missing, without any service started by them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # daemons are in sbin, also for who has none
POLICY = Path("/usr/sbin/policy-rc.d")
WAIT_FOR_LOCK_S = 300

PACKAGES = {  # a program that only this package brings
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "unshare": "util-linux",
}
DATABASE_PACKAGES = {
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "mariadb": "mariadb-client-core",
}
NETWORK_PACKAGES = {"ip": "iproute2"}
PMIX = "libpmix2"  # `srun --mpi=pmix` loads it, and no package of Slurm asks for it


class ClusterError(Exception):
    """The cluster cannot be had as it was asked for; the message says what to do."""


def missing(*, has_database: bool, has_network: bool) -> list[str]:
    """The packages that are not here."""
    wanted = {
        **PACKAGES,
        **(DATABASE_PACKAGES if has_database else {}),
        **(NETWORK_PACKAGES if has_network else {}),
    }
    packages = [package for program, package in wanted.items() if shutil.which(program, path=PATH) is None]
    if not any(Path("/usr/lib").glob("*/libpmix.so.2*")):
        packages.append(PMIX)
    return list(dict.fromkeys(packages))


def install(packages: list[str]) -> None:
    """Does nothing when there is nothing to install."""
    if not packages:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ClusterError(f"install {' '.join(packages)}: this needs root and Debian's apt-get")
    with _no_services():
        done = _apt("install", "-y", "--no-install-recommends", *packages)
        if done.returncode != 0:  # perhaps there are no lists of packages yet, or they are old
            _apt("update")
            done = _apt("install", "-y", "--no-install-recommends", *packages)
    if done.returncode != 0:
        raise ClusterError(f"apt-get cannot install {' '.join(packages)}:\n{done.stdout[-2000:]}")


def unpack(packages: Iterable[str], folder: Path, release: str | None = None) -> None:
    """The files of packages in a folder of their own. `release`: of Debian, if not that of this machine."""
    with tempfile.TemporaryDirectory() as made:
        options = _lists_of(release, Path(made)) if release else []
        if _apt("download", *options, *packages, folder=made).returncode != 0:
            _apt("update", *options)
            done = _apt("download", *options, *packages, folder=made)
            if done.returncode != 0:
                raise ClusterError(f"apt-get cannot download {' '.join(packages)}:\n{done.stdout[-2000:]}")
        for package in Path(made).glob("*.deb"):
            call("dpkg", "-x", str(package), str(folder))


def _lists_of(release: str, folder: Path) -> list[str]:
    """The options with which apt-get knows only this release, on the mirror of this machine."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    mirror = call("apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages").split()[0]
    (folder / "sources.list").write_text(f"deb {mirror} {release} main\n")
    options = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
    }
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def call(*command: str) -> str:
    """What a program of Debian prints, where only success will do."""
    environment = {**os.environ, "PATH": PATH}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ClusterError(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _apt(*arguments: str, folder: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["apt-get", "-q", "-o", f"DPkg::Lock::Timeout={WAIT_FOR_LOCK_S}", *arguments],
        cwd=folder,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PATH": PATH},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@contextmanager
def _no_services() -> Iterator[None]:
    """Packages ask this program whether they may start what they install."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
