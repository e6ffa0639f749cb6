from __future__ import annotations

import pytest

from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name


def test_nothing_of_a_removed_run_is_left(place: Place) -> None:
    run_id = place.ran("echo x")
    answer = place.call("rm", "-y", run_id)
    assert (answer.code, answer.out) == (0, f"removed {run_id}\n")
    assert place.call("ps", "--json").data["count"] == 0
    assert list((place.home / "runs").iterdir()) == []


@pytest.mark.slow
def test_it_asks_before_and_no_means_no(place: Place) -> None:
    run_id = place.ran("true")
    assert place.call("rm", run_id, stdin=b"n\n").code == 1
    assert place.run_ids() == [run_id]
    assert place.call("rm", run_id, stdin=b"y\n").code == 0
    assert place.run_ids() == []


@pytest.mark.slow
def test_json_says_what_was_removed(place: Place) -> None:
    run_id = place.ran("true")
    assert place.call("rm", run_id, "--json").data == {"ok": True, "removed": [run_id]}


@pytest.mark.slow
def test_a_run_that_is_not_over_is_kept(place: Place) -> None:
    process, run_id = place.begun()
    done = place.remember("aaaa2").id
    answer = place.call("rm", "-y", done, run_id)
    assert answer.code == 2
    assert "phalanx stop" in answer.err
    assert place.call("ps", "--json").data["count"] == 2
    assert process.poll() is None
