"""`phalanx ps` over 100,000 finished runs, with filter and sort, beside a bare `python -c pass`."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from measuring import PHALANX, PYTHON, interleaved
from phalanx.store import Run, StatusChange, Store
from table import Beside, Row, at_most

RUNS = 100_000
ROUNDS = 7
MOST_S = 0.5


def fill(home: Path) -> None:
    """Runs as they are after a few years: five params, three tags and three metrics each."""
    chance = random.Random(7)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    with Store.open(home) as store:
        for first in range(0, RUNS, 2_000):
            with store.transaction():
                for number in range(first, first + 2_000):
                    add(store, number, begin + timedelta(minutes=number), chance)


def add(store: Store, number: int, at: datetime, chance: random.Random) -> None:
    run = Run(
        id=f"r{number:09d}", project=f"project-{number % 9}", kind="experiment", name=f"run-{number}", description=None,
        framework="pytorch", backend="native", user="me", status="created", reason="", attempt=1, priority=0,
        created_at=at, updated_at=at, started_at=at, finished_at=None, original=None, cloning=None, group=None,
        commit=None, tags=(f"team-{number % 5}", "nightly", f"t{number % 50}"),
        params={"lr": chance.random(), "epochs": number % 90, "depth": number % 7, "optimizer": "adam", "seed": number},
        summary={"loss": chance.random(), "accuracy": chance.random(), "epoch": float(number % 90)},
    )  # fmt: skip
    store.add(run)
    status = "failed" if number % 10 == 0 else "succeeded"
    store.record(StatusChange(run.id, 1, 1, status, "finished", at + timedelta(minutes=5)))


def lists() -> Iterator[Row]:
    queries = {
        "all": [],
        "by status and metric, sorted by it": ["-q", "status:succeeded, metric.loss:<0.1", "-s", "metric.loss"],
        "by tag and param, sorted by a metric": ["-q", "tags:nightly, params.lr:>0.9", "-s", "-metric.accuracy"],
    }
    with tempfile.TemporaryDirectory() as name:
        os.environ["PHALANX_HOME"] = name
        fill(Path(name))
        commands = {"": [*PYTHON, "-c", "pass"]}
        commands |= {what: [*PHALANX, "ps", *flags] for what, flags in queries.items()}
        found = interleaved(commands, ROUNDS)
    floor = Beside("python -c pass", found.pop("").cpu_s)
    for what, cost in found.items():
        yield Row(f"ps of {RUNS:,} runs, {what}, CPU", cost.cpu_s, "s", floor, aim=at_most(MOST_S))


PARTS = {"lists": lists}
