"""Finds the files that the processes of a replica make in its working folder: names, sizes and times, no content.

While it runs, only folders whose modification time changed are listed, and pauses grow with the time that takes: less
than 1 % of a CPU. At the end, all files are looked at once. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from phalanx import run_paths
from phalanx.agent import processes
from phalanx.atomic_files import read_json, write_new
from phalanx.path_patterns import is_event_file
from phalanx.working_files import WorkingFile

LOOK_S = 2.0  # between two looks at a small folder
PAUSE_FACTOR = 200  # a look that took n CPU seconds is followed by a pause of this many times n
MOST_FOLDERS = 20_000  # to watch
MOST_ENTRIES = 300_000  # to look at when the replica has ended
MOST_FILES = 20_000  # to keep in memory
MOST_SECONDS = 15.0  # for the look at the end
DEEPEST = 40
IGNORED = frozenset(["__pycache__", "node_modules", "site-packages"])
ENVIRONMENT_MARKS = frozenset(["pyvenv.cfg", "conda-meta"])  # a folder with one of these is a Python environment
ENDED_MARK = "@"  # between the id and the times of a run that has left the folder, in the name of its mark
FEW_LIVING = 2  # runs in a folder: then all marks are looked at whenever one of them ends
CLEAN_EVERY = 16  # the same with more: after so many ends
CLOCKS_S = 2.0  # that clocks of machines with the same folder may differ
RACY_NS = 2_000_000_000  # a folder may change again within the resolution of its time
_WRITER = re.compile(r"\.tfevents\.\d+\.(?P<host>.+)\.(?P<pid>\d+)\.\d+(?:\.[^.]+)?\Z")


class FolderPlace(NamedTuple):
    """A working folder, and what to skip in it: the folders of runs, other file systems."""

    path: str
    device: int
    skipped: frozenset[tuple[int, int]]
    skipped_paths: tuple[str, ...]  # with a slash at the end

    @classmethod
    def of(cls, path: str, skipped: Sequence[str]) -> FolderPlace | None:
        """None if it cannot be watched: it is missing, or is itself a part of what is skipped."""
        try:
            found = os.stat(path)
        except OSError:
            return None
        identities = frozenset(identity for folder in skipped if (identity := _identity(folder)) is not None)
        real = os.path.realpath(path)
        if (found.st_dev, found.st_ino) in identities or real == "/":
            return None
        return cls(real, found.st_dev, identities, tuple(f"{os.path.realpath(folder)}/" for folder in skipped))

    def inside(self, path: str) -> str | None:
        """The path of an open file relative to the folder; None if it is outside of it, skipped or ignored."""
        start = f"{self.path}/"
        if not path.startswith(start) or path.startswith(self.skipped_paths):
            return None
        steps = path[len(start) :].split("/")
        return None if any(step.startswith(".") or step in IGNORED for step in steps) else "/".join(steps)

    def folders_in(self, inside: str, entries: list[os.DirEntry[str]]) -> Iterator[tuple[str, os.stat_result]]:
        """The folders to enter below a listed one, with their state."""
        if inside.count("/") >= DEEPEST:
            return
        for entry in entries:
            if entry.name in IGNORED or entry.name.startswith("."):
                continue
            try:
                if not entry.is_dir(follow_symlinks=False):
                    continue
                state = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if state.st_dev == self.device and (state.st_dev, state.st_ino) not in self.skipped:
                yield f"{inside}{entry.name}/", state

    def entries(self, inside: str) -> list[os.DirEntry[str]]:
        """Empty for a Python environment, and for what cannot be read."""
        try:
            with os.scandir(os.path.join(self.path, inside)) as found:
                entries = list(found)
        except OSError:
            return []
        if inside and any(entry.name in ENVIRONMENT_MARKS for entry in entries):
            return []
        return entries


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class FolderScan(NamedTuple):
    """All files that were made or changed since a time."""

    files: list[WorkingFile]
    is_complete: bool
    more: int
    more_bytes: int


def scan(place: FolderPlace, since_ns: int, most_s: float = MOST_SECONDS) -> FolderScan:
    """Look at every file once. A file that was moved or copied here counts, too, even with an old time."""
    until = time.monotonic() + most_s
    files: list[WorkingFile] = []
    seen = more = more_bytes = 0
    waiting = [""]
    while waiting and seen < MOST_ENTRIES and time.monotonic() < until:
        inside = waiting.pop()
        entries = place.entries(inside)
        seen += len(entries) + 1
        waiting += [folder for folder, _ in place.folders_in(inside, entries)]
        for entry in entries:
            state = _new_file(entry, since_ns)
            if state is None:
                continue
            if len(files) < MOST_FILES:
                files.append(WorkingFile(f"{inside}{entry.name}", state.st_size, state.st_mtime))
            else:
                more, more_bytes = more + 1, more_bytes + state.st_size
    return FolderScan(files, not waiting, more, more_bytes)


def _new_file(entry: os.DirEntry[str], since_ns: int) -> os.stat_result | None:
    if entry.name.startswith("."):
        return None
    try:
        if not entry.is_file(follow_symlinks=False):
            return None
        state = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return state if state.st_ctime_ns >= since_ns else None


class FolderWatch:
    """Looks again and again while the replica runs: for new event files, and for what its processes write to."""

    def __init__(self, place: FolderPlace) -> None:
        self.place = place
        self.host = socket.gethostname()
        self.listed: dict[str, tuple[int, int]] = {}  # of each folder: its time, and when it was listed
        self.event_files: set[str] = set()
        self.written: set[str] = set()  # files that a process of the replica had open for writing
        self.pids: set[int] = set()
        self.foreign: set[str] = set()  # event files of processes that do not belong to the replica

    def look(self, tree: Iterable[processes.Stat]) -> float:
        """Returns the seconds until the next look."""
        began = time.thread_time()
        for process in tree:
            self.pids.add(process.pid)
            self._take_written(process.pid)
        self._take_folders()
        return max(LOOK_S, PAUSE_FACTOR * (time.thread_time() - began))

    def _take_folders(self) -> None:
        waiting = list(self.listed) or [""]
        while waiting:
            inside = waiting.pop()
            try:
                changed_ns = os.stat(os.path.join(self.place.path, inside)).st_mtime_ns
            except OSError:
                self.listed.pop(inside, None)
                continue
            known = self.listed.get(inside)
            if known is not None and known[0] == changed_ns and changed_ns < known[1] - RACY_NS:
                continue
            self.listed[inside] = (changed_ns, time.time_ns())
            entries = self.place.entries(inside)
            new = [folder for folder, _ in self.place.folders_in(inside, entries) if folder not in self.listed]
            waiting += new[: max(0, MOST_FOLDERS - len(self.listed) - len(waiting))]
            names = (entry.name for entry in entries if is_event_file(entry.name))
            self.event_files.update(f"{inside}{name}" for name in names)

    def _take_written(self, pid: int) -> None:
        folder = f"/proc/{pid}/fd"
        try:
            numbers = os.listdir(folder)
        except OSError:
            return
        for number in numbers:
            try:
                path = self.place.inside(os.readlink(f"{folder}/{number}"))
                if path is not None and path not in self.written and _is_writing(pid, number):
                    self.written.add(path)
            except OSError:
                continue

    def is_own(self, path: str) -> bool:
        """Whether a process of the replica is known to have made a file."""
        writer = writer_of(path)
        return path in self.written or (writer is not None and writer[1] in self.pids and writer[0] == self.host)

    def new_event_files(self, since_ns: int) -> list[WorkingFile]:
        found = []
        for path in sorted(self.event_files):
            try:
                state = os.lstat(os.path.join(self.place.path, path))
            except OSError:
                continue
            if state.st_ctime_ns >= since_ns and stat.S_ISREG(state.st_mode):
                is_own, writer = self.is_own(path), writer_of(path)
                found.append(WorkingFile(path, state.st_size, state.st_mtime, is_own))
                if not is_own and writer and writer[0] == self.host and os.path.exists(f"/proc/{writer[1]}"):
                    self.foreign.add(path)
        return found


def _is_writing(pid: int, number: str) -> bool:
    with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii", errors="replace") as stream:
        flags = next((line.split()[1] for line in stream if line.startswith("flags:")), "0")
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def writer_of(path: str) -> tuple[str, int] | None:
    """The host and the process in the name of an event file, if it has them."""
    found = _WRITER.search(path)
    return (found["host"], int(found["pid"])) if found else None


# runs that use the same folder ---------------------------------------------------------------------------------------


class Neighbour(NamedTuple):
    """Another run in the same working folder, and when it lived."""

    run_id: str
    began: float
    ended: float


def announce(attempt_folder: str, working: str, at: float) -> None:
    """Tell the agents of other runs that this run uses a folder. Raises OSError."""
    marks = _marks(attempt_folder, working)
    if marks is not None:
        for folder in (os.path.dirname(marks[0]), marks[0]):  # both private
            if not os.path.isdir(folder):
                os.makedirs(folder, mode=0o700, exist_ok=True)
        try:
            write_new(os.path.join(*marks), repr(at).encode(), sync=False)
        except FileExistsError:
            pass  # another replica or attempt of this run


def neighbours(attempt_folder: str, working: str) -> list[Neighbour]:
    """The other runs that have a mark: those that use the folder, or did while one that still runs was there."""
    marks = _marks(attempt_folder, working)
    if marks is None:
        return []
    folder, own = marks
    return [other for _, other in _marked(folder) if other.run_id != own]


def leave(attempt_folder: str, working: str, at: float) -> None:
    """Turn the mark of this run into that of an ended one, for runs that still use the folder; the last run removes all
    marks. Thousands of short runs may have one, so their names say when they ended, and it is not every time that those
    are removed that ended before the oldest living run began."""
    marks = _marks(attempt_folder, working)
    if marks is None:
        return
    folder, own = marks
    began = read_json(os.path.join(folder, own))
    try:
        os.rename(os.path.join(folder, own), os.path.join(folder, ENDED_MARK.join((own, repr(began), repr(at)))))
    except OSError:
        pass  # another attempt of this run has left, too
    names = [name for name in _listed(folder) if not name.startswith(".")]
    ended = sum(ENDED_MARK in name for name in names)
    if len(names) - ended <= FEW_LIVING or not ended % CLEAN_EVERY:
        found = _marked(folder)
        oldest = min((other.began for _, other in found if other.ended == float("inf")), default=float("inf"))
        for name, other in found:
            if other.ended < oldest - CLOCKS_S:
                try:
                    os.unlink(os.path.join(folder, name))
                except OSError:
                    pass


def _marked(folder: str) -> list[tuple[str, Neighbour]]:
    """The names of all marks, and what they say."""
    found = []
    for name in _listed(folder):
        run_id, *times = name.split(ENDED_MARK)
        if name.startswith("."):
            continue
        try:
            if times:
                began, ended = map(float, times)
            else:
                began = float(read_json(os.path.join(folder, name)))
                ended = _ended_at(os.path.join(os.path.dirname(os.path.dirname(folder)), "runs", run_id))
        except (TypeError, ValueError):
            continue
        found.append((name, Neighbour(run_id, began, ended)))
    return found


def _marks(attempt_folder: str, working: str) -> tuple[str, str] | None:
    """The folder in the home with a mark for each run in this working folder, and the mark of this run. None where
    there is no home, as in a pod, whose folder is its own."""
    run = os.path.dirname(os.path.dirname(os.path.dirname(attempt_folder)))
    runs, run_id = os.path.split(run)
    if os.path.basename(runs) != "runs":
        return None
    name = f"{zlib.crc32(os.fsencode(os.path.realpath(working))):08x}"  # folders that share it share too much, not less
    return os.path.join(os.path.dirname(runs), "working", name), run_id


def _ended_at(run: str) -> float:
    """When the last replica of a run has ended; infinity while one lives. A run that was removed ended long ago."""
    replicas = os.path.join(run, run_paths.REPLICAS)
    if not os.path.isdir(run):
        return 0.0
    latest = 0.0
    for replica in _listed(replicas):
        attempts = [run_paths.attempt_number(name) or 1 for name in _listed(os.path.join(replicas, replica))]
        end = read_json(os.path.join(run, run_paths.attempt_folder(replica, max(attempts, default=1)), run_paths.END))
        ended = end.get("ended_at") if isinstance(end, dict) else None
        if not isinstance(ended, float):
            return float("inf")
        latest = max(latest, ended)
    return latest or float("inf")


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


class Attribution:
    """Which files belong to this run. `own`: files that its processes wrote; `foreign`: files that others wrote."""

    def __init__(self, own: Collection[str], foreign: Collection[str], others: Sequence[Neighbour]) -> None:
        self.own = own
        self.foreign = foreign
        self.others = others
        self.own_folders = _folders_above(own) if others else set()
        self.foreign_folders = _folders_above(foreign) if others else set()

    def is_ours(self, file: WorkingFile) -> bool:
        """A file is ours if one of our processes wrote it, or if no other run used the folder at that time, or if it is
        in a folder with a file that we wrote and none that others did, or one level below such a folder."""
        path = file.path
        if path in self.own or path in self.foreign:
            return path in self.own
        if not any(other.began - 1.0 <= file.at <= other.ended + 1.0 for other in self.others):
            return True
        folder = os.path.dirname(path)
        above = os.path.dirname(folder)
        # Many runs have their folders in the top one, such as `runs` and `lightning_logs`.
        for near in (folder, above if "/" in above else ""):
            if near in self.foreign_folders:
                return False
            if near in self.own_folders:
                return True
        return False


def _folders_above(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        folder = os.path.dirname(path)
        while folder and folder not in found:
            found.add(folder)
            folder = os.path.dirname(folder)
    return found
