"""What `top` shows at one moment, of this machine or of a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from phalanx.client import Client
    from phalanx.scheduler.home import Home
    from phalanx.scheduler.machine import Share
    from phalanx.store import Replica, Run, Store

QUEUED = ("created", "resuming", "warning")
MOST_LOOKED_INTO = 20  # runs of a server
MOST_MEASURED = 32  # replicas of them


class Measured(NamedTuple):
    """What a replica used when it was last looked at."""

    at: float
    cpu_percent: float | None
    memory_mib: float
    threads: int | None


class Seen(NamedTuple):
    """A run that is not over, at one moment."""

    run: Run
    asked: Share
    queue_position: int | None
    replicas: Sequence[tuple[Replica, Measured | None]]


class Frame(NamedTuple):
    """Everything that is shown at one moment."""

    home: str
    at: datetime
    room: Share
    asked: Share
    runs: Sequence[Seen]


def look(home: Home, store: Store) -> Frame:
    from phalanx.scheduler.machine import NOTHING, this_machine

    runs, asked, waiting = [], NOTHING, 0
    for run in store.active():
        is_queued = run.status in QUEUED
        waiting += is_queued
        share = _asked(home, run)
        asked = asked if is_queued else asked + share
        replicas = [] if is_queued else [(replica, _use_of(home, replica)) for replica in store.replicas(run.id)]
        runs.append(Seen(run, share, waiting if is_queued else None, replicas))
    return Frame(str(home.path), datetime.now(UTC), this_machine()[0], asked, runs)


def _asked(home: Home, run: Run) -> Share:
    """Of this machine: one that runs elsewhere asks nothing of it."""
    from phalanx.scheduler.machine import NOTHING, asked_by
    from phalanx.scheduler.places import LOCAL

    if run.backend not in LOCAL:
        return NOTHING
    try:
        return asked_by(json.loads(home.run(run.id).plan_file.read_bytes()))
    except (OSError, ValueError, KeyError):
        return NOTHING


def _use_of(home: Home, replica: Replica) -> Measured | None:
    from phalanx.scheduler.silence import newest_use

    if replica.finished_at is not None:
        return None
    folder = home.run(replica.run_id).path / "replicas" / replica.name / f"attempt-{replica.attempt}"
    use = newest_use(folder / "spool")
    return None if use is None else Measured(use.at, use.cpu_percent, use.memory_mib, use.threads)


# on a server ---------------------------------------------------------------------------------------------------------


def remote_frame(client: Client) -> Frame:
    """The same of a server's machine. Only the first runs and replicas are looked into: each is a question more."""
    from phalanx.client.rows import run_of
    from phalanx.scheduler.machine import NOTHING, Share
    from phalanx.scheduler.places import LOCAL

    machine = client.machine()
    room = Share(float(machine["cpus"]), float(machine["memory_mib"]), len(machine["gpus"]))
    runs, asked, left = [], NOTHING, MOST_MEASURED
    for number, row in enumerate(client.queue()):
        run, told = run_of(row), row["asked"]
        is_queued = run.status in QUEUED
        share = Share(float(told["cpu"]), float(told["memory_mib"]), int(told["gpus"]))
        share = share if run.backend in LOCAL else NOTHING
        asked = asked if is_queued else asked + share
        replicas = _remote_replicas(client, run, left) if not is_queued and number < MOST_LOOKED_INTO else []
        left -= sum(use is not None for _, use in replicas)
        runs.append(Seen(run, share, row["place"] if is_queued else None, replicas))
    return Frame(client.url, datetime.now(UTC), room, asked, runs)


def _remote_replicas(client: Client, run: Run, most: int) -> list[tuple[Replica, Measured | None]]:
    from phalanx.client.rows import replica_of

    found = [replica_of(row, run.id, run.attempt) for row in client.topology(run)["replicas"]]
    running = [replica for replica in found if replica.status == "running"][:most]
    return [(replica, _remote_use(client, run, replica) if replica in running else None) for replica in found]


def _remote_use(client: Client, run: Run, replica: Replica) -> Measured | None:
    told = client.use(run, replica.name)
    if not told["times"]:
        return None
    cores, memory = told["cpu"][-1], told["memory_mib"][-1]
    return Measured(float(told["times"][-1]), None if cores is None else 100 * cores, float(memory or 0.0), None)
