from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import phalanx
from phalanx.errors import CallError
from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name
from tests.cli.tracked import remember_tracked


@pytest.fixture(name="tracked")
def tracked_fixture(place: Place) -> Place:
    lines = {"master-0": {"loss": [(0, 1.0), (5, 0.5)]}, "worker-0": {"loss": [(0, 3.0)]}}
    remember_tracked(place, "aaa1", lines, name="first", params={"lr": 0.1}, tags=("x",))
    place.remember("bbb2", summary={"loss": 9.0})
    return place


def test_runs_are_found_with_their_values(tracked: Place) -> None:
    with phalanx.open(tracked.home) as home:
        (run,) = home.runs("metric.loss:<1")
        assert (run.id, run.name, run.params, run.metrics, run.tags) == (
            "aaa1",
            "first",
            {"lr": 0.1},
            {"loss": 0.5},
            ("x",),
        )
        assert run.status == "succeeded"
        assert home.run("first").id == "aaa1"
        assert home.projects() == ["default"]
        assert len(home.runs(limit=1)) == 1


def test_series_are_plain_arrays(tracked: Place) -> None:
    with phalanx.open(tracked.home) as home:
        run = home.run("aaa1")
        loss = run.series("loss")
        assert list(loss) == [(0, 1.0), (5, 0.5)]
        assert (loss.replica, loss.rank, list(loss.attempts)) == ("master-0", 0, [1, 1])
        assert [line.replica for line in run.every_series("loss")] == ["master-0", "worker-0"]
        assert list(run.series("loss", "worker-0").values) == [3.0]
        assert run.over_ranks("loss")[0].mean == 2.0
        assert run.summaries()["loss"].min == 0.5


def test_what_is_not_there_is_said(tracked: Place, tmp_path: Path) -> None:
    with phalanx.open(tracked.home) as home:
        with pytest.raises(KeyError, match="has no metric 'nothing'"):
            home.run("aaa1").series("nothing")
        for read in (home.run("aaa1").series, home.run("aaa1").buckets, home.run("aaa1").over_ranks):
            with pytest.raises(KeyError, match="no metric 'los': did you mean `loss`"):
                read("los")
        with pytest.raises(KeyError, match="replica worker-7 of run aaa1 has not logged the metric 'loss'"):
            home.run("aaa1").series("loss", "worker-7")
        with pytest.raises(CallError, match="no run"):
            home.run("zzz")
        with pytest.raises(AttributeError):
            _ = home.run("aaa1").colour
    with pytest.raises(CallError, match="no home in"):
        phalanx.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_numpy_and_pandas(tracked: Place) -> None:
    pytest.importorskip("numpy")
    pytest.importorskip("pandas")
    with phalanx.open(tracked.home) as home:
        run = home.run("aaa1")
        assert float(run.series("loss").numpy().values.min()) == 0.5  # type: ignore[attr-defined]
        assert list(run.series("loss").pandas()["value"]) == [1.0, 0.5]
        assert len(run.pandas()) == 3
        assert list(run.pandas().columns) == ["metric", "replica", "step", "time", "value", "attempt"]
        frame = home.runs(sort="id").frame()
        assert frame.equals(home.pandas(sort="id"))
        assert list(frame["id"]) == ["aaa1", "bbb2"]
        assert (frame["min.loss"][0], frame["max.loss"][0]) == (0.5, 1.0)
        assert list(frame["metrics.loss"]) == [0.5, 9.0]
        assert next(iter(frame["params.lr"])) == 0.1


def test_the_home_is_that_of_the_environment(tracked: Place) -> None:
    code = "import phalanx; print(phalanx.open().run('first').id)"
    environment = {**os.environ, "PHALANX_HOME": str(tracked.home)}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "aaa1"
