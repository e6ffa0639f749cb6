"""`phalanx.submitit`: what submitit's users write, on this machine."""

from __future__ import annotations

import asyncio
import operator
import os
from pathlib import Path
from typing import Any

import pytest

from phalanx import submitit
from phalanx.errors import CallError
from phalanx.submitit.executors import SlurmExecutor
from phalanx.submitit.helpers import (
    CommandFunction,
    DelayedSubmission,
    FunctionSequence,
    RsyncSnapshot,
    TorchDistributedEnvironment,
    as_completed,
    clean_env,
)

pytestmark = pytest.mark.usefixtures("working")


@pytest.fixture
def executor() -> submitit.AutoExecutor:
    found = submitit.AutoExecutor(folder="logs/%j", cluster="local")
    found.update_parameters(timeout_min=4, slurm_partition="dev", slurm_array_parallelism=2)
    return found


def test_a_job_has_its_result_its_log_and_its_files(executor: submitit.AutoExecutor, training: Any) -> None:
    job = executor.submit(training.add, 5, b=7)
    assert (job.result(), job.results(), job.done(), job.exception(), job.state) == (12, [12], True, None, "COMPLETED")
    assert job.stdout() == "adding 5 7 in rank 0\n"
    assert job.paths.stdout.read_text() == job.stdout()
    assert job.paths.folder == Path("logs").absolute() / job.job_id
    assert repr(job) == f"Job(job_id={job.job_id}, task_id=0, state=COMPLETED)"
    assert job.run.record.backend == "native"


@pytest.mark.slow
def test_a_failed_job_raises_with_the_traceback_and_a_canceled_one_differs(
    executor: submitit.AutoExecutor, training: Any
) -> None:
    failed, endless = executor.submit(operator.truediv, 1, 0), executor.submit(training.wait_for, "never")
    with pytest.raises(submitit.FailedJobError, match="ZeroDivisionError: division by zero") as raised:
        failed.result()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    endless.cancel()
    with pytest.raises(submitit.UncompletedJobError) as other:
        endless.result()
    assert not isinstance(other.value, submitit.FailedJobError)
    assert (failed.state, endless.state) == ("FAILED", "CANCELLED")


def test_arrays_and_batches_start_together(executor: submitit.AutoExecutor, training: Any) -> None:
    jobs = executor.map_array(training.add, [1, 2], [10, 20])
    later = []
    with executor.batch():
        later += [executor.submit(training.add, number, b=number) for number in range(2)]
        with pytest.raises(AttributeError, match="the jobs of a batch start at its end"):
            _ = later[0].job_id
        with pytest.raises(RuntimeError, match="cannot change"):
            executor.update_parameters(timeout_min=1)
    assert [job.result() for job in jobs] == [11, 22]
    assert [job.result() for job in later] == [0, 2]
    assert len(list(as_completed(later, timeout=60))) == 2
    assert asyncio.run(jobs[1].awaitable().result()) == 22


@pytest.mark.filterwarnings("ignore:requests more than this machine has")
@pytest.mark.slow
def test_several_tasks_have_a_list_of_results_and_know_their_place(executor: submitit.AutoExecutor) -> None:
    def place() -> list[Any]:
        found = submitit.JobEnvironment()
        return [found.global_rank, found.local_rank, found.num_tasks, found.num_nodes, found.node, found.cluster]

    executor.update_parameters(tasks_per_node=2)
    job = executor.submit(place)
    assert job.result() == [[0, 0, 2, 1, 0, "local"], [1, 1, 2, 1, 0, "local"]]
    assert job.task(1).result() == [1, 1, 2, 1, 0, "local"]
    with pytest.raises(ValueError, match="between 0 and 1"):
        job.task(2)


def test_parameters_become_options_of_runs() -> None:
    executor = SlurmExecutor("logs", max_num_timeout=2)
    executor.update_parameters(time=30, partition="gpu", nodes=2, tasks_per_node=4, gpus_per_node=4, mem_gb=8)
    executor.update_parameters(cpus_per_task=3, additional_parameters={"mail-user": "a@b.c"}, name="big")
    found = executor._options(print)
    assert (found.on, found.workers, found.gpus, found.cpus, found.memory) == ("slurm", 8, 1, 3, 2048)
    assert (found.name, found.timeout) == ("big", 1800)
    slurm = {"partition": "gpu", "directives": {"mail-user": "a@b.c"}, "replicas_per_node": 4}
    assert found.spec == {"environment": {"slurm": slurm, "replicas": {"processes": 1}}}
    long = executor._options(FunctionSequence())
    assert isinstance(long.spec, dict)
    assert (long.timeout, long.spec["environment"]["slurm"]["segment"]) == (3 * 1800, 1800)
    with pytest.raises(NameError, match=r"did you mean `timeout_min`\?"):
        submitit.AutoExecutor("logs").update_parameters(timeout_mn=4)
    executor.update_parameters(gpus_per_node=3)
    with pytest.raises(CallError, match="cannot be divided"):
        executor._options(print)


def test_helpers_work_without_a_cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert CommandFunction(["echo", "a"])("b", c=1) == "a b --c=1"
    assert "is sent: 'echo a b --c=1'" in capsys.readouterr().out
    with pytest.raises(submitit.FailedJobError, match="ended with code 3"):
        CommandFunction(["bash", "-c", "exit 3"], verbose=False)()
    with pytest.raises(TypeError, match="as a list of words"):
        CommandFunction("echo a")
    sequence = FunctionSequence()
    sequence.add(operator.add, 1, 2)
    assert (sequence(), len(sequence), [one.done() for one in sequence]) == ([3], 1, [True])
    following = sequence.checkpoint()
    assert isinstance(following, DelayedSubmission)
    assert following.function is sequence
    with pytest.raises(RuntimeError, match="for code that runs in a job"):
        submitit.JobEnvironment()
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    with clean_env():
        import os

        assert "SLURM_JOB_ID" not in os.environ
    assert os.environ["SLURM_JOB_ID"] == "1"


def test_a_snapshot_has_the_code_without_what_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("x = 1")
    (code / "data.bin").write_text("large")
    (code / ".polyaxonignore").write_text("*.bin\n")
    monkeypatch.chdir(code)
    with RsyncSnapshot(tmp_path / "copy"):
        assert Path.cwd() == tmp_path / "copy"
        assert Path("train.py").read_text() == "x = 1"
        assert not Path("data.bin").exists()
    assert Path.cwd() == code
    with pytest.raises(CallError, match=r"`exclude`.*\.polyaxonignore"):
        RsyncSnapshot(tmp_path / "other", exclude=["*.bin"])


def test_the_variables_of_torch_are_exported_and_never_replaced_by_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"PHALANX_RUN_ID": "abcdefgh", "PHALANX_RANK": "0", "PHALANX_WORLD_SIZE": "1"}
    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"], **run})
    found = TorchDistributedEnvironment().export()
    expected = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_PORT": str(found.master_port)}
    assert os.environ.items() >= expected.items()
    with pytest.raises(RuntimeError, match="is already set"):
        found.export()
    found.export(overwrite=True)
