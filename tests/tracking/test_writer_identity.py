"""Every process that knows its rank writes series of its own."""

from __future__ import annotations

import pytest

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
