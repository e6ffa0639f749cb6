from __future__ import annotations

import math
import os
import sys
import warnings
from pathlib import Path

import pytest

from phalanx import tracking
from phalanx.scheduler.metrics import series_of
from phalanx.spool import read
from tests.agent.running import Agents


class Scalar:
    """What tensors have in common."""

    def __init__(self, value: float) -> None:
        self.value = value

    def item(self) -> float:
        return self.value


@pytest.fixture(name="attempt")
def attempt_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(tracking.VARIABLE, str(tmp_path / "metrics"))
    monkeypatch.setattr(tracking, "_TRACK", tracking._Track())
    return tmp_path


def test_values_are_kept_with_their_steps(attempt: Path) -> None:
    tracking.log(loss=0.5, accuracy=1, step=3)
    tracking.log(loss=Scalar(0.25), step=4)
    rows = [record.data() for record in read(attempt / "metrics")]
    assert [(row["step"], row["metrics"]) for row in rows] == [(3, {"loss": 0.5, "accuracy": 1.0}), (4, {"loss": 0.25})]


def test_series_come_back_in_order_with_what_is_no_number(attempt: Path) -> None:
    for value in (1.0, math.nan, math.inf, -2.0):
        tracking.log(loss=value)
    loss = series_of(attempt)["loss"]
    assert (loss[0], loss[2], loss[3]) == (1.0, math.inf, -2.0)
    assert math.isnan(loss[1])


def test_outside_of_a_run_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tracking.VARIABLE, raising=False)
    tracking.log(loss=1.0)


@pytest.mark.filterwarnings("default")
def test_what_cannot_be_kept_is_said_once_and_never_raised(attempt: Path) -> None:
    with pytest.warns(RuntimeWarning, match="could not be kept"):
        tracking.log(loss="many", good=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracking.log(loss=None)
    assert series_of(attempt) == {"good": [1.0]}


@pytest.mark.filterwarnings("default")
def test_a_folder_that_is_gone_does_not_hurt_training(attempt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracking.VARIABLE, str(attempt / "gone" / "metrics"))
    with pytest.warns(RuntimeWarning, match="could not be kept"):
        tracking.log(loss=1.0)


def test_a_forked_process_writes_too(attempt: Path) -> None:
    tracking.log(a=1)
    child = os.fork()
    if child == 0:
        tracking.log(b=2)
        os._exit(0)
    os.waitpid(child, 0)
    tracking.log(a=3)
    assert series_of(attempt) == {"a": [1.0, 3.0], "b": [2.0]}


def test_every_replica_finds_its_own_file(tmp_path: Path) -> None:
    program = "import os; from phalanx import tracking; tracking.log(rank=int(os.environ['RANK']))"
    agents = Agents(tmp_path, f'python -c "{program}"', environment={"replicas": {"n_workers": 1}})
    agents.start(PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for rank, name in enumerate(agents.names):
        assert agents.end(name)["cause"] == "finished", agents.log(name)
        assert series_of(agents.attempt(name)) == {"rank": [float(rank)]}
