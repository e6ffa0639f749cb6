"""`phalanx ps` over 100,000 finished runs, with filter and sort, beside a bare `python -c pass`."""

from __future__ import annotations

import os
import random
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from measuring import PHALANX, PYTHON, interleaved_s, report
from phalanx.store import Run, StatusChange, Store

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


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ["PHALANX_HOME"] = name
        began = time.perf_counter()
        fill(home)
        print(f"{RUNS} runs added in {time.perf_counter() - began:.0f} s")
        queries = {
            "ps": [],
            "ps, by status and metric, sorted by it": ["-q", "status:succeeded, metric.loss:<0.1", "-s", "metric.loss"],
            "ps, by tag and param, sorted by a metric": [
                "-q",
                "tags:nightly, params.lr:>0.9",
                "-s",
                "-metric.accuracy",
            ],
        }
        commands = {"python -c pass": [*PYTHON, "-c", "pass"]}
        commands |= {name: [*PHALANX, "ps", *flags] for name, flags in queries.items()}
        medians = interleaved_s(commands, ROUNDS)
    floor = medians.pop("python -c pass")
    for what, seconds in medians.items():
        report(f"{what} ({seconds / floor:.0f}x floor)", f"{seconds:.2f} s", f"{MOST_S} s", met=seconds <= MOST_S)


if __name__ == "__main__":
    main()
