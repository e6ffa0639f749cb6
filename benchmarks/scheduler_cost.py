"""CPU time of a pass of the scheduler over 10,000 unfinished runs of an engine when nothing has changed.

The engine answers from memory: what is measured is us, not a cluster. Beside one bare look: the same rows of the
database, read once.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from phalanx import run_paths
from phalanx.backends.contract import RUNNING, WAITING, Engine, Observation
from phalanx.home.home import Home
from phalanx.plan.framework_checks import load
from phalanx.scheduler.engine_executor import EngineExecutor
from phalanx.scheduler.loop import Scheduler
from phalanx.store import StatusChange, Store
from phalanx.store.statuses import Status
from phalanx.submission.model import CodeSource, Submission
from phalanx.submission.submit import submit
from table import Beside, Row, at_most

RUNS = int(os.environ.get("RUNS", "10_000"))
WATCH_S = 20.0
MOST_S = 0.1
FILE = b"version: 1\nkind: job\nrun: {cmd: 'true'}\n"


class Memory(Engine):
    """Knows one job of each run."""

    name = "slurm"
    slowest_poll_s = 30.0

    def __init__(self, state: str, run_ids: Collection[str]) -> None:
        self.state, self.run_ids = state, run_ids

    def submit(self, *_: Any, **__: Any) -> str:
        raise AssertionError("all runs have been submitted")

    def observe(self, handles: Collection[str]) -> dict[str, Observation]:  # noqa: ARG002
        return {f"slurm:{run_id}": Observation(self.state, run_id=run_id, attempt=1) for run_id in self.run_ids}

    def cancel(self, handles: Collection[str]) -> None:  # noqa: ARG002
        raise AssertionError("no run ends")


def copies(home: Home, store: Store, state: str, folder: Path) -> list[str]:
    """Copies of a submitted run, all of them waiting or running."""
    spec, tree = load([("file.yml", FILE)], {})
    asked = Submission(spec=spec, tree=tree, environment=dict(os.environ), code=CodeSource(folder), on="slurm")
    first = submit(home, store, asked)
    status, now = Status.RUNNING if state == RUNNING else Status.SCHEDULED, datetime.now(UTC)
    template = home.run(first.id)
    statuses = [Status.SCHEDULED, *([Status.RUNNING] if state == RUNNING else [])]
    for number, one in enumerate(statuses, 2):
        template.append(StatusChange(first.id, number, 1, one, "attempt 1", now))
    if state == RUNNING:
        replica = template.path / run_paths.attempt_folder("master-0", 1)
        replica.mkdir(parents=True)
        (replica / run_paths.AGENT).write_text("{}")
        (template.path / run_paths.facts_file(1)).write_text("{}")
    found = []
    with store.transaction():
        for number in range(RUNS):
            run_id = f"{number:012x}"
            shutil.copytree(template.path, home.run(run_id).path)
            record = home.run(run_id).path / run_paths.handle_file(1)
            record.parent.mkdir(exist_ok=True)
            content = {"handle": f"slurm:{run_id}", "at": 1.0, "boot": "", "array": "", "after": []}
            record.write_text(json.dumps(content))
            store.add(first._replace(id=run_id, status=status, reason="attempt 1", attempt=1, params={"lr": 0.1}))
            store.record(StatusChange(run_id, len(statuses) + 1, 1, status, "attempt 1", now))
            found.append(run_id)
    store.delete(first.id)
    shutil.rmtree(template.path)
    return found


def watched(state: str) -> tuple[float, float, float]:
    """CPU seconds of the median pass and of all passes in a minute; and of one reading of the rows."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home = Home(Path(name) / "home")
        with Store.open(home.path) as store:
            engine = Memory(state, copies(home, store, state, Path(name)))
            scheduler = Scheduler(home, store)
            executor = EngineExecutor(engine)
            scheduler.executors.known.append(("slurm", None, executor))
            scheduler.executors.of_runs = dict.fromkeys(engine.run_ids, executor)
            try:
                for _ in range(3):  # reads all folders, and writes what it has seen
                    scheduler.run_pass()
                took, began = [], time.monotonic()
                while (now := time.monotonic()) < began + WATCH_S:
                    before = time.thread_time()
                    assert scheduler.run_pass() == RUNS
                    took.append(time.thread_time() - before)
                    time.sleep(max(0.25, now + 0.25 - time.monotonic()))
            finally:
                scheduler.close()
            floor = bare_look(home.path / "phalanx.db")
    return statistics.median(took), max(took), floor


def bare_look(path: Path) -> float:
    """CPU time of reading the ids and statuses of these runs, without any of our code."""
    database: Any = sqlite3.connect(path)
    before = time.thread_time()
    assert len(database.execute("SELECT id, status, attempt FROM runs").fetchall()) == RUNS
    took = time.thread_time() - before
    database.close()
    return took


def passes() -> Iterator[Row]:
    for state in (WAITING, RUNNING):
        typical, worst, bare = watched(state)
        floor = Beside("one bare look at the rows", bare)
        what = f"a pass over {RUNS:,} {state} runs of an engine"
        yield Row(f"{what}, median, CPU", typical, "s", floor, aim=at_most(MOST_S))
        yield Row(f"{what}, slowest, CPU", worst, "s", floor)


PARTS = {"passes": passes}
