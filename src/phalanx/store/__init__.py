"""The store: runs and their data in SQLite or PostgreSQL, and metric series in files.

All SQL of Phalanx is in this package. Each table is written by one module, whose docstring names it.
"""

from phalanx.errors import StoreError
from phalanx.store.query import quoted
from phalanx.store.records import DONE, STARTED, Artifact, ReplicaRecord, Run, StatusChange, Summary
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
