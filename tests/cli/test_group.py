"""`phalanx run` of a group, and `phalanx group`, through the installed command."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import pytest

from phalanx import plan
from phalanx.cli.render.search_cost import cost_lines
from phalanx.spec import load
from phalanx.spec.groups import first_suggestion
from phalanx.submission.earlier_times import EarlierTimes
from tests.cli.homes import Place, place_fixture, wait_for  # noqa: F401 - found by its name

LOG = f"{sys.executable} -c 'from phalanx import tracking; tracking.log(loss={{{{ x }}}})'"
LOSS = {"name": "loss", "optimization": "minimize"}


def group_file(place: Place, command: str, **tuning: Any) -> str:
    small = {"resources": {"cpu": {"requests": 0.01}}}
    tuning = {"matrix": {"x": {"values": [3, 1, 2]}}, **tuning}
    return place.file(command, kind="group", environment=small, hptuning=tuning)


@pytest.mark.slow
def test_a_group_is_followed_to_its_best_trial(place: Place) -> None:
    answer = place.call("run", "-f", group_file(place, LOG, concurrency=3, metric=LOSS), "--name", "probe")
    assert answer.code == 0, answer.err
    lines = answer.err.splitlines()
    assert {"trial 0: loss 3  x=3", "trial 1: loss 1  x=1", "trial 2: loss 2  x=2"} <= set(lines)
    assert "3 of 3 trials, 0 running; best loss 1 (trial 1)" in lines
    (group,) = place.call("ps", "-q", "kind:group", "--json").data["runs"]
    assert (group["name"], group["status"]) == ("probe", "succeeded")
    best = place.call("group", "best", "probe", "--json").data["trials"][0]
    assert (best["trial"], best["params"], best["value"]) == (1, {"x": 1}, 1.0)
    assert f"best: trial 1, run {best['run']}: loss 1" in lines
    assert place.call("ps", "-q", f"group:{group['id']}", "--json").data["count"] == 3
    compared = place.call("compare", "probe", "--json").data
    assert compared["runs"][0]["id"] == best["run"]
    assert "has no logs" in place.call("logs", "probe").err
    assert (
        place.call("export", "probe", "--format", "optuna", "-o", "study.log").out == "1 group, 3 trials: study.log\n"
    )
    seen = place.call("import", "study.log", "--dry-run", "--json").data
    assert [(run["name"], run["project"]) for run in seen["runs"]] == [(f"probe-{n}", "probe") for n in range(3)]
    assert "already exists" in place.call("export", "probe", "--format", "optuna", "-o", "study.log").err
    before = place.call("group", "show", "probe").out
    assert place.call("doctor", "--rebuild").code == 0
    assert place.call("group", "show", "probe").out == before
    planned = place.call("plan", "-f", "polyaxonfile.yml", "--json").data["search"]
    assert (planned["cost"]["runs"], planned["hours"]["by"], planned["hours"]["earlier_runs"]) == (3, "history", 3)
    assert 0 < planned["hours"]["wall_hours"] == planned["hours"]["seconds_per_unit"] / 3600
    assert planned["hours"]["core_hours"] == pytest.approx(3 * 0.01 * planned["hours"]["wall_hours"])
    for verb in ("plan", "check"):  # by the length of these runs, and as the file says
        answer = place.call(verb, "-f", "polyaxonfile.yml", "--on", "slurm", "--json")
        jobs = answer.data["search"]["jobs"]
        assert (jobs["trials"], jobs["nodes"], "in 3 earlier runs" in jobs["why"]) == ("packed", 1, True), answer.err
        forced = group_file(place, LOG, concurrency=3, slurm={"trials": "array"})
        jobs = place.call(verb, "-f", forced, "--on", "slurm", "--json").data["search"]["jobs"]
        assert jobs == {"trials": "array", "why": "the file says so"}
        group_file(place, LOG, concurrency=3, metric=LOSS)
    assert place.call("rm", "-y", "probe").code == 0
    assert place.run_ids() == []
    assert place.call("plan", "-f", "polyaxonfile.yml", "--json").data["search"]["hours"] is None


@pytest.mark.slow
def test_a_detached_group_survives_its_scheduler(place: Place) -> None:
    file = group_file(place, "sleep 0.2; echo {{ x }}", concurrency=2)
    group = place.call("run", "-f", file, "-d", "--json").data["id"]
    log = place.home / "scheduler.lock"
    wait_for(log.exists)
    for _ in range(3):
        for pid in scheduler_pids(place):
            os.kill(pid, signal.SIGKILL)
        place.call("ps")  # starts the next one
    wait_for(lambda: place.status(group) == "succeeded")
    rows = place.call("group", "trials", group, "--json").data["trials"]
    assert [(row["state"], row["params"]) for row in rows] == [("reported", {"x": x}) for x in (3, 1, 2)]
    assert len(place.run_ids()) == 4


def scheduler_pids(place: Place) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as stream:
                words = stream.read().split(b"\0")
        except OSError:
            continue
        if b"phalanx.scheduler" in words and str(place.home).encode() in words:
            found.append(int(name))
    return found


@pytest.mark.slow
def test_a_group_is_paused_changed_and_continued(place: Place) -> None:
    group = place.call(
        "run", "-f", group_file(place, "echo up; [ -e go ] || sleep 60", concurrency=1), "-d"
    ).out.strip()
    wait_for(lambda: place.call("ps", "-q", f"group:{group}, status:running", "--json").data["count"])
    assert "paused: by its user" in place.call("group", "pause", group).out
    assert place.call("group", "set", group, "concurrency=3").code == 0
    assert place.call("group", "add", group, "x=7").code == 0
    wrong = place.call("group", "add", group, "y=7")
    assert (wrong.code, "`y` is not in the matrix of the group: write x" in wrong.err) == (2, True)
    assert "write `concurrency=N`" in place.call("group", "set", group, "speed=3").err
    shown = place.call("group", "show", group, "--json").data
    assert (shown["concurrency"], shown["paused"], shown["trials"]) == (3, "by its user", {"running": 1})
    assert place.call("group", "resume", group).code == 0
    wait_for(lambda: place.call("ps", "-q", f"group:{group}, status:running", "--json").data["count"] == 3)
    stopped = place.call("stop", group, "--json").data["runs"][0]
    assert (stopped["status"], stopped["reason"]) == ("stopped", "stopped by its user")
    assert place.call("ps", "-q", f"group:{group}, status:stopped", "--json").data["count"] == 3
    (place.folder / "go").touch()
    answer = place.call("resume", group)
    assert answer.code == 0, answer.err
    assert "4 of 4 trials" in answer.err


@pytest.mark.slow
def test_stop_pending_lets_running_trials_end(place: Place) -> None:
    group = place.call(
        "run", "-f", group_file(place, "echo up; while ! [ -e go ]; do sleep 0.05; done"), "-d"
    ).out.strip()
    wait_for(lambda: place.call("ps", "-q", f"group:{group}, status:running", "--json").data["count"])
    assert place.call("group", "stop", group, "--pending").code == 0
    (place.folder / "go").touch()
    wait_for(lambda: place.status(group) == "succeeded")
    (run,) = place.call("ps", "-q", f"group:{group}", "--json").data["runs"]
    assert run["status"] == "succeeded"


@pytest.mark.slow
def test_ctrl_c_stops_the_group_and_its_trials(place: Place) -> None:
    process = place.start("run", "-f", group_file(place, "touch ready; sleep 60", concurrency=2))
    wait_for((place.folder / "ready").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    statuses = {row["status"] for row in place.call("ps", "--json").data["runs"]}
    assert statuses == {"stopped"}


@pytest.mark.slow
def test_a_group_whose_first_trials_fail_says_so_and_exits(place: Place) -> None:
    answer = place.call("run", "-f", group_file(place, "exit 5"))
    assert answer.code == 1
    assert "failed with the same error: master-0: exit code 5" in answer.err or "all 3 trials failed" in answer.err


def test_plan_shows_the_rungs_and_the_number_of_runs(place: Place) -> None:
    hyperband = {
        "max_iter": 81,
        "eta": 3,
        "resource": {"name": "epochs", "type": "int"},
        "metric": LOSS,
        "resume": True,
    }
    content = {
        "version": 1,
        "kind": "group",
        "hptuning": {"concurrency": 9, "matrix": {"x": {"uniform": "0:1"}}, "hyperband": hyperband},
        "run": {"cmd": "train {{ x }} {{ epochs }}"},
    }
    (place.folder / "hyperband.yml").write_text(json.dumps(content))
    lines = place.call("plan", "-f", "hyperband.yml").out.splitlines()
    assert lines[1] == "143 runs in 206 attempts, 9 at a time"
    assert lines[2].startswith("1581 epochs in total")
    assert lines[3:5] == [
        "  bracket 0: 81 @ 1, 27 @ 3, 9 @ 9, 3 @ 27, 1 @ 81",
        "  bracket 1: 34 @ 3, 11 @ 9, 3 @ 27, 1 @ 81",
    ]
    content["environment"] = {"timeout": "1h"}
    (place.folder / "hyperband.yml").write_text(json.dumps(content))
    search = place.call("plan", "-f", "hyperband.yml", "--json").data["search"]
    cost, hours = search["cost"], search["hours"]
    assert (cost["runs"], cost["attempts"], cost["units"]) == (143, 206, 1581)
    assert (hours["by"], hours["core_hours"]) == ("limit", 206)
    assert 206 / 9 <= hours["wall_hours"] < 206 / 9 * 1.5


HOURS = """version: 1
kind: group
hptuning: {{concurrency: 4, repeat: 2, matrix: {{x: {{values: [1, 2, 3]}}}}}}
environment: {{{limit}resources: {{cpu: {{requests: 8}}, gpu: {{requests: 2}}}}}}
run: {{cmd: x}}
"""


@pytest.mark.parametrize(
    ("limit", "earlier", "line"),
    [
        (
            "",
            None,
            "hours: not known; they follow from an earlier run of this command (run one trial), or at most from",
        ),
        ("timeout: 3h, ", None, "at most 144 core-hours, 36 GPU-hours, 6.0 h at this concurrency: by the time limit"),
        (
            "timeout: 3h, ",
            EarlierTimes(2, 7200.0, 2.0),
            "about 48 core-hours, 12 GPU-hours, 2.0 h at this concurrency: 60 min each in 2 earlier runs",
        ),
    ],
)
def test_a_plan_tells_the_hours_by_earlier_runs_or_by_the_limit(
    limit: str, earlier: EarlierTimes | None, line: str
) -> None:
    loaded = load([("search.yml", HOURS.format(limit=limit).encode())])
    lines = [*cost_lines(loaded, plan.make(first_suggestion(loaded), "r-1", "p"), earlier)]
    assert lines[:2] == ["6 runs, 2 of each point, 4 at a time", "each run: 8 cores and 2 GPUs"]
    assert lines[2].startswith(line)


@pytest.mark.slow
def test_a_run_is_no_group(place: Place) -> None:
    run = place.ran("true")
    answer = place.call("group", "pause", run)
    assert (answer.code, answer.err) == (2, f"error: run {run} is not a group: its kind is experiment\n")


@pytest.mark.parametrize(
    ("search", "line"),
    [
        ("hyperband: {max_iter: 1000000000000000, eta: 1.1, resource: {name: e}, metric: {name: l}}", "one or more"),
        ("pbt: {n_experiments: 900, max_iter: 9000, interval: 1, resource: {name: e}, metric: {name: l}}", "900 runs"),
        ("random_search: {n_experiments: 50000}", "50000 runs, 1 at a time"),
    ],
)
def test_the_cost_of_a_huge_search_is_not_played(search: str, line: str) -> None:
    """It would take minutes, or for ever."""
    text = f"version: 1\nkind: group\nhptuning: {{matrix: {{x: {{uniform: [0, 1]}}}}, {search}}}\nrun: {{cmd: x}}\n"
    loaded = load([("search.yml", text.encode())])
    began = time.process_time()
    assert any(line in text for text in cost_lines(loaded, plan.make(first_suggestion(loaded), "r-1", "p")))
    assert time.process_time() - began < 5
