"""Runs without a server: what their MLflow clients log arrives in the run, from every replica."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from phalanx.store.series.run_series import RunSeries
from tests.scheduler.working import Works

CLIENT = """
import json, os, urllib.request
def call(path, **fields):
    headers = {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
    url = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/" + path
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(fields).encode(), headers), timeout=30).read()
run, rank = os.environ["MLFLOW_RUN_ID"], float(os.environ["RANK"])
for step in range(5):
    call("runs/log-metric", run_id=run, key="loss", value=rank, step=step, timestamp=1_700_000_000_000)
call("runs/log-parameter", run_id=run, key="depth", value="3")
"""


def test_clients_of_every_replica_log_to_the_run(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:3128")  # not for the loopback
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (works.folder / "train.py").write_text(CLIENT)
    run_id = works.submit(f"{sys.executable} train.py", workers=2)
    assert works.settle(run_id).status == "succeeded", works.log(run_id)
    series = {
        line.replica: (list(line.steps), set(line.values))
        for line in RunSeries(works.run_folder(run_id).path).series("loss")
    }
    steps = list(range(5))
    assert series == {"master-0": (steps, {0.0}), "worker-0": (steps, {1.0}), "worker-1": (steps, {2.0})}
    assert works.run(run_id).params["depth"] == "3"
    assert works.store.summaries(run_id)["loss"].last == 0.0


@pytest.mark.parametrize("place", ["environment", "file"])
def test_an_address_that_the_user_chose_stays(works: Works, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    if place == "environment":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://theirs")
    variables: dict[str, Any] = {"env_vars": {"MLFLOW_TRACKING_URI": "http://theirs"}} if place == "file" else {}
    run_id = works.submit("echo $MLFLOW_TRACKING_URI $MLFLOW_RUN_ID.", **variables)
    assert works.settle(run_id).status == "succeeded"
    assert works.log(run_id) == "http://theirs .\n"
