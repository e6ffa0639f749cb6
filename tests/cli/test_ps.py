from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name
from tests.cli.running import is_silent_about_itself


@pytest.fixture(name="filled")
def filled_fixture(place: Place) -> Place:
    """A home with three runs of long ago."""
    days = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    place.remember("aaa1", name="first", created_at=days[0], summary={"loss": 0.5}, params={"lr": 0.1}, tags=("x",))
    place.remember("aab2", name="second", created_at=days[1], summary={"loss": 0.05}, params={"lr": 0.01})
    place.remember(
        "bbb3", name="third", created_at=days[2], status="failed", reason="worker-1: exit code 3", project="vision"
    )
    return place


def ids(place: Place, *arguments: str) -> list[str]:
    answer = place.quick("ps", "--json", *arguments)
    assert answer.code == 0, answer.out
    return [row["id"] for row in answer.data["runs"]]


def test_an_empty_home_says_how_to_begin(place: Place) -> None:
    answer = place.call("ps")
    assert answer.code == 0
    assert "phalanx run" in answer.out


def test_watching_into_a_pipe_prints_once(filled: Place) -> None:
    assert len(filled.call("ps", "--watch").out.splitlines()) == 4


def test_it_lists_the_newest_first_with_why(filled: Place) -> None:
    head, *rows = filled.call("ps").out.splitlines()
    assert head.split() == ["ID", "NAME", "STATUS", "AGE", "TOOK", "FRAMEWORK", "WHY"]
    assert [row.split()[0] for row in rows] == ["bbb3", "aab2", "aaa1"]
    assert "worker-1: exit code 3" in rows[0]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("status:failed", ["bbb3"]),
        ("status:succeeded|failed", ["bbb3", "aab2", "aaa1"]),
        ("status:~failed", ["aab2", "aaa1"]),
        ("metric.loss:<0.1", ["aab2"]),
        ("params.lr:>=0.1", ["aaa1"]),
        ("tags:x", ["aaa1"]),
        ("name:%IR%", ["bbb3", "aaa1"]),
        ("created_at:2026-01-01..2026-01-02", ["aab2", "aaa1"]),
        ("status:succeeded, metric.loss:>0.1", ["aaa1"]),
        ("status:running", []),
    ],
)
def test_a_query_filters(filled: Place, query: str, found: list[str]) -> None:
    assert ids(filled, "-q", query) == found


def test_it_sorts_by_the_given_field(filled: Place) -> None:
    assert ids(filled, "--sort", "created_at") == ["aaa1", "aab2", "bbb3"]
    assert ids(filled, "-s", "metric.loss")[:2] == ["aab2", "aaa1"]
    assert ids(filled, "-q", "metric.loss:<1", "-s", "-metric.loss") == ["aaa1", "aab2"]


def test_pages_and_projects(filled: Place) -> None:
    assert ids(filled, "-n", "1", "--offset", "1") == ["aab2"]
    assert ids(filled, "--project", "vision") == ["bbb3"]
    assert "2 more" in filled.call("ps", "-n", "1").out
    assert filled.call("ps", "-n", "1", "--json").data["count"] == 3


def test_a_wrong_query_is_reported_in_words(filled: Place) -> None:
    answer = filled.call("ps", "-q", "statuss:running")
    assert answer.code == 2
    assert "status" in answer.err
    assert is_silent_about_itself(answer)
    assert filled.call("ps", "-q", "statuss:running", "--json").data["ok"] is False


def test_a_name_cannot_move_the_cursor(place: Place) -> None:
    place.remember("aaa1", name="\x1b[2Jgotcha")
    answer = place.call("ps")
    assert "\x1b" not in answer.out
    assert "gotcha" in answer.out
