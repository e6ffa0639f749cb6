"""Phalanx's own tracking client, on a machine that shares nothing with the server but the network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
