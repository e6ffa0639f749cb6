"""phalanx run --after: runs that wait for others."""

from __future__ import annotations

import pytest

from tests.cli.homes import Place, place_fixture, wait_for  # noqa: F401 - found by its name


@pytest.mark.slow
def test_a_run_waits_says_for_what_and_starts(place: Place) -> None:
    gate = place.folder / "gate"
    first = place.queued(f"until [ -e {gate} ]; do sleep 0.05; done", "--name", "prepare")
    last = place.queued("echo trained", "--after", "prepare", kind="job")
    row = place.call("ps", "-q", "kind:job, blocked:true", "--json").data["runs"][0]
    assert (row["id"], row["waits_for"]) == (last, f"waits for run {first} (prepare) to succeed")
    assert f"waits for run {first}" in place.call("show", last).out
    gate.touch()
    assert wait_for(lambda: place.status(last) == "succeeded")


@pytest.mark.slow
def test_a_run_in_the_foreground_prints_what_it_waits_for_and_why_it_did_not_start(place: Place) -> None:
    gate = place.folder / "gate"
    place.queued(f"until [ -e {gate} ]; do sleep 0.05; done; exit 3", "--name", "prepare")
    process = place.start("run", "-f", place.file("echo trained", after=["prepare"]))
    assert process.stderr is not None
    for line in process.stderr:
        if "(prepare) to succeed" in line:
            break
    gate.touch()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "upstream_failed" in err
    assert "trained\n" not in out


@pytest.mark.slow
def test_all_faults_are_reported_at_once_and_nothing_is_queued(place: Place) -> None:
    done = place.ran("true", "--name", "done")
    answer = place.run("true", "--after", "nobody", "--after", "done:failed", "--after", "done:won", "-d")
    assert answer.code == 2
    assert "there is no run `nobody`" in answer.err
    assert f"run {done} (done) has already ended as succeeded, so it will never fail" in answer.err
    assert "after a colon, write succeeded, failed, done" in answer.err
    assert place.quick("ps", "--json").data["count"] == 1
