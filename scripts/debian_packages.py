"""Installs the missing Debian packages of the integration suites, all at once (root).

    python scripts/debian_packages.py

Each suite also installs its packages. Installing them together is faster, and avoids concurrent calls of apt-get.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.slurm import debian

from scripts import build_kubernetes
from scripts.environments import ENVIRONMENTS

OTHERS = {
    "buildah": "buildah",
    "chromium": "chromium",
    "docker-registry": "docker-registry",
    "pg_lsclusters": "postgresql",
    "fish": "fish",
    "podman": "podman",
    "runc": "runc",  # of what podman may use, the one that also works where cgroups are old
    "shellcheck": "shellcheck",
    "zsh": "zsh",
}  # program -> package that provides it


def missing() -> list[str]:
    by_program = {**OTHERS, **build_kubernetes.BUILD_PACKAGES, **build_kubernetes.ETCD_PACKAGES}
    wanted = [package for program, package in by_program.items() if shutil.which(program, path=debian.PATH) is None]
    if not build_kubernetes.GO.exists():
        wanted.append(build_kubernetes.GO_PACKAGE)
    wanted += debian.missing(has_database=True, has_network=True)
    wanted += [
        package for environment in ENVIRONMENTS.values() for package in environment.debian if not _is_here(package)
    ]
    return list(dict.fromkeys(wanted))


def _is_here(package: str) -> bool:
    return subprocess.run(["dpkg", "-s", package], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    packages = missing()
    if packages:
        print(f"installing {' '.join(packages)}", flush=True)
    try:
        debian.install(packages)
    except debian.ClusterError as error:
        sys.exit(str(error))
