"""Lists of 100,000 and 1,000,000 finished runs, with filter and sort.

`phalanx ps` is beside a bare `python -c pass`, the REST list beside a request for the session.
"""

from __future__ import annotations

import os
import random
import sqlite3
import statistics
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from measuring import PHALANX, PYTHON, interleaved
from phalanx.store import Run, StatusChange, Store
from table import Beside, Row, at_most

SIZES = (100_000, 1_000_000)
ROUNDS = 5
MOST_S = 0.5


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


_AT = f"{int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())}000000 + i * 60000000"  # a run a minute
_STATUS = "CASE WHEN i % 10 = 0 THEN 'failed' ELSE 'succeeded' END"
_CHANCE = "((random() & 9007199254740991) / 9007199254740992.0)"
FILL = f"""
INSERT INTO runs (key, id, project, status, created_at, updated_at, started_at, finished_at, attempt, priority, kind,
    name, framework, backend, "user", reason)
    SELECT i + 1, lower(hex(randomblob(4))) || printf('%08d', i), 'project-' || (i % 9), {_STATUS}, {_AT},
        {_AT} + 300000000, {_AT}, {_AT} + 300000000, 1, 0, 'experiment', 'run-' || i, 'pytorch', 'native', 'me',
        'finished' FROM numbers;
INSERT INTO statuses (run_key, number, attempt, status, at, reason)
    SELECT i + 1, 1, 1, {_STATUS}, {_AT} + 300000000, 'finished' FROM numbers;
INSERT INTO tags (run_key, tag, number)
    SELECT i + 1, CASE number WHEN 0 THEN 'team-' || (i % 5) WHEN 1 THEN 'nightly' ELSE 't' || (i % 50) END, number
    FROM numbers, (SELECT 0 AS number UNION ALL SELECT 1 UNION ALL SELECT 2);
INSERT INTO params (run_key, name, number, is_json, text)
    SELECT i + 1, name, value, value IS NOT NULL, coalesce(value, 'adam') FROM (
        SELECT i, name, CASE name WHEN 'lr' THEN {_CHANCE} WHEN 'epochs' THEN i % 90 WHEN 'depth' THEN i % 7
            WHEN 'seed' THEN i END AS value
        FROM numbers, (SELECT 'depth' AS name UNION ALL SELECT 'epochs' UNION ALL SELECT 'lr'
            UNION ALL SELECT 'optimizer' UNION ALL SELECT 'seed'));
INSERT INTO summaries (run_key, metric, value, "min", "max")
    SELECT i + 1, metric, value, value, value FROM (
        SELECT i, metric, CASE metric WHEN 'epoch' THEN i % 90 ELSE {_CHANCE} END AS value
        FROM numbers, (SELECT 'accuracy' AS metric UNION ALL SELECT 'epoch' UNION ALL SELECT 'loss'))
"""


def fill(home: Path, count: int) -> None:
    """The same runs as of `add`, written by the database itself: a million is there in a minute."""
    with Store.open(home):
        pass
    database = sqlite3.connect(home / "phalanx.db", isolation_level=None)
    made = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    indexes = database.execute(made).fetchall()
    try:
        database.execute("PRAGMA synchronous = OFF")
        database.execute("BEGIN")
        for name, _ in indexes:  # made at the end, from sorted rows
            database.execute(f"DROP INDEX {name}")
        database.execute("CREATE TEMP TABLE numbers (i INTEGER PRIMARY KEY)")
        database.executemany("INSERT INTO numbers VALUES (?)", ((number,) for number in range(count)))
        for statement in FILL.split(";"):
            database.execute(statement)
        for _, sql in indexes:
            database.execute(sql)
        database.execute("COMMIT")
    finally:
        database.close()


LISTS = {  # query and sort
    "all": ("", "-created_at"),
    "by status and metric, sorted by it": ("status:succeeded, metric.loss:<0.1", "metric.loss"),
    "by tag and param, sorted by a metric": ("tags:nightly, params.lr:>0.9", "-metric.accuracy"),
    "by half of the values of a metric": ("metric.loss:<0.5", "-created_at"),
    "sorted by a metric's best value": ("", "best.loss"),
    "by project, status and best value": ("project:project-3, status:~failed, best.loss:<0.01", "best.loss"),
    "by a part of the name": ("name:%Run-77%", "-created_at"),
}


def lists() -> Iterator[Row]:
    """`phalanx ps`, and the same list of a server that has not been asked for it before."""
    for count in SIZES:
        with tempfile.TemporaryDirectory() as name:
            os.environ["PHALANX_HOME"] = name
            fill(Path(name), count)
            yield from _commands(count)
            yield from _requests(Path(name), count)


def _commands(count: int) -> Iterator[Row]:
    commands = {"": [*PYTHON, "-c", "pass"]}
    commands |= {what: [*PHALANX, "ps", "-q", query, "-s", sort] for what, (query, sort) in LISTS.items()}
    found = interleaved(commands, ROUNDS)
    floor = Beside("python -c pass", found.pop("").cpu_s)
    for what, cost in found.items():
        yield Row(f"ps of {count:,} runs, {what}, CPU", cost.cpu_s, "s", floor, aim=at_most(MOST_S))


def _requests(home: Path, count: int) -> Iterator[Row]:
    import httpx

    from server_load import cpu_s, serving

    times: dict[str, list[float]] = {what: [] for what in ("", *LISTS)}
    with serving(home) as server, httpx.Client(headers={"Authorization": f"Bearer {server.token}"}) as client:
        for turn in range(ROUNDS + 1):
            for what, took in times.items():
                query, sort = LISTS.get(what, ("", ""))
                # Another limit each time: its answer is in no cache.
                asked: dict[str, str | int] = {"q": query, "sort": sort, "limit": 100 + turn} if what else {}
                before = cpu_s(server.pid)
                client.get(f"{server.url}/api/v1/{'runs' if what else 'session'}", params=asked).raise_for_status()
                if turn:
                    took.append(cpu_s(server.pid) - before)
    floor = Beside("a request for the session", statistics.mean(times.pop("")))
    for what, took in times.items():
        work = f"REST list of 100 of {count:,} runs, {what}, CPU"
        yield Row(work, statistics.mean(took), "s", floor, aim=at_most(MOST_S))


PARTS = {"lists": lists}
