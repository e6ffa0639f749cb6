from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.ends import Cause, End
from phalanx.insight.samples import read_attempts, read_notes, recorded
from tests.insight.samples import BEGAN, end, notes, write_attempt


def test_cores_are_what_was_used_between_two_looks() -> None:
    found = recorded("master-0", notes((0.0, 0, 10), (5, 10, 300), (10, 12, 200)), end(15, cpu_s=13, memory_mib=310))
    assert found is not None
    assert [(stretch.seconds, stretch.cores) for stretch in found.stretches] == [(5, 2.0), (5, 0.4), (5, 0.2)]
    assert (found.cpu_s, found.memory_mib, found.seconds, found.cause) == (13, 310, 15, "finished")


def test_what_looks_missed_and_the_kernel_knows_is_spread_over_the_whole_time() -> None:
    """Many short processes end between two looks: only the sum at the end has them."""
    found = recorded("master-0", notes((5, 1, 10), (9, 1.8, 10)), end(10, cpu_s=20, memory_mib=10))
    assert found is not None
    assert sum(stretch.cores * stretch.seconds for stretch in found.stretches) == pytest.approx(20)
    assert max(stretch.cores for stretch in found.stretches) == pytest.approx(2.0, abs=0.1)


def test_of_one_that_runs_everything_up_to_the_last_look_counts() -> None:
    found = recorded("master-0", notes((0.1, 0, 10), (5, 5, 70), (10, 10, 60)), None)
    assert found is not None
    assert (found.cause, found.seconds, found.memory_mib, found.cpu_s) == (None, 10, 70, 10)


def test_an_end_without_notes_is_enough_for_sums_and_peaks() -> None:
    found = recorded("master-0", [], end(10, cpu_s=5, memory_mib=7))
    assert found is not None
    assert [stretch.cores for stretch in found.stretches] == [0.5]


def test_one_whose_agent_was_killed_is_known_by_its_notes() -> None:
    lost = End(Cause.LOST, None, None, "its agent was killed", ended_at=BEGAN + 12)
    found = recorded("master-0", notes((5, 5, 70)), lost)
    assert found is not None
    assert (found.seconds, found.cpu_s, found.memory_mib) == (12, 5, 70)


def test_of_one_that_never_started_nothing_is_known() -> None:
    assert recorded("master-0", [], None) is None
    assert recorded("master-0", [], End(Cause.LOST, None, None, "", ended_at=BEGAN)) is None


def test_memory_that_processes_share_counts_once_where_that_was_looked_at() -> None:
    looks = notes((5, 1, 300), (10, 2, 900))
    peak = {"cpu_s": 2.0, "memory_mib": 950.0, "fair_mib": 400.0}
    shared = recorded("master-0", looks, end(12, Cause.FINISHED, **peak), limit_mib=500)
    assert shared is not None
    assert shared.memory_mib == 400
    below = recorded("master-0", notes((5, 1, 480), (10, 2, 900)), end(12, Cause.FINISHED, **peak), limit_mib=500)
    assert below is not None
    assert below.memory_mib == 480  # nobody looked closer at what stayed below the limit


@pytest.mark.parametrize(
    "row",
    [{}, {"at": "now"}, {"at": BEGAN + 3, "use": None}, {"at": BEGAN + 3, "use": {"cpu_s": "x", "memory_mib": 1}}],
)
def test_what_is_no_measurement_is_passed_over(row: dict[str, object]) -> None:
    found = recorded("master-0", [*notes((5, 5, 70)), row, {"at": BEGAN + 4, "gpus": [{"index": 0}, None]}], None)
    assert found is not None
    assert len(found.stretches) == 1
    assert found.gpus == ()


def test_a_clock_that_jumps_back_gives_no_negative_time() -> None:
    found = recorded("master-0", notes((5, 5, 70), (3, 6, 70), (10, 10, 70)), end(10, cpu_s=10, memory_mib=70))
    assert found is not None
    assert all(stretch.seconds > 0 and stretch.cores >= 0 for stretch in found.stretches)


def test_every_attempt_is_read_and_a_torn_record_costs_only_itself(tmp_path: Path) -> None:
    write_attempt(tmp_path, "master-0", notes((5, 5, 70)), end(6, Cause.ERROR, cpu_s=5, memory_mib=70))
    second = write_attempt(tmp_path, "master-0", notes((5, 1, 30)), None, number=2)
    with (second / "spool").open("ab") as stream:
        stream.write(b"\xa7P\x01\x00half a record")
    found = read_attempts(tmp_path, "master-0")
    assert [(number, one.cause, one.memory_mib) for number, one in found.items()] == [(1, "error", 70), (2, None, 30)]
    assert read_attempts(tmp_path, "worker-0") == {}


def test_only_the_notes_that_are_wanted_are_read(tmp_path: Path) -> None:
    folder = write_attempt(tmp_path, "master-0", notes((5, 5, 70)), None)
    assert [set(note) - {"at"} for note in read_notes(folder / "spool")] == [{"start"}, {"use"}]
    assert read_notes(tmp_path / "nothing") == []
