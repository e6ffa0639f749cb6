"""The commands of the Slurm engine, beside programs that stand in for Slurm's. The real ones are in tests/slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.agent.processes import boot_id
from phalanx.backends.contract import EngineUnavailable, JobDependency, JobRejected, SubmissionStart, TooManyTasks
from phalanx.backends.slurm import engine as slurm_engine
from phalanx.backends.slurm.arrays import array_script
from phalanx.backends.slurm.engine import SlurmEngine
from phalanx.home.array_folder import ArrayTask, write_tasks

SUBMIT = """
import os, sys
from pathlib import Path
from phalanx.backends.slurm.arrays import array_script
from phalanx.backends.slurm.engine import SlurmEngine
from phalanx.home.array_folder import ArrayTask, write_tasks
folder = Path(sys.argv[1])
SlurmEngine().submit(folder, "r1", 2, 1, working=folder, environment=dict(os.environ))
"""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, **commands: str) -> None:
    for name, body in commands.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def submit(folder: Path) -> str:
    return SlurmEngine().submit(folder, "r1", 2, 1, working=folder, environment=dict(os.environ))


def test_a_submission_is_seen_until_it_is_over_though_its_process_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm(tmp_path, monkeypatch, sbatch=f"touch {tmp_path}/began; until [ -e {tmp_path}/go ]; do sleep 0.05; done")
    engine, start = SlurmEngine(), SubmissionStart(time.time(), boot_id())
    process = subprocess.Popen([sys.executable, "-c", SUBMIT, str(tmp_path)])
    until((tmp_path / "began").exists)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert engine.is_submitting("r1", 2, start)
    assert not engine.is_submitting("r1", 1, start)
    assert not engine.is_submitting("r", 2, start)
    (tmp_path / "go").touch()
    until(lambda: not engine.is_submitting("r1", 2, start))


def test_a_submission_of_another_machine_is_over_after_its_timeout() -> None:
    engine, now = SlurmEngine(), time.time()
    assert engine.is_submitting("r1", 1, SubmissionStart(now, "another"))
    assert not engine.is_submitting("r1", 1, SubmissionStart(now - 70.0, "another"))
    assert not engine.is_submitting("r1", 1, SubmissionStart(now + 1e6, "another")), "its clock is wrong"


def test_the_timeout_of_a_command_holds_for_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(tmp_path, monkeypatch, sbatch=f"echo $$ >{tmp_path}/pid; sleep 300")
    monkeypatch.setattr(slurm_engine, "PATIENCE_S", 0.5)
    with pytest.raises(EngineUnavailable, match=r"sbatch does not respond: no answer after 0\.5 s"):
        submit(tmp_path)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


@pytest.mark.parametrize(
    ("body", "fault", "words"),
    [
        ("echo 'sbatch: error: Invalid account' >&2; exit 1", JobRejected, "Invalid account"),
        ("echo 'sbatch: error: Socket timed out on send/recv' >&2; exit 1", EngineUnavailable, "Socket timed out"),
        ("echo nonsense", EngineUnavailable, "sbatch did not print a job number"),
    ],
)
def test_errors_of_sbatch_are_distinguished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, fault: type[Exception], words: str
) -> None:
    slurm(tmp_path, monkeypatch, sbatch=body)
    with pytest.raises(fault, match=words):
        submit(tmp_path)


def test_records_are_not_asked_about_a_job_that_the_engine_itself_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"{job}|{job}|CANCELLED|None|||||phalanx:r{job}:1|phalanx-r{job}\n" for job in (7, 8))
    slurm(tmp_path, monkeypatch, squeue=f"echo -n '{rows}'", sacct=f"echo $* >>{tmp_path}/asked", scancel="true")
    engine = SlurmEngine()
    engine.cancel(["slurm:7"])
    assert set(engine.observe(["slurm:7", "slurm:8"])) == {"slurm:7", "slurm:8"}
    assert " -j 8 " in (tmp_path / "asked").read_text()  # only the records know who cancelled it


def test_the_limit_of_an_array_is_changed_though_some_of_its_tasks_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "echo $* >>{0}/asked; printf '7_0: Job has already finished\\n7_1-11: {1}\\n' >&2; exit 1"
    slurm(tmp_path, monkeypatch, scontrol=said.format(tmp_path, "No error"))
    SlurmEngine().limit_array("slurm:7", 4)
    SlurmEngine().limit_array("slurm:7", 0)
    assert (tmp_path / "asked").read_text() == "update JobId=7 ArrayTaskThrottle=4\nrelease 7\nhold 7\n"
    slurm(tmp_path, monkeypatch, scontrol=said.format(tmp_path, "Access/permission denied"))
    with pytest.raises(EngineUnavailable, match="permission denied"):
        SlurmEngine().limit_array("slurm:7", 4)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("echo 'sbatch: error: AssocMaxSubmitJobLimit' >&2; exit 1", TooManyTasks),
        (
            "echo 'sbatch: error: Batch job submission failed: Invalid job array specification' >&2; exit 1",
            TooManyTasks,
        ),
        ("echo 'sbatch: error: Invalid account' >&2; exit 1", JobRejected),
        ("echo 7", None),
    ],
)
def test_an_array_is_a_table_of_runs_and_one_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, fault: type[Exception] | None
) -> None:
    config = "echo MaxArraySize            = 3"
    slurm(tmp_path, monkeypatch, sbatch=f"echo $* >{tmp_path}/asked; {body}", scontrol=config)
    engine, runs = SlurmEngine(), [tmp_path / "runs" / name for name in ("a", "b", "c", "d")]
    for run in runs:
        (run / "job").mkdir(parents=True)
        (run / "run.sh").write_text(f"#!/bin/bash\n#SBATCH --job-name={run.name}\n#SBATCH --cpus-per-task=2\ntrue\n")
    assert len({engine.array_key(run, tmp_path) for run in runs}) == 1
    assert engine.array_key(tmp_path / "a|b", tmp_path) is None
    tasks = [ArrayTask(run, 2, 1, tmp_path) for run in runs]
    with pytest.raises(TooManyTasks, match="may have 3 tasks"):
        engine.submit_array(tmp_path / "array", tasks, 2, dict(os.environ))
    if fault is not None:
        with pytest.raises(fault):
            engine.submit_array(tmp_path / "array", tasks[:3], 2, dict(os.environ))
        return
    assert engine.submit_array(tmp_path / "array", tasks[:3], 2, dict(os.environ)) == [
        "slurm:7_0",
        "slurm:7_1",
        "slurm:7_2",
    ]
    asked = (tmp_path / "asked").read_text()
    assert f"--comment=phalanx-array:{tmp_path}/array --array=0-2%2 " in asked
    script = (tmp_path / "array" / "run.sh").read_text()
    assert ("#SBATCH --cpus-per-task=2\n" in script, "--job-name" in script) == (True, False)
    waiting = f"7|7_[1-2%2]|PENDING|None|||||phalanx-array:{tmp_path}/array|phalanx-array"
    slurm(tmp_path, monkeypatch, squeue=f"echo '{waiting}'")
    seen = engine.observe(())
    assert {handle: (one.run_id, one.attempt) for handle, one in seen.items()} == {
        "slurm:7_1": ("b", 2),
        "slurm:7_2": ("c", 2),
    }


@pytest.mark.parametrize(
    ("after", "option"),
    [
        ([JobDependency("slurm:5", must_succeed=True)], "afterok:5"),
        ([JobDependency("slurm:5", must_succeed=False)], "afterany:5"),
        (
            [*(JobDependency(f"slurm:{job}", must_succeed=job != 6) for job in (5, 6, 7))],
            "afterok:5:7,afterany:6",
        ),
        ([], ""),
    ],
)
def test_a_job_waits_for_others_and_is_told_when_these_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: list[JobDependency], option: str
) -> None:
    said = f"echo $* >>{tmp_path}/asked"
    slurm(tmp_path, monkeypatch, sbatch=f"{said}; echo 8", scontrol=said)
    engine = SlurmEngine()
    handle = engine.submit_after(tmp_path, "r1", 2, 1, working=tmp_path, environment=dict(os.environ), after=after)
    assert handle == "slurm:8"
    engine.change_dependencies(handle, after)
    submitted, changed = (tmp_path / "asked").read_text().splitlines()
    assert changed == f"update JobId=8 Dependency={option}"
    waits = f" --dependency={option} --kill-on-invalid-dep=no " if after else " "
    assert f"/job/slurm-%j.out{waits}{tmp_path}/run.sh {tmp_path} 2 1" in submitted


def test_a_job_that_slurm_has_forgotten_or_started_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = [JobDependency("slurm:5", must_succeed=True)]
    complaint = "Batch job submission failed: Job dependency problem"
    over = "echo 'Job is no longer pending execution for job 8' >&2; exit 1"
    slurm(tmp_path, monkeypatch, sbatch=f"echo 'sbatch: error: {complaint}' >&2; exit 1", scontrol=over)
    engine = SlurmEngine()
    with pytest.raises(EngineUnavailable, match="dependency problem"):
        engine.submit_after(tmp_path, "r1", 2, 1, working=tmp_path, environment=dict(os.environ), after=after)
    engine.change_dependencies("slurm:8", after)
    slurm(tmp_path, monkeypatch, scontrol=f"echo '{complaint}' >&2; exit 1")
    with pytest.raises(EngineUnavailable, match="dependency problem"):
        engine.change_dependencies("slurm:8", after)


@pytest.mark.parametrize(("directives", "takes"), [("--nodes=1", True), ("--nodes=1\n#SBATCH hetjob", False)])
def test_heterogeneous_jobs_do_not_wait_in_slurm(tmp_path: Path, directives: str, takes: bool) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n#SBATCH {directives}\n")
    assert SlurmEngine().takes_dependencies(tmp_path) is takes


def test_the_script_of_an_array_starts_the_run_of_its_task(tmp_path: Path) -> None:
    run, here, working = tmp_path / "runs" / "my run", tmp_path / "array", tmp_path / "a 'place'"
    for folder in (run / "job", here, working):
        folder.mkdir(parents=True)
    (run / "run.sh").write_text('echo "$1|$2|$3|$PWD"\n')
    write_tasks(here, [ArrayTask(tmp_path, 1, 1, tmp_path), ArrayTask(run, 3, 2, working)])
    (here / "run.sh").write_text(array_script("", 2))
    (here / "1.out").touch()
    variables = {**os.environ, "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    done = subprocess.run(["bash", here / "run.sh", here], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == f"{run}|3|2|{working}\n"
    assert (run / "job" / "slurm-7_1.out").samefile(here / "1.out")
    missing = {**variables, "SLURM_ARRAY_TASK_ID": "2"}
    done = subprocess.run(["bash", here / "run.sh", here], env=missing, capture_output=True, text=True, check=False)
    assert (done.returncode, "task 2 is missing" in done.stderr) == (1, True)


def test_a_missing_command_is_reported(tmp_path: Path) -> None:
    (tmp_path / "timeout").symlink_to("/usr/bin/timeout")
    with pytest.raises(EngineUnavailable, match="`sbatch` is not on the PATH"):
        SlurmEngine().submit(tmp_path, "r1", 1, 1, working=tmp_path, environment={"PATH": str(tmp_path)})
