"""Where databases may lie."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from phalanx.errors import CallError
from phalanx.store.filesystems import database_path, filesystem_of, is_network, make_private, read_mountinfo

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 27 0:40 / /home rw,relatime shared:2 master:3 - nfs4 server:/export/home rw,vers=4.2
31 30 0:41 / /home/local\\040disk rw,relatime - xfs /dev/vdb rw
32 27 0:42 / /scratch rw,relatime - lustre mds@tcp:/scratch rw
33 27 0:43 / /auto rw,relatime - autofs map rw
34 27 0:44 / /auto rw,relatime - ext4 /dev/vdc rw
a line that means nothing
35 27 0:45 / /mnt/sshfs rw - fuse.sshfs me@there: rw
"""


@pytest.mark.parametrize(
    ("path", "filesystem"),
    [
        ("/", "ext4"),
        ("/opt/phalanx", "ext4"),
        ("/home", "nfs4"),
        ("/home/ann/.phalanx", "nfs4"),
        ("/homes/ann", "ext4"),
        ("/home/local disk/ann", "xfs"),
        ("/home/local", "nfs4"),
        ("/scratch/../home/x", "nfs4"),
        ("/auto/x", "ext4"),
        ("/mnt/sshfs/deep/down", "fuse.sshfs"),
    ],
)
def test_the_longest_mount_decides_and_of_equals_the_last(path: str, filesystem: str) -> None:
    assert filesystem_of(Path(path), MOUNTS) == filesystem


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/scratch/ann")
    assert filesystem_of(tmp_path / "link" / "phalanx", MOUNTS) == "lustre"


def test_nothing_is_known_without_mounts() -> None:
    assert filesystem_of(Path("/home/ann"), "") is None
    assert not is_network(None)


@pytest.mark.parametrize(
    "filesystem",
    [
        "nfs",
        "nfs4",
        "lustre",
        "gpfs",
        "beegfs",
        "ceph",
        "cifs",
        "smb3",
        "9p",
        "fuse",
        "fuse.sshfs",
        "fuse.ceph",
        "virtiofs",
    ],
)
def test_filesystems_of_networks(filesystem: str) -> None:
    assert is_network(filesystem)


@pytest.mark.parametrize(
    "filesystem", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.fuse-overlayfs"]
)
def test_filesystems_of_this_machine(filesystem: str) -> None:
    assert not is_network(filesystem)


def test_this_machine_says_its_mounts() -> None:
    assert filesystem_of(Path("/proc/self"), read_mountinfo(Path("/proc/self"))) == "proc"


def test_a_home_on_a_local_disk_has_its_database_itself() -> None:
    assert database_path(Path("/opt/p"), MOUNTS, {"HOME": "/home/ann"}, 7) == (Path("/opt/p/phalanx.db"), "")


def test_a_home_on_a_network_has_it_in_the_local_state_folder() -> None:
    path, note = database_path(Path("/scratch/ann"), MOUNTS, {"HOME": "/root"}, 7)
    assert path.parent.parent == Path("/root/.local/state/phalanx")
    assert path.name == "phalanx.db"
    assert "/scratch/ann is on a network filesystem (lustre)" in note
    assert str(path) in note
    elsewhere, _ = database_path(Path("/scratch/ann"), MOUNTS, {"HOME": "/root", "XDG_STATE_HOME": "/opt/state"}, 7)
    assert elsewhere.parent.parent == Path("/opt/state/phalanx")
    assert elsewhere.parent.name == path.parent.name


def test_a_relative_state_folder_is_ignored() -> None:
    path, _ = database_path(Path("/scratch/ann"), MOUNTS, {"HOME": "/root", "XDG_STATE_HOME": "state"}, 7)
    assert path.is_relative_to("/root/.local/state")


def test_when_the_state_folder_is_on_the_network_too_it_is_in_var_tmp() -> None:
    path, note = database_path(Path("/home/ann/.phalanx"), MOUNTS, {"HOME": "/home/ann"}, 7)
    assert path.parent.parent == Path("/var/tmp/phalanx-7")
    assert str(path) in note


def test_two_homes_have_two_databases_and_two_ways_to_one_home_have_one() -> None:
    def of(home: str) -> Path:
        return database_path(Path(home), MOUNTS, {"HOME": "/home/ann"}, 7)[0]

    assert of("/scratch/a") != of("/scratch/b")
    assert of("/scratch/a") == of("/scratch/x/../a")


def test_folders_are_made_for_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(tmp_path / "a" / "b" / "c", os.getuid())
    finally:
        os.umask(before)
    for step in ("a", "a/b", "a/b/c"):
        assert stat.S_IMODE((tmp_path / step).stat().st_mode) == 0o700
    make_private(tmp_path / "a" / "b" / "c", os.getuid())


def test_a_folder_that_stood_there_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private(tmp_path, os.getuid())
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_shared_folder_of_our_own_is_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    for _ in range(2):
        make_private(tmp_path / f"phalanx-{os.getuid()}" / "0123456789abcdef", os.getuid())


@pytest.mark.parametrize("trap", ["open", "link"])
def test_a_shared_folder_that_another_user_may_have_made_is_refused(tmp_path: Path, trap: str) -> None:
    tmp_path.chmod(0o1777)
    ours = tmp_path / f"phalanx-{os.getuid()}"
    if trap == "open":
        ours.mkdir(mode=0o777)
        ours.chmod(0o777)
    else:
        (tmp_path / "theirs").mkdir(mode=0o700)
        ours.symlink_to(tmp_path / "theirs")
    with pytest.raises(CallError, match="is owned by or accessible to other users"):
        make_private(ours / "0123456789abcdef", os.getuid())
    assert not list(tmp_path.glob("*/*"))
