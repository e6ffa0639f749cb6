"""Runs, statuses, replicas, params, tags and last metrics in SQLite or PostgreSQL."""

from phalanx.errors import StoreError
from phalanx.store.points import Summary
from phalanx.store.query import quoted
from phalanx.store.records import DONE, STARTED, Artifact, Replica, Run, StatusChange
from phalanx.store.store import Store

__all__ = ["DONE", "STARTED", "Artifact", "Replica", "Run", "StatusChange", "Store", "StoreError", "Summary", "quoted"]
