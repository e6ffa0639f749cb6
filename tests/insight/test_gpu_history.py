from __future__ import annotations

from typing import Any

import pytest

from phalanx.insight.gpu_history import EarlierRun, GpuRemark, gpu_remarks
from phalanx.insight.usage import GpuUsage
from tests.insight.samples import file, gpu, planned, seen, use

IDLE = gpu(active=0, mean_percent=0.0, busiest_percent=1.0, memory_mib=4.0)


def remarks(asked: int, *used: GpuUsage | None, **fields: Any) -> list[GpuRemark]:
    document = file({"resources": {"gpu": {"requests": asked}}}, name="mine")
    runs = [
        EarlierRun(f"run{number}", seen(document, {("master", 0): use(gpu=one)}, **fields))
        for number, one in enumerate(used)
    ]
    return list(gpu_remarks(planned(document), runs))


def test_gpus_that_all_earlier_runs_left_idle_are_not_requested_again() -> None:
    (found,) = remarks(1, IDLE, IDLE)
    assert found.text == (
        "master-0: in its last 2 runs (run0, run1), its GPU was idle (0 % busy on average, 1 % at most): CPUs suffice, "
        "and others could use it"
    )
    assert (found.role, found.suggestion) == ("master", "request none")


def test_one_run_that_used_its_gpu_counts_more_than_others_that_did_not() -> None:
    assert remarks(1, IDLE, gpu(mean_percent=80.0)) == []


def test_gpus_that_are_hardly_used_are_to_be_measured() -> None:
    (found,) = remarks(1, gpu(mean_percent=3.0))
    assert "in its last run, run0, its GPU was hardly used (3 % busy on average" in found.text
    assert "`phalanx size --try gpu=0,1`" in found.text
    assert found.suggestion is None


def test_only_those_gpus_are_requested_that_did_any_work() -> None:
    (found,) = remarks(4, gpu(gpus=4, active=1, mean_percent=24.0))
    assert ("only 1 of its 4 GPUs did any work" in found.text, found.suggestion) == (True, "request 1")


@pytest.mark.parametrize("used", [None, gpu(mean_percent=0.0, active=0, looks=2), gpu()])
def test_nothing_is_said_of_gpus_that_were_used_or_not_measured(used: GpuUsage | None) -> None:
    assert remarks(1, used) == []


def test_a_run_that_failed_says_nothing_about_its_gpus() -> None:
    assert remarks(1, IDLE, status="failed") == []
