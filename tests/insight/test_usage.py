from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.ends import Cause
from phalanx.insight.samples import GpuSample, ProcessSamples, UsageInterval, recorded
from phalanx.insight.usage import gpu_use, percentile, stacked, use_of
from tests.insight.samples import end, notes


def process(*looks: tuple[float, float, float], seconds: float = 10, cause: Cause = Cause.FINISHED) -> ProcessSamples:
    found = recorded(
        "x", notes(*looks), end(seconds, cause, cpu_s=looks[-1][1], memory_mib=max(m for _, _, m in looks))
    )
    assert found is not None
    return found


def test_the_percentile_is_by_time_not_by_looks() -> None:
    assert percentile([(1.0, 96.0), (8.0, 4.0)]) == 1.0
    assert percentile([(1.0, 90.0), (8.0, 10.0)]) == 8.0
    assert percentile([]) == 0.0


def test_processes_of_a_replica_are_added_up_at_each_moment() -> None:
    one = [UsageInterval(0, 10, 1.0, 100)]
    other = [UsageInterval(5, 15, 2.0, 50)]
    assert stacked([one, other, []]) == [
        UsageInterval(0, 5, 1, 100),
        UsageInterval(5, 10, 3, 150),
        UsageInterval(10, 15, 2, 50),
    ]


@given(
    st.lists(
        st.lists(st.tuples(st.floats(0.1, 20), st.floats(0, 8)), min_size=1, max_size=5),
        min_size=1,
        max_size=4,
    )
)
def test_adding_up_loses_no_work(lines: list[list[tuple[float, float]]]) -> None:
    stretches = []
    for line in lines:
        at, made = 0.0, []
        for seconds, cores in line:
            made.append(UsageInterval(at, at + seconds, cores, 0.0))
            at += seconds
        stretches.append(made)
    work = sum(one.cores * one.seconds for line in stretches for one in line)
    assert sum(one.cores * one.seconds for one in stacked(stretches)) == pytest.approx(work, abs=1e-6)


def test_a_replica_is_all_of_its_processes_and_attempts() -> None:
    first = {1: process((5, 5, 100), (10, 10, 300), cause=Cause.ERROR), 2: process((5, 5, 100), (10, 10, 200))}
    second = {1: process((5, 5, 100), (10, 10, 100), cause=Cause.STOPPED), 2: process((5, 10, 100), (10, 20, 100))}
    use = use_of([first, second])
    assert use is not None
    assert (use.seconds, use.held_s, use.cpu_s) == (10, 20, 50)
    assert use.cores_mean == pytest.approx(2.5)
    assert use.cores_p95 == pytest.approx(3.0)
    assert use.memory_mib == 400  # the most of any attempt
    assert use.causes == ("finished", "finished")  # of the last one
    assert use.attempts == 2


def test_it_is_not_over_as_long_as_one_process_runs() -> None:
    running = recorded("x", notes((5, 5, 10)), None)
    assert running is not None
    use = use_of([{1: process((5, 5, 10))}, {1: running}])
    assert use is not None
    assert use.causes == ()


def test_nothing_is_made_of_nothing() -> None:
    assert use_of([{}, {}]) is None
    assert gpu_use([]) is None


def test_gpus_are_counted_by_whether_they_ever_did_anything() -> None:
    looks = [GpuSample(0, 0, percent, 4000, 80_000) for percent in (0, 50, 100)]
    looks += [GpuSample(0, 1, 0, 3, 80_000) for _ in range(3)]
    looks += [GpuSample(0, 2, 0, 500, 80_000) for _ in range(4)]  # something lies in it
    use = gpu_use(looks)
    assert use is not None
    assert (use.gpus, use.active, use.looks) == (3, 2, 3)
    assert use.mean_percent == pytest.approx(50 / 3)
    assert (use.busiest_percent, use.memory_mib) == (100, 4000)
