"""Replicas that use MLflow: the first run that a replica starts is the run it belongs to.

Whether it has started and ended that run is stored in its attempt's folder, so that a restarted server knows it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from phalanx.atomic_files import read_json, write_atomic
from phalanx.server.mlflow.calls import Call
from phalanx.server.mlflow.run_writes import note_labels, place
from phalanx.server.mlflow.views import NAME, NOTE, USER
from phalanx.store import Run

FILE = "mlflow.json"
NESTED = "mlflow.parentRunId"


def is_over(folder: Path) -> bool:
    found = read_json(folder / FILE)
    return isinstance(found, dict) and bool(found.get("is_over"))


def taken(call: Call, tags: Mapping[str, str]) -> Run | None:
    """The replica's own run, if a new run means that one: neither a nested run nor a later one."""
    assert call.address is not None
    run = call.own_run(call.address.run_id)
    if NESTED in tags or is_over(place(call, run)):
        return None
    _note(call, run, tags)
    return run


def _note(call: Call, run: Run, tags: Mapping[str, str]) -> None:
    """Apply what the client sends about its run. The run keeps its own name and user."""
    kept = {key: value for key, value in tags.items() if key not in (NAME, NOTE, USER)}
    if kept:
        with call.here.run_writers.of(run.id):
            note_labels(call, run, kept)


def remember(call: Call, run: Run, *, is_over: bool) -> None:
    if call.address is not None and run.id == call.address.run_id:
        with call.here.run_writers.of(run.id):
            write_atomic(place(call, run) / FILE, json.dumps({"is_over": is_over}).encode(), sync=False)
