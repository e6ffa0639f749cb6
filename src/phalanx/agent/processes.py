"""The process tree of a replica, from /proc."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Usage(NamedTuple):
    """What a process tree uses now (memory, threads, processes) and has used so far (the others)."""

    cpu_s: float
    memory_mib: float
    read_mib: float
    written_mib: float
    threads: int
    processes: int


class Stat(NamedTuple):
    pid: int
    parent: int
    state: str
    ticks: int
    threads: int
    started: int
    pages: int


def read_stat(pid: int) -> Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            text = stream.read()
    except OSError:
        return None
    # the name is in brackets and may itself contain spaces and brackets
    fields = text[text.rindex(b")") + 2 :].split()
    return Stat(
        pid=pid,
        parent=int(fields[1]),
        state=fields[0].decode(),
        ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        started=int(fields[19]),
        pages=int(fields[21]),
    )


def is_alive(pid: int, started: int) -> bool:
    """Whether the process that started then is running: not another one with its pid, and not a zombie."""
    stat = read_stat(pid)
    return stat is not None and stat.started == started and stat.state not in ("Z", "X")


def descendants(root: int) -> list[Stat]:
    """All descendants of a process."""
    find = _children if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _Table().children
    found: list[Stat] = []
    waiting = [root]
    while waiting:
        below = [stat for stat in map(read_stat, find(waiting.pop())) if stat is not None]
        found += below
        waiting += [stat.pid for stat in below]
    return found


def in_container(tree: Iterable[Stat], runtime: int) -> list[Stat]:
    """The processes that do not share the mounts of the runtime of their container."""
    outside = _mounts(runtime)
    return [stat for stat in tree if _mounts(stat.pid) not in (outside, None)]


def _mounts(pid: int) -> str | None:
    """The mount namespace of a process; None if it may not be seen."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return None


def _children(pid: int) -> list[int]:
    """The kernel's list of children: the cost depends on the tree, not on the whole machine."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as stream:
                found += map(int, stream.read().split())
    except OSError:
        pass
    return found


class _Table:
    """Children for kernels without such lists: reads all processes of the machine once."""

    def __init__(self) -> None:
        self.below: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            stat = read_stat(int(name)) if name.isdigit() else None
            if stat is not None:
                self.below.setdefault(stat.parent, []).append(stat.pid)

    def children(self, pid: int) -> list[int]:
        return self.below.get(pid, [])


class UsageMeter:
    """Sums the usage of a changing tree, including processes that have ended."""

    def __init__(self) -> None:
        self.ticks: dict[int, int] = {}
        self.io: dict[int, list[int]] = {}
        self.gone_ticks = 0
        self.gone_io = [0, 0]

    def measure(self, tree: list[Stat]) -> Usage:
        now = {stat.pid for stat in tree}
        for pid in set(self.ticks) - now:
            self.gone_ticks += self.ticks.pop(pid)
            read, written = self.io.pop(pid, [0, 0])
            self.gone_io[0] += read
            self.gone_io[1] += written
        for stat in tree:
            self.ticks[stat.pid] = stat.ticks
            self.io[stat.pid] = _read_io(stat.pid) or self.io.get(stat.pid, [0, 0])
        living = [stat for stat in tree if stat.state != "Z"]
        mib = 1024.0 * 1024.0
        return Usage(
            cpu_s=(self.gone_ticks + sum(self.ticks.values())) / _TICKS,
            memory_mib=sum(stat.pages for stat in living) * _PAGE / mib,
            read_mib=(self.gone_io[0] + sum(io[0] for io in self.io.values())) / mib,
            written_mib=(self.gone_io[1] + sum(io[1] for io in self.io.values())) / mib,
            threads=sum(stat.threads for stat in living),
            processes=len(living),
        )


def _read_io(pid: int) -> list[int] | None:
    try:
        with open(f"/proc/{pid}/io", "rb") as stream:
            fields = dict(line.split(b": ") for line in stream.read().splitlines())
    except (OSError, ValueError):
        return None
    return [int(fields.get(b"read_bytes", 0)), int(fields.get(b"write_bytes", 0))]


def shared_fairly_mib(tree: Iterable[Stat]) -> float:
    """Memory with shared pages split among their users. Slower to read than the resident size, which counts them
    for each process, so it is used only when that one exceeds the limit."""
    total = 0
    for stat in tree:
        try:
            with open(f"/proc/{stat.pid}/smaps_rollup", "rb") as stream:
                line = next((row for row in stream if row.startswith(b"Pss:")), b"")
            total += int(line.split()[1]) if line else stat.pages * _PAGE // 1024
        except (OSError, ValueError):
            total += 0 if not os.path.exists(f"/proc/{stat.pid}") else stat.pages * _PAGE // 1024
    return total / 1024.0


def kernel_kills_for_memory() -> int:
    """How often the kernel has killed a process of this control group for memory, in either kind of group."""
    try:
        with open("/proc/self/cgroup") as stream:
            groups = [line.strip().split(":", 2) for line in stream]
    except OSError:
        return 0
    counts = [f"/sys/fs/cgroup{path}/memory.events" for number, _, path in groups if number == "0"]
    counts += [f"/sys/fs/cgroup/memory{path}/memory.oom_control" for _, kind, path in groups if kind == "memory"]
    return sum(map(_kills, counts))


def _kills(path: str) -> int:
    try:
        with open(path) as stream:
            return next(int(line.split()[1]) for line in stream if line.startswith("oom_kill "))
    except (OSError, StopIteration, ValueError, IndexError):
        return 0


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that none escapes."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Call in the child: when the agent is killed, the kernel kills the command."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    _libc().prctl(option, value, 0, 0, 0)


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def kill_descendants(patience_s: float = 5.0) -> None:
    """Kill and reap all descendants, also those forked meanwhile. Orphans are only found after
    `adopt_orphans`."""
    until = time.monotonic() + patience_s  # the kernel may block a process indefinitely
    while time.monotonic() < until:
        send((stat.pid for stat in descendants(os.getpid())), signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def find_marked(marks: Iterable[tuple[str, str]]) -> set[int]:
    """Processes of this user whose environment has one of NAME=value: what a run left behind, with any parent
    is."""
    wanted = {f"{name}={value}".encode() for name, value in marks}
    mine = os.getuid()
    found = set()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != mine and mine != 0:
                continue
            with open(f"/proc/{name}/environ", "rb") as stream:
                if not wanted.isdisjoint(stream.read().split(b"\0")):
                    found.add(int(name))
        except OSError:
            continue
    return found


@lru_cache(maxsize=1)
def boot_id() -> str:
    """The id of this boot of this machine; pids are only valid within it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as stream:
            return stream.read().strip().decode()
    except OSError:
        return "unknown"


def is_alive_here(process: Mapping[str, Any]) -> bool:
    """Whether a process is running on this machine, by pid, start time and boot id."""
    return process["boot"] == boot_id() and is_alive(process["pid"], process["started"])


def reap_children() -> bool:
    """Reap the children of this process that have ended; False when none is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
