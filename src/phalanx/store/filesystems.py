"""Where a database file may be: SQLite's locks and shared memory work only on local disks."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from phalanx.errors import CallError

MOUNTINFO = Path("/proc/self/mountinfo")
DATABASE_FILE = "phalanx.db"

_NETWORK = re.compile(
    "9p|acfs|afs|autofs|beegfs|ceph|cifs|coda|davfs|gfs2|glusterfs|gpfs|lustre|ncpfs|nfs4?|ocfs2|orangefs|panfs|prl_fs"
    r"|pvfs2|smb2|smb3|smbfs|vboxsf|virtiofs|wekafs|fuse(\..*)?"
)
_LOCAL = "fuse.fuse-overlayfs"  # the root of a rootless container
_OCTAL = re.compile(r"\\([0-7]{3})")


def read_mountinfo(path: Path) -> str:
    """The mounted filesystems; empty where the system does not list them (macOS), so that every path counts as
    local."""
    os.path.exists(path)  # makes an automounter mount it now
    try:
        return os.fsdecode(MOUNTINFO.read_bytes())
    except OSError:
        return ""


def filesystem_of(path: Path, mountinfo: str) -> str | None:
    """The filesystem type of a path (or of its existing part); None when unknown."""
    steps = path.resolve().parts
    depth, found = 0, None
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        mounted = Path(_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), fields[4])).parts
        # among equal mount points the last one is on top
        if len(mounted) >= depth and steps[: len(mounted)] == mounted:
            depth, found = len(mounted), after.split(" ")[0]
    return found


def is_network(filesystem: str | None) -> bool:
    return filesystem is not None and filesystem != _LOCAL and _NETWORK.fullmatch(filesystem) is not None


def database_path(home: Path, mountinfo: str, environ: Mapping[str, str], uid: int) -> tuple[Path, str]:
    """The file of a home's database, and a note for the user (usually empty)."""
    filesystem = filesystem_of(home, mountinfo)
    if not is_network(filesystem):
        return home / DATABASE_FILE, ""
    from hashlib import sha256

    key = sha256(os.fsencode(home.resolve())).hexdigest()[:16]
    state = environ.get("XDG_STATE_HOME", "")
    # The XDG specification requires that relative paths are ignored.
    base = Path(state) if os.path.isabs(state) else Path(environ.get("HOME") or "~").expanduser() / ".local" / "state"
    folder = base / "phalanx" / key
    if is_network(filesystem_of(folder, mountinfo)):
        folder = Path(f"/var/tmp/phalanx-{uid}") / key  # noqa: S108 - checked by `make_private` before use
    note = (
        f"{home} is on a network filesystem ({filesystem}), where SQLite cannot lock safely: this machine's "
        f"database is {folder / DATABASE_FILE}. Another machine sees these runs after `phalanx doctor --rebuild`, "
        "or at once with PHALANX_DATABASE=postgresql://…"
    )
    return folder / DATABASE_FILE, note


def make_private(folder: Path, uid: int) -> None:
    """Create a folder and its missing parents with access for this user only; existing ones stay unchanged.

    Raises CallError when our folder in a shared location, such as /var/tmp, belongs to another user.
    """
    for step in reversed((folder, *folder.parents)):
        if not step.exists():
            step.mkdir(mode=0o700, exist_ok=True)
        if step.name == f"phalanx-{uid}" and step.parent.stat().st_mode & stat.S_ISVTX:
            found = step.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o077:
                raise CallError(
                    f"{step} is owned by or accessible to other users: remove it, or set XDG_STATE_HOME to a local disk"
                )
