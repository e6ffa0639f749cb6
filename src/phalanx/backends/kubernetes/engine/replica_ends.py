"""The ends of an attempt's replicas: those that agents reported, and those derived from the cluster."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from phalanx import atomic_files, run_paths
from phalanx.agent.supervisor import ENDS_KEPT
from phalanx.backends.kubernetes.engine.pod_logs import log_size
from phalanx.backends.kubernetes.observe.states import PodEnd
from phalanx.ends import End, read_end
from phalanx.home.attempts import AttemptFolder


class ReplicaEnds:
    """The recorded ends of an attempt's replicas.

    The last one is held back until nothing of the attempt is left in the cluster: it ends the run, after which no
    process would clean up. It is on disk all the same.
    """

    def __init__(self, attempt_folder: AttemptFolder) -> None:
        self.attempt_folder = attempt_folder
        self.files = {
            name: str(attempt_folder.folder(name) / run_paths.END) for name in attempt_folder.replicas
        }  # read very often
        self.ended: dict[str, End] = {}
        self.held: dict[str, End] = {}
        self.guard = threading.Lock()
        for name in attempt_folder.replicas:
            end = End.from_json(atomic_files.read_json(attempt_folder.folder(name) / run_paths.END_HELD))
            if end is not None:
                self.held[name] = end

    @property
    def is_home(self) -> bool:
        """Return whether the ends of all replicas are recorded."""
        return len({*self.ended, *self.held}) == len(self.attempt_folder.replicas)

    @property
    def all(self) -> dict[str, End]:
        return {**self.held, **self.ended}

    def refresh(self) -> None:
        for name in [name for name in self.files if name not in self.ended]:
            end = read_end(self.attempt_folder.folder(name)) if os.path.exists(self.files[name]) else None
            if end is not None:
                self.ended[name] = end

    def release(self) -> None:
        """Publish the end that was held back."""
        with self.guard:
            for name in self.held:
                with suppress(FileNotFoundError):
                    (self.attempt_folder.folder(name) / run_paths.END_HELD).rename(self.files[name])
        self.refresh()

    def missing(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self.ended and name not in self.held]

    def has_agent(self, name: str) -> bool:
        return (self.attempt_folder.folder(name) / run_paths.AGENT).exists()

    def write_agent(self, name: str, pod: str) -> None:
        folder = self.attempt_folder.folder(name)
        if not self.has_agent(name):
            atomic_files.make_private(folder, self.attempt_folder.run_folder)
            atomic_files.write_atomic(folder / run_paths.AGENT, json.dumps({"pid": 0, "pod": pod}).encode(), sync=False)

    def write(self, name: str, outcome: PodEnd, lines: Sequence[str] = ()) -> None:
        """Write an end in the agent's format. Does nothing if there is one."""
        end = End(
            outcome.cause,
            outcome.code,
            outcome.signal,
            outcome.message,
            replica=name,
            attempt=self.attempt_folder.attempt,
            started_at=outcome.started_at,
            ended_at=outcome.ended_at or time.time(),
            host=outcome.host,
            log_bytes=log_size(self.attempt_folder, name),
            last_lines=tuple(lines)[-ENDS_KEPT:],
        )
        self.take(name, end)

    def write_all(self, names: Iterable[str], outcome: PodEnd, lines: Sequence[str] = ()) -> None:
        for name in self.missing(names):
            self.write(name, outcome, lines)

    def take(self, name: str, end: End) -> None:
        """Record an end once. Does nothing if there is one."""
        folder = self.attempt_folder.folder(name)
        atomic_files.make_private(folder, self.attempt_folder.run_folder)
        with self.guard:
            self.refresh()
            if not self.missing([name]):
                return
            if len(self.missing(self.files)) > 1:
                atomic_files.write_atomic(folder / run_paths.END, json.dumps(end.to_json()).encode())
                self.ended[name] = end
            else:
                atomic_files.write_atomic(folder / run_paths.END_HELD, json.dumps(end.to_json()).encode())
                self.held[name] = end
