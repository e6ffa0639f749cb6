from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from phalanx.spool import MOMENT, NAMES, POINTS, VALUE, PointWriter, frame, name_payload
from phalanx.store import ReplicaRecord, Store
from phalanx.store.series.compaction import compact
from phalanx.store.series.replica_steps import TAIL, ReplicaStep, ReplicaSteps
from phalanx.submission.submit import submit
from tests.server.site import Site
from tests.server.started import sent, start, until
from tests.submission.samples import submission_of

GANG = "framework: pytorch\nenvironment:\n  replicas: {n_workers: 3}\n"
TRAIN = """import os, time
from phalanx import tracking
rank = int(os.environ["PHALANX_RANK"])
for step in range(10 - rank):
    tracking.log({"loss": 1.0}, step=step)
while not os.path.exists(os.path.join(os.environ["PHALANX_OUTPUTS"], "go")):
    time.sleep(0.05)
if rank == 2:
    raise ValueError("this rank is broken")
time.sleep(30)
"""


def topology(site: Site, run_id: str, **params: Any) -> Any:
    return site.get(f"/api/v1/runs/{run_id}/topology", **params)


def attempt_of(folder: Path, replica: str = "master-0", attempt: int = 1) -> Path:
    found = folder / "replicas" / replica / f"attempt-{attempt}"
    found.mkdir(parents=True, exist_ok=True)
    return found


def wait_for(site: Site, run_id: str, steps_wanted: list[int]) -> Any:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = topology(site, run_id)
        rows = found["replicas"]
        if [row["step"] for row in rows] == steps_wanted and {row["status"] for row in rows} == {"running"}:
            return found
        time.sleep(0.1)
    raise AssertionError(found)


def test_replicas_are_shown_side_by_side_and_who_failed_first(site: Site, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    run = start(site, f"{sys.executable} train.py", GANG, code=sent(site, tmp_path))
    answer = wait_for(site, run["id"], [9, 8, 7, 6])
    assert (answer["attempt"], answer["front"], answer["first_failure"]) == (1, 9, None)
    rows = answer["replicas"]
    assert [row["name"] for row in rows] == ["master-0", "worker-0", "worker-1", "worker-2"]
    assert [(row["role"], row["index"], row["rank"]) for row in rows[:2]] == [("master", 0, 0), ("worker", 0, 1)]
    assert [row["behind"] for row in rows] == [0, 1, 2, 3]
    assert [row["lag"] for row in rows] == [0, 0, 0, 3]
    assert answer["straggler"] == "worker-2"
    assert {row["host"] for row in rows} == {socket.gethostname()}
    assert all(row["started_at"] for row in rows)
    assert all(abs(row["step_at"] - time.time()) < 60 for row in rows)
    (site.folder(run["id"]) / "outputs" / "go").touch()
    until(site, run["id"], "failed")
    answer = topology(site, run["id"])
    first = answer["first_failure"]
    assert (first["replica"], first["rank"]) == ("worker-1", 2)
    assert "ValueError: this rank is broken" in first["why"]
    assert first["lines"][-1] == "ValueError: this rank is broken"
    assert first["host"]
    assert first["at"]
    assert answer["attempts"] == [1]
    assert answer["straggler"] is None
    assert {row["name"]: row["status"] for row in answer["replicas"]}["worker-1"] == "failed"
    assert [row["step"] for row in answer["replicas"]] == [9, 8, 7, 6]
    assert topology(site, run["id"], attempt=2)["first_failure"] is None


def test_a_run_that_has_not_started_shows_what_is_planned(own_site: Site) -> None:
    own_site.scheduling.stop()
    text = b"version: 1\nkind: experiment\nframework: pytorch\nrun: {cmd: x}\n"
    text += b"environment:\n  replicas: {n_workers: 2}\n"
    with Store.open(own_site.home.path) as store:
        run = submit(own_site.home, store, submission_of(text))
    answer = topology(own_site, run.id)
    assert [(row["name"], row["status"]) for row in answer["replicas"]] == [
        ("master-0", "waiting"),
        ("worker-0", "waiting"),
        ("worker-1", "waiting"),
    ]
    assert (answer["front"], answer["straggler"], answer["attempts"]) == (None, None, [])
    assert {row["lag"] for row in answer["replicas"]} == {None}


def test_of_a_file_that_grows_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = PointWriter(attempt_of(tmp_path) / "client-1.points")
    for step in range(5000):
        writer.add(step, 100.0 + step, {f"metric-{number}": 1.0 for number in range(20)})
    read: list[int] = []
    real = os.pread

    def counted(descriptor: int, size: int, at: int) -> bytes:
        read.append(size)
        return real(descriptor, size, at)

    monkeypatch.setattr(os, "pread", counted)
    known = ReplicaSteps()
    assert known.of(tmp_path, 1, ["master-0", "worker-0"]) == {"master-0": ReplicaStep(4999, 5099.0)}
    assert sum(read) <= TAIL
    read.clear()
    assert known.of(tmp_path, 1, ["master-0"])["master-0"].step == 4999
    assert not read  # nothing has grown
    writer.add(5000, 6000.0, {"metric-1": 1.0})
    assert known.of(tmp_path, 1, ["master-0"]) == {"master-0": ReplicaStep(5000, 6000.0)}


def test_records_larger_than_what_is_read_first_are_found(tmp_path: Path) -> None:
    writer = PointWriter(attempt_of(tmp_path) / "client-1.points")
    writer.add(7, 1.0, {f"m{number}": 0.0 for number in range(20_000)})
    assert ReplicaSteps().of(tmp_path, 1, ["master-0"]) == {"master-0": ReplicaStep(7, 1.0)}


def test_an_epoch_that_is_logged_as_a_step_does_not_set_a_replica_back(tmp_path: Path) -> None:
    writer = PointWriter(attempt_of(tmp_path) / "client-1.points")
    known = ReplicaSteps()
    writer.add(1000, 1.0, {"loss": 1.0})
    assert known.of(tmp_path, 1, ["master-0"])["master-0"].step == 1000
    for epoch in range(5000):
        writer.add(epoch % 10, 2.0, {f"accuracy-{number}": 1.0 for number in range(5)})
    assert known.of(tmp_path, 1, ["master-0"])["master-0"].step == 1000


def test_steps_that_were_not_given_are_counted(tmp_path: Path) -> None:
    writer = PointWriter(attempt_of(tmp_path) / "client-1.points")
    for at in range(5):
        writer.add(None, float(at), {"loss": 1.0})
    known = ReplicaSteps()
    assert known.of(tmp_path, 1, ["master-0"]) == {"master-0": ReplicaStep(4, 4.0)}
    writer.add(None, 9.0, {"loss": 1.0})
    assert known.of(tmp_path, 1, ["master-0"]) == {"master-0": ReplicaStep(5, 9.0)}


@pytest.mark.parametrize("damage", [b"", b"\xa7P\x03\0\xff\xff\0\0", bytes(5000), b"garbage" * 3000])
def test_a_damaged_end_does_not_hide_what_is_before_it(tmp_path: Path, damage: bytes) -> None:
    path = attempt_of(tmp_path) / "client-1.points"
    PointWriter(path).add(41, 1.0, {"loss": 1.0})
    with path.open("ab") as stream:
        stream.write(damage)
    assert ReplicaSteps().of(tmp_path, 1, ["master-0"])["master-0"].step == 41


def test_what_was_compacted_counts_still(tmp_path: Path) -> None:
    writer = PointWriter(attempt_of(tmp_path) / "client-1.points")
    for step in range(600):
        writer.add(step, 10.0 + step, {"loss": 1.0, "accuracy": 1.0})
    writer.close()
    compact(tmp_path, 1)
    assert not list(attempt_of(tmp_path).glob("*.points"))
    assert ReplicaSteps().of(tmp_path, 1, ["master-0"]) == {"master-0": ReplicaStep(599, 609.0)}


def test_each_attempt_counts_for_itself(tmp_path: Path) -> None:
    for attempt, last in ((1, 90), (2, 20)):
        PointWriter(attempt_of(tmp_path, attempt=attempt) / "client-1.points").add(last, 1.0, {"loss": 1.0})
    known = ReplicaSteps()
    assert [known.of(tmp_path, attempt, ["master-0"])["master-0"].step for attempt in (1, 2)] == [90, 20]


@pytest.mark.slow
def test_five_hundred_replicas_are_looked_at_in_a_moment(own_site: Site) -> None:
    run_id = own_site.post("/api/v1/runs", {}, 201)["id"]
    names = b"".join(frame(NAMES, name_payload(number, f"m{number}")) for number in range(200))
    values = b"".join(VALUE.pack(number, 0.5) for number in range(200))
    for number in range(512):
        points = names + b"".join(frame(POINTS, MOMENT.pack(step + number, 1.0) + values) for step in range(3))
        (attempt_of(own_site.folder(run_id), f"worker-{number}") / "client-1.points").write_bytes(points)
    nothing: Any = dict.fromkeys(("host", "pid", "cause", "code", "signal", "started_at", "finished_at"))
    rows = [
        ReplicaRecord(run_id, 1, "worker", number, number, "running", "", peak={}, **nothing) for number in range(512)
    ]
    with Store.open(own_site.home.path) as store:
        store.put_replicas(rows)
    topology(own_site, run_id)
    began = time.monotonic()
    answer = topology(own_site, run_id)
    took_s = time.monotonic() - began
    shown = [row for row in answer["replicas"] if row["role"] == "worker"]
    assert (len(shown), answer["front"], shown[0]["behind"]) == (512, 513, 511)
    assert took_s < 30  # mostly some 50 ms
    own_site.post(f"/api/v1/runs/{run_id}/finish", {})
