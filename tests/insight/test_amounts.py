from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.insight.amounts import (
    cores_for,
    hours_words,
    memory_for,
    memory_text,
    memory_words,
    more_memory,
    more_time,
    time_for,
    time_text,
    time_words,
)
from phalanx.spec.quantities import memory_mib, seconds


@pytest.mark.parametrize(
    ("peak", "asked"),
    [(1, "64Mi"), (50, "64Mi"), (213, "256Mi"), (800, "1Gi"), (1000, "1.25Gi"), (2900, "3.5Gi"), (10_000, "12Gi")],
)
def test_memory_is_asked_for_with_a_fifth_more_as_a_person_would_write_it(peak: float, asked: str) -> None:
    assert memory_text(memory_for(peak)) == asked


@pytest.mark.parametrize(("p95", "cores"), [(0.0, 1), (0.4, 1), (1.04, 1), (1.1, 2), (3.0, 3), (7.3, 8)])
def test_cores_are_whole_and_at_least_one(p95: float, cores: int) -> None:
    assert cores_for(p95) == cores


@pytest.mark.parametrize(
    ("took", "asked"),
    [(5, "2m"), (100, "3m"), (600, "15m"), (3000, "1h15m"), (20_000, "7h"), (100_000, "1d12h")],
)
def test_time_is_asked_for_with_a_quarter_more(took: float, asked: str) -> None:
    assert time_text(time_for(took)) == asked


@given(st.floats(0.01, 4_000_000))
def test_what_is_asked_for_covers_what_was_used_and_reads_back_as_itself(amount: float) -> None:
    for mib in (memory_for(amount), more_memory(amount)):
        assert mib >= 1.2 * amount
        assert memory_mib(memory_text(mib)) == mib
    for time in (time_for(amount), more_time(amount)):
        assert time >= 1.2 * amount
        assert seconds(time_text(time)) == time


def test_amounts_in_words() -> None:
    assert [memory_words(mib) for mib in (12.3, 1536, 204_800)] == ["12 MiB", "1.5 GiB", "200 GiB"]
    assert [time_words(s) for s in (3.21, 42, 600, 9000, 900_000)] == ["3.2 s", "42 s", "10 min", "2.5 h", "10.4 days"]
    assert [hours_words(hours, "GPU") for hours in (12.345, 0.05, 0.0)] == ["12.3 GPU-hours", "3 GPU-minutes", "-"]
