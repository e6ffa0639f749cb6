"""Runs whose replicas tracked something, for tests of the verbs that read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phalanx.spool import PointWriter
from phalanx.store import Store
from phalanx.store.series.run_series import RunSeries
from tests.cli.homes import Place

Lines = Mapping[str, Mapping[str, Sequence[tuple[int, float]]]]  # replica -> metric -> points


def remember_tracked(place: Place, run_id: str, lines: Lines, attempt: int = 1, **fields: Any) -> Path:
    """A run that is over, with these points in its folder and its summaries in the store."""
    place.remember(run_id, **fields)
    folder = place.home / "runs" / run_id
    for replica, metrics in lines.items():
        path = folder / "replicas" / replica / f"attempt-{attempt}"
        path.mkdir(parents=True, exist_ok=True)
        writer = PointWriter(path / "client-1.points")
        for name, points in metrics.items():
            for number, (step, value) in enumerate(points):
                writer.add(step, 1_700_000_000.0 + number, {name: value})
        writer.close()
    roles = [name.rpartition("-") for name in lines]
    replicas = [
        {"role": role, "index": int(index), "rank": rank, "argv": ["x"]} for rank, (role, _, index) in enumerate(roles)
    ]
    (folder / "plan.json").write_text(json.dumps({"replicas": replicas}))
    with Store.open(place.home) as store:
        store.put_summaries(run_id, RunSeries(folder).summaries())
    return folder
