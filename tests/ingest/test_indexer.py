from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.errors import StoreError
from phalanx.ingest.indexer import RunIndexers
from phalanx.ingest.rebuild import rebuild_store
from phalanx.registry.registry import Registry
from phalanx.spool import JSON, NAMES, POINTS, Writer, frame
from phalanx.store import Store
from phalanx.store.model_index import ModelIndex
from phalanx.store.series.compaction import compact
from tests.ingest.indexed import Gathered
from tests.scheduler.working import Works


@pytest.fixture(name="it")
def it_fixture(tmp_path: Path) -> Iterator[Gathered]:
    found = Gathered(tmp_path)
    yield found
    found.close()


@pytest.fixture(name="three")
def three_fixture(tmp_path: Path) -> Iterator[Gathered]:
    found = Gathered(tmp_path, ["worker-0", "master-0", "worker-1"])
    yield found
    found.close()


# events ------------------------------------------------------------------------------------------------------------


def test_everything_that_is_reported_reaches_the_store(it: Gathered) -> None:
    (it.folder / "models" / "net").mkdir(parents=True)
    (it.folder / "models" / "net" / "m").write_bytes(b"model")
    it.record(
        {"kind": "open", "pid": 1, "host": "h", "rank": 0},
        {"kind": "params", "values": {"lr": 0.1, "sizes": [1, 2], "name": "x", "none": None, "nan": math.nan}},
        {"kind": "tags", "add": ["a", "b"]},
        {"kind": "labels", "values": {"team": "nlp", "gone": "x"}},
        {"kind": "labels", "values": {"gone": None}},
        {"kind": "describe", "name": "first", "description": "hello", "framework": "jax", "commit": "abc"},
        {"kind": "progress", "done": 3, "total": 10, "label": "steps"},
        {"kind": "artifact", "path": "artifacts/a", "name": "a", "type": "file", "size": 5},
        {"kind": "model", "name": "net", "path": "models/net", "metrics": {"loss": 0.5}, "size": 5, "files": 1},
        {"kind": "dataset", "name": "mnist", "uri": "s3://x", "path": None, "digest": None, "info": {"rows": 3}},
        {"kind": "text", "name": "t", "step": 1, "text": "hello"},
        {"kind": "dropped", "count": 3, "why": {"full": 2, "bad": 1}},
        {"kind": "finish", "status": "succeeded", "reason": ""},
    )
    it.turn()
    run = it.found()
    assert (run.name, run.description, run.framework, run.commit) == ("first", "hello", "jax", "abc")
    assert run.tags == ("given", "a", "b")
    assert {name: value for name, value in run.params.items() if name != "nan"} == {
        "seed": 1, "lr": 0.1, "sizes": [1, 2], "name": "x", "none": None,
    }  # fmt: skip
    assert math.isnan(run.params["nan"])
    assert it.store.labels(run.id) == {"team": "nlp"}
    facts = it.facts()
    assert (facts["progress"]["done"], facts["progress"]["total"], facts["progress"]["label"]) == (3, 10, "steps")
    assert facts["dataset mnist"]["info"] == {"rows": 3}
    assert facts["dropped master-0"] == {"count": 3, "why": {"full": 2, "bad": 1}}
    (artifact,) = it.store.artifacts(run.id)
    assert (artifact.path, artifact.type, artifact.size, artifact.at.timestamp()) == ("artifacts/a", "file", 5, 1.7e9)
    (version,) = ModelIndex(it.store).versions("net")
    assert (version.run_id, version.source, version.metrics) == (run.id, "models/net", {"loss": 0.5})


@pytest.mark.parametrize(
    ("events", "tags"),
    [
        ([{"add": ["a"]}, {"add": ["b", "a"]}], ("given", "a", "b")),
        ([{"add": ["a", "b"]}, {"remove": ["a", "given"]}], ("b",)),
        ([{"remove": ["a"]}, {"add": ["a"]}], ("given", "a")),
        ([{"set": ["x", "y"]}], ("x", "y")),
        ([{"add": ["a"]}, {"set": []}, {"add": ["b"]}], ("b",)),
        ([{"set": ["x"], "add": ["y"], "remove": ["x"]}], ("y",)),
        ([{"add": [5, None]}], ("given", "5", "None")),
        ([{"add": "abc"}, {"remove": {"a": 1}}, {"set": 5}, {"add": ["ok"]}], ("given", "ok")),
        ([{"add": []}, {}], ("given",)),
    ],
)
def test_tags_are_added_removed_and_set(it: Gathered, events: list[Any], tags: tuple[str, ...]) -> None:
    it.record(*({"kind": "tags", **event} for event in events))
    assert it.turn().found().tags == tags
    it.new_gatherer()
    assert it.turn().found().tags == tags


def test_params_may_be_forgotten(it: Gathered) -> None:
    it.record({"kind": "params", "values": {"a": 1}}, {"kind": "params", "values": {"b": 2}, "reset": True})
    assert it.turn().found().params == {"b": 2}
    it.new_gatherer()
    assert it.turn().found().params == {"b": 2}


UNFIT: list[Any] = [
    5, None, "text", [], [1], {}, {"kind": None}, {"kind": 5}, {"kind": []}, {"kind": {}}, {"kind": "of-tomorrow"},
    {"kind": "params"}, {"kind": "params", "values": 5}, {"kind": "params", "values": [1]},
    {"kind": "params", "values": {"x": 1}, "at": "no"}, {"kind": "params", "values": [["x", 5]]},
    {"kind": "tags"}, {"kind": "tags", "add": 5}, {"kind": "tags", "remove": [[]]},
    {"kind": "labels"}, {"kind": "labels", "values": [1]}, {"kind": "labels", "values": {"l": [1, {"a": 2}]}},
    {"kind": "describe", "name": ["x"]}, {"kind": "describe"}, {"kind": "describe", "name": "n\0\ud800" * 1000},
    {"kind": "progress"}, {"kind": "progress", "done": [], "total": {}},
    {"kind": "artifact"}, {"kind": "artifact", "path": 5, "name": None, "type": [], "size": "x"},
    {"kind": "artifact", "path": "p", "name": "n", "type": "t", "size": 2**80},
    {"kind": "artifact", "path": "p", "name": "n", "type": "t", "size": math.inf},
    {"kind": "artifact", "path": "p", "name": "n", "type": "t", "size": -5},
    {"kind": "artifact", "path": "p", "name": "n", "type": "t", "size": 1, "at": 1e300},
    {"kind": "artifact", "path": "p", "name": "n", "type": "t", "size": 1, "at": math.nan},
    {"kind": "artifact", "path": "p", "name": "n", "type": "t", "size": 1, "at": None},
    {"kind": "artifact", "path": "x" * 100_000, "name": "n", "type": "t", "size": 1},
    {"kind": "model"}, {"kind": "model", "name": 5, "path": 6}, {"kind": "model", "name": "m", "path": "../../../etc"},
    {"kind": "model", "name": "m", "path": "models/missing", "metrics": [1], "labels": 5},
    {"kind": "dataset"}, {"kind": "dataset", "name": {"a": 1}}, {"kind": "dataset", "name": "x" * 10_000},
    {"kind": "dropped"}, {"kind": "dropped", "count": "x", "why": 5}, {"kind": "dropped", "count": 1, "why": {"a": ""}},
    {"kind": "dropped", "count": 1, "why": {"a": math.inf}},
]  # fmt: skip


@pytest.mark.parametrize("unfit", UNFIT, ids=lambda event: json.dumps(event)[:50])
def test_what_is_not_as_it_should_be_does_not_hold_up_the_others(it: Gathered, unfit: Any) -> None:
    spool = Writer(it.attempt() / "client-1.events")
    spool.append_json({"kind": "tags", "add": ["before"], "at": 1.0})
    spool.append_json(unfit)
    spool.append_json({"kind": "tags", "add": ["after"], "at": 2.0})
    spool.close()
    it.record({"kind": "tags", "add": ["other"]}, writer="client-2")
    it.log("loss", 1.0)
    it.turn()
    assert {"before", "after", "other"} <= set(it.found().tags)
    assert it.found().summary == {"loss": 1.0}
    it.turn(is_over=True)


def test_garbage_of_all_kinds(it: Gathered) -> None:
    chance = random.Random(3)
    good = [frame(JSON, json.dumps({"at": n, "kind": "tags", "add": [f"t{n}"]}).encode()) for n in range(20)]
    bad = [
        frame(JSON, b"{not json"), frame(JSON, b"\xff\xfe"), frame(JSON, b""), frame(JSON, b"[" * 200_000),
        frame(JSON, b'{"kind": "params", "values": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}"),
        frame(NAMES, b"xx"), frame(POINTS, b"x"), frame(99, b"x"), b"\xa7P", b"torn" * 10, os.urandom(500),
        good[0][:-1], frame(JSON, b'{"kind": 1e999}'), frame(JSON, b"NaN"),
    ]  # fmt: skip
    pieces = [*good, *bad]
    chance.shuffle(pieces)
    (it.attempt() / "client-1.events").write_bytes(b"".join(pieces))
    (it.attempt() / "client-2.points").write_bytes(b"".join(bad))
    (it.attempt() / "client-3.events").mkdir()
    (it.attempt() / "client-4.points").mkdir()
    (it.attempt() / "client-5.events").symlink_to("nowhere")
    it.log("loss", 1.0)
    it.record({"kind": "tags", "add": ["sound"]}, writer="client-9")
    with pytest.raises(OSError, match="directory"):  # said after everything else was done
        it.turn()
    assert set(it.found().tags) == {"given", "sound", *(f"t{n}" for n in range(20))}
    assert it.found().summary.get("loss") == 1.0


def test_a_record_that_is_being_written_is_waited_for(it: Gathered) -> None:
    record = frame(JSON, json.dumps({"at": 1, "kind": "tags", "add": ["late"]}).encode())
    path = it.attempt() / "client-1.events"
    path.write_bytes(record[:-5])
    assert it.turn().found().tags == ("given",)
    path.write_bytes(record)
    assert it.turn().found().tags == ("given", "late")


# again, and by somebody else ---------------------------------------------------------------------------------------


def told_by_many(three: Gathered) -> None:
    for number, replica in enumerate(("master-0", "worker-0", "worker-1")):
        three.log("loss", 3.0 + number, 1.0 + number, 2.0 + number, replica=replica, at=1.7e9 + number)
        three.record(
            {"kind": "params", "values": {"lr": number, f"own-{number}": 1}, "at": 10 - number},
            {"kind": "tags", "add": ["shared", f"t{number}"], "at": 20 - number},
            {"kind": "tags", "remove": ["shared"] if number == 0 else [], "at": 30},
            {"kind": "describe", "name": f"name-{number}", "at": 40 - number},
            {"kind": "progress", "done": number, "total": 10, "at": 50},
            {"kind": "dropped", "count": number + 1, "why": {"x": number + 1}, "at": 60},
            {"kind": "artifact", "path": f"artifacts/{number}", "name": "n", "type": "file", "size": 1, "at": 70},
            replica=replica,
        )


def test_doing_it_again_gives_the_same(three: Gathered) -> None:
    told_by_many(three)
    three.turn()
    before = three.everything()
    assert before[0].params["lr"] == 0  # the last word, by the time at which it was said
    assert before[0].name == "name-0"
    assert before[0].tags == ("given", "t2", "t1", "t0")
    for _ in range(3):
        three.new_gatherer()
        three.turn()
        assert three.everything() == before
        three.turn(is_over=True)
        assert three.everything() == before


def test_it_is_the_same_however_it_was_cut_into_turns(three: Gathered, tmp_path: Path) -> None:
    told_by_many(three)
    files = {path: path.read_bytes() for path in three.folder.rglob("client-*")}
    three.turn()
    at_once = three.everything()
    for path in files:
        path.write_bytes(b"")
    three.store.update(three.run.id, name=None, tags=["given"])
    three.store.put_params(three.run.id, {"seed": 1}, reset=True)
    three.new_gatherer()
    for part in range(1, 11):
        for path, data in files.items():
            path.write_bytes(data[: len(data) * part // 10])
        three.turn()
    in_parts = three.everything()
    assert in_parts[1:] == at_once[1:]
    assert set(in_parts[0].tags) == set(at_once[0].tags)


def test_the_first_replica_represents_the_run_even_if_another_was_faster(three: Gathered) -> None:
    three.log("loss", 5.0, 6.0, replica="worker-1")
    assert three.turn().found().summary == {"loss": 6.0}
    three.log("loss", 7.0, replica="worker-0")
    three.turn()
    three.log("loss", 1.0, 2.0, replica="master-0")
    three.log("loss", 9.0, replica="worker-1")
    assert three.turn().found().summary == {"loss": 2.0}
    three.log("only", 3.0, replica="worker-1")
    live = three.turn().everything()
    three.new_gatherer()
    assert three.turn(is_over=True).everything() == live
    assert three.store.summaries(three.run.id)["loss"].count == 2


def test_progress_is_that_of_the_first_replica(three: Gathered) -> None:
    three.record({"kind": "progress", "done": 9, "total": 10}, replica="worker-0")
    three.record({"kind": "progress", "done": 1, "total": 10}, replica="master-0")
    three.record({"kind": "progress", "done": 8, "total": 10}, replica="worker-1")
    assert three.turn().facts()["progress"]["done"] == 1


def test_what_the_processes_of_a_replica_dropped_is_summed(it: Gathered) -> None:
    it.record({"kind": "dropped", "count": 3, "why": {"full": 3}})
    it.record({"kind": "dropped", "count": 3, "why": {"full": 1, "bad": 2}}, writer="client-2")
    for _ in range(2):
        assert it.turn().facts()["dropped master-0"] == {"count": 6, "why": {"full": 4, "bad": 2}}
        it.new_gatherer()


# summaries ---------------------------------------------------------------------------------------------------------


def test_summaries_follow_the_points(it: Gathered) -> None:
    it.log("loss", 3.0, 1.0)
    it.turn()
    it.log("loss", math.nan, 2.0)
    it.log("other", -math.inf)
    it.turn()
    found = it.store.summaries(it.run.id)
    assert (found["loss"].last, found["loss"].min, found["loss"].max, found["loss"].count) == (2.0, 1.0, 3.0, 4)
    assert (found["loss"].step, found["other"].last) == (3, -math.inf)


def test_a_later_attempt_goes_on_with_the_line(it: Gathered) -> None:
    it.log("loss", 5.0, 4.0)
    it.turn(is_over=True)
    it.new_gatherer(attempt=2)
    it.log("loss", 3.0)
    it.turn(is_over=True)
    found = it.store.summaries(it.run.id)["loss"]
    assert (found.last, found.count, found.step, found.max) == (3.0, 3, 2, 5.0)


def test_a_rebuilt_database_knows_what_was_compacted(it: Gathered, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    it.log("loss", 3.0, 1.0, 2.0)
    it.record({"kind": "params", "values": {"lr": 0.1}})
    it.turn(is_over=True)
    before = it.store.summaries(it.run.id)
    compact(it.folder, 1)
    assert not list(it.attempt().glob("*.points"))
    it.store.close()
    monkeypatch.setenv("PHALANX_HOME", str(it.home.path))
    monkeypatch.delenv("PHALANX_DATABASE", raising=False)
    rebuild_store()
    it.store = Store.open(it.home.path)
    assert it.store.summaries(it.run.id) == before
    assert it.found().params == {"seed": 1, "lr": 0.1}


# faults ------------------------------------------------------------------------------------------------------------


class Moody(Store):
    """A database that is away for a while."""

    is_away = False

    def put_params(self, *args: Any, **named: Any) -> None:
        if self.is_away:
            raise StoreError("the database is away")
        super().put_params(*args, **named)

    def put_summaries(self, *args: Any, **named: Any) -> None:
        if self.is_away:
            raise StoreError("the database is away")
        super().put_summaries(*args, **named)


def test_what_the_database_missed_is_asked_to_it_later(it: Gathered) -> None:
    store = Moody.open(it.home.path)
    gatherers = RunIndexers(it.home, store)
    run = it.run

    def turn() -> None:
        if run.id in gatherers.live:
            gatherers.live[run.id].next_at = 0.0
        gatherers.run_pass(run, ["master-0"])

    it.log("early", 1.0)
    turn()
    it.record({"kind": "params", "values": {"lr": 0.1}}, {"kind": "tags", "add": ["behind"]})
    it.log("loss", 1.0)
    store.is_away = True
    for _ in range(3):
        with pytest.raises(StoreError):
            turn()
    store.is_away = False
    turn()
    it.log("last", 2.0)
    store.is_away = True
    with pytest.raises(StoreError):
        gatherers.finish(run)
    store.is_away = False
    turn()
    gatherers.finish(run)
    found = store.find(run.id)
    assert (found.params, found.tags) == ({"seed": 1, "lr": 0.1}, ("given", "behind"))
    assert found.summary == {"early": 1.0, "last": 2.0, "loss": 1.0}
    assert not gatherers.live
    store.close()


def test_a_model_that_cannot_be_kept_now_is_kept_later(it: Gathered, monkeypatch: pytest.MonkeyPatch) -> None:
    (it.folder / "models" / "net").mkdir(parents=True)
    (it.folder / "models" / "net" / "m").write_bytes(b"model")
    it.record({"kind": "model", "name": "net", "path": "models/net"}, {"kind": "tags", "add": ["after"]})

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Registry, "ingest", full)
        with pytest.raises(OSError, match="No space"):
            it.turn()
    assert "after" in it.found().tags
    it.turn()
    it.turn()
    assert len(ModelIndex(it.store).versions("net")) == 1


def test_files_that_cannot_be_read_do_not_hold_up_a_run(it: Gathered) -> None:
    gatherers = RunIndexers(it.home, it.store)
    (it.attempt() / "client-1.events").mkdir()
    it.record({"kind": "tags", "add": ["read"]}, writer="client-2")
    gatherers.run_pass(it.run, ["master-0"])
    gatherers.finish(it.run)
    assert "read" in it.found().tags


def test_an_attempt_follows_another(it: Gathered) -> None:
    gatherers = RunIndexers(it.home, it.store)
    it.record({"kind": "tags", "add": ["one"]})
    gatherers.run_pass(it.run, ["master-0"])
    it.new_gatherer(attempt=2)
    it.record({"kind": "tags", "add": ["two"]})
    gatherers.run_pass(it.run, ["master-0"])
    assert it.found().tags == ("given", "one", "two")
    assert gatherers.live[it.run.id].attempt == 2
    gatherers.finish(it.run)
    gatherers.finish(it.run)


# under a real scheduler ----------------------------------------------------------------------------------------------


def test_a_live_run_is_followed_and_settled(works: Works) -> None:
    program = (
        "import time; from phalanx import tracking; tracking.params(lr=0.5); tracking.log(loss=2.0, step=1);"
        "time.sleep(1.5); tracking.log(loss=1.0, step=2); tracking.tags('late')"
    )
    run_id = works.submit(f'python -c "{program}"')
    works.turn_until(lambda: works.run(run_id).summary == {"loss": 2.0})
    assert works.run(run_id).status == "running"
    assert works.run(run_id).params["lr"] == 0.5
    works.new_scheduler()  # another one takes over in between
    run = works.settle(run_id)
    assert (run.status, run.summary, run.tags) == ("succeeded", {"loss": 1.0}, ("late",))
    assert works.store.summaries(run_id)["loss"].count == 2


def test_what_is_reported_at_the_very_end_is_there_when_the_run_is_over(works: Works) -> None:
    run_ids = [
        works.submit(f'python -c "from phalanx import tracking; tracking.log(n={number}); tracking.params(p={number})"')
        for number in range(6)
    ]
    works.settle(*run_ids)
    for number, run_id in enumerate(run_ids):
        run = works.run(run_id)
        assert (run.summary, run.params.get("p")) == ({"n": float(number)}, number)


def test_a_restarted_run_counts_on(works: Works) -> None:
    program = (
        "import os, sys; from phalanx import tracking; n = int(os.environ['PHALANX_ATTEMPT']);"
        "tracking.log(loss=1.0 / n); tracking.log(loss=0.5 / n); sys.exit(n < 3)"
    )
    run_id = works.submit(f'python -c "{program}"', max_restarts=3)
    run = works.settle(run_id)
    assert (run.status, run.attempt) == ("succeeded", 3), run.reason
    found = works.store.summaries(run_id)["loss"]
    assert (found.count, found.step, found.last) == (6, 5, 0.5 / 3)
