"""Homes with what a page must bear: ten thousand runs, a run of 512 replicas, sweeps, files of every kind."""

from __future__ import annotations

import json
import math
import random
import struct
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from phalanx.home.journal import RunJournal
from phalanx.spool import PointWriter, Writer
from phalanx.store import Run, Store
from tests.cli.homes import Place

WIDE = "wide512"
GROUP = "group10000"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def fill_many(place: Place, count: int) -> None:
    """Runs that are over, one each minute; the oldest is `run-0`."""
    chance = random.Random(7)
    with Store.open(place.home) as store, store.transaction():
        for number in range(count):
            at = BEGIN + timedelta(minutes=number)
            params = {"lr": round(10 ** chance.uniform(-5, -1), 6), "depth": number % 7, "seed": number}
            summary = {"loss": chance.random(), "accuracy": chance.random()}
            more = {"project": f"project-{number % 9}", "tags": (f"team-{number % 5}", "nightly")}
            run = _done(f"r{number:09d}", f"run-{number}", at, params=params, summary=summary, **more)
            store.add(run._replace(status="failed") if number % 10 == 0 else run)


def _done(run_id: str, name: str, at: datetime, **more: Any) -> Run:
    """A run that took five minutes."""
    return Run(
        id=run_id, kind="experiment", name=name, description=None, framework="pytorch",
        backend="native", user="me", status="succeeded", reason="finished", attempt=1, priority=0, created_at=at,
        updated_at=at, started_at=at, finished_at=at + timedelta(minutes=5), original=None, cloning=None, group=None,
        commit=None, **more,
    )  # fmt: skip


def fill_sweep(place: Place, count: int = 12, steps: int = 200, project: str = "sweep") -> list[str]:
    """Runs over learning rates, optimizers and seeds, with a loss and an accuracy that depend on them."""
    chance = random.Random(3)
    ids = [f"{project}{number:03d}" for number in range(count)]
    with Store.open(place.home) as store, store.transaction():
        for number, run_id in enumerate(ids):
            rate, optimizer = [0.001, 0.003, 0.01][number % 3], ["adam", "sgd"][number // 3 % 2]
            best = 0.2 + abs(math.log10(rate) + 2.5) * 0.3 + (0.1 if optimizer == "sgd" else 0)
            loss = best + chance.gauss(0, 0.02)
            at = BEGIN + timedelta(hours=number)
            params = {"lr": rate, "optimizer": optimizer, "seed": number // 6, "epochs": 10}
            summary = {"loss": loss, "accuracy": 1 - 0.4 * loss}
            more = {"project": project, "params": params, "summary": summary, "tags": ("sweep",)}
            store.add(_done(run_id, f"{project}-{number}", at, **more))
            attempt = place.home / "runs" / run_id / "replicas" / "master-0" / "attempt-1"
            attempt.mkdir(parents=True)
            plan = {"replicas": [{"role": "master", "index": 0, "rank": 0, "argv": ["x"]}]}
            (place.home / "runs" / run_id / "plan.json").write_text(json.dumps(plan))
            writer = PointWriter(attempt / "client-1.points")
            for step in range(steps):
                now = best + 2 * math.exp(-step / 30) + chance.gauss(0, 0.02) if step < steps - 1 else loss
                writer.add(step * 10, at.timestamp() + step, {"loss": now, "accuracy": 1 - 0.4 * now})
            writer.close()
    return ids


def fill_wide(place: Place, replicas: int, metrics: int, points: int, lines: int) -> None:
    """A run of many replicas, of which one failed first: written as agents and tracking write, and then read into the
    database as `doctor --rebuild` does."""
    folder = place.home / "runs" / WIDE
    for private in (place.home, folder.parent, folder):
        private.mkdir(mode=0o700)
    at = BEGIN.timestamp()
    _write_run(folder, WIDE, at)
    roles = [("master", 0), *(("worker", index) for index in range(replicas - 1))]
    plan = [_planned(role, index, rank) for rank, (role, index) in enumerate(roles)]
    counts = {"master": 1, "worker": replicas - 1}
    (folder / "plan.json").write_text(json.dumps({"roles": counts, "environment": {}, "replicas": plan}))
    names = [f"layer{number % 50}/gradient_{number // 50}" for number in range(metrics - 2)]
    failing = replicas // 2
    for rank, (role, index) in enumerate(roles):
        attempt = folder / "replicas" / f"{role}-{index}" / "attempt-1"
        attempt.mkdir(parents=True)
        _write_points(attempt, rank, at, names if rank % 64 == 0 else [], points - (rank % 5))
        _write_log(attempt, rank, lines, is_failing=rank == failing)
        _write_end(attempt, f"{role}-{index}", at, is_failing=rank == failing)
    answer = place.call("doctor", "--rebuild")
    assert answer.code == 0, answer.err


def fill_group(place: Place, count: int) -> None:
    """A search that has ended, with so many trials in its journal, some of which failed or are not a number."""
    folder = place.home / "runs" / GROUP
    for private in (place.home, folder.parent, folder):
        private.mkdir(mode=0o700, exist_ok=True)
    at = BEGIN.timestamp()
    _write_run(folder, GROUP, at, kind="group", name="ten-thousand", params={})
    matrix = {"lr": {"loguniform": "-9:-1"}, "layers": {"values": [1, 2, 4]}, "optimizer": {"values": ["adam", "sgd"]}}
    metric = {"name": "loss", "optimization": "minimize"}
    tuning = {"concurrency": 8, "matrix": matrix, "random_search": {"n_experiments": count}, "metric": metric}
    spec = {
        "version": 1,
        "kind": "group",
        "hptuning": tuning,
        "run": {"cmd": "x {{ lr }} {{ layers }} {{ optimizer }}"},
    }
    (folder / "spec.yml").write_text(json.dumps(spec))
    chance = random.Random(5)
    journal = RunJournal(str(folder / "journal"))
    entries: list[dict[str, Any]] = []
    for number in range(count):
        rate, layers, optimizer = (
            math.exp(chance.uniform(-9, -1)),
            chance.choice([1, 2, 4]),
            chance.choice(["adam", "sgd"]),
        )
        entries.append(
            {"what": "create", "trial": number, "params": {"lr": rate, "layers": layers, "optimizer": optimizer}}
        )
        loss: Any = abs(math.log(rate) + 5) / 4 + layers / 10 + chance.gauss(0, 0.05)
        end = {"what": "reported", "trial": number, "rung": 0, "value": "nan" if number % 50 == 7 else loss}
        failed = {"what": "failed", "trial": number, "rung": 0, "cause": "exit code 1"}
        entries.append(failed if number % 40 == 9 else end)
    journal.append(entries)
    journal.close()
    counts = {"reported": count - count // 40, "failed": count // 40}
    compared = {"name": "loss", "maximize": False}
    search = {"algorithm": "random_search", "metric": compared, "trials": counts, "total": count, "concurrency": 8}
    (folder / "search.json").write_text(json.dumps({**search, "paused": None, "best": None, "recent": []}))
    answer = place.call("doctor", "--rebuild")
    assert answer.code == 0, answer.err


def _write_run(folder: Path, run_id: str, at: float, **more: Any) -> None:
    run = dict.fromkeys(Run._fields) | {
        "id": run_id, "name": "wide", "project": "big", "kind": "experiment", "framework": "pytorch",
        "backend": "native", "user": "me", "status": "created", "reason": "submitted", "attempt": 0, "priority": 0,
        "created_at": at, "updated_at": at, "tags": [], "params": {"width": 512}, "summary": {}, **more,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))
    history = Writer(folder / "history")
    changes = [(0, "created", 0.0), (1, "starting", 1.0), (1, "running", 2.0), (1, "failed", 600.0)]
    for number, (attempt, status, after) in enumerate(changes, 1):
        reason = "worker-255: exit code 1" if status == "failed" else ""
        change = {"number": number, "attempt": attempt, "status": status, "reason": reason, "at": at + after}
        history.append_json({"run_id": None, **change})
    history.close()


def _planned(role: str, index: int, rank: int) -> dict[str, Any]:
    resources = {"cpu": {"limits": 0}}
    named = {"role": role, "index": index, "rank": rank, "argv": ["python", "train.py"]}
    return {**named, "resources": resources, "environment": {}, "defaults": {}}


def _write_points(attempt: Path, rank: int, at: float, names: Sequence[str], points: int) -> None:
    writer = PointWriter(attempt / "client-1.points")
    for step in range(points):
        values = {"loss": 2 * math.exp(-step / 20) + rank / 5000, "throughput": 900.0 + rank % 7}
        if step % 10 == 0:
            values |= {name: math.sin(step + place) for place, name in enumerate(names)}
        writer.add(step, at + 2 + step, values)
    writer.close()


def _write_log(attempt: Path, rank: int, lines: int, *, is_failing: bool) -> None:
    text = [f"step {number} rank {rank} loss {2 / (number + 1):.4f} of a long line that says how it goes on\n"
            for number in range(lines)]  # fmt: skip
    if is_failing:
        text.append("Traceback (most recent call last):\n  File 'train.py', line 7\nRuntimeError: a bad batch\n")
    (attempt / "log").write_text("".join(text))


def _write_end(attempt: Path, replica: str, at: float, *, is_failing: bool) -> None:
    end: Mapping[str, Any] = {
        "version": 1, "replica": replica, "attempt": 1, "cause": "error" if is_failing else "stopped",
        "code": 1 if is_failing else None, "signal": None if is_failing else 15,
        "message": "exit code 1" if is_failing else "stopped because another failed", "started_at": at + 2,
        "ended_at": at + (590 if is_failing else 600), "host": f"node-{hash(replica) % 64}", "log_bytes": 100,
        "last_lines": ["RuntimeError: a bad batch"] if is_failing else [],
        "peak": {"cpu_s": 100.0, "memory_mib": 900.0},
    }  # fmt: skip
    (attempt / "end.json").write_text(json.dumps(end))


def png(width: int = 64, height: int = 48) -> bytes:
    """A small picture, made by hand."""
    rows = b"".join(
        b"\0" + bytes(part for x in range(width) for part in (x * 4 % 256, y * 5 % 256, 120)) for y in range(height)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


LAGGING = "lagging8"


def fill_lagging(place: Place, steps: int = 120) -> None:
    """A run of a master and seven workers. Worker-3, which is rank 4, is at 90 % of the others; worker-0 logged a NaN
    and an infinity."""
    folder = place.home / "runs" / LAGGING
    for private in (place.home, folder.parent, folder):
        private.mkdir(mode=0o700, exist_ok=True)
    at = BEGIN.timestamp()
    _write_run(folder, LAGGING, at, name="lagging", params={"lr": 0.1})
    roles = [("master", 0), *(("worker", index) for index in range(7))]
    plan = [_planned(role, index, rank) for rank, (role, index) in enumerate(roles)]
    (folder / "plan.json").write_text(
        json.dumps({"roles": {"master": 1, "worker": 7}, "environment": {}, "replicas": plan})
    )
    for rank, (role, index) in enumerate(roles):
        attempt = folder / "replicas" / f"{role}-{index}" / "attempt-1"
        attempt.mkdir(parents=True)
        writer = PointWriter(attempt / "client-1.points")
        for step in range(steps * 9 // 10 if rank == 4 else steps):
            loss = 2 * math.exp(-step / 30) + (3.0 if rank == 4 else rank / 10)
            if rank == 1 and step in (60, 80):
                loss = math.nan if step == 60 else math.inf
            values = {"loss": loss, "train/accuracy": 1 - math.exp(-step / 40) - rank / 100, "epoch": step / 40}
            writer.add(step, at + 2 + step, values | ({"eval/score": 0.5} if rank == 3 else {}))
        writer.close()
        _write_end(attempt, f"{role}-{index}", at, is_failing=False)
    answer = place.call("doctor", "--rebuild")
    assert answer.code == 0, answer.err
