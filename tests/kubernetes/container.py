"""Inside the namespaces of a container: lays out its files, becomes its user, and turns into its command.

    python container.py <specification.json>

Started by the kubelet in the network of the pod; makes the other namespaces, and stays outside to tell how the first
process in them ended, as a shell tells it. The root is empty memory, into which the image (folders of this machine,
read only) and the volumes are mounted. Standard library only: it must start fast.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import stat
import sys
from typing import Any

BIND, RECURSIVE, PRIVATE, REMOUNT, READ_ONLY, NO_SETUID = 4096, 16384, 1 << 18, 32, 1, 2
SPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000  # mounts, host name, messages, processes
NO_NEW_PRIVILEGES, PARENT_DEATH_SIGNAL = 38, 1
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
CANNOT_START, NOT_FOUND = 126, 127
LIBC = ctypes.CDLL(None, use_errno=True)


def outside(specification: str) -> int:
    with open(specification) as file:
        wanted = json.load(file)
    if LIBC.unshare(SPACES) != 0:
        print(f"container: no namespaces: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return CANNOT_START
    first = os.fork()
    if first == 0:
        LIBC.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        try:
            inside(wanted)
        except OSError as error:
            print(f"container: {error}", file=sys.stderr, flush=True)
        os._exit(CANNOT_START)
    nowhere = os.open("/dev/null", os.O_RDWR)
    for number in range(3):  # whoever reads what the container says shall see its end
        os.dup2(nowhere, number)
    code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    return 128 - code if code < 0 else code


def inside(wanted: dict[str, Any]) -> None:
    _join(wanted["groups"])
    socket.sethostname(wanted["hostname"])
    _mount("none", "/", None, RECURSIVE | PRIVATE)
    root = wanted["root"]
    _mount("tmpfs", root, "tmpfs", 0, "mode=0755")
    for source, link in wanted["links"].items():
        os.symlink(link, root + source)
    for source, target in wanted["image"]:
        _bind(source, root + target, is_read_only=True)
    _devices(root)
    os.makedirs(root + "/proc", exist_ok=True)
    _mount("proc", root + "/proc", "proc", NO_SETUID)
    os.makedirs(root + "/tmp")
    os.chmod(root + "/tmp", 0o1777)
    for mount in wanted["mounts"]:
        _bind(mount["source"], root + mount["target"], is_read_only=mount["read_only"])
    if wanted["is_root_read_only"]:
        _mount("none", root, None, REMOUNT | BIND | READ_ONLY)
    os.chroot(root)
    os.makedirs(wanted["working"], exist_ok=True)
    os.chdir(wanted["working"])
    _become(wanted["user"])
    _turn_into(wanted["command"], wanted["environment"])


def _join(groups: list[str]) -> None:
    """Groups that count memory; before anything is allocated."""
    for group in groups:
        with open(f"{group}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))


def _devices(root: str) -> None:
    _make(root + "/dev", is_folder=True)
    _mount("tmpfs", root + "/dev", "tmpfs", 0, "mode=0755")
    for name in DEVICES:
        _bind(f"/dev/{name}", f"{root}/dev/{name}", is_read_only=False)
    os.mkdir(root + "/dev/shm")
    os.chmod(root + "/dev/shm", 0o1777)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{root}/dev/{name}")
    os.symlink("/proc/self/fd", root + "/dev/fd")


def _become(user: dict[str, Any]) -> None:
    os.setgroups(user["groups"])
    os.setgid(user["gid"])
    os.setuid(user["uid"])
    LIBC.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)  # a change of user forgets it
    if user["no_new_privileges"]:
        LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def _turn_into(command: list[str], environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    try:
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        print(f"exec: {command[0]!r}: executable file not found in $PATH", file=sys.stderr, flush=True)
        os._exit(NOT_FOUND)


def _bind(source: str, target: str, *, is_read_only: bool) -> None:
    _make(target, is_folder=stat.S_ISDIR(os.stat(source).st_mode))
    _mount(source, target, None, BIND | RECURSIVE)
    if is_read_only:
        _mount("none", target, None, REMOUNT | BIND | READ_ONLY)


def _make(target: str, *, is_folder: bool) -> None:
    if is_folder:
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind, options)]
    if LIBC.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mounting {source}: {os.strerror(code)}", target)


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(outside(sys.argv[1]))
