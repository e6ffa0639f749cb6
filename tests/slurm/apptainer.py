"""A real Apptainer, and a small image. Debian has it only in its development release, sid: its files are unpacked into
a folder of their own, with the C library that they need, and nothing else of the machine is changed."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.slurm import debian

CACHE = Path.home() / ".cache" / "phalanx" / "apptainer"
TOOLS = {"patchelf": "patchelf", "mksquashfs": "squashfs-tools", "squashfuse_ll": "squashfuse"}
PACKAGES = ("apptainer", "libc6", "libseccomp2", "libsqlite3-0")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
PROGRAMS = ("usr/bin/apptainer", f"{LIBRARIES}/apptainer/bin/starter")
FOLDERS = ("usr", "etc", "tmp", "proc", "sys", "dev", "opt", "root", "home", "var/tmp")
WORDS = "/opt/words"  # a file that only the image has


def variables(path: str) -> dict[str, str]:
    """With Apptainer on the PATH. The image takes its programs from the machine, and Apptainer needs no rights of root,
    which a container may not have."""
    return {"PATH": f"{installed() / 'usr' / 'bin'}:{path}", "APPTAINER_USERNS": "1", "APPTAINER_BIND": "/usr"}


def installed() -> Path:
    """The folder of Apptainer; it is made by the first call."""
    debian.install([package for tool, package in TOOLS.items() if shutil.which(tool, path=debian.PATH) is None])
    if not CACHE.exists():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE.parent) as made:
            root = Path(made) / "root"
            debian.unpack(PACKAGES, root, release="sid")
            _relocate(root)
            root.rename(CACHE)
    return CACHE


def write_image(image: Path, *, is_unpacked: bool = False) -> None:
    """An image with the folders that every image has, and one file."""
    with tempfile.TemporaryDirectory() as made:
        for name in FOLDERS:
            (Path(made) / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (Path(made) / name).symlink_to(f"usr/{name}")
        for name in ("etc/passwd", "etc/group"):
            (Path(made) / name).touch()
        Path(made + WORDS).write_text("from the image\n")
        debian.call(str(installed() / PROGRAMS[0]), "build", *(["--sandbox"] if is_unpacked else []), str(image), made)


def _relocate(root: Path) -> None:
    """Makes Apptainer use the libraries and settings beside it. It looks for settings two folders above its own."""
    libraries = CACHE / LIBRARIES
    for program in PROGRAMS:
        loader = ("--set-interpreter", str(libraries / "ld-linux-x86-64.so.2"))
        debian.call("patchelf", "--force-rpath", *loader, "--set-rpath", str(libraries), str(root / program))
    (root / "usr" / "var/lib/apptainer/mnt/session").mkdir(parents=True)
    for name, place in (("etc", "../etc"), ("lib/etc", "../../etc"), ("lib/var", "../var")):
        (root / "usr" / name).symlink_to(place)
