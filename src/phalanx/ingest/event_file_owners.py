"""Whose event files are whose: the replica or rank whose process writes a file, as its agent saw it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.spool import JSON, Reader
from phalanx.tracking.writer_identity import this_writer

_NUMBER = re.compile(r"\.(\d+)(?=\.)")
_RANK = re.compile(r"(?:global[-_]?)?rank[-_]?(\d{1,9})", re.IGNORECASE | re.ASCII)
_NAME = re.compile(r"[a-z]+-\d{1,9}(\.\d{1,9})?\Z", re.ASCII)


class FileOwner(NamedTuple):
    replica: str  # `worker-0.1` for a process that worker-0 started
    rank: int | None


def rank_in_path(step: str) -> int | None:
    """The rank that a folder is named after, as in `rank1` or `rank_1`."""
    match = _RANK.fullmatch(step)
    return int(match[1]) if match else None


class EventFileOwners:
    """Reads what agents recorded of their processes; only when a file without an owner has been found."""

    def __init__(self, replicas: Mapping[str, Path], ranks: Mapping[str, int]) -> None:
        self.replicas = replicas
        self.ranks = dict(ranks)
        self._spools: dict[str, Reader] = {}
        self._environments: dict[str, dict[str, str]] = {}  # of the commands, by replica
        self._processes: dict[int, list[tuple[str, FileOwner]]] = {}  # host and owner, by pid
        self._files: dict[str, FileOwner] = {}  # by path on the machine of the agent

    def poll(self) -> bool:
        """Returns whether there are agents that may yet say more."""
        has_agents = False
        for name, folder in list(self.replicas.items()):
            path = folder / run_paths.SPOOL
            if name not in self._spools and path.exists():
                self._spools[name] = Reader(path)
            if name in self._spools:
                has_agents = True
                for record in self._spools[name].poll():
                    if record.kind == JSON and (b'"writers"' in record.payload or b'"event_files"' in record.payload):
                        self._take(name, record.data)
        return has_agents

    def _take(self, replica: str, read: Callable[[], Any]) -> None:
        try:
            note = read()
            host = str(note["host"])
            if "environment" in note:
                self._environments[replica] = dict(note["environment"])
            for pid, own in note.get("writers", {}).items():
                owner = self._owner(replica, {**self._environments.get(replica, {}), **own})
                known = self._processes.setdefault(int(pid), [])
                known[:] = [one for one in known if one[0] != host or one[1].replica.partition(".")[0] != replica]
                known.append((host, owner))
            for path, pid in note.get("event_files", {}).items():
                owners = [owner for where, owner in self._processes.get(int(pid), ()) if where == host]
                self._files[str(path)] = owners[-1] if owners else FileOwner(replica, self.ranks.get(replica))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return  # written by another version

    def _owner(self, replica: str, environment: Mapping[str, str]) -> FileOwner:
        """The identity that the process has for the tracking client, too."""
        writer = this_writer(environment)
        name = os.path.basename(os.path.dirname(writer.folder)) if writer is not None else replica
        if writer is None or not _NAME.match(name) or name.partition(".")[0] not in self.replicas:
            return FileOwner(replica, self.ranks.get(replica))
        if name not in self.ranks or "." in name:
            self.ranks[name] = writer.rank
        return FileOwner(name, self.ranks[name])

    def of(self, path: Path) -> FileOwner | None:
        """The owner of a file, if an agent saw its writer."""
        found = self._files.get(str(path)) or self._files.get(os.path.realpath(path))
        if found is not None:
            return found
        for match in _NUMBER.finditer(path.name):
            for host, owner in self._processes.get(int(match[1]), ()):
                if f".{host}.{match[1]}." in path.name:
                    return owner
        return None

    def of_rank(self, rank: int) -> FileOwner | None:
        return next((FileOwner(name, rank) for name, one in self.ranks.items() if one == rank), None)
