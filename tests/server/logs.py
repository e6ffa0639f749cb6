"""Runs with logs and agents' notes, as replicas would have written them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from phalanx.home.run_folder import encode_run
from phalanx.spool import JSON, PointWriter, frame
from phalanx.store import Run, Store
from tests.server.site import Site

START = 1_700_000_000.0


def remember(site: Site, run_id: str, replicas: Iterable[str] = ("master-0",), **changes: Any) -> Path:
    """A run that is over, or as `changes` say, without anybody having run it."""
    at = datetime.fromtimestamp(START, UTC)
    usual = dict.fromkeys(Run._fields) | dict.fromkeys(("created_at", "updated_at", "started_at", "finished_at"), at)
    usual |= {"id": run_id, "project": "default", "kind": "job", "backend": "local", "user": "me", "priority": 0}
    usual |= {"status": "succeeded", "reason": "finished", "attempt": 1, "tags": (), "params": {}, "summary": {}}
    run = Run(**{**usual, **changes})
    folder = site.folder(run_id)
    folder.mkdir(parents=True)
    write_plan(folder, replicas)
    (folder / "run.json").write_bytes(encode_run(run))
    with Store.open(site.home.path, site.database) as store:
        store.add(run)
    return folder


def write_plan(folder: Path, replicas: Iterable[str]) -> None:
    named = [name.rpartition("-") for name in replicas]
    rows = [
        {"role": role, "index": int(index), "rank": rank, "argv": ["x"]} for rank, (role, _, index) in enumerate(named)
    ]
    (folder / "plan.json").write_text(json.dumps({"replicas": rows}))


def write_log(folder: Path, replica: str, lines: Iterable[tuple[float, str | bytes]], attempt: int = 1) -> Path:
    """Lines with the seconds since START at which each was written; the agent saw every one of them at once."""
    place = folder / "replicas" / replica / f"attempt-{attempt}"
    place.mkdir(parents=True, exist_ok=True)
    size = (place / "log").stat().st_size if (place / "log").exists() else 0
    with (place / "log").open("ab") as log, (place / "spool").open("ab") as spool:
        for at, text in lines:
            data = text.encode() + b"\n" if isinstance(text, str) else text
            log.write(data)
            size += len(data)
            spool.write(note(at, size))
    return place


def note(at: float, size: int) -> bytes:
    return frame(JSON, json.dumps({"at": round(START + at, 3), "log": size}, separators=(",", ":")).encode())


def write_points(
    folder: Path, replica: str, name: str, values: Iterable[float], *, attempt: int = 1, first: int = 0, every: int = 1
) -> None:
    """One value for each step, or for every so many steps; a second apart."""
    place = folder / "replicas" / replica / f"attempt-{attempt}"
    place.mkdir(parents=True, exist_ok=True)
    writer = PointWriter(place / "client-1.points")
    try:
        for number, value in enumerate(values):
            step = first + number * every
            writer.add(step, START + 1000 * attempt + step, {name: value})
    finally:
        writer.close()
