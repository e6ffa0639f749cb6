"""A tracked run that is continued under its id: the same series, the next attempt."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx import tracking
from phalanx.store.series.run_series import RunSeries
from phalanx.tracking import external_folder
from tests.cli.homes import Place, place_fixture  # noqa: F401 - the fixture
from tests.tracking.reading import clean_environment, runs_of, script

TRAIN = """
import json, os, sys
from phalanx import tracking
first, last = int(sys.argv[1]), int(sys.argv[2])
run = tracking.start(id="train-7", project="vision", config={"from": first}, **json.loads(sys.argv[3]))
for step in range(first, last):
    run.log(loss=float(100 * first + step), step=step)
    run.log(unstepped=float(step))
if sys.argv[4:]:
    os.kill(os.getpid(), 9)
run.finish()
print(run.id, run.resumed)
"""


def train(place: Place, first: int, last: int, *more: str, **options: Any) -> tuple[str, str]:
    code = f"import sys\nsys.argv[1:] = {[str(first), str(last), json.dumps(options), *more]!r}\n{TRAIN}"
    done = script(code, PHALANX_HOME=str(place.home))
    return done.out.strip(), done.err


@pytest.mark.parametrize("is_seen", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_resumed_run_is_the_next_attempt_of_the_same_series(place: Place, is_seen: bool) -> None:
    assert train(place, 0, 10) == ("train-7 False", "")
    if is_seen:  # the scheduler has concluded it, and knows it as finished
        assert place.call("ps", "--json").data["runs"][0]["status"] == "succeeded"
    assert train(place, 8, 12, resume="must", tags=["again"], name="seven") == ("train-7 True", "")
    (row,) = place.call("ps", "--json").data["runs"]
    assert (row["id"], row["status"], row["attempt"], row["name"]) == ("train-7", "succeeded", 2, "seven")
    assert (row["params"], row["tags"], row["project"]) == ({"from": 8}, ["again"], "vision")
    assert row["summary"] == {"loss": 811.0, "unstepped": 11.0}
    (line,) = RunSeries(place.home / "runs" / "train-7").series("loss")
    assert list(line.steps) == list(range(12))
    assert list(line.attempts) == [1] * 8 + [2] * 4
    statuses = [change["status"] for change in place.call("statuses", "train-7", "--json").data["statuses"]]
    assert statuses == ["created", "running", *(["succeeded"] if is_seen else []), "resuming", "running", "succeeded"]


@pytest.mark.slow
def test_a_run_that_was_killed_can_be_resumed(place: Place) -> None:
    train(place, 0, 5, "kill")
    assert train(place, 5, 8) == ("train-7 True", "")
    (row,) = place.call("ps", "--json").data["runs"]
    assert (row["status"], row["attempt"], row["summary"]["loss"]) == ("succeeded", 2, 507.0)


@pytest.mark.slow
def test_what_an_attempt_recorded_before_anyone_looked_is_kept(place: Place) -> None:
    train(place, 0, 2, "kill", tags=["first"], description="old")
    train(place, 2, 3, tags=["second"])
    (row,) = place.call("ps", "--json").data["runs"]
    assert (row["tags"], row["description"]) == (["first", "second"], "old")


@pytest.mark.slow
def test_never_starts_another_run(place: Place) -> None:
    train(place, 0, 2)
    out, err = train(place, 0, 2, resume="never")
    other = out.split()[0]
    assert other != "train-7"
    assert err == f"phalanx: run train-7 exists and resume is `never`; this is run {other}\n"
    assert {row["id"]: row["attempt"] for row in place.call("ps", "--json").data["runs"]} == {"train-7": 1, other: 1}


@pytest.mark.slow
def test_must_without_a_run_says_so_and_loses_nothing(place: Place) -> None:
    out, err = train(place, 0, 2, resume="must")
    assert (out, err) == ("train-7 False", "phalanx: there is no run train-7 to resume; it is started now\n")
    assert place.call("ps", "--json").data["runs"][0]["summary"]["loss"] == 1.0


def test_a_run_of_a_living_process_is_not_taken_over(home: Path) -> None:
    run = tracking.start(id="train-7")
    assert tracking.start(id="train-7") is run
    text = "from phalanx import tracking\nrun = tracking.start(id='train-7')\nprint(run.id)"
    answer = script(text, PHALANX_HOME=str(home))
    assert answer.out.strip() != "train-7"
    assert "run train-7 is still running; this is run" in answer.err


@pytest.mark.slow
def test_a_run_that_phalanx_started_is_not_resumed_by_a_script(place: Place) -> None:
    run_id = place.ran("true")
    answer = script(
        f"from phalanx import tracking\nprint(tracking.start(id={run_id!r}).id)", PHALANX_HOME=str(place.home)
    )
    assert answer.out.strip() != run_id
    assert "continue it with `phalanx resume`" in answer.err


@pytest.mark.parametrize("given", ["My Run/1", "x", "ü", "a" * 100, "-abcd", "..", "%2e"])
def test_every_id_can_be_resumed_and_stays_in_its_folder(home: Path, given: str) -> None:
    with tracking.start(id=given) as run:
        run.log(loss=1.0)
    with tracking.start(run_id=given) as again:
        again.log(loss=2.0)
    assert (again.id, again.resumed) == (run.id, True)
    assert [one.run.name for one in runs_of(home)] == [run.id]
    assert external_folder.valid_id(run.id) == run.id
    assert sorted(path.name for path in (home / "runs").iterdir()) == [run.id]


def test_two_that_resume_at_once_get_attempts_of_their_own(home: Path) -> None:
    tracking.start(id="train-7").finish()
    folder = str(home / "runs" / "train-7")
    assert [external_folder.begin_attempt(folder, "again") for _ in range(3)] == [2, 3, 4]
    history = external_folder._history(folder)
    assert [(change["attempt"], change["status"]) for change in history[-2:]] == [(3, "resuming"), (4, "running")]
    ends = [json.loads((home / f"runs/train-7/replicas/master-0/attempt-{n}/end.json").read_bytes()) for n in (1, 2)]
    assert [(end["cause"], end["attempt"]) for end in ends] == [("finished", 1), ("lost", 2)]


@pytest.mark.slow
def test_processes_that_start_the_same_id_at_once_are_all_tracked(tmp_path: Path) -> None:
    text = "import sys\nfrom phalanx import tracking\nsys.stdin.read()\ntracking.start(id='train-7').log(loss=1.0)"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", text],
            env=clean_environment(PHALANX_HOME=str(tmp_path)),
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait(60) for process in processes] == [0] * 4
    attempts = [path for path in tmp_path.glob("runs/*/replicas/master-0/attempt-*") if list(path.glob("*.points"))]
    assert len(attempts) == 4
    assert (tmp_path / "runs" / "train-7").is_dir()
