from __future__ import annotations

import pytest

from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name


@pytest.mark.slow
def test_it_returns_when_all_runs_have_ended_and_fails_if_one_failed(place: Place) -> None:
    good, bad = place.queued("echo fine", "--name", "good"), place.queued("exit 3")
    answer = place.call("wait", "good", bad, good)
    assert answer.code == 1
    assert sorted(answer.out.splitlines()) == sorted(
        [f"{good}: succeeded: finished", f"{bad}: failed: master-0: exit code 3"]
    )
    found = place.call("wait", "-q", "status:succeeded", "--json")
    assert found.code == 0
    assert ([row["id"] for row in found.data["runs"]], found.data["active"]) == ([good], [])


@pytest.mark.slow
def test_any_returns_with_the_first_and_the_time_may_be_over(place: Place) -> None:
    slow, quick = place.queued("sleep 60"), place.queued("true")
    answer = place.call("wait", "--any", slow, quick)
    assert (answer.code, answer.out) == (0, f"{quick}: succeeded: finished\n")
    late = place.call("wait", slow, "--timeout", "0.1", "--json")
    assert (late.code, late.data["runs"], late.data["active"]) == (124, [], [slow])
    place.call("stop", slow)


@pytest.mark.slow
def test_what_to_wait_for_must_be_said_once(place: Place) -> None:
    place.ran("true")
    for arguments, fault in (
        ((), "name the runs to wait for, or select them with --query"),
        (("-q", "name:none"), "no run matches `name:none`"),
        (("nobody",), "there is no run `nobody`"),
        (("x", "--timeout", "soon"), "--timeout 'soon': expected seconds"),
    ):
        answer = place.call("wait", *arguments)
        assert answer.code == 2
        assert fault in answer.err
