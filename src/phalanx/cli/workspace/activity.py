"""Snapshots of active runs for `top`, from the local home or a server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from phalanx import run_paths

if TYPE_CHECKING:
    from phalanx.backends.local.capacity import Capacity
    from phalanx.client import Client
    from phalanx.home.home import Home
    from phalanx.store import ReplicaRecord, Run, Store

QUEUED = ("created", "resuming", "warning")
MOST_LOOKED_INTO = 20  # runs of a server whose replicas are requested
MOST_MEASURED = 32  # replicas of a server whose usage is requested


class ReplicaActivity(NamedTuple):
    """The latest measured usage of a replica."""

    at: float
    cpu_percent: float | None
    memory_mib: float
    threads: int | None


class RunActivity(NamedTuple):
    """An active run at one moment."""

    run: Run
    asked: Capacity
    queue_position: int | None
    replicas: Sequence[tuple[ReplicaRecord, ReplicaActivity | None]]


class ActivitySnapshot(NamedTuple):
    """All active runs and the machine at one moment."""

    home: str
    at: datetime
    room: Capacity
    asked: Capacity
    runs: Sequence[RunActivity]


def home_activity(home: Home, store: Store) -> ActivitySnapshot:
    from phalanx.backends.local.capacity import NOTHING, this_machine

    runs, asked, waiting = [], NOTHING, 0
    for run in store.active():
        is_queued = run.status in QUEUED
        waiting += is_queued
        share = _asked(home, run)
        asked = asked if is_queued else asked + share
        replicas = [] if is_queued else [(replica, _use_of(home, replica)) for replica in store.replicas(run.id)]
        runs.append(RunActivity(run, share, waiting if is_queued else None, replicas))
    return ActivitySnapshot(str(home.path), datetime.now(UTC), this_machine()[0], asked, runs)


def _asked(home: Home, run: Run) -> Capacity:
    """The resources that a run requests of this machine; none for a run on a cluster."""
    from phalanx.backends.contract import LOCAL_BACKENDS
    from phalanx.backends.local.capacity import NOTHING, requested_by
    from phalanx.stored_plan import PlanDamaged, read_plan

    if run.backend not in LOCAL_BACKENDS:
        return NOTHING
    try:
        return requested_by(read_plan(home.run(run.id).path))
    except (OSError, PlanDamaged):
        return NOTHING


def _use_of(home: Home, replica: ReplicaRecord) -> ReplicaActivity | None:
    from phalanx.insight.stalls import newest_use

    if replica.finished_at is not None:
        return None
    folder = home.run(replica.run_id).path / run_paths.attempt_folder(replica.name, replica.attempt)
    use = newest_use(folder / run_paths.SPOOL)
    return None if use is None else ReplicaActivity(use.at, use.cpu_percent, use.memory_mib, use.threads)


# on a server ---------------------------------------------------------------------------------------------------------


def server_activity(client: Client) -> ActivitySnapshot:
    """The same for a server. Only the first runs and replicas are examined, because each takes one request."""
    from phalanx.backends.contract import LOCAL_BACKENDS
    from phalanx.backends.local.capacity import NOTHING, Capacity
    from phalanx.client.rows import run_of

    machine = client.machine()
    room = Capacity(float(machine["cpus"]), float(machine["memory_mib"]), len(machine["gpus"]))
    runs, asked, left = [], NOTHING, MOST_MEASURED
    for number, row in enumerate(client.queue()):
        run, requested = run_of(row), row["asked"]
        is_queued = run.status in QUEUED
        share = Capacity(float(requested["cpu"]), float(requested["memory_mib"]), int(requested["gpus"]))
        share = share if run.backend in LOCAL_BACKENDS else NOTHING
        asked = asked if is_queued else asked + share
        replicas = _remote_replicas(client, run, left) if not is_queued and number < MOST_LOOKED_INTO else []
        left -= sum(use is not None for _, use in replicas)
        runs.append(RunActivity(run, share, row["place"] if is_queued else None, replicas))
    return ActivitySnapshot(client.url, datetime.now(UTC), room, asked, runs)


def _remote_replicas(client: Client, run: Run, most: int) -> list[tuple[ReplicaRecord, ReplicaActivity | None]]:
    from phalanx.client.rows import replica_of

    found = [replica_of(row, run.id, run.attempt) for row in client.topology(run)["replicas"]]
    running = [replica for replica in found if replica.status == "running"][:most]
    return [(replica, _remote_use(client, run, replica) if replica in running else None) for replica in found]


def _remote_use(client: Client, run: Run, replica: ReplicaRecord) -> ReplicaActivity | None:
    use = client.use(run, replica.name)
    if not use["times"]:
        return None
    cores, memory = use["cpu"][-1], use["memory_mib"][-1]
    return ReplicaActivity(float(use["times"][-1]), None if cores is None else 100 * cores, float(memory or 0.0), None)
