from __future__ import annotations

from typing import Any

import pytest

from phalanx.insight.advice import Advice, advise, names_text
from phalanx.insight.usage import ReplicaUsage
from tests.insight.samples import file, gpu, seen, use


def advice_for(resources: dict[str, Any], used: ReplicaUsage, *, timeout: str | None = None, **fields: Any) -> Advice:
    """For a single replica."""
    document = file({"resources": resources, **({"timeout": timeout} if timeout else {})})
    return advise(seen(document, {("master", 0): used}, **fields))


def remarks_of(advice: Advice) -> str:
    return "\n".join([*advice.caveats, *(remark for role in advice.roles for remark in role.remarks)])


# cores ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "p95", "advised"),
    [
        ({"requests": 8}, 1.9, 2),
        ({"requests": 8}, 7.6, None),  # 8 is what it needs
        ({"requests": 1}, 3.8, 4),
        ({"requests": 0.5}, 0.3, None),  # less than a core, and asked for less than one
        ({"requests": 0.5}, 0.9, 1),
        ({"limits": 4}, 0.2, 1),
        (None, 0.8, None),  # who says nothing has one
        (None, 2.5, 3),
    ],
)
def test_cores(asked: dict[str, float] | None, p95: float, advised: float | None) -> None:
    advice = advice_for({"cpu": asked} if asked else {"memory": {"requests": 120}}, use(cores_p95=p95))
    assert advice.roles[0].cpu.advised == advised


def test_what_was_held_idle_is_what_was_asked_for_and_not_used() -> None:
    advice = advice_for(
        {"cpu": {"requests": 4}, "memory": {"requests": 2048}},
        use(held_s=7200.0, cpu_s=7200.0, memory_mean_mib=512.0),
    )
    (role,) = advice.roles
    assert role.cpu.idle_hours == pytest.approx(6.0)
    assert role.memory.idle_hours == pytest.approx(3.0)


def test_cores_that_were_all_in_use_are_a_reason_to_try_more() -> None:
    advice = advice_for({"cpu": {"requests": 2}}, use(cores_p95=1.98))
    assert "check with `phalanx size --try cpu=…` whether more would be faster" in remarks_of(advice)


# memory --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "peak", "advised"),
    [
        ({"requests": 16_384}, 3_000, 4_096),
        ({"requests": 4_096}, 3_400, None),  # a fifth more than that is what it has
        ({"requests": 4_096}, 3_900, 5_120),  # too close
        ({"requests": 128, "limits": 512}, 300, 384),  # more than was set aside
        (None, 300, 384),
    ],
)
def test_memory(asked: dict[str, float] | None, peak: float, advised: float | None) -> None:
    advice = advice_for({"memory": asked} if asked else {}, use(memory_mib=float(peak)))
    assert advice.roles[0].memory.advised == advised


def test_in_a_batch_system_the_limit_is_what_is_held() -> None:
    asked = {"memory": {"requests": 1024, "limits": 8192}}
    advice = advice_for(asked, use(memory_mib=800.0), is_batch=True)
    assert advice.roles[0].memory.asked == 8192
    (change,) = advice.changes
    assert (change.text, change.is_for_both) == ("1Gi", True)
    assert advice_for(asked, use(memory_mib=20.0), is_batch=True).roles[0].memory.advised == 512


def test_what_was_killed_for_its_memory_is_to_have_more_than_its_limit() -> None:
    killed = use(causes=("memory",), message="killed at 520 of 512 MiB", memory_mib=520.0)
    advice = advice_for({"memory": {"requests": 128, "limits": 512}, "cpu": {"requests": 8}}, killed, status="failed")
    (role,) = advice.roles
    assert role.memory.advised == 896
    assert [change.resource for change in advice.changes] == ["memory"]  # nothing is lowered
    assert "killed at 520 of 512 MiB" in remarks_of(advice)
    assert "no amount is lowered" in remarks_of(advice)


# GPUs ----------------------------------------------------------------------------------------------------------------

GPU = {"gpu": {"requests": 1}}


def test_a_gpu_that_did_nothing_is_for_a_colleague() -> None:
    advice = advice_for(GPU, use(gpu=gpu(active=0, mean_percent=0.0, busiest_percent=1.0, memory_mib=4.0)))
    assert advice.roles[0].gpu.advised == 0
    assert "its GPU was idle (0 % busy on average, 1 % at most)" in remarks_of(advice)
    assert "CPUs suffice, and others could use it" in remarks_of(advice)


def test_a_gpu_that_is_hardly_used_is_said_plainly_but_not_taken_away() -> None:
    advice = advice_for(GPU, use(gpu=gpu(mean_percent=4.0, busiest_percent=60.0)))
    assert advice.roles[0].gpu.advised is None
    assert "hardly used (4 % busy on average" in remarks_of(advice)
    assert "CPUs may suffice, and others could use it" in remarks_of(advice)
    assert "`phalanx size --try gpu=0,1`" in remarks_of(advice)


def test_a_gpu_that_is_busy_is_fine() -> None:
    advice = advice_for(GPU, use(gpu=gpu()))
    assert advice.roles[0].gpu.advised is None
    assert "well used: 90 % busy" in remarks_of(advice)


def test_a_gpu_that_waits_for_its_cores_is_to_be_fed() -> None:
    half = gpu(mean_percent=30.0)
    starved = advice_for({**GPU, "cpu": {"requests": 2}}, use(gpu=half, cores_p95=2.0))
    assert "more of them may feed it" in remarks_of(starved)
    small = advice_for({**GPU, "cpu": {"requests": 2}}, use(gpu=half, cores_p95=0.5))
    assert "larger batches may fill it" in remarks_of(small)


def test_a_large_gpu_for_a_small_model_could_be_a_slice() -> None:
    advice = advice_for(GPU, use(gpu=gpu(memory_mib=3_000.0)))
    assert "at most 2.93 GiB of 80 GiB of memory: a smaller GPU, or a slice of one, suffices" in remarks_of(advice)


def test_of_several_gpus_only_those_that_did_something_are_asked_for() -> None:
    advice = advice_for({"gpu": {"requests": 4}}, use(gpu=gpu(gpus=4, active=1, mean_percent=24.0)))
    assert advice.roles[0].gpu.advised == 1
    assert "only 1 of its 4 GPUs did any work" in remarks_of(advice)


@pytest.mark.parametrize(
    ("used", "given", "words"),
    [
        (use(gpu=None), {}, "it got none"),
        (use(gpu=None), {("master", 0): 1}, "nvidia-smi did not answer"),
        (use(gpu=gpu(active=0, mean_percent=0.0, looks=2)), {}, "sampled only 2 times"),
        (use(gpu=gpu(active=0, mean_percent=0.0, looks=1)), {}, "sampled only once"),
    ],
)
def test_nothing_is_said_of_a_gpu_that_no_one_knows(used: ReplicaUsage, given: dict[Any, int], words: str) -> None:
    advice = advice_for(GPU, used, given=given)
    assert advice.roles[0].gpu.advised is None
    assert words in remarks_of(advice)


def test_idle_gpus_are_counted_in_hours() -> None:
    advice = advice_for({"gpu": {"requests": 2}}, use(held_s=3600.0, gpu=gpu(gpus=2, active=2, mean_percent=25.0)))
    assert advice.roles[0].gpu.idle_hours == pytest.approx(1.5)


# time ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "took", "is_batch", "advised"),
    [
        ("24h", 600.0, False, "15m"),
        ("15m", 600.0, False, None),
        ("11m", 640.0, False, "15m"),
        (None, 600.0, False, None),
        (None, 600.0, True, "15m"),  # where a time is always asked for
    ],
)
def test_time(asked: str | None, took: float, is_batch: bool, advised: str | None) -> None:
    assert advice_for({}, use(seconds=took), timeout=asked, is_batch=is_batch).timeout == advised


def test_what_its_time_limit_ended_is_to_have_more_of_it() -> None:
    ended = use(seconds=600.0, causes=("timeout",))
    advice = advice_for({"cpu": {"requests": 8}}, ended, timeout="10m", status="failed")
    assert advice.timeout == "15m"
    assert advice.roles[0].cpu.advised == 1  # it was seen for as long as it was allowed
    assert "it was not finished" in remarks_of(advice)


@pytest.mark.parametrize("status", ["stopped", "running", "failed"])
def test_the_time_of_what_was_not_done_is_not_cut(status: str) -> None:
    assert advice_for({}, use(causes=("error",)), timeout="24h", status=status).timeout is None


def test_a_run_in_segments_keeps_its_time() -> None:
    document = file({"timeout": "24h"})
    one = seen(document, {("master", 0): use()})
    assert advise(one._replace(plan=one.plan._replace(segment_s=3600.0))).timeout is None


# how far it is to be trusted -----------------------------------------------------------------------------------------


def test_of_a_run_that_failed_nothing_is_lowered_and_that_is_said() -> None:
    advice = advice_for(
        {"cpu": {"requests": 8}, "memory": {"requests": 8192}, **GPU},
        use(causes=("error",), gpu=gpu(active=0, mean_percent=0.0)),
        status="failed",
        timeout="24h",
    )
    assert advice.changes == ()
    assert advice.timeout is None
    assert "it failed: what it would still have used is unknown, so no amount is lowered" in advice.caveats


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"seconds": 12.0}, "succeeded", "observed for only 12 s, which is too short for advice"),
        ({"causes": ()}, "running", "it is still active: this is its use in the first 10 min"),
        ({"causes": ("stopped",)}, "stopped", "it was stopped after 10 min"),
        ({"attempts": 3}, "succeeded", "it had 3 attempts"),
    ],
)
def test_caveats_of_the_advice_are_reported(fields: dict[str, Any], status: str, words: str) -> None:
    advice = advice_for({"cpu": {"requests": 8}}, use(**fields), status=status)
    assert any(words in caveat for caveat in advice.caveats)
    assert advice.roles[0].cpu.advised == 1


def test_a_good_long_run_needs_no_warning() -> None:
    assert advice_for({}, use()).caveats == ()


def test_a_run_of_which_nothing_is_known_gets_no_advice() -> None:
    advice = advise(seen(file({"resources": {"cpu": {"requests": 8}}}), {}, status="scheduled"))
    assert (advice.changes, advice.timeout) == ((), None)
    assert "nothing was measured" in remarks_of(advice)


# many replicas -------------------------------------------------------------------------------------------------------


def gang(*overrides: dict[str, Any], workers: int = 3) -> dict[str, Any]:
    asked = {"resources": {"cpu": {"requests": 4}, "memory": {"requests": 8192}}}
    replicas = {"n_workers": workers, "default_worker": asked, "worker": list(overrides)}
    return file({**asked, "replicas": replicas}, framework="pytorch")


def uses(*workers: ReplicaUsage) -> dict[tuple[str, int], ReplicaUsage]:
    return {("master", 0): use(), **{("worker", index): one for index, one in enumerate(workers)}}


def test_replicas_that_asked_for_the_same_stand_together_and_the_most_counts() -> None:
    advice = advise(seen(gang(), uses(use(cores_p95=1.2), use(cores_p95=1.4), use(cores_p95=1.1))))
    assert [role.group.names for role in advice.roles] == ["master-0", "worker-0..2"]
    assert advice.roles[1].cpu.advised == 2


def test_one_with_settings_of_its_own_stands_apart() -> None:
    other = {"index": 1, "resources": {"cpu": {"requests": 8}}}
    advice = advise(seen(gang(other), uses(use(), use(cores_p95=6.0), use())))
    assert [role.group.names for role in advice.roles] == ["master-0", "worker-0, worker-2", "worker-1"]
    assert [role.cpu.advised for role in advice.roles] == [1, 1, 6]


def test_one_that_differs_is_named() -> None:
    advice = advise(seen(gang(), uses(use(), use(), use(memory_mib=3_000.0, cores_p95=3.5))))
    assert advice.roles[1].memory.advised == 4096
    assert "worker-2 used 2.93 GiB of memory, the others at most 100 MiB" in remarks_of(advice)
    assert "`worker: [{index: 2, …}]`" in remarks_of(advice)
    assert "worker-2 used 3.5 cores, the others at most 1.0" in remarks_of(advice)


def test_replicas_that_no_one_measured_are_named() -> None:
    advice = advise(seen(gang(), {("master", 0): use(), ("worker", 1): use()}))
    assert "worker-0, worker-2: nothing was measured" in remarks_of(advice)


def test_ranks_that_the_command_starts_itself_are_not_judged() -> None:
    document = file({"replicas": {"n_workers": 2}}, framework="mpi", run={"cmd": "mpirun python train.py"})
    one = seen(document, {("worker", 0): use(cores_p95=2.0)})
    assert one.plan.launch == "own"
    advice = advise(one)
    assert advice.changes == ()
    assert "starts its ranks itself" in remarks_of(advice)


def test_many_names_are_shortened() -> None:
    assert names_text("worker", [0]) == "worker-0"
    assert names_text("worker", range(1000)) == "worker-0..999"
    assert names_text("worker", [0, 2, 4, 6, 8, 9, 10]) == "worker-0, worker-2, worker-4, worker-6 and 3 more"
