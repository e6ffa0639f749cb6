"""Runs, statuses, replicas, params, tags and last metrics in SQLite or PostgreSQL."""

from phalanx.errors import StoreError
from phalanx.store.query import quoted
from phalanx.store.records import DONE, STARTED, Artifact, ReplicaRecord, Run, StatusChange
from phalanx.store.series.points import Summary
from phalanx.store.store import Store

__all__ = [
    "DONE",
    "STARTED",
    "Artifact",
    "ReplicaRecord",
    "Run",
    "StatusChange",
    "Store",
    "StoreError",
    "Summary",
    "quoted",
]
