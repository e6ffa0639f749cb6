"""What a replica leaves in its working folder: watched while it runs, listed and collected when it has ended.

Several replicas may share the folder: each lists what it finds, and the one that ends last collects. Standard library
only, Python 3.8+.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence

from phalanx import run_paths
from phalanx.agent import processes, working_folder
from phalanx.agent.processes import is_alive_here
from phalanx.agent.working_folder import Attribution, FolderPlace, FolderWatch, Neighbour, writer_of
from phalanx.atomic_files import read_json, write_atomic
from phalanx.path_patterns import is_event_file, is_model_file
from phalanx.stored_plan import CollectSettings
from phalanx.working_files import COLLECTED, LEFT, SHARED, WorkingFile, WorkingFiles, read_working_files

FIRST_LOOK_S = 1.0  # many commands end before
MOST_LISTED = 2_000


class LeftFiles:
    def __init__(
        self, attempt_folder: str, place: FolderPlace, outputs: str, settings: CollectSettings, siblings: Sequence[str]
    ) -> None:
        self.folder = attempt_folder
        self.place = place
        self.outputs = outputs
        self.settings = settings
        self.siblings = [folder for folder in siblings if folder != attempt_folder]
        self.watch = FolderWatch(place)
        self.since_ns = 0
        self.look_at = float("inf")
        self.is_over = False
        self.listed: list[tuple[str, bool]] = []

    @classmethod
    def of(
        cls, attempt_folder: str, working: str, outputs: str, settings: CollectSettings | None, siblings: Sequence[str]
    ) -> LeftFiles | None:
        """None if there is nothing to watch."""
        if (
            settings is None
            or not outputs
            or f"{os.path.realpath(working)}/".startswith(f"{os.path.realpath(outputs)}/")
        ):
            return None  # everything that it makes is among the outputs already
        run = os.path.dirname(os.path.dirname(os.path.dirname(attempt_folder)))
        own = [os.path.join(run, name) for name in (run_paths.REPLICAS, run_paths.JOB)]
        home = os.path.dirname(os.path.dirname(run))
        skipped = [outputs, *own, *([home] if os.path.isdir(os.path.join(home, "runs")) else [])]
        place = FolderPlace.of(working, skipped)
        return cls(attempt_folder, place, outputs, settings, siblings) if place is not None else None

    def begin(self, since_ns: int) -> None:
        """`since_ns`: the time of a file that was just written. Clocks of file servers differ."""
        self.since_ns = min(since_ns, time.time_ns())
        self.look_at = time.monotonic() + FIRST_LOOK_S
        try:
            working_folder.announce(self.folder, self.place.path, self.since_ns / 1e9)
        except OSError:
            pass  # a full disk: then a run at the same time is not recognised

    def see(self, tree: Iterable[processes.Stat], now: float) -> None:
        """Remember which processes there were. Start to look once it runs for a while: threads are slow to import."""
        self.watch.pids.update(process.pid for process in tree)
        if now >= self.look_at:
            from threading import Thread

            self.look_at = float("inf")
            try:
                Thread(target=self._work, daemon=True).start()
            except RuntimeError:
                pass  # no thread to be had: everything is found at the end

    def _work(self) -> None:
        while not self.is_over:
            pause_s = self.watch.look(processes.descendants(os.getpid()))
            self._list_event_files()
            until = time.monotonic() + pause_s
            while not self.is_over and time.monotonic() < until:
                time.sleep(min(1.0, pause_s))

    def _list_event_files(self) -> None:
        """For readers that follow them."""
        found = self.watch.new_event_files(self.since_ns)
        if [(file.path, file.is_own) for file in found] == self.listed or self.is_over:
            return
        self.listed = [(file.path, file.is_own) for file in found]
        others = self._others() if not all(file.is_own for file in found) else []
        own = {file.path for file in found if file.is_own}
        known = Attribution(own, self.watch.foreign, others)
        self._write(WorkingFiles(tuple(filter(known.is_ours, found))))

    def finish(self, is_late: Callable[[], bool]) -> None:
        """List what this replica made for sure. If no other replica is left, look for the rest, and collect."""
        self.is_over = True
        ended_at = time.time()
        if self.siblings:
            self._write(_bounded(WorkingFiles(tuple(self._own_files()), is_final=True)))
            if any(map(_is_running, self.siblings)):
                return
        found = working_folder.scan(self.place, self.since_ns)
        others = self._others() if found.files else []
        working_folder.leave(self.folder, self.place.path, ended_at)
        if not found.files:
            return
        files = [file._replace(is_own=self.watch.is_own(file.path)) for file in found.files]
        own = {file.path for file in files if file.is_own}
        lists = map(read_working_files, self.siblings)
        own.update(file.path for one in lists if one is not None for file in one.files if file.is_own)
        if others:  # then an event file with another process in its name is theirs
            self.watch.foreign.update(file.path for file in files if writer_of(file.path) and file.path not in own)
        known = Attribution(own, self.watch.foreign, others)
        files = [file._replace(state=LEFT if known.is_ours(file) else SHARED) for file in files]
        files = [file for file in files if file.state == LEFT or file.path not in self.watch.foreign]
        from phalanx.agent import collection

        folders = self.place.path, self.outputs
        files = collection.collect(folders, files, self.settings, self._copied(), is_late)
        used = tuple(other.run_id for other in others) if any(file.state == SHARED for file in files) else ()
        self._write(_bounded(WorkingFiles(tuple(files), True, found.is_complete, found.more, found.more_bytes, used)))

    def _own_files(self) -> list[WorkingFile]:
        found = []
        for path in sorted(self.watch.written.union(filter(self.watch.is_own, self.watch.event_files))):
            try:
                state = os.lstat(os.path.join(self.place.path, path))
            except OSError:
                continue
            if stat.S_ISREG(state.st_mode):
                found.append(WorkingFile(path, state.st_size, state.st_mtime, is_own=True))
        return found

    def _others(self) -> list[Neighbour]:
        """The runs that used the folder at the same time."""
        marked = working_folder.neighbours(self.folder, self.place.path)
        return [other for other in marked if other.ended >= self.since_ns / 1e9]

    def _copied(self) -> dict[str, list[WorkingFile]]:
        """What this attempt and earlier ones have copied."""
        found: dict[str, list[WorkingFile]] = {}
        replicas = os.path.dirname(os.path.dirname(self.folder))
        for replica in os.listdir(replicas):
            for attempt in os.listdir(os.path.join(replicas, replica)):
                known = read_working_files(os.path.join(replicas, replica, attempt))
                for file in known.files if known is not None else ():
                    if file.state == COLLECTED:
                        found.setdefault(file.path, []).append(file)
        return found

    def _write(self, listed: WorkingFiles) -> None:
        path = os.path.join(self.folder, run_paths.WORKING_FILES)
        try:
            write_atomic(path, json.dumps(listed.to_json()).encode(), sync=False)
        except OSError:
            pass  # a full disk costs records, not the run


def _is_running(attempt_folder: str) -> bool:
    """Whether a replica may still make files."""
    listed = read_working_files(attempt_folder)
    if (listed is not None and listed.is_final) or os.path.exists(os.path.join(attempt_folder, run_paths.END)):
        return False
    agent = read_json(os.path.join(attempt_folder, run_paths.AGENT))
    try:
        return agent is not None and (agent["boot"] != processes.boot_id() or is_alive_here(agent))
    except (TypeError, KeyError):
        return False


def _bounded(whole: WorkingFiles) -> WorkingFiles:
    """Collected files first, then results, then the others by name."""
    files = sorted(whole.files, key=_importance)
    rest = files[MOST_LISTED:]
    more_bytes = whole.more_bytes + sum(file.size for file in rest)
    return whole._replace(files=tuple(files[:MOST_LISTED]), more=whole.more + len(rest), more_bytes=more_bytes)


def _importance(file: WorkingFile) -> tuple[bool, bool, str]:
    return file.state == LEFT, not (is_model_file(file.path) or is_event_file(file.path)), file.path
