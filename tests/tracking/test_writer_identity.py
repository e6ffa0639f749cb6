"""Every process that knows its rank writes series of its own."""

from __future__ import annotations

import pytest

from phalanx import launched_ranks
from phalanx.tracking.writer_identity import WriterIdentity, this_writer

FOLDER = "/home/runs/abc/replicas/{}/attempt-2"
MASTER = {"PHALANX_TRACK": FOLDER.format("master-0"), "PHALANX_RANK": "0", "PHALANX_LOCAL_RANK": "0"}
CLUSTER = '{"master": ["h:1"], "worker": ["h:2", "h:3"]}'
LAUNCHED = {**MASTER, "PHALANX_LAUNCH": "mpirun", "PHALANX_CLUSTER": CLUSTER}


def test_outside_of_a_run_there_is_none() -> None:
    assert this_writer({}) is None
    assert this_writer({"RANK": "1", "LOCAL_RANK": "1"}) is None


@pytest.mark.parametrize(
    ("environment", "replica", "rank"),
    [
        (MASTER, "master-0", 0),
        ({**MASTER, "RANK": "0", "LOCAL_RANK": "0"}, "master-0", 0),
        # torchrun in a replica
        ({**MASTER, "RANK": "1", "LOCAL_RANK": "1"}, "master-0.1", 1),
        ({**MASTER, "PHALANX_TRACK": FOLDER.format("worker-0"), "RANK": "2", "LOCAL_RANK": "0"}, "worker-0", 2),
        ({**MASTER, "LOCAL_RANK": "1"}, "master-0.1", 1),  # as Lightning starts them
        # a process that we started is who we said
        (
            {"PHALANX_TRACK": FOLDER.format("worker-0.1"), "PHALANX_LOCAL_RANK": "1", "LOCAL_RANK": "1", "RANK": "3"},
            "worker-0.1",
            3,
        ),
        # mpirun from the first replica
        ({**LAUNCHED, "OMPI_COMM_WORLD_RANK": "0"}, "master-0", 0),
        ({**LAUNCHED, "OMPI_COMM_WORLD_RANK": "2"}, "worker-1", 2),
        ({**LAUNCHED, "PMI_RANK": "1"}, "worker-0", 1),
        ({**LAUNCHED, "HOROVOD_RANK": "7"}, "master-0.7", 7),
        (LAUNCHED, "master-0", 0),
        ({**LAUNCHED, "OMPI_COMM_WORLD_RANK": "what"}, "master-0", 0),
        ({**LAUNCHED, "OMPI_COMM_WORLD_RANK": "1", "PHALANX_CLUSTER": "damage"}, "master-0", 0),
        # variables of another launcher around us say nothing
        ({**MASTER, "SLURM_PROCID": "3"}, "master-0", 0),
        # no way out of the run's folder
        ({**MASTER, "RANK": "1", "LOCAL_RANK": "../../x"}, "master-0", 0),
        ({**MASTER, "RANK": "1", "LOCAL_RANK": "-1"}, "master-0", 0),
    ],
)
def test_who_this_process_is(environment: dict[str, str], replica: str, rank: int) -> None:
    writer = this_writer(environment)
    folder = FOLDER.format(replica)
    assert writer == WriterIdentity(folder, rank, has_agent=folder == environment["PHALANX_TRACK"])


def test_a_run_that_phalanx_did_not_start_has_one_seat() -> None:
    outside = {**MASTER, "PHALANX_OUTSIDE": "1", "LOCAL_RANK": "1", "RANK": "1"}
    assert this_writer(outside) == WriterIdentity(MASTER["PHALANX_TRACK"], 0, has_agent=False)


OUTER_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "2", "PMIX_NAMESPACE": "100"}
OUTER_STEP = {"SLURM_PROCID": "3", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}
OUTER_TORCH = {"RANK": "3", "LOCAL_RANK": "3", "MASTER_PORT": "29500", "TORCHELASTIC_ERROR_FILE": "/tmp/a/3"}
WORKER = {"PHALANX_TRACK": FOLDER.format("worker-0"), "PHALANX_RANK": "1", "PHALANX_LOCAL_RANK": "0"}


@pytest.mark.parametrize(
    ("start", "inside", "replica", "rank"),
    [
        # a launcher that the command runs
        (MASTER, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}, "master-0", 0),
        (MASTER, {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, "master-0.2", 2),
        (MASTER, {"PMI_RANK": "1"}, "master-0.1", 1),
        (MASTER, {"SLURM_PROCID": "1", "SLURM_JOB_ID": "8", "SLURM_STEP_ID": "0"}, "master-0.1", 1),
        # one in each of several replicas: no two processes have the same rank
        (WORKER, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}, "worker-0", 3),
        (WORKER, {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, "worker-0.2", 5),
        # torchrun in each task of mpirun or srun
        (MASTER, {"OMPI_COMM_WORLD_RANK": "1", "RANK": "5", "LOCAL_RANK": "1"}, "master-0.5", 5),
        # a run that was submitted from a task of a launcher is not that task
        ({**MASTER, **OUTER_MPI}, {}, "master-0", 0),
        ({**MASTER, **OUTER_STEP}, {}, "master-0", 0),
        ({**MASTER, **OUTER_TORCH}, {}, "master-0", 0),
        # and may run a launcher whose ranks are the same numbers
        ({**MASTER, **OUTER_MPI}, {"OMPI_COMM_WORLD_RANK": "0", "PMIX_NAMESPACE": "200"}, "master-0", 0),
        ({**MASTER, **OUTER_MPI}, {"OMPI_COMM_WORLD_RANK": "2", "PMIX_NAMESPACE": "200"}, "master-0.2", 2),
        ({**MASTER, **OUTER_MPI}, {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0"}, "master-0.1", 1),
        ({**MASTER, **OUTER_STEP}, {"SLURM_STEP_ID": "1"}, "master-0.3", 3),
        ({**MASTER, **OUTER_STEP}, {"OMPI_COMM_WORLD_RANK": "1", "PMIX_NAMESPACE": "200"}, "master-0.1", 1),
        ({**MASTER, **OUTER_TORCH}, {"TORCHELASTIC_ERROR_FILE": "/tmp/b/3"}, "master-0.3", 3),
    ],
)
def test_ranks_count_only_from_launchers_that_the_command_runs(
    start: dict[str, str], inside: dict[str, str], replica: str, rank: int
) -> None:
    environment = {**start, launched_ranks.AT_START: launched_ranks.record(start), **inside}
    folder = FOLDER.format(replica)
    assert this_writer(environment) == WriterIdentity(folder, rank, has_agent=folder == start["PHALANX_TRACK"])


def test_a_damaged_record_counts_as_none() -> None:
    assert this_writer({**MASTER, launched_ranks.AT_START: "[1"}) == WriterIdentity(FOLDER.format("master-0"), 0, True)
