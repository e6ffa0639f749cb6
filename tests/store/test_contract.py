"""What every store promises, over every database."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from phalanx.errors import CallError
from phalanx.store import DONE, Run, Store, StoreError, Summary, quoted
from phalanx.store.schema import REVISION, stored_revision
from tests.store.conftest import Address
from tests.store.samples import HOSTILE, NOON, after, replica, run, status


def ids(runs: list[Run]) -> list[str]:
    return [found.id for found in runs]


class TestRuns:
    def test_a_run_comes_back_as_it_was(self, store: Store) -> None:
        whole = Run(
            id="a1b2c3",
            project="vision",
            kind="experiment",
            name="baseline",
            description="the first one",
            framework="pytorch",
            backend="local",
            user="ann",
            status="succeeded",
            reason="all replicas ended well",
            attempt=2,
            priority=-3,
            created_at=datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            updated_at=datetime(2026, 1, 2, 23, 59, 59, 999999, tzinfo=UTC),
            started_at=NOON,
            finished_at=after(5),
            original="f00",
            cloning="restart",
            group="0dd",
            commit="c0ffee",
            tags=("zebra", "ant", "bee"),
            params={
                "lr": 0.1,
                "steps": 10**20,
                "name": "adam",
                "number": "12",
                "flag": True,
                "none": None,
                "layers": [64, {"a": "b"}],
            },
            summary={"loss": 0.25, "accuracy": 1.0, "rate": math.inf},
        )
        assert store.add(whole)
        assert store.find("a1b2c3") == whole
        assert store.runs() == [whole]

    def test_adding_a_run_again_changes_nothing(self, store: Store) -> None:
        assert store.add(run(name="first", tags=("a",), params={"x": 1}))
        assert not store.add(run(name="second", tags=("b",), params={"x": 2}))
        assert store.find("a1b2c3") == run(name="first", tags=("a",), params={"x": 1})

    def test_times_of_any_zone_come_back_in_utc(self, store: Store) -> None:
        store.add(run(created_at=NOON.astimezone(timezone(timedelta(hours=9)))))
        found = store.find("a1b2c3").created_at
        assert found == NOON
        assert found.tzinfo is UTC

    def test_a_time_without_a_zone_is_refused(self, store: Store) -> None:
        with pytest.raises(TypeError):
            store.add(run(created_at=NOON.replace(tzinfo=None)))
        assert not store.ids()

    def test_a_value_that_is_no_json_is_kept_as_its_text(self, store: Store) -> None:
        store.add(run(params={"at": NOON}))
        assert store.find("a1b2c3").params == {"at": str(NOON)}

    def test_doubled_tags_are_one(self, store: Store) -> None:
        store.add(run(tags=("a", "b", "a")))
        assert store.find("a1b2c3").tags == ("a", "b")

    def test_everything_is_there_after_opening_again(self, address: Address) -> None:
        with address.open() as store:
            store.add(run(tags=("a",)))
        with address.open() as store:
            assert store.find("a1b2c3") == run(tags=("a",))

    def test_a_fresh_store_is_empty_and_well(self, store: Store) -> None:
        assert not store.ids()
        assert stored_revision(store._database) == REVISION
        assert (store.runs(), store.count(), store.active(), store.projects(), store.ids()) == ([], 0, [], [], set())
        assert (store.statuses("no"), store.replicas("no")) == ([], [])
        assert store.check() == []

    def test_projects_are_counted(self, store: Store) -> None:
        for place, project in enumerate(["vision", "audio", "vision"]):
            store.add(run(f"r{place}", project=project))
        assert store.projects() == [("audio", 1), ("vision", 2)]
        assert store.ids() == {"r0", "r1", "r2"}
        assert store.ids()

    def test_runs_of_several_projects_are_asked_for_at_once(self, store: Store) -> None:
        for number, project in enumerate(["audio", "vision", "vision", "it's", "text"]):
            store.add(run(f"run-{number}", project=project))
        some = frozenset(["vision", "it's", "nothing"])
        assert {found.project for found in store.runs(project=some)} == {"vision", "it's"}
        assert (store.count(project=some), store.count("status:failed", project=some)) == (3, 0)
        assert store.projects(some) == [("it's", 1), ("vision", 2)]
        assert (store.runs(project=[]), store.count(project=[]), store.projects([])) == ([], 0, [])
        assert store.projects("audio") == [("audio", 1)]
        with pytest.raises(CallError, match="400 projects"):
            store.count(project=[str(number) for number in range(401)])

    def test_the_project_of_a_run_is_reported_by_its_whole_id_alone(self, store: Store) -> None:
        store.add(run("abcdef", project="vision"))
        assert [store.project_of(run_id) for run_id in ("abcdef", "abc", "")] == ["vision", None, None]


class TestHostileTexts:
    @pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:12]))
    def test_texts_come_back_as_they_were(self, store: Store, text: str) -> None:
        known = run(description=text, reason=text, params={"p": text, "q": [text]})
        store.add(known)
        assert store.find("a1b2c3") == known
        change = status(1, "running")._replace(reason=text)
        store.record(change)
        assert store.statuses("a1b2c3") == [change]
        member = replica(reason=text)
        store.put_replicas([member])
        assert store.replicas("a1b2c3") == [member]

    @pytest.mark.parametrize("text", HOSTILE[:-1], ids=lambda text: repr(text[:12]))
    def test_names_come_back_as_they_were_and_are_found(self, store: Store, text: str) -> None:
        labels: dict[str, Any] = {
            "name": text,
            "project": text,
            "framework": text,
            "user": text,
            "group": text,
            "commit": text,
        }
        known = run("f00", **labels, tags=(text,), params={text: 1}, summary={text: 2.0})
        store.add(known)
        store.add(run("other", minutes=1, name="none of it", tags=("other",)))
        fields = {"name", "project", "framework", "user", "group", "commit", "tags"}
        queries = [f"{field}:{quoted(text)}" for field in fields]
        for query in [*queries, f"params.{quoted(text)}:1", f"metric.{quoted(text)}:2"]:
            assert store.runs(query) == [known], query
        for sort in (f"params.{quoted(text)}", f"-metric.{quoted(text)}"):
            assert ids(store.runs(sort=sort)) == ["f00", "other"]
        assert store.runs(project=text) == [known]

    @pytest.mark.parametrize("text", [text for text in HOSTILE[:-1] if text], ids=lambda text: repr(text[:12]))
    def test_a_run_is_found_by_any_name(self, store: Store, text: str) -> None:
        store.add(run(name=text))
        assert store.find(text) == run(name=text)

    def test_names_that_no_index_can_hold_are_shortened(self, store: Store) -> None:
        long = "🐘" * 1_000_000
        store.add(run(name=long, tags=(long, long + "b"), params={long: 1, long + "b": 2}, summary={long: 3.0}))
        found = store.find(long)
        assert found.name == "🐘" * 499 + "…"
        assert found.tags == (found.name,)
        assert found.params == {found.name: 2}
        assert found.summary == {found.name: 3.0}

    def test_what_no_database_can_hold_is_replaced(self, store: Store) -> None:
        store.add(
            run(name="nul \0 half \ud800", description="\0", tags=("\0",), params={"p": "\udfff", "q": ["\0\ud800"]})
        )
        found = store.find("a1b2c3")
        assert found.name == "nul \ufffd half \ufffd"
        assert (found.description, found.tags) == ("\ufffd", ("\ufffd",))
        assert found.params == {"p": "\ufffd", "q": ["\0\ud800"]}
        assert store.find("nul \0 half \ud800").id == "a1b2c3"
        assert store.runs("name:%half \ud800%") == [found]

    def test_an_id_cannot_break_out(self, store: Store) -> None:
        store.add(run())
        with pytest.raises(CallError):
            store.find("' OR 1=1 --")
        assert not store.delete("%")
        assert store.count() == 1


class TestStatuses:
    def test_trials_of_a_group_are_folded_but_not_runs_that_only_share_a_name(self, store: Store) -> None:
        rows = [run("aaaa"), run("bbbb", kind="group"), run("cccc", group="bbbb"), run("dddd", group="a-name")]
        for one in rows:
            store.add(one)
        assert {found.id for found in store.runs(folded=True)} == {"aaaa", "bbbb", "dddd"}
        assert (store.count(folded=True), store.count()) == (3, 4)
        assert [found.id for found in store.runs("group:bbbb", folded=True)] == []

    def test_statuses_come_back_in_order(self, store: Store) -> None:
        store.add(run())
        changes = [status(1, "created"), status(2, "starting", 1), status(3, "running", 2), status(4, "failed", 3)]
        assert all(store.record(change) for change in changes)
        assert store.statuses("a1b2c3") == changes
        assert store.statuses_of(["a1b2c3", "unknown"]) == {"a1b2c3": changes}

    def test_the_run_follows_its_statuses(self, store: Store) -> None:
        store.add(run())
        store.record(status(1, "starting", 1))
        store.record(status(2, "running", 2))
        now = run(status="running", reason="because of running", updated_at=after(2), started_at=after(1))
        assert store.find("a1b2c3") == now
        store.record(status(3, "succeeded", 3))
        done = now._replace(
            status="succeeded", reason="because of succeeded", updated_at=after(3), finished_at=after(3)
        )
        assert store.find("a1b2c3") == done

    def test_recording_a_number_again_changes_nothing(self, store: Store) -> None:
        store.add(run())
        assert store.record(status(1, "running", 1))
        before = store.find("a1b2c3")
        assert not store.record(status(1, "failed", 2))
        assert store.find("a1b2c3") == before
        assert store.statuses("a1b2c3") == [status(1, "running", 1)]

    def test_an_earlier_number_is_kept_but_does_not_turn_the_run_back(self, store: Store) -> None:
        store.add(run())
        store.record(status(2, "succeeded", 2))
        before = store.find("a1b2c3")
        assert store.record(status(1, "running", 1))
        assert store.find("a1b2c3") == before
        assert [change.number for change in store.statuses("a1b2c3")] == [1, 2]

    @pytest.mark.parametrize("name", DONE)
    def test_each_done_status_finishes_the_run(self, store: Store, name: str) -> None:
        store.add(run())
        store.record(status(1, name, 7))
        found = store.find("a1b2c3")
        assert found.is_done
        assert (found.started_at, found.finished_at) == (None, after(7))
        assert store.active() == []

    def test_a_new_attempt_clears_when_it_finished_and_keeps_when_it_first_started(self, store: Store) -> None:
        store.add(run())
        for change in [status(1, "running", 1), status(2, "failed", 2), status(3, "resuming", 3, attempt=2)]:
            store.record(change)
        again = store.find("a1b2c3")
        assert (again.status, again.attempt, again.started_at, again.finished_at) == ("resuming", 2, after(1), None)
        assert ids(store.active()) == ["a1b2c3"]
        store.record(status(4, "running", 4, attempt=2))
        store.record(status(5, "succeeded", 5, attempt=2))
        done = store.find("a1b2c3")
        assert (done.started_at, done.finished_at) == (after(1), after(5))

    def test_a_second_end_of_an_attempt_keeps_the_time_of_the_first(self, store: Store) -> None:
        store.add(run())
        store.record(status(1, "succeeded", 1))
        store.record(status(2, "stopped", 2))
        assert (store.find("a1b2c3").status, store.find("a1b2c3").finished_at) == ("stopped", after(1))

    def test_an_attempt_that_ends_before_it_begins_has_its_own_end(self, store: Store) -> None:
        store.add(run())
        store.record(status(1, "failed", 1))
        store.record(status(2, "stopped", 2, attempt=2))
        assert store.find("a1b2c3").finished_at == after(2)

    def test_a_status_of_no_run_is_refused(self, store: Store) -> None:
        with pytest.raises(CallError, match="no run `a1b2c3`"):
            store.record(status(1, "running"))
        with pytest.raises(CallError, match="no run `a1b2c3`"):
            store.put_replicas([replica()])
        with pytest.raises(CallError, match="no run `a1b2c3`"):
            store.put_summaries("a1b2c3", {"loss": 1})
        with pytest.raises(CallError, match="no run `a1b2c3`"):
            store.update("a1b2c3", name="x")

    def test_active_runs_come_by_priority_and_then_by_age(self, store: Store) -> None:
        for run_id, minutes, priority in [("late", 3, 0), ("early", 1, 0), ("urgent", 2, 9), ("done", 0, 99)]:
            store.add(run(run_id, minutes, priority=priority))
        store.record(status(1, "succeeded", run_id="done"))
        assert ids(store.active()) == ["urgent", "early", "late"]


class TestReplicas:
    def test_replicas_come_back_by_rank(self, store: Store) -> None:
        store.add(run())
        members = [replica(place) for place in range(12)]
        first = replica(0, role="master", rank=0, code=1, signal=9, cause="killed for memory", finished_at=after(1))
        store.put_replicas([*reversed(members), first])
        assert store.replicas("a1b2c3") == [first, *members]

    def test_putting_one_again_replaces_it(self, store: Store) -> None:
        store.add(run())
        store.put_replicas([replica(0), replica(1)])
        ended = replica(1, status="failed", code=137, signal=9, host=None, peak={"memory_mib": math.inf, "cpu": 2.5})
        store.put_replicas([ended])
        assert store.replicas("a1b2c3") == [replica(0), ended]

    def test_the_newest_attempt_is_the_default(self, store: Store) -> None:
        store.add(run())
        store.put_replicas([replica(0, attempt=1), replica(0, attempt=2, pid=7)])
        assert store.replicas("a1b2c3") == [replica(0, attempt=2, pid=7)]
        assert store.replicas("a1b2c3", attempt=1) == [replica(0, attempt=1)]
        assert store.replicas("a1b2c3", attempt=3) == []

    def test_nothing_to_put_is_fine(self, store: Store) -> None:
        store.put_replicas([])


class TestChanges:
    def test_summaries_are_replaced_one_by_one(self, store: Store) -> None:
        store.add(run(summary={"loss": 2.0}))
        store.put_summaries("a1b2c3", {"loss": 0.5, "accuracy": 1})
        store.put_summaries("a1b2c3", {"accuracy": 0.75})
        assert store.find("a1b2c3").summary == {"loss": 0.5, "accuracy": 0.75}

    def test_a_metric_that_is_no_number_comes_back_as_that(self, store: Store) -> None:
        store.add(run())
        store.put_summaries("a1b2c3", {"loss": math.nan, "low": -math.inf})
        found = store.find("a1b2c3").summary
        assert math.isnan(found["loss"])
        assert found["low"] == -math.inf

    def test_only_what_is_given_is_updated(self, store: Store) -> None:
        known = run(name="a", description="b", priority=1, tags=("c",))
        store.add(known)
        store.update("a1b2c3", name="new")
        updated = store.find("a1b2c3")
        assert updated == known._replace(name="new", updated_at=updated.updated_at)
        assert updated.updated_at > known.updated_at or updated.updated_at < NOON
        store.update("a1b2c3", description=None, priority=5, tags=["z", "y"])
        again = store.find("a1b2c3")
        assert (again.name, again.description, again.priority, again.tags) == ("new", None, 5, ("z", "y"))
        store.update("a1b2c3", tags=())
        assert store.find("a1b2c3").tags == ()

    def test_a_deleted_run_leaves_nothing(self, store: Store) -> None:
        for run_id in ("gone", "kept"):
            store.add(run(run_id, tags=("t",), params={"p": 1}, summary={"m": 1.0}))
            store.record(status(1, "running", run_id=run_id))
            store.put_replicas([replica(run_id=run_id)])
        kept = store.find("kept")
        assert store.delete("gone")
        assert not store.delete("gone")
        assert (store.statuses("gone"), store.replicas("gone"), store.ids()) == ([], [], {"kept"})
        store.add(run("gone"))
        assert store.find("gone") == run("gone")
        assert store.find("kept") == kept
        assert (len(store.statuses("kept")), len(store.replicas("kept"))) == (1, 1)

    def test_a_cleared_store_is_as_new(self, store: Store) -> None:
        store.add(run("gone", tags=("t",), params={"p": 1}, summary={"m": 1.0}))
        store.record(status(1, "running", run_id="gone"))
        store.put_replicas([replica(run_id="gone")])
        store.clear()
        assert (store.ids(), store.check()) == (set(), [])
        store.add(run("gone"))
        assert (store.find("gone"), store.statuses("gone"), store.replicas("gone")) == (run("gone"), [], [])

    def test_a_transaction_that_fails_leaves_nothing(self, store: Store) -> None:
        store.add(run("before"))
        with suppress(KeyboardInterrupt), store.transaction():
            store.add(run("within", tags=("t",)))
            store.record(status(1, "running", run_id="before"))
            assert store.count() == 2
            raise KeyboardInterrupt
        assert store.ids() == {"before"}
        assert store.find("before") == run("before")
        store.add(run("after"))
        assert store.ids() == {"before", "after"}

    def test_a_transaction_with_a_failed_part_leaves_nothing_though_the_error_was_caught(self, store: Store) -> None:
        def write() -> None:
            with store.transaction():
                store.add(run())
                with suppress(StoreError):
                    store._database.change("INSERT INTO nothing VALUES (1)")

        with pytest.raises(StoreError, match="so it was rolled back"):
            write()
        assert not store.ids()

    def test_a_transaction_goes_on_after_a_call_that_was_wrong(self, store: Store) -> None:
        with store.transaction():
            store.add(run())
            with pytest.raises(CallError):
                store.record(status(1, "running", run_id="nobody"))
        assert store.ids() == {"a1b2c3"}

    def test_a_transaction_makes_many_writes_one(self, store: Store, address: Address) -> None:
        with address.open() as other:
            with store.transaction():
                store.add(run())
                store.record(status(1, "running"))
                assert not other.ids()
            assert other.find("a1b2c3").status == "running"


class TestFind:
    @pytest.fixture(autouse=True)
    def _runs(self, store: Store) -> None:
        for place, run_id in enumerate(["ab", "abc", "abcd", "b1", "b2", "c1"]):
            store.add(run(run_id, place))
        store.update("b1", name="baseline")
        store.update("b2", name="twin")
        store.update("c1", name="twin")

    @pytest.mark.parametrize("run_id", ["ab", "abc", "abcd"])
    def test_an_id_is_found_even_when_it_begins_others(self, store: Store, run_id: str) -> None:
        assert store.find(run_id).id == run_id

    @pytest.mark.parametrize(("prefix", "run_id"), [("c", "c1"), ("b2", "b2"), ("baseline", "b1")])
    def test_the_beginning_of_one_id_and_a_name_are_found(self, store: Store, prefix: str, run_id: str) -> None:
        assert store.find(prefix).id == run_id

    @pytest.mark.parametrize("prefix", ["x", "abcde", "base", "B1", "%", "b_"])
    def test_what_is_no_run_is_reported(self, store: Store, prefix: str) -> None:
        with pytest.raises(CallError, match=f"there is no run `{prefix}`: `phalanx ps` lists"):
            store.find(prefix)

    def test_nothing_is_no_run(self, store: Store) -> None:
        with pytest.raises(CallError, match="name a run"):
            store.find("")

    def test_what_can_be_several_lists_them(self, store: Store) -> None:
        with pytest.raises(
            CallError, match=r"`a` is ambiguous: ab \(no name, created\), abc .*, abcd .*; give more of the id"
        ):
            store.find("a")

    def test_of_several_runs_with_a_name_the_newest_is_found(self, store: Store) -> None:
        store.add(run("a9", minutes=5, name="twin"))
        assert store.find("twin").id == "a9"

    def test_a_name_comes_before_the_beginning_of_an_id_and_after_a_whole_one(self, store: Store) -> None:
        store.update("c1", name="b")
        assert store.find("b").id == "c1"
        store.update("c1", name="b1")
        assert store.find("b1").id == "b1"

    def test_at_most_five_are_listed(self, store: Store) -> None:
        for place in range(10):
            store.add(run(f"d{place}"))
        with pytest.raises(CallError, match=r"d4.*, and more") as raised:
            store.find("d")
        assert "d5" not in str(raised.value)


def test_the_best_values_of_a_metric_are_found_and_sorted(store: Store) -> None:
    best = {
        "good": (0.9, 0.1, 5.0),
        "noisy": (0.5, 0.3, 0.6),
        "spiky": (math.nan, 0.2, 9.0),
        "odd": (math.inf, None, None),
    }
    for run_id, (last, low, high) in best.items():
        store.add(run(run_id))
        store.put_summaries(run_id, {"val.loss": Summary(last, low, high, 3, 2, 1.7e9)})
    store.add(run("none"))

    def found(query: str, sort: str = "id") -> list[str]:
        return [one.id for one in store.runs(query, sort)]

    assert found("min.val.loss:<0.25") == ["good", "spiky"]
    assert found('max."val.loss":<=5, metric.val.loss:>0.8') == ["good"]
    assert found("metrics.val.loss:nan") == ["spiky"]
    assert found("min.val.loss:nan") == ["odd"]
    assert found("", "min.val.loss")[:3] == ["good", "spiky", "noisy"]
    assert found("", "-max.val.loss")[:3] == ["spiky", "good", "noisy"]
    assert store.find("good").best == {"val.loss": (0.1, 5.0)}
    assert store.find("odd").best == {}


class TestLists:
    @pytest.fixture(autouse=True)
    def _runs(self, store: Store) -> None:
        fields: list[dict[str, Any]] = [
            {"name": "Alpha", "summary": {"loss": 0.3}, "params": {"lr": 0.1}},
            {"name": "beta", "summary": {"loss": math.nan}, "params": {"lr": 0.02}, "project": "audio"},
            {"name": None, "params": {"lr": "auto"}},
            {"name": "Gamma", "summary": {"loss": 0.1}},
            {"name": "delta", "summary": {"loss": -1}, "params": {"lr": 10}, "project": "audio", "started_at": NOON},
        ]
        for place, changes in enumerate(fields):
            store.add(run(f"r{place}", place, **changes))

    @pytest.mark.parametrize(
        ("sort", "expected"),
        [
            ("-created_at", "43210"),
            ("created_at", "01234"),
            (" -created_at ", "43210"),
            ("updated_at", "01234"),
            ("-started_at", "43210"),
            ("name", "03142"),
            ("-name", "41302"),
            ("project", "41320"),
            ("metric.loss", "43021"),
            ("-metrics.loss", "03421"),
            ("params.lr", "10423"),
            ("-declarations.lr", "40123"),
            ("params.nothing", "43210"),
            ("priority", "43210"),
        ],
    )
    def test_lists_are_sorted_with_the_missing_last(self, store: Store, sort: str, expected: str) -> None:
        assert ids(store.runs(sort=sort)) == [f"r{place}" for place in expected]

    def test_pages_follow_each_other(self, store: Store) -> None:
        assert ids(store.runs(limit=2)) == ["r4", "r3"]
        assert ids(store.runs(limit=2, offset=2)) == ["r2", "r1"]
        assert ids(store.runs(limit=2, offset=4)) == ["r0"]
        assert ids(store.runs(limit=None, offset=3)) == ["r1", "r0"]
        assert store.runs(limit=0) == store.runs(limit=-1) == []

    def test_runs_of_one_time_keep_their_order_over_pages(self, store: Store) -> None:
        for place in range(30):
            store.add(run(f"same{place}", 60))
        pages = [found for offset in range(0, 30, 7) for found in ids(store.runs("id:same%", limit=7, offset=offset))]
        assert sorted(pages) == sorted(f"same{place}" for place in range(30))

    def test_a_project_is_a_filter_of_its_own(self, store: Store) -> None:
        assert ids(store.runs(project="audio")) == ["r4", "r1"]
        assert ids(store.runs("metric.loss:<0|nan", project="audio")) == ["r4", "r1"]
        assert store.count(project="audio") == 2
        assert store.count("name:%a%", project="vision") == 2

    @pytest.mark.parametrize("sort", ["", "-", "nothing", "tags", "metric", "metric.", "id; DROP TABLE runs"])
    def test_a_sort_that_cannot_be_is_reported(self, store: Store, sort: str) -> None:
        with pytest.raises(CallError, match="cannot sort by"):
            store.runs(sort=sort)

    def test_many_runs_come_with_what_is_beside_them(self, store: Store) -> None:
        with store.transaction():
            for place in range(1200):
                store.add(run(f"m{place}", 100 + place, tags=(f"t{place}",), params={"p": place}))
        found = store.runs("id:m%", sort="created_at", limit=None)
        assert [(one.tags, one.params) for one in found] == [((f"t{n}",), {"p": n}) for n in range(1200)]


class TestQueries:
    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, class_store: Store) -> Store:
        store = class_store
        store.add(
            run(
                "one",
                0,
                name="Baseline 100%",
                description="Große Übung",
                status="running",
                framework="pytorch",
                commit="c0ffee",
                group="g1",
                tags=("nightly", "big"),
                params={
                    "lr": 0.1,
                    "optimizer": "adam",
                    "layers": [64, 64],
                    "amp": True,
                    "depth": "12",
                    "model.size": 5,
                },
                summary={"loss": 0.05, "acc": 0.9},
                started_at=datetime(2026, 5, 1, 12, 30, 15, tzinfo=UTC),
            )
        )
        store.add(
            run(
                "two",
                24 * 60,
                name="baseline_2",
                status="failed",
                framework="tensorflow",
                project="audio",
                priority=5,
                tags=("nightly",),
                params={"lr": 1e-3, "optimizer": "sgd", "depth": 9, "amp": False},
                summary={"loss": math.nan, "acc": 0.5},
            )
        )
        store.add(run("three", 48 * 60, user="bob", params={"lr": "auto", "depth": 100}, summary={"loss": 2}))
        return store

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("", "one two three"),
            (" , ", "one two three"),
            ("status:running", "one"),
            (" status : running ", "one"),
            ("status:running|failed", "one two"),
            ("status: running | failed ,project: audio", "two"),
            ("status:~running", "two three"),
            ("status:~running|failed", "three"),
            ("status:=failed", "two"),
            ("id:three", "three"),
            ("project:audio, status:running", ""),
            ("kind:experiment, backend:local", "one two three"),
            ("user:bob", "three"),
            ("group:g1, commit:c0ffee, framework:pytorch", "one"),
            ("group:%", "one"),
            ("group:~%", "two three"),
            ("framework:~pytorch", "two three"),
            ("name:Baseline 100%", "one"),
            ('name:"Baseline 100%"', "one"),
            ('name:"baseline 100%"', ""),
            ("name:base%", "one two"),
            ("name:%LINE%", "one two"),
            ("name:%_2", "two"),
            ("name:%e_1%", ""),
            ("name:%0%%", "one"),
            ("name:~%line%", "three"),
            ("description:%übung", "one"),
            ("description:GROSSE%|große%", "one"),
            ("tags:nightly", "one two"),
            ("tags:nightly, tags:big", "one"),
            ("tags:big|nightly", "one two"),
            ("tags:~big", "two three"),
            ("tags:%IGHT%", "one two"),
            ("metric.loss:<0.1", "one"),
            ("metrics.loss:>=2", "three"),
            ("metric.loss:=>2", "three"),
            ("metric.loss:2", "three"),
            ("metric.loss:2.0|0.05", "one three"),
            ("metric.loss:~<0.1", "two three"),
            ("metric.loss:nan", "two"),
            ("metric.loss:~nan", "one three"),
            ("metric.loss:<inf", "one three"),
            ("metric.acc:>0.4, metric.loss:<1", "one"),
            ("metric.nothing:>0", ""),
            ("params.lr:<0.05", "two"),
            ("declarations.lr:0.10", "one"),
            ("params.lr:1e-3|auto", "two three"),
            ("params.lr:~0.1", "two three"),
            ("params.lr:>0.05", "one three"),
            ("params.lr:<=a", "one two"),
            ("params.depth:>10", "one three"),
            ("params.depth:12", "one"),
            ('params.depth:"12"', "one"),
            ('params.depth:"012"', ""),
            ("params.optimizer:AD%", "one"),
            ("params.optimizer:adam|sgd", "one two"),
            ("params.optimizer:~%", "three"),
            ("params.amp:true", "one"),
            ("params.amp:1", ""),
            ('params.layers:"[64, 64]"', "one"),
            ("params.layers:%64%", "one"),
            ("params.model.size:5", "one"),
            ('params."model.size":>4', "one"),
            ("priority:>0", "two"),
            ("attempt:1, priority:0", "one three"),
            ("created_at:2026-05-01", "one"),
            ("created_at:>2026-05-01", "two three"),
            ("created_at:>=2026-05-01", "one two three"),
            ("created_at:<2026-05-02", "one"),
            ("created_at:<=2026-05-02", "one two"),
            ("created_at:~2026-05-02", "one three"),
            ("created_at:2026-05-01..2026-05-02", "one two"),
            ("created_at:2026-05-02 .. 2026-05-03", "two three"),
            ("created_at:2026-05-02..", "two three"),
            ("created_at:..2026-05-01", "one"),
            ("created_at:~2026-05-01..2026-05-02", "three"),
            ("created_at:2026-05-01|2026-05-03", "one three"),
            ("created_at:2026-05-01 12:00", "one"),
            ("created_at:>2026-05-01 12:00", "two three"),
            ("created_at:2026-05-01T11:59:30..2026-05-01T12:00:00Z", "one"),
            ("created_at:2026-05-01 14:00+02:00", "one"),
            ("created_at:2026-05-01 14:00-0200", ""),
            ("started_at:2026-05-01 12:30", "one"),
            ("started_at:2026-05-01 12:30:15", "one"),
            ("started_at:2026-05-01 12:30:15.000001", ""),
            ("started_at:~2026-05-01", "two three"),
            ('started_at:"2026-05-01 12:30"', "one"),
            ("finished_at:>2000-01-01", ""),
            ("updated_at:>=2026-05-03 12:00, user:bob", "three"),
        ],
    )
    def test_a_query_finds(self, store: Store, query: str, expected: str) -> None:
        assert " ".join(ids(store.runs(query, sort="created_at"))) == expected
        assert store.count(query) == len(expected.split())

    def test_a_wrong_query_is_reported_by_both(self, store: Store) -> None:
        for asked in (store.runs, store.count):
            with pytest.raises(CallError, match=r"did you mean `metric\.loss`"):
                asked("status:running, metrc.loss:<0.1")

    def test_a_long_query_works(self, store: Store) -> None:
        assert ids(store.runs("id:" + "|".join(f"x{place}" for place in range(199)) + "|one")) == ["one"]
        assert store.count(", ".join(["metric.loss:~>5"] * 200)) == 3
        assert store.count("metric.loss:" + "|".join(["nan"] * 200)) == 1


class TestCheck:
    def test_a_busy_store_is_well(self, store: Store) -> None:
        store.add(run())
        for change in [status(1, "running"), status(2, "failed", 1), status(3, "running", 2, attempt=2)]:
            store.record(change)
        assert store.check() == []

    def test_what_does_not_fit_is_reported(self, store: Store) -> None:
        for place in range(4):
            store.add(run(f"end{place}", place, status="failed"))
        store.add(run("undead", finished_at=NOON))
        store.record(status(1, "running", run_id="end3"))
        store.add(run("differs"))
        store.record(status(1, "running", run_id="differs"))
        with store.transaction():
            store._database.change("UPDATE runs SET status = 'created' WHERE id = ?", ["differs"])
        assert store.check() == [
            "3 runs are finished, but without an end time: end0, end1, end2",
            "1 run is not finished, but with an end time: undead",
            "1 run is listed with another status than the last recorded one: differs",
        ]
