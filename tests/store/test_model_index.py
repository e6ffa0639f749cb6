"""What the index of the registry promises, over every database."""

from __future__ import annotations

import math
from typing import Any

import pytest

from phalanx.store import Artifact, Store, StoreError
from phalanx.store.model_index import ModelEvent, ModelIndex
from tests.store.conftest import Address
from tests.store.samples import HOSTILE, after, run


@pytest.fixture
def index(store: Store) -> ModelIndex:
    return ModelIndex(store)


class EventRecorder:
    """Tells an index of events, each a minute after the one before."""

    def __init__(self, index: ModelIndex) -> None:
        self.index = index
        self.events: list[ModelEvent] = []

    def __call__(self, kind: str, model: str = "net", version: int | None = None, **data: Any) -> None:
        number = len(self.events) + 1
        event = ModelEvent(number, after(number), data.pop("user", "ann"), kind, model, version, "why not", data)
        self.events.append(event)
        self.index.add([event], number * 100)


@pytest.fixture
def record(index: ModelIndex) -> EventRecorder:
    return EventRecorder(index)


def numbers(index: ModelIndex, model: str = "net") -> list[int]:
    return [version.number for version in index.versions(model)]


def everything(index: ModelIndex) -> Any:
    return index.models(), index.versions(), index.events(), index.position(), index.next_number("net")


def test_an_empty_index_has_nothing(index: ModelIndex) -> None:
    assert (index.models(), index.versions(), index.events()) == ([], [], [])
    assert index.model("net") is None
    assert index.version("net", 1) is None
    assert index.aliases("net") == {}
    assert index.position() == (0, 0)
    assert index.next_number("net") == 1
    assert index.registered("net", "r1", "outputs/a") is None


def test_a_version_comes_back_as_it_was_reported(index: ModelIndex, record: EventRecorder) -> None:
    metrics = {"loss": 0.25, "nan": math.nan, "high": math.inf}
    lineage = {"params": {"lr": 0.1}, "datasets": [{"name": "cifar"}]}
    record("register", version=1, run="r1", source="outputs/a", size=10, files=2, metrics=metrics, lineage=lineage,
         labels={"stage": "test"}, description="first")  # fmt: skip
    version = index.version("net", 1)
    assert version is not None
    assert version.title == "net/1"
    assert version[:8] == ("net", 1, "r1", "outputs/a", "ann", None, 10, 2)
    assert (version.created_at, version.updated_at) == (after(1), after(1))
    assert version.metrics["loss"] == 0.25
    assert math.isnan(version.metrics["nan"])
    assert version.metrics["high"] == math.inf
    assert (version.lineage, version.labels, version.description) == (lineage, {"stage": "test"}, "first")
    assert version.aliases == ()
    model = index.model("net")
    assert model is not None
    assert (model.latest, model.versions, model.aliases) == (1, 1, {})


def test_the_files_of_a_version_are_read_later(index: ModelIndex, record: EventRecorder) -> None:
    record("register", version=1, run="r1", lineage={"commit": "abc"})
    record("settle", version=1, digest="d" * 64, size=5, files=1, lineage={"code": "c" * 64})
    version = index.version("net", 1)
    assert version is not None
    assert (version.digest, version.size, version.files) == ("d" * 64, 5, 1)
    assert version.lineage == {"commit": "abc", "code": "c" * 64}
    assert version.updated_at == after(2)


def test_versions_are_listed_of_a_model_and_of_a_run_the_newest_first(index: ModelIndex, record: EventRecorder) -> None:
    record("register", "net", 1, run="r1")
    record("register", "net", 2, run="r2")
    record("register", "other", 1, run="r1")
    assert numbers(index) == [2, 1]
    assert [version.title for version in index.versions(run_id="r1")] == ["net/1", "other/1"]
    assert [version.title for version in index.versions("net", "r1")] == ["net/1"]
    assert [version.title for version in index.versions()] == ["net/2", "net/1", "other/1"]


def test_an_alias_points_at_one_version(index: ModelIndex, record: EventRecorder) -> None:
    record("register", version=1)
    record("register", version=2)
    record("alias", version=1, alias="champion")
    record("alias", version=1, alias="old")
    record("alias", version=2, alias="champion")
    assert index.aliases("net") == {"champion": 2, "old": 1}
    found = index.version("net", 2)
    assert found is not None
    assert found.aliases == ("champion",)
    assert found.updated_at == after(5)
    record("unalias", version=2, alias="champion")
    assert index.aliases("net") == {"old": 1}


def test_an_alias_of_a_version_whose_record_was_lost_is_passed_over(index: ModelIndex, record: EventRecorder) -> None:
    record("alias", version=7, alias="champion")
    assert index.aliases("net") == {}
    assert len(index.events()) == 1


def test_models_and_versions_are_described_and_labelled(index: ModelIndex, record: EventRecorder) -> None:
    record("create", description="first", labels={"a": "1", "b": "2"})
    record("register", version=1, labels={"x": "1"}, description="one")
    record("describe", description="second")
    record("label", labels={"a": None, "c": "3"})
    record("describe", version=1, description="uno")
    record("label", version=1, labels={"x": "2", "y": "3"})
    model, version = index.model("net"), index.version("net", 1)
    assert model is not None
    assert version is not None
    assert (model.description, model.labels) == ("second", {"b": "2", "c": "3"})
    assert (version.description, version.labels) == ("uno", {"x": "2", "y": "3"})
    assert (model.created_at, model.updated_at) == (after(1), after(6))


def test_a_deleted_version_is_gone_and_its_number_with_it(index: ModelIndex, record: EventRecorder) -> None:
    record("register", version=1, run="r1", source="outputs/a")
    record("register", version=2, run="r1", source="outputs/b")
    record("alias", version=2, alias="champion")
    record("delete", version=2)
    assert numbers(index) == [1]
    assert index.version("net", 2) is None
    assert index.aliases("net") == {}
    assert index.next_number("net") == 3
    assert index.registered("net", "r1", "outputs/b") == 2
    model = index.model("net")
    assert model is not None
    assert (model.latest, model.versions) == (1, 1)


def test_a_deleted_model_begins_anew_and_its_numbers_go_on(index: ModelIndex, record: EventRecorder) -> None:
    record("create", description="old", labels={"a": "1"})
    record("register", version=1)
    record("alias", version=1, alias="champion")
    record("delete")
    assert (index.models(), index.versions()) == ([], [])
    assert index.model("net") is None
    record("register", version=2)
    model = index.model("net")
    assert model is not None
    assert (model.description, model.labels, model.aliases, model.latest) == ("", {}, {}, 2)
    assert model.created_at == after(5)
    assert [event.kind for event in index.events("net")] == ["create", "register", "alias", "delete", "register"]


def test_what_a_newer_phalanx_did_is_history(index: ModelIndex, record: EventRecorder) -> None:
    record("register", version=1)
    record("bless", version=1, by="the pope")
    assert index.events()[-1].data == {"by": "the pope"}
    assert numbers(index) == [1]


def test_events_come_back_as_they_were(index: ModelIndex, record: EventRecorder) -> None:
    record("create", "net", description="x")
    record("register", "other", 1, run="r1", source="s", metrics={"a": 1.0})
    record("alias", "other", 1, alias="best", was=None)
    assert index.events() == record.events
    assert index.events("other") == record.events[1:]
    assert index.events(after=2) == record.events[2:]


def test_saying_twice_changes_nothing(index: ModelIndex, record: EventRecorder) -> None:
    record("register", version=1, run="r1")
    record("alias", version=1, alias="champion")
    record("unalias", version=1, alias="champion")
    before = everything(index)
    index.add(record.events[:2], 999)
    assert everything(index) == before


def test_reported_again_from_the_start_it_is_the_same(index: ModelIndex, record: EventRecorder) -> None:
    record("create", description="d", labels={"a": "1"})
    record("register", version=1, run="r1", source="a", metrics={"m": 1})
    record("register", version=2, run="r2", source="b")
    record("settle", version=1, digest="d" * 64, size=1, files=1)
    record("alias", version=1, alias="champion")
    record("delete", version=2)
    record("label", version=1, labels={"x": "y"})
    before = everything(index)
    index.clear()
    assert (index.models(), index.events()) == ([], [])
    index.add(record.events, 700)
    assert everything(index) == before


def test_events_are_indexed_all_or_none(index: ModelIndex, store: Store) -> None:
    good = ModelEvent(1, after(1), "ann", "register", "net", 1, "", {"run": "r1"})
    bad = ModelEvent(2, after(2), "ann", "alias", "net", 1, "", {})  # of nothing
    with pytest.raises(KeyError):
        index.add([good, bad], 100)
    assert index.position() == (0, 0)
    assert index.models() == []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_come_back(index: ModelIndex, record: EventRecorder, text: str) -> None:
    name = text[:100] or "net"
    record("register", name, 1, run="r1", source=text, description=text, labels={text: text}, metrics={text: 1.0})
    record("alias", name, 1, alias=name)
    version = index.version(name, 1)
    assert version is not None
    assert (version.source, version.description, version.labels) == (text, text, {text: text})
    assert version.aliases == (name,)
    assert index.registered(name, "r1", text) == 1
    assert [model.name for model in index.models(name)] == [name]


def test_what_a_database_cannot_keep_is_found_again_all_the_same(index: ModelIndex, record: EventRecorder) -> None:
    record("register", "net", 1, run="r1", source="outputs/\udce9\0")
    assert index.registered("net", "r1", "outputs/\udce9\0") == 1


def test_models_are_found_by_a_part_of_their_name(index: ModelIndex, record: EventRecorder) -> None:
    for name in ("ResNet-50", "resnet_18", "BERT", "100%", "ÉCOLE"):
        record("create", name)
    assert [model.name for model in index.models("RESNET")] == ["ResNet-50", "resnet_18"]
    assert [model.name for model in index.models("_")] == ["resnet_18"]
    assert [model.name for model in index.models("%")] == ["100%"]
    assert [model.name for model in index.models("école")] == ["ÉCOLE"]
    assert index.models("!") == []
    assert [model.name for model in index.models(limit=2)] == ["100%", "BERT"]
    assert [model.name for model in index.models(limit=2, offset=3)] == ["resnet_18", "ÉCOLE"]


def test_many_models_have_their_own_aliases(index: ModelIndex) -> None:
    events = []
    for number in range(700):
        name = f"net-{number}"
        events.append(ModelEvent(2 * number + 1, after(0), "ann", "register", name, 1, "", {}))
        events.append(ModelEvent(2 * number + 2, after(0), "ann", "alias", name, 1, "", {"alias": f"a{number}"}))
    index.add(events, 1)
    assert all(model.aliases == {f"a{model.name[4:]}": 1} for model in index.models())
    assert len(index.models()) == 700


def test_clearing_the_store_clears_the_index(store: Store, index: ModelIndex, record: EventRecorder) -> None:
    record("register", version=1)
    record("alias", version=1, alias="champion")
    store.clear()
    assert everything(index) == ([], [], [], (0, 0), 1)


def test_the_index_of_another_connection_sees_it(address: Address) -> None:
    with address.open() as one, address.open() as two:
        EventRecorder(ModelIndex(one))("register", version=1, run="r1")
        assert numbers(ModelIndex(two)) == [1]
        with pytest.raises(StoreError):
            _clear_and_fail(one)
        assert numbers(ModelIndex(two)) == [1]


def _clear_and_fail(store: Store) -> None:
    with store.transaction():
        ModelIndex(store).clear()
        store._database.rows("SELECT * FROM nothing")


class TestArtifactsInCommon:
    def put(
        self, store: Store, run_id: str, minutes: float, *contents: tuple[str, str | None], project: str = "p"
    ) -> None:
        store.add(run(run_id, minutes, project=project))
        rows = [Artifact(run_id, path, "file", path, 1, digest, after(minutes)) for path, digest in contents]
        store.put_artifacts(run_id, rows)

    def test_runs_that_have_the_same_content_are_found(self, store: Store, index: ModelIndex) -> None:
        self.put(store, "r2", 2, ("a", "d1"), ("b", "d1"), ("c", "d2"), ("x", None))
        self.put(store, "r1", 1, ("z", "d1"))
        self.put(store, "r3", 3, ("z", "d3"))
        assert index.runs_with(["d1", "d2", "none", "d1"]) == {"d1": ["r1", "r2"], "d2": ["r2"]}
        assert index.runs_with([]) == {}

    def test_more_digests_than_a_statement_takes(self, store: Store, index: ModelIndex) -> None:
        self.put(store, "r1", 1, *((f"f{n}", f"d{n}") for n in range(1200)))
        assert len(index.runs_with(f"d{n}" for n in range(1200))) == 1200

    def test_the_artifacts_of_a_project(self, store: Store, index: ModelIndex) -> None:
        self.put(store, "r1", 1, ("b", "d1"), ("a", "d2"))
        self.put(store, "r2", 2, ("c", None))
        self.put(store, "r3", 3, ("d", None), project="other")
        found = index.project_artifacts("p")
        assert [(row.run_id, row.path) for row in found] == [("r2", "c"), ("r1", "a"), ("r1", "b")]
        assert found[1:] == store.artifacts("r1")
        assert len(index.project_artifacts("p", limit=2)) == 2
