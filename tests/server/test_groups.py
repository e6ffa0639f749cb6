"""The routes of a group, on a real server with a real scheduler and real trials."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.server.site import Site
from tests.server.started import until

LOG = f"{sys.executable} -c 'from phalanx import tracking; tracking.log(loss={{{{ x }}}})'"
LOSS = {"name": "loss", "optimization": "minimize"}
ASHA = {"n_experiments": 4, "max_iter": 3, "eta": 3, "resource": {"name": "epochs", "type": "int"}, "metric": LOSS}


def begin(site: Site, command: str, **tuning: Any) -> str:
    content = {
        "version": 1,
        "kind": "group",
        "hptuning": {"matrix": {"x": {"values": [3, 1, 2]}}, **tuning},
        "environment": {"resources": {"cpu": {"requests": 0.01}}},
        "run": {"cmd": command},
    }
    body = {"files": [{"name": "group.yml", "text": json.dumps(content)}], "project": "p"}
    return str(site.post("/api/v1/runs/submit", body, 201)["id"])


def rows(site: Site, group: str, **params: Any) -> list[Any]:
    return list(site.get(f"/api/v1/groups/{group}/trials", **params)["trials"])


def change(site: Site, group: str, verb: str, body: Any = None, status: int = 200) -> Any:
    return site.post(f"/api/v1/groups/{group}/{verb}", body, status)


@pytest.fixture(scope="module")
def over(site: Site) -> str:
    """A search that has ended; no test changes it."""
    group = begin(site, LOG, concurrency=2, seed=7, matrix={"x": {"uniform": "0:1"}}, asha=ASHA)
    until(site, group, "succeeded")
    return group


def test_a_group_shows_its_progress_its_best_trial_its_rungs_and_its_settings(site: Site, over: str) -> None:
    shown = site.get(f"/api/v1/groups/{over}")
    assert (shown["status"], shown["algorithm"], shown["total"]) == ("succeeded", "asha", 4)
    assert shown["metric"] == {"name": "loss", "maximize": False}
    assert shown["trials"] == {"reported": 4}
    found = rows(site, over, sort="value")
    assert shown["best"] == {name: found[0][name] for name in ("trial", "run", "value", "interval", "params")}
    first, second = shown["rungs"]
    assert (first["resource"], first["trials"], first["ended"], first["promoted"]) == (1, 4, 4, second["trials"])
    assert (second["rung"], second["resource"], second["best"]["trial"]) == (1, 3, found[0]["trial"])
    assert shown["settings"]["dimensions"][0]["kind"] == "uniform"
    assert shown["settings"]["options"]["max_iter"] == 3


def test_trials_have_their_run_their_values_and_the_times_of_their_attempts(site: Site, over: str) -> None:
    found = rows(site, over)
    assert [row["trial"] for row in found] == [0, 1, 2, 3]
    promoted = next(row for row in found if row["rung"] == 1)
    assert promoted["value"] == promoted["params"]["x"]
    assert [value["resource"] for value in promoted["values"]] == [1, 3]
    assert promoted["decision"]
    for attempt, (number, rung) in zip(promoted["attempts"], [(1, 0), (2, 1)], strict=True):
        assert (attempt["attempt"], attempt["rung"]) == (number, rung)
        assert attempt["queued_at"] <= attempt["started_at"] <= attempt["finished_at"]
    run = site.get(f"/api/v1/runs/{promoted['run']}")
    assert (run["group"], run["is_trial"], run["status"], run["attempt"]) == (over, True, promoted["status"], 2)
    assert not site.get(f"/api/v1/runs/{over}")["is_trial"]


def test_trials_come_in_pages_or_only_those_that_changed(site: Site, over: str) -> None:
    whole = site.get(f"/api/v1/groups/{over}/trials")
    page = site.get(f"/api/v1/groups/{over}/trials", limit=2, offset=1)
    assert (page["count"], page["trials"]) == (4, whole["trials"][1:3])
    assert site.get(f"/api/v1/groups/{over}/trials", changed_after=whole["seq"])["trials"] == []
    best = site.get(f"/api/v1/groups/{over}/trials", changed_after=whole["seq"] - 2)["trials"]
    assert [row["rung"] for row in best] == [1], "its end and the end of the search are the last records"


def test_a_folded_list_has_the_group_with_its_progress_and_none_of_its_trials(site: Site, over: str) -> None:
    (row,) = [
        run for run in site.get("/api/v1/runs", fold=True, limit=100)["runs"] if over in (run["id"], run["group"])
    ]
    assert (row["search"]["trials"], row["search"]["best"]["value"] < 1) == ({"reported": 4}, True)
    assert len([run for run in site.get("/api/v1/runs", limit=100)["runs"] if run["group"] == over]) == 4


def test_importance_says_how_many_trials_it_rests_on(site: Site, over: str) -> None:
    found = site.get(f"/api/v1/groups/{over}/importance")
    assert found == {"params": [{"name": "x", "share": 1.0}], "trials": 4, "best": 1, "resource": 1}


def test_an_editor_pauses_changes_and_resumes_a_group(site: Site) -> None:
    group = begin(site, "sleep 60")
    until(site, group, "running")
    paused = change(site, group, "pause")
    assert (paused["status"], paused["paused"], paused["taken"]) == ("warning", "by tester", True)
    assert change(site, group, "concurrency", {"n": 3})["concurrency"] == 3
    assert change(site, group, "points", {"params": {"x": 7}})["total"] == 4
    assert change(site, group, "extend", {"n": 1000})["total"] == 4, "no point is tried twice"
    assert change(site, group, "extend", {"n": 2})["total"] == 3
    assert change(site, group, "resume")["paused"] is None
    assert change(site, group, "finish")["taken"]
    site.post(f"/api/v1/runs/{group}/stop", None)
    until(site, group, "stopped")
    assert "has ended: stopped" in change(site, group, "pause", None, 409)["error"]["message"]
    stopped = [row for row in rows(site, group) if row["state"] == "stopped"]
    assert {row["why"] for row in stopped} == {"stopped by tester"}
    again = change(site, group, "points", {"params": {"x": 1}})
    assert again["taken"], "a group that has ended goes on"
    site.post(f"/api/v1/runs/{group}/stop", None)
    until(site, group)
    entry = site.context.audit.last(20)
    assert f"/api/v1/groups/{group}/points" in {line["target"] for line in entry}


@pytest.mark.parametrize(
    ("verb", "body", "message"),
    [
        ("concurrency", {"n": 0}, "`n` must be at least 1"),
        ("concurrency", {"n": "3"}, "whole number"),
        ("concurrency", {"n": 10**9}, "`n` must be at most 100,000"),
        ("concurrency", {}, "`n` is required"),
        ("extend", {"n": True}, "`n` must be a whole number"),
        ("extend", {"n": 3, "now": True}, "`now` is not a field of this request"),
        ("points", {"params": []}, "`params` must be an object"),
        ("points", {"params": {"y": 1}}, "`y` is not in the matrix of the group: write x"),
        ("points", {"params": {"x": "fast"}}, "`x` must be a number: the matrix draws it from uniform"),
        ("points", {"params": {"x": {"a": 1}}}, "`x` must be a number"),
        ("points", {"params": {"x": 10**400}}, "`x` must be a number"),
    ],
)
def test_an_invalid_change_is_refused_with_what_to_do(
    site: Site, over: str, verb: str, body: Any, message: str
) -> None:
    before = site.get(f"/api/v1/groups/{over}")["seq"]
    assert message in change(site, over, verb, body, 400)["error"]["message"]
    assert site.get(f"/api/v1/groups/{over}")["seq"] == before


def test_a_run_that_is_no_group_is_said_to_be_none(site: Site, over: str) -> None:
    run = rows(site, over)[0]["run"]
    for answer in (site.ask("GET", f"/api/v1/groups/{run}"), site.ask("POST", f"/api/v1/groups/{run}/pause")):
        assert answer.status_code == 409
        assert "is not a group: its kind is experiment" in answer.json()["error"]["message"]
