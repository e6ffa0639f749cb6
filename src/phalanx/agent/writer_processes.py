"""Which processes of a replica write event files of TensorBoard, so that the files of several ranks are kept apart.

The name of such a file has the host and mostly the pid of its writer; the agent records whose process that is, and the
variables that say its rank. For names without a pid it records which process holds the file open.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from phalanx import launched_ranks
from phalanx.agent.processes import Stat

VARIABLES = (
    *("PHALANX_TRACK", "PHALANX_RANK", "PHALANX_LOCAL_RANK", "PHALANX_LAUNCH", "PHALANX_CLUSTER", "PHALANX_OUTSIDE"),
    *(launched_ranks.AT_START, *launched_ranks.VARIABLES),
)
MARK = ".tfevents."
MOST = 5000  # processes and files of an attempt
LOOKS = 5  # at the environment of a process: right after a fork it is still that of its parent
OFTEN_S = 60.0  # how long open files are looked at every time
SELDOM_S = 5.0  # and how often afterwards


class WriterProcesses:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self.base = {name: environment[name] for name in VARIABLES if name in environment}
        self.known: dict[tuple[int, int], dict[str, str]] = {}
        self.looks: dict[tuple[int, int], int] = {}
        self.files: set[str] = set()
        self.began: float | None = None
        self.files_at = 0.0

    def look(self, tree: list[Stat], now: float) -> dict[str, Any]:
        """A note on what is new; empty if nothing is."""
        living = [stat for stat in tree if stat.state != "Z"]
        is_first = self.began is None
        self.began = now if self.began is None else self.began
        note: dict[str, Any] = {}
        processes = self._new_processes(living)
        if processes:
            note["writers"] = processes
        if now >= self.files_at:
            self.files_at = now if now - self.began < OFTEN_S else now + SELDOM_S
            files = self._new_files(living)
            if files:
                note["event_files"] = files
        if note:
            note["host"] = socket.gethostname()
            if is_first:
                note["environment"] = self.base
        elif is_first:
            self.began = None  # nothing was told yet
        return note

    def _new_processes(self, tree: list[Stat]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for stat in tree:
            key = (stat.pid, stat.started)
            if self.looks.get(key, 0) >= LOOKS or (key not in self.known and len(self.known) >= MOST):
                continue
            self.looks[key] = self.looks.get(key, 0) + 1
            own = self._environment(stat.pid)
            if own is not None and self.known.get(key) != own:
                self.known[key] = own
                found[str(stat.pid)] = own
        return found

    def _environment(self, pid: int) -> dict[str, str] | None:
        """The variables that differ from those of the command."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as stream:
                pairs = [entry.partition(b"=") for entry in stream.read(1 << 20).split(b"\0")]
        except OSError:
            return None
        named = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
        return {name: named[name] for name in VARIABLES if name in named and named[name] != self.base.get(name)}

    def _new_files(self, tree: list[Stat]) -> dict[str, int]:
        found: dict[str, int] = {}
        for stat in tree:
            folder = f"/proc/{stat.pid}/fd"
            try:
                names = os.listdir(folder)
            except OSError:
                continue
            for name in names:
                try:
                    path = os.readlink(f"{folder}/{name}")
                except OSError:
                    continue
                if MARK in path and path not in self.files and len(self.files) < MOST:
                    self.files.add(path)
                    found[path] = stat.pid
        return found
