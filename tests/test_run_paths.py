from __future__ import annotations

import pytest

from phalanx import run_paths


def test_paths_are_those_of_existing_runs() -> None:
    assert run_paths.attempt_folder("worker-1", 3) == "replicas/worker-1/attempt-3"
    assert run_paths.ATTEMPT_FOLDERS == "replicas/*/attempt-*"
    assert run_paths.facts_file(3) == "job/attempt-3.json"
    assert run_paths.step_errors_file(3) == "job/attempt-3.srun"
    assert run_paths.packages_file(3) == "job/attempt-3.packages.json"
    assert run_paths.handle_file(3) == "job/attempt-3.handle"
    assert run_paths.positions_file(3) == "job/attempt-3.positions.json"
    assert [run_paths.series_part(3, part) for part in (1, 2)] == ["attempt-3", "attempt-3-2"]


@pytest.mark.parametrize("attempt", [0, 1, 9, 10, 123456789])
def test_the_number_of_an_attempt_is_read_from_its_name(attempt: int) -> None:
    assert run_paths.attempt_number(run_paths.attempt_name(attempt)) == attempt


@pytest.mark.parametrize(
    "name", ["", "attempt", "attempt-", "attempt-x", "attempt--1", "attempt-1-2", "attempt-²", "1"]
)
def test_other_names_have_no_number(name: str) -> None:
    assert run_paths.attempt_number(name) is None


@pytest.mark.parametrize(("attempt", "part"), [(1, 1), (1, 2), (12, 34)])
def test_the_numbers_of_a_part_are_read_from_its_name(attempt: int, part: int) -> None:
    assert run_paths.series_part_numbers(run_paths.series_part(attempt, part)) == (attempt, part)


@pytest.mark.parametrize(
    "name", ["", "attempt-", "attempt-1-", "attempt-1-x", "attempt-1-2-3", "other-1", ".attempt-1"]
)
def test_other_names_are_no_parts(name: str) -> None:
    assert run_paths.series_part_numbers(name) is None
