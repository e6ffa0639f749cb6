"""Searches run inside jobs, with whatever Python is there, and decide the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_imports import python_3_8

SOURCES = Path(__file__).resolve().parents[2] / "src"
PLAYED = """
import hashlib, json, sys
sys.path.insert(0, sys.argv[1])
from phalanx.tune.model import Dimension, Metric, SearchSettings, StoppingRule, entry_as_json
from phalanx.tune.simulation import Simulation

loss = Metric("loss", False)
space = (
    Dimension("lr", "loguniform", arguments={"low": -9, "high": -1}),
    Dimension("size", "qnormal", arguments={"loc": 64, "scale": 16, "q": 8}),
    Dimension("act", "pvalues", ("relu", "tanh"), (0.7, 0.3)),
)
grid = (Dimension("a", "values", (1, "x", None, [1, 2])), Dimension("b", "values", (0.1, 0.2)))
rungs = {"max_iter": 27, "eta": 3, "interval": 9, "resource": {"name": "epochs", "type": "int"}}
rule = StoppingRule(loss, None, "median")
for name in ("grid_search", "random_search", "hyperband", "asha", "pbt"):
    dimensions = grid if name == "grid_search" else space
    made = SearchSettings(name, dimensions, rungs if dimensions is space else {}, 7, 12, loss, (rule,))
    if name == "random_search":
        made = made._replace(options={})
    played = Simulation(made, lambda params, amount: params.get("lr", 1) + 1 / (amount or 1), 3).run()
    text = json.dumps([entry_as_json(entry) for entry in played.entries], sort_keys=True)
    print(name, len(played.entries), hashlib.sha256(text.encode()).hexdigest())
"""


def played_by(python: str) -> str:
    command = [python, "-I", "-B", "-c", PLAYED, str(SOURCES)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.stderr == ""
    return answer.stdout


def test_another_version_of_python_decides_the_same() -> None:
    other = python_3_8()
    if other is None:
        pytest.skip("there is no Python 3.8 on this machine")
    here = played_by(sys.executable)
    assert len(here.splitlines()) == 5
    assert played_by(other) == here
