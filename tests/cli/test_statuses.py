from __future__ import annotations

import pytest

from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name


def test_every_status_stands_there_with_its_reason(place: Place) -> None:
    run_id = place.ran("sleep 0.5; exit 2")
    lines = place.call("statuses", run_id).out.splitlines()
    assert [line.split()[2] for line in lines] == ["created", "scheduled", "starting", "running", "failed"]
    assert lines[-1].endswith("master-0: exit code 2")


@pytest.mark.slow
def test_json_numbers_them_in_the_order_of_time(place: Place) -> None:
    run_id = place.ran("true", environment={"max_restarts": 1})
    changes = place.call("statuses", run_id[:6], "--json").data["statuses"]
    assert [change["number"] for change in changes] == list(range(1, len(changes) + 1))
    assert sorted(change["at"] for change in changes) == [change["at"] for change in changes]
    assert changes[0]["attempt"] == 0
    assert changes[-1]["attempt"] == 1


def test_an_unknown_run_is_a_clear_error(place: Place) -> None:
    assert place.call("statuses", "nobody").code == 2
