from __future__ import annotations

import pytest

from tests.cli.homes import THREE, Place, ended, place_fixture  # noqa: F401 - found by its name

FAILS_ONCE = 'sleep 0.3; [ "$PHALANX_ATTEMPT" = 2 ] || [ "$RANK" != 1 ] || exit 4'


@pytest.mark.slow
def test_statuses_starts_and_ends_of_every_attempt_stand_in_one_line_of_time(place: Place) -> None:
    run_id = place.ran(FAILS_ONCE, framework="pytorch", environment={**THREE, "max_restarts": 1})
    events = place.call("events", run_id, "--json").data["events"]
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    starts = {(event["replica"], event["attempt"]) for event in events if event["kind"] == "start"}
    everyone = {(name, attempt) for name in ("master-0", "worker-0", "worker-1") for attempt in (1, 2)}
    assert starts == everyone
    ends = {(event["replica"], event["attempt"]): event for event in events if event["kind"] == "end"}
    assert set(ends) == everyone
    failed = ends["worker-0", 1]
    assert (failed["cause"], failed["code"], failed["signal"]) == ("error", 4, None)
    assert ends["worker-0", 2]["cause"] == "finished"
    statuses = [event["status"] for event in events if event["kind"] == "status"]
    assert statuses[0] == "created"
    assert statuses[-1] == "succeeded"
    assert "warning" in statuses


@pytest.mark.slow
def test_people_read_what_happened_to_whom(place: Place) -> None:
    run_id = place.ran("kill -9 $$")
    answer = place.call("events", run_id[:6])
    assert answer.code == 0
    lines = [line.split(maxsplit=3)[2:] for line in answer.out.splitlines()]
    assert lines[0] == ["run", "created: submitted"]
    assert lines[-1][0] == "run"
    assert lines[-1][1].startswith("failed: master-0: killed by signal 9 (SIGKILL); killed by a user")
    assert any(who == "master-0" and what.startswith("started, process ") for who, what in lines)
    assert any(what.startswith("ended: killed by signal 9 (SIGKILL) (error)") for _, what in lines)


@pytest.mark.slow
def test_a_request_to_stop_is_an_event(place: Place) -> None:
    process, run_id = place.begun()
    place.call("stop", run_id)
    ended(process)
    events = place.call("events", run_id, "--json").data["events"]
    (asked,) = [event for event in events if event["kind"] == "stop"]
    assert asked["reason"] == "stopped by its user"
    (end,) = [event for event in events if event["kind"] == "end"]
    assert end["cause"] == "stopped"
    assert asked["at"] < end["at"] < events[-1]["at"]


def test_a_run_whose_folder_is_gone_still_has_its_statuses(place: Place) -> None:
    place.remember("aaaa2")
    answer = place.call("events", "aaaa2")
    assert answer.code == 0
    assert "Traceback" not in answer.err


def test_an_unknown_run_is_a_clear_error(place: Place) -> None:
    assert place.call("events", "nobody").code == 2
