"""Runs under a real scheduler, with real agents and a real store, in a home of their own."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phalanx.agent import processes
from phalanx.backends.local.capacity import Capacity
from phalanx.home.home import Home
from phalanx.home.run_folder import RunFolder
from phalanx.scheduler.loop import Scheduler
from phalanx.store import Run, Store
from phalanx.submission.submit import submit
from tests.submission.samples import submission_of

PATIENCE_S = 90.0
ROOMY = Capacity(1000.0, 1e6, 0)


class Works:
    """A home, its store, and a scheduler that is turned by hand. The machine is pretended to be large."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self.home = Home(folder / "home")
        self.store = Store.open(self.home.path)
        self.clock = clock
        self.scheduler = self.new_scheduler()

    def new_scheduler(self, room: Capacity = ROOMY, gpus: tuple[str, ...] = ()) -> Scheduler:
        """Another one takes over; nobody tells it anything."""
        if hasattr(self, "scheduler"):
            self.scheduler.close()
        self.scheduler = Scheduler(self.home, self.store, self.clock)
        self.scheduler.room, self.scheduler.gpus = room, gpus
        return self.scheduler

    def submit(
        self,
        command: str,
        *,
        priority: int = 0,
        workers: int = 0,
        n_ps: int = 0,
        framework: str | None = None,
        master_task: str | None = None,
        **environment: Any,
    ) -> str:
        replicas: dict[str, Any] = {"n_workers": workers}
        if n_ps:
            replicas["n_ps"] = n_ps
        if master_task:
            replicas["master_task"] = master_task
        if workers and "resources" in environment:
            replicas["default_worker"] = {"resources": environment["resources"]}
        content = {
            "version": 1,
            "kind": "experiment",
            "framework": framework or ("tensorflow" if n_ps else "pytorch"),
            "environment": {**environment, "replicas": replicas},
            "run": {"cmd": command},
        }
        asked = submission_of(content, folder=self.folder, environment=os.environ, priority=priority)
        return submit(self.home, self.store, asked).id

    def discard_queue(self) -> None:
        """Forget the runs that wait: quicker than to stop each."""
        for run in self.store.runs("status:created", limit=None):
            shutil.rmtree(self.run_folder(run.id).path)
            self.store.delete(run.id)

    def close(self) -> None:
        """Whatever a test left is ended, so that none outlives it."""
        for run in self.store.active():
            self.run_folder(run.id).ask_to_stop("the test is over")
        try:
            self.turn_until(lambda: not self.store.active(), 20.0)
        finally:
            self.scheduler.close()
            self.store.close()

    # looking -----------------------------------------------------------------------------------------------------

    def turn_until(self, condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline, f"waited too long: {self.store.active()}"
            self.scheduler.run_pass()
            time.sleep(0.02)

    def settle(self, *run_ids: str) -> Run:
        """Turn until these runs are over; answers the last one."""
        self.turn_until(lambda: all(self.run(run_id).is_done for run_id in run_ids))
        return self.run(run_ids[-1])

    def until(self, run_id: str, status: str) -> None:
        self.turn_until(lambda: self.run(run_id).status == status)

    def says(self, run_id: str, word: str, replica: str = "master-0", attempt: int = 1) -> None:
        """Turn until a replica has printed something."""
        self.turn_until(lambda: word in self.log(run_id, replica, attempt))

    def run(self, run_id: str) -> Run:
        return self.store.find(run_id)

    def run_folder(self, run_id: str) -> RunFolder:
        return self.home.run(run_id)

    def place(self, run_id: str, replica: str = "master-0", attempt: int = 1) -> Path:
        return self.run_folder(run_id).path / "replicas" / replica / f"attempt-{attempt}"

    def log(self, run_id: str, replica: str = "master-0", attempt: int = 1) -> str:
        try:
            return (self.place(run_id, replica, attempt) / "log").read_text()
        except FileNotFoundError:
            return ""

    def end(self, run_id: str, replica: str = "master-0", attempt: int = 1) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.place(run_id, replica, attempt) / "end.json").read_bytes())
        return found

    def agent(self, run_id: str, replica: str = "master-0", attempt: int = 1) -> int:
        return int(json.loads((self.place(run_id, replica, attempt) / "agent.json").read_bytes())["pid"])

    def statuses(self, run_id: str) -> list[str]:
        """By the history; the store must say the same."""
        history = self.run_folder(run_id).history()
        assert history == self.store.statuses(run_id)
        assert [change.at for change in history] == sorted(change.at for change in history)
        return [change.status for change in history]


def alive(*run_ids: str) -> set[int]:
    """What lives of runs, whoever its parent is."""
    marks = [(name, run_id) for run_id in run_ids for name in ("PHALANX_RUN_ID", "PHALANX_AGENT_OF")]
    found = {pid: processes.read_stat(pid) for pid in processes.find_marked(marks)}
    return {pid for pid, stat in found.items() if stat is not None and stat.state != "Z"}
