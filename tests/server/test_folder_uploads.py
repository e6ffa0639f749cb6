"""Phalanx's own tracking client, on a machine that shares nothing with the server but the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server.site import Site

SCRIPT = """
import os, sys
from phalanx import tracking
run = tracking.start(name="far away", project="remote", params={"lr": 0.1}, tags=["x"], description="d")
for step in range(500):
    run.log(loss=1.0 / (step + 1), step=step)
run.labels({"team": "blue"})
run.text("sample", "hello", step=3)
with open("weights.bin", "wb") as stream:
    stream.write(bytes(range(256)) * (9 << 12))  # 9 MiB: more than one piece
run.artifact("weights.bin")
print(run.id, flush=True)
"""


def track(site: Site, folder: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PHALANX_")},
        "PHALANX_HOME": str(folder / "home"),
        "PHALANX_SERVER": site.url,
        "PHALANX_TOKEN": site.token,
        **environment,
    }
    return subprocess.run(
        [sys.executable, "-c", script],
        env=variables,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.slow
def test_a_run_elsewhere_arrives_whole(site: Site, tmp_path: Path) -> None:
    done = track(site, tmp_path / "far", SCRIPT)
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.split()[0]
    run = site.get(f"/api/v1/runs/{run_id}")
    assert (run["name"], run["project"], run["status"], run["params"]) == (
        "far away",
        "remote",
        "succeeded",
        {"lr": 0.1},
    )
    (metric,) = [row for row in site.get(f"/api/v1/runs/{run_id}/metrics")["metrics"] if row["name"] == "loss"]
    assert (metric["count"], metric["step"]) == (500, 499)
    assert run["labels"]["team"] == "blue"
    assert site.get(f"/api/v1/runs/{run_id}/events", kind="text")["events"][0]["text"] == "hello"
    (kept,) = run["artifacts"]
    answer = site.ask("GET", f"/api/v1/runs/{run_id}/outputs/{kept['path']}")
    assert answer.content == bytes(range(256)) * (9 << 12)
    assert not (tmp_path / "far" / "home" / "outbox" / "runs" / run_id).exists(), "nothing is left to send"


def test_a_run_that_fails_elsewhere_is_failed(site: Site, tmp_path: Path) -> None:
    done = track(site, tmp_path / "far", SCRIPT + "raise RuntimeError(3)\n")
    run_id = done.stdout.split()[0]
    assert site.get(f"/api/v1/runs/{run_id}")["status"] == "failed"


def test_a_server_that_refuses_does_not_hurt_training(site: Site, tmp_path: Path) -> None:
    done = track(site, tmp_path / "far", SCRIPT, PHALANX_TOKEN="wrong")
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.split()[0]
    assert site.ask("GET", f"/api/v1/runs/{run_id}").status_code == 404
    assert (tmp_path / "far" / "home" / "outbox" / "runs" / run_id).exists(), "it is kept, to be sent later"


RESUMED = """
import json, sys
from phalanx import tracking
with tracking.start(id="train-7", name="r", group="g", **json.loads(sys.argv[1])) as run:
    for step in range(int(sys.argv[2]), int(sys.argv[3])):
        run.log(loss=float(step), step=step)
    run.alert("Low accuracy", "it diverged", level="WARN")
    print(run.url)
print(run.id)
"""


def resumed(site: Site, folder: Path, first: int, last: int, **options: Any) -> subprocess.CompletedProcess[str]:
    return track(
        site, folder, f"import sys\nsys.argv[1:] = {[json.dumps(options), str(first), str(last)]!r}\n{RESUMED}"
    )


@pytest.mark.slow
def test_a_run_is_resumed_on_the_server(site: Site, tmp_path: Path) -> None:
    """From another machine: it has nothing of the first attempt."""
    one = resumed(site, tmp_path / "one", 0, 5)
    assert (one.stdout.split(), one.stderr) == ([f"{site.url}/runs/train-7", "train-7"], "")
    two = resumed(site, tmp_path / "two", 4, 8, resume="must")
    assert two.stderr == ""
    run = site.get("/api/v1/runs/train-7")
    assert (run["status"], run["attempt"], run["group"], run["summary"]["loss"]) == ("succeeded", 2, "g", 7.0)
    (metric,) = site.get("/api/v1/runs/train-7/metrics")["metrics"]
    assert (metric["count"], metric["step"]) == (8, 7)
    alerts = site.get("/api/v1/runs/train-7/events", kind="alert")["events"]
    assert [(event["attempt"], event["title"], event["level"]) for event in alerts] == [
        (1, "Low accuracy", "WARN"),
        (2, "Low accuracy", "WARN"),
    ]
    never = resumed(site, tmp_path / "three", 0, 1, resume="never")
    assert "run train-7 exists and resume is `never`; this is run" in never.stderr
    assert sorted(row["attempt"] for row in site.get("/api/v1/runs", q="name:r")["runs"]) == [1, 2]
    must = resumed(site, tmp_path / "four", 0, 1, resume="must", project="x")
    assert must.stderr == ""


def test_a_session_that_is_sent_again_is_the_same_attempt(site: Site) -> None:
    about = {"id": "train-8", "session": "s1", "resume": "allow"}
    first = [site.post("/api/v1/runs", about, status)["attempt"] for status in (201, 200)]
    later = [site.post("/api/v1/runs", {**about, "session": "s2"})["attempt"] for _ in range(2)]
    assert (first, later) == ([1, 1], [2, 2])
    assert site.post("/api/v1/runs", about)["attempt"] == 1
    ended = site.post("/api/v1/runs/train-8/finish", {"status": "failed", "attempt": 1})
    assert (ended["status"], ended["attempt"]) == (
        "running",
        2,
    )  # the first client does not end the second one's attempt
    assert site.post("/api/v1/runs/train-8/finish", {"status": "succeeded", "attempt": 2})["status"] == "succeeded"
