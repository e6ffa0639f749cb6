from __future__ import annotations

import pytest

from tests.cli.homes import ALL_CPUS, Place, place_fixture, wait_for  # noqa: F401 - found by its name


@pytest.mark.slow
def test_a_queued_run_with_a_higher_priority_starts_first(place: Place) -> None:
    blocker = place.queued("while [ ! -e free ]; do sleep 0.05; done", name="a.yml", environment=ALL_CPUS)
    place.until(blocker, "running")
    first, second = (
        place.queued(f"echo {number} >> order", name=f"{number}.yml", environment=ALL_CPUS) for number in (1, 2)
    )
    assert "waits for 1 run ahead in the queue\n" in place.call("show", second).out
    answer = place.call("priority", second, "5")
    assert (answer.code, answer.out.partition("; ")[0]) == (0, f"{second}: priority 5")
    assert "waits for free resources on this machine" in answer.out
    assert place.call("priority", first, "-3", "--json").data["priority"] == -3
    (place.folder / "free").touch()
    for run_id in (first, second):
        place.until(run_id, "succeeded")
    assert (place.folder / "order").read_text() == "2\n1\n"
    wait_for(lambda: place.call("doctor", "--rebuild").code == 0)  # when the scheduler has ended
    assert place.call("show", second, "--json").data["priority"] == 5  # also in a database made again
    ended = place.call("priority", second, "7")
    assert (ended.code, "has ended (succeeded)" in ended.err) == (2, True)
    assert place.call("priority", second, "high").code == 2
