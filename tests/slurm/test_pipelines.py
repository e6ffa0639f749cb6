"""Pipelines whose ops are jobs of a real Slurm, and mail that Slurm sends for runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.homes import wait_for
from tests.slurm.places import PATIENCE_S, SlurmPlace
from tests.slurm.programs import folder, job_of, kill_schedulers, over, submit

SMALL = {"resources": {"cpu": {"requests": 1}, "memory": {"limits": 200}}}


def template(name: str, command: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "job", "name": name, "environment": SMALL, "run": {"cmd": command}, **fields}


def pipeline(place: SlurmPlace, gate: str = "true") -> str:
    """Data passes from the first op to the second, the third fails once, and the last runs in any case."""
    templates = [
        template("prepare", f"{gate}; echo 7 > $PHALANX_OUTPUTS/data.txt", outputs=[{"name": "data", "type": "path"}]),
        template("train", "echo read $(cat {{ data }})", inputs=[{"name": "data", "type": "path"}]),
        template("flaky", "mkdir once && exit 1; true"),
        template("broken", "exit 3"),
        template("report", "touch $PHALANX_OUTPUTS/reported"),
    ]
    ops = [
        {"name": "prepare", "template": {"name": "prepare"}},
        {
            "name": "train",
            "template": {"name": "train"},
            "params": {"data": "{{ ops.prepare.outputs.data }}"},
        },
        {"name": "flaky", "template": {"name": "flaky"}, "max_retries": 1},
        {"name": "broken", "template": {"name": "broken"}, "max_retries": 1},
        {
            "name": "report",
            "template": {"name": "report"},
            "dependencies": ["train", "broken"],
            "trigger": "all_done",
        },
    ]
    file = place.file(None, kind="pipeline", ops=ops, templates=templates)
    answer = place.call("run", "-f", file, "--on", "slurm", "-d")
    assert answer.code == 0, answer.err
    return answer.out.strip()


def ops_of(place: SlurmPlace, run: str) -> dict[str, dict[str, Any]]:
    return {op["name"]: op for op in place.call("show", run, "--json").data["ops"]}


def states_of(place: SlurmPlace, run: str) -> dict[str, str]:
    return {name: op["status"] for name, op in ops_of(place, run).items()}


ENDS = {"prepare": "succeeded", "train": "succeeded", "flaky": "succeeded", "broken": "failed", "report": "succeeded"}


@pytest.mark.smoke
def test_ops_pass_data_are_retried_and_run_after_failures(place: SlurmPlace) -> None:
    run = pipeline(place)
    assert place.until(run, "succeeded", "failed", patience_s=2 * PATIENCE_S) == "failed"
    assert states_of(place, run) == ENDS
    ops = ops_of(place, run)
    assert [len(ops[name]["runs"]) for name in ("prepare", "flaky", "broken")] == [1, 2, 2]
    assert place.call("logs", ops["train"]["run_id"]).out == "read 7\n"
    assert (folder(place, ops["report"]["run_id"]) / "outputs" / "reported").exists()
    assert job_of(place, ops["train"]["run_id"]).isdigit()


def test_a_pipeline_goes_on_after_its_scheduler_was_killed(place: SlurmPlace) -> None:
    run = pipeline(place, gate="until [ -e go ]; do sleep 0.1; done")
    wait_for(lambda: ops_of(place, run)["prepare"]["status"] == "running", PATIENCE_S)
    assert kill_schedulers(place) >= 1
    (place.folder / "go").touch()
    assert place.until(run, "succeeded", "failed", patience_s=2 * PATIENCE_S) == "failed"
    assert states_of(place, run) == ENDS
    assert len(ops_of(place, run)["prepare"]["runs"]) == 1


def test_a_pipeline_that_was_stopped_leaves_no_job_and_resumes(place: SlurmPlace) -> None:
    run = pipeline(place, gate="until [ -e go ]; do sleep 0.1; done")
    wait_for(lambda: ops_of(place, run)["prepare"]["status"] == "running", PATIENCE_S)
    assert place.call("stop", run).code == 0
    assert place.until(run, "stopped", "failed") in ("stopped", "failed")
    wait_for(lambda: place.cluster.ask("squeue", "-h") == "", PATIENCE_S)
    (place.folder / "go").touch()
    assert place.call("resume", run, "-d").code == 0
    wait_for(lambda: states_of(place, run) == ENDS, 2 * PATIENCE_S)


def test_slurm_sends_the_mail_that_a_file_asks_for(place: SlurmPlace) -> None:
    rules = [{"mail": "me@example.org", "on": ["failed"], "by": "slurm"}]
    failed = submit(place, "exit 3", environment=SMALL, notify=rules)
    fine = submit(place, "true", environment=SMALL, notify=rules)
    jobs = [job_of(place, run) for run in (failed, fine)]
    over(place, failed, fine)
    mails = place.cluster.state / "log" / "mails"
    wait_for(lambda: mails.exists() and f"Job_id={jobs[0]} " in mails.read_text(), PATIENCE_S)
    (line,) = [line for line in mails.read_text().splitlines() if f"Job_id={jobs[0]} " in line]
    assert line.startswith("me@example.org: ")
    assert "Failed" in line
    assert f"Job_id={jobs[1]} " not in mails.read_text()
