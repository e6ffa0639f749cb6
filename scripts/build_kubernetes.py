"""Builds a real Kubernetes control plane from Debian's source package, once, outside the repository.

    python scripts/build_kubernetes.py

No package has these programs ready to run. The API server, the controllers and the scheduler are compiled (some
minutes on two cores); `kubectl` is unpacked from Debian's package, not installed. They are stored in
~/.cache/phalanx/kubernetes (or PHALANX_KUBERNETES_BUILD), in a folder named by a digest of their sources, which is
printed. If it exists, nothing is built. It needs Debian; a missing compiler or etcd is installed, which needs root.
The package lists of the machine are not changed: source packages use separate lists, only for the build.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.slurm import debian
from tests.slurm.debian import PATH, ClusterError

CACHE = Path(os.environ.get("PHALANX_KUBERNETES_BUILD") or Path.home() / ".cache" / "phalanx" / "kubernetes")
VERSION = "1.20.2"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
ETCD_PACKAGES = {"etcd": "etcd-server", "openssl": "openssl", "ip": "iproute2", "unshare": "util-linux"}
BUILD_PACKAGES = {"rsync": "rsync", "make": "make", "dpkg-source": "dpkg-dev", "git": "git", "which": "debianutils"}
GO = Path("/usr/lib/go-1.19/bin")
GO_PACKAGE = "golang-1.19-go"  # newer ones cannot compile these sources
SOURCE = "kubernetes"
CLIENT_PACKAGE = "kubernetes-client"
# The copy in the sources (1.0.1) fails with maps since Go 1.18, and crashes the server at the first custom resource.
REFLECT_PACKAGE = "golang-github-modern-go-reflect2-dev"
REFLECT = Path("github.com/modern-go/reflect2")
FLAGS = "-mod=vendor -tags=providerless"  # without cloud providers: a third less to compile
ROOM_MIB = 4000
APT_FOLDER = Path("/etc/apt")


def place() -> Path:
    """The folder of the programs, built or not."""
    made_of = [VERSION, PROGRAMS, FLAGS, REFLECT_PACKAGE, GO_PACKAGE]
    return CACHE / f"{VERSION}-{hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:8]}"


def built() -> Path | None:
    """The folder of the programs if they are built, else None."""
    return place() if (place() / "ready").exists() else None


def needed() -> list[str]:
    """Missing packages that a running cluster needs."""
    return [package for program, package in ETCD_PACKAGES.items() if shutil.which(program, path=PATH) is None]


def build() -> Path:
    """Build the programs and return their folder. Of concurrent calls, one builds and the others wait."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = built()
        if ready is None:
            began = time.monotonic()
            _install()
            with tempfile.TemporaryDirectory(prefix="building-", dir=CACHE) as folder:
                _compile(Path(folder))
            ready = place()
            _say(f"ready after {time.monotonic() - began:.0f} s")
        return ready


def _install() -> None:
    missing = [package for program, package in BUILD_PACKAGES.items() if shutil.which(program, path=PATH) is None]
    if not (GO / "go").exists():
        missing.append(GO_PACKAGE)
    missing = list(dict.fromkeys([*missing, *needed()]))
    if missing:
        _say(f"installing {' '.join(missing)}")
        debian.install(missing)


def _compile(work: Path) -> None:
    free_mib = shutil.disk_usage(work).free // 2**20
    if free_mib < ROOM_MIB:
        raise ClusterError(f"building needs {ROOM_MIB} MiB in {work.parent}, and {free_mib} are free")
    with _own_lists(work) as lists:
        _say(f"fetching the sources of {SOURCE} {VERSION}")
        _run(["apt-get", "-q", *lists, "update"], work, is_fatal=False)  # another archive may lack sources
        _run(["apt-get", "-q", *lists, "source", "--download-only", SOURCE], work)
    for package in (REFLECT_PACKAGE, CLIENT_PACKAGE):
        _unpack(package, work)
    (described,) = work.glob(f"{SOURCE}_*.dsc")
    if VERSION not in described.name:
        raise ClusterError(f"this Debian has {described.stem}: the tests were written for {VERSION} (bookworm)")
    _run(["dpkg-source", "--no-check", "-x", described.name, "source"], work)
    source = work / "source"
    _replace_reflect(source, work / "unpacked")
    (source / ".go" / "src" / "k8s.io").mkdir(parents=True)
    (source / ".go" / "src" / "k8s.io" / "kubernetes").symlink_to("../../..")
    _say(f"compiling {', '.join(PROGRAMS)}: some minutes")
    what = " ".join(f"cmd/{program}" for program in PROGRAMS)
    _run(["nice", "make", f"GOFLAGS={FLAGS}", f"WHAT={what}"], source, environment=_go(work))
    ready = work / "ready"
    ready.mkdir()
    for program in PROGRAMS:
        shutil.copy2(source / "_output" / "bin" / program, ready / program)
    shutil.copy2(work / "unpacked" / "usr" / "bin" / "kubectl", ready / "kubectl")
    for program in (*PROGRAMS, "kubectl"):
        _run(
            [str(ready / program), "version", "--client"]
            if program == "kubectl"
            else [str(ready / program), "--version"],
            work,
        )
    (ready / "ready").touch()
    shutil.rmtree(place(), ignore_errors=True)
    ready.rename(place())


@contextmanager
def _own_lists(work: Path) -> Iterator[list[str]]:
    """Options that make apt-get use the source packages of the machine's archives."""
    parts, lists = work / "parts", work / "lists"
    (lists / "partial").mkdir(parents=True)
    parts.mkdir()
    for file in (APT_FOLDER / "sources.list", *sorted((APT_FOLDER / "sources.list.d").glob("*"))):
        if file.is_file() and file.suffix in (".list", ".sources"):
            (parts / f"{file.stem}{file.suffix}").write_text(
                sources_of(file.read_text(), is_deb822=file.suffix == ".sources")
            )
    yield [
        *("-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={parts}"),
        *("-o", f"Dir::State::Lists={lists}", "-o", "APT::Sandbox::User=root"),
    ]


def sources_of(text: str, *, is_deb822: bool) -> str:
    """The machine's archives with their source packages."""
    if is_deb822:
        return re.sub(r"(?m)^Types:.*$", "Types: deb-src", text)
    return "".join(
        re.sub(r"^deb(?=\s)", "deb-src", line) + "\n" for line in text.splitlines() if line.startswith("deb ")
    )


def _unpack(package: str, work: Path) -> None:
    """Unpack a package into the folder `unpacked`, without installing it."""
    done = _run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package], work, is_fatal=False)
    if not done:  # the package lists are missing
        _run(["apt-get", "-q", "update"], work)
        _run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package], work)
    (archive,) = work.glob(f"{package}_*.deb")
    _run(["dpkg", "-x", archive.name, "unpacked"], work)


def _replace_reflect(source: Path, unpacked: Path) -> None:
    vendored = source / "vendor" / REFLECT
    shutil.rmtree(vendored)
    shutil.copytree(unpacked / "usr" / "share" / "gocode" / "src" / REFLECT, vendored)


def _go(work: Path) -> dict[str, str]:
    return {
        "PATH": f"{GO}:{PATH}",
        "HOME": str(work),
        "GOPATH": str(work / "source" / ".go"),
        "GOCACHE": os.environ.get("GOCACHE") or str(work / "compiled"),
        "GOPROXY": "off",
        "CGO_ENABLED": "0",
    }


def _run(command: list[str], work: Path, *, is_fatal: bool = True, environment: dict[str, str] | None = None) -> bool:
    done = subprocess.run(
        command,
        cwd=work,
        env={
            **os.environ,
            "DEBIAN_FRONTEND": "noninteractive",
            "PATH": PATH,
            "LC_ALL": "C.UTF-8",
            **(environment or {}),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if is_fatal and done.returncode != 0:
        raise ClusterError(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.returncode == 0


def _say(words: str) -> None:
    print(f"build_kubernetes: {words}", file=sys.stderr, flush=True)


def main() -> int:
    try:
        print(build())
    except ClusterError as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
