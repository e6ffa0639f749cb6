"""What pages ask of many runs at once, of both databases."""

from __future__ import annotations

import pytest

from phalanx.errors import CallError
from phalanx.store import Store
from phalanx.store.project_scope import ProjectScope
from phalanx.store.run_lists import MOST_PROJECTS, Projects
from tests.store.samples import after, run, status


@pytest.fixture
def filled(store: Store) -> Store:
    for one in (
        run("aaaa-1", params={"lr": 0.1, "depth": 2}, summary={"loss": 1.0}, group="g1"),
        run("aaaa-2", 1, params={"lr": 0.2}, summary={"loss": 1.0, "acc": 2.0}, group="g1", status="failed"),
        run("aaaa-3", 2, params={"other": "x"}, summary={"acc": 2.0}, project="text", group="g2", status="running"),
        run("aaaa-4", 3, status="succeeded"),
    ):
        store.add(one)
    return store


def test_names_come_with_how_many_runs_have_them(filled: Store) -> None:
    assert filled.param_names() == [("lr", 2), ("depth", 1), ("other", 1)]
    assert filled.param_names(limit=1) == [("lr", 2)]
    assert filled.param_names("text") == [("other", 1)]
    assert filled.metric_names() == [("acc", 2), ("loss", 2)]
    assert filled.metric_names({"vision", "nowhere"}) == [("loss", 2), ("acc", 1)]
    assert filled.metric_names(frozenset()) == []


def test_groups_are_counted_by_status_the_newest_first(filled: Store) -> None:
    second, first = filled.groups()
    assert (second.name, second.project, second.statuses) == ("g2", "text", {"running": 1})
    assert (first.name, sum(first.statuses.values()), first.created_at) == ("g1", 2, after(0))
    assert [group.name for group in filled.groups("vision")] == ["g1"]


def test_what_may_have_changed_is_found_in_four_ways(filled: Store) -> None:
    assert [one.id for one in filled.seen_since(after(2))] == ["aaaa-3", "aaaa-4"]
    everything = filled.seen_after(0)
    assert sorted(one.id for one in everything) == ["aaaa-1", "aaaa-2", "aaaa-3", "aaaa-4"]
    assert filled.last_key() == max(one.key for one in everything)
    assert filled.seen_after(filled.last_key()) == []
    assert "aaaa-3" in [one.id for one in filled.seen_active()]
    assert "aaaa-4" not in [one.id for one in filled.seen_active()]
    filled.record(status(1, "succeeded", 9, run_id="aaaa-3"))
    (seen,) = filled.seen_of(["aaaa-3", "nobody"])
    assert (seen.project, seen.status, seen.attempt, seen.updated_at) == ("text", "succeeded", 1, after(9))
    assert len(filled.seen_of([f"x{number}" for number in range(1200)] + ["aaaa-1"])) == 1


def test_a_fact_of_many_runs_is_found_at_once(filled: Store) -> None:
    filled.put_fact("aaaa-1", "waiting", {"why": "x"})
    filled.put_fact("aaaa-2", "waiting", None)
    filled.put_fact("aaaa-3", "other", 1)
    wanted = [*(f"x{number}" for number in range(1200)), "aaaa-1", "aaaa-2", "aaaa-3"]
    assert filled.facts_of(wanted, "waiting") == {"aaaa-1": {"why": "x"}, "aaaa-2": None}
    assert filled.facts_of([], "waiting") == {}


def test_too_many_projects_are_reported(filled: Store) -> None:
    with pytest.raises(CallError, match="at once"):
        filled.runs(project=[f"p{number}" for number in range(MOST_PROJECTS + 1)])


def test_a_project_includes_nested_ones_and_no_others(store: Store) -> None:
    names = (
        "team",
        "team/vision",
        "team/vision/a",
        "team0",
        "team-x",
        "teams/vision",
        "Team/vision",
        "team/%",
        "other",
    )
    for number, project in enumerate(names):
        store.add(run(f"aaaa-{number}", project=project))

    def found(project: Projects) -> set[str]:
        assert store.count(project=project) == len(store.runs(project=project))
        return {one.project for one in store.runs(project=project)}

    assert found("team") == {"team", "team/vision", "team/vision/a", "team/%"}
    assert found("team/vision") == {"team/vision", "team/vision/a"}
    assert found(["team"]) == {"team"}, "a list means exactly these: MLflow's experiments"
    assert found(ProjectScope(["team/vision", "other"])) == {"team/vision", "team/vision/a", "other"}
    assert found(ProjectScope()) == found("tea") == set()
    assert [name for name, _ in store.projects("team/vision")] == ["team/vision", "team/vision/a"]
    assert "team/vision/a" in ProjectScope(["team"])
    assert "teams" not in ProjectScope(["team"])
