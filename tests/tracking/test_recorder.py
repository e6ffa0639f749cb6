"""Params, tags, labels, progress, texts, histograms, tables: everything that is told in events."""

from __future__ import annotations

import argparse
import itertools
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from phalanx import tracking
from phalanx.tracking import TrackedRun
from phalanx.tracking.run import MOST_PARAMS, MOST_PARAMS_SIZE
from phalanx.tracking.values import LONGEST_TEXT
from tests.tracking.reading import Replica

MORE = "more than 20,000 params or 8 MiB in one call"


class Mute:
    """Neither text will come."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@dataclass
class Optimizer:
    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.999)


@dataclass
class Config:
    epochs: int = 3
    optimizer: Optimizer = field(default_factory=Optimizer)


# params ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"lr": 0.1, "layers": 3, "name": "resnet", "fast": True, "seed": None}, None),
        ({"a": {"b": {"c": 1}}, "d": {}}, {"a.b.c": 1, "d": {}}),
        ({1: "one", ("x", 2): "two"}, {"1": "one", "('x', 2)": "two"}),
        (argparse.Namespace(lr=0.1, sizes=[1, 2]), {"lr": 0.1, "sizes": [1, 2]}),
        (SimpleNamespace(lr=0.1, inner=SimpleNamespace(depth=2)), {"lr": 0.1, "inner.depth": 2}),
        (Config(), {"epochs": 3, "optimizer.lr": 0.1, "optimizer.betas": [0.9, 0.999]}),
        (MappingProxyType({"lr": 0.1}), {"lr": 0.1}),
        ({"path": Path("/data/x"), "kind": int}, {"path": "/data/x", "kind": "<class 'int'>"}),
        ({"size": 2**70, "huge": 10**5000}, {"size": str(2**70), "huge": hex(10**5000)}),
        ({"deep": [[[{"a": (1, {2})}]]]}, {"deep": [[[{"a": [1, [2]]}]]]}),
        ({"text": "a\nb\"c'd\0e\ud800", "🔥": "日本"}, {"text": "a\nb\"c'd\N{REPLACEMENT CHARACTER}e?", "🔥": "日本"}),
    ],
)  # fmt: skip
def test_params_of_all_kinds(run: TrackedRun, replica: Replica, given: Any, kept: Any) -> None:
    run.params(given)
    assert replica.params() == (given if kept is None else kept)
    assert run.dropped == {}


def test_params_by_keywords_win(run: TrackedRun, replica: Replica) -> None:
    run.params({"lr": 0.1, "given": 1}, lr=0.2, self=3, values=4)
    run.params(lr=0.3)
    assert replica.params() == {"lr": 0.3, "given": 1, "self": 3, "values": 4}


def test_params_that_are_no_numbers_stay_what_they_are(run: TrackedRun, replica: Replica) -> None:
    run.params(a=math.inf, b=-math.inf, c=math.nan)
    kept = replica.params()
    assert (kept["a"], kept["b"], math.isnan(kept["c"])) == (math.inf, -math.inf, True)


def test_params_of_numpy(run: TrackedRun, replica: Replica) -> None:
    numpy = pytest.importorskip("numpy")
    run.params(lr=numpy.float32(0.5), n=numpy.int64(3), flag=numpy.bool_(True), many=numpy.arange(3))
    assert replica.params() == {"lr": 0.5, "n": 3, "flag": True, "many": "[0 1 2]"}


def test_one_param_that_cannot_be_reported_costs_no_other(run: TrackedRun, replica: Replica) -> None:
    run.params({"lr": 0.1, "mute": Mute(), "after": 2, "list": [1, Mute()]})
    assert replica.params() == {"lr": 0.1, "after": 2}
    assert run.dropped == {"param mute: no text": 1, "param list: no text": 1}


def test_what_holds_itself_is_reported_as_far_as_it_is_new(run: TrackedRun, replica: Replica) -> None:
    ring: list[Any] = [1]
    ring.extend([ring] * 12)
    knot: dict[str, Any] = {"lr": 0.1}
    knot.update({f"k{n}": knot for n in range(12)}, ring=ring)
    run.params(knot)
    kept = replica.params()
    assert kept["lr"] == kept["k0.lr"] == 0.1
    assert kept["ring"] == [1, *["…"] * 12]
    assert kept["k3.k4"] == "…"
    assert len(kept) == 2 + 12 * 14
    assert run.dropped == {}


@pytest.mark.slow
def test_params_without_end_come_to_one(run: TrackedRun, replica: Replica) -> None:
    bush: dict[str, Any] = {"leaf": 1}
    thicket: list[Any] = [1]
    for _ in range(20):
        bush = {f"b{n}": bush for n in range(20)}
        thicket = [thicket] * 20
    run.params(lr=0.1, thicket=thicket, last=1)
    run.params(bush)
    assert replica.params()["lr"] == 0.1
    assert replica.params()["last"] == 1
    assert (next(iter(run.dropped)), list(run.dropped)[-1]) == ("param thicket: larger than 4 MiB", MORE)
    assert len(replica.params()) < MOST_PARAMS + 10


def test_texts_that_take_many_bytes(run: TrackedRun, replica: Replica) -> None:
    run.params({"lr": 0.1, **{f"text-{n}": "🔥" * 400_000 for n in range(10)}})
    assert replica.params()["lr"] == 0.1
    assert replica.params()["text-0"] == "🔥" * 400_000
    assert list(run.dropped) == [MORE]


@pytest.mark.parametrize("nothing", [5, "lr=1", [1, 2], object(), 1.5])
def test_what_holds_no_params_is_said(run: TrackedRun, replica: Replica, nothing: Any) -> None:
    run.params(nothing)
    assert replica.params() == {}
    assert "has no params" in next(iter(run.dropped))


@pytest.mark.slow
def test_100_mb_of_params_are_bounded_and_said(
    run: TrackedRun, replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    run.params({"lr": 0.1, **{f"text-{n:03}": "x" * (1 << 20) for n in range(100)}})
    size = sum(path.stat().st_size for path in replica.folder.glob("*.events"))
    assert size < MOST_PARAMS_SIZE + (2 << 20)
    assert replica.params()["lr"] == 0.1
    assert replica.params()["text-000"] == "x" * (1 << 20)
    assert "8 MiB in one call" in capsys.readouterr().err
    run.params(one="y" * 100_000_000, many=list(range(2_000_000)))
    assert len(replica.params()["one"]) == LONGEST_TEXT
    assert "many" not in replica.params()
    assert "param many: larger than 4 MiB" in run.dropped


# tags, labels, description -------------------------------------------------------------------------------------------


def test_tags_are_words_however_they_are_given(run: TrackedRun, replica: Replica) -> None:
    run.tags("a", "b, c", ["d", "e,f"], ("g",), {"h"}, 5, " i ", "", "a")
    assert replica.event("tags")["add"] == ["a", "b", "c", "d", "e", "f", "g", "h", "5", "i", "a"]


def test_labels_are_texts_and_none_takes_one_away(run: TrackedRun, replica: Replica) -> None:
    run.labels({"team": "nlp", "size": 3}, gone=None)
    assert replica.event("labels")["values"] == {"team": "nlp", "size": "3", "gone": None}


def test_what_a_run_is_called(run: TrackedRun, replica: Replica) -> None:
    run.describe(name="first", description=5, framework="jax", commit="abc", title="no")
    event = replica.event("describe")
    assert (event["name"], event["description"], event["framework"], event["commit"]) == ("first", "5", "jax", "abc")
    assert list(run.dropped) == ["describe: unknown field `title`; known are name, description, framework, commit"]


def test_a_dataset_is_reported_and_not_copied(run: TrackedRun, replica: Replica, tmp_path: Path) -> None:
    run.dataset("mnist", path=tmp_path / "x", uri="s3://b/x", digest="sha256:1", rows=60_000, nested={"a": [1]})
    event = replica.event("dataset")
    assert (event["name"], event["path"], event["uri"], event["digest"]) == (
        "mnist", str(tmp_path / "x"), "s3://b/x", "sha256:1",
    )  # fmt: skip
    assert event["info"] == {"rows": 60_000, "nested": {"a": [1]}}


# progress ----------------------------------------------------------------------------------------------------------


def test_progress_is_reported_now_and_then_and_at_the_end(run: TrackedRun, replica: Replica) -> None:
    for done in range(1001):
        run.progress(done, 1000, "steps")
    events = replica.events("progress")
    assert [event["done"] for event in events] == [0, 1000]
    assert events[-1]["total"] == 1000
    assert events[-1]["label"] == "steps"


def test_progress_without_an_end(run: TrackedRun, replica: Replica) -> None:
    run.progress(5.5)
    assert (replica.event("progress")["done"], replica.event("progress")["total"]) == (5.5, None)


# texts, histograms, tables -----------------------------------------------------------------------------------------


def test_texts_have_steps(run: TrackedRun, replica: Replica) -> None:
    run.text("sample", "Once upon a time 🔥\0\ud800", step=3)
    run.text("sample", 5)
    run.text("sample", "x" * (2 << 20))
    first, second, third = replica.events("text")
    assert (first["name"], first["step"], first["text"]) == (
        "sample",
        3,
        "Once upon a time 🔥\N{REPLACEMENT CHARACTER}?",
    )
    assert (second["step"], second["text"]) == (None, "5")
    assert len(third["text"]) == LONGEST_TEXT


def test_a_histogram_counts_every_value(run: TrackedRun, replica: Replica) -> None:
    run.histogram("weights", [[0.0, 1.0, [2.0]], (3, math.nan, math.inf)], step=1)
    event = replica.event("histogram")
    assert (sum(event["counts"]), event["odd"]) == (4, 2)
    assert (event["edges"][0], event["edges"][-1], len(event["edges"])) == (0.0, 3.0, len(event["counts"]) + 1)
    assert event["edges"] == sorted(event["edges"])
    assert (event["counts"][0], event["counts"][-1]) == (1, 1)


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([], ([0.0, 1.0], [0], 0)),
        ([math.nan], ([0.0, 1.0], [0], 1)),
        ([5.0, 5.0], ([5.0, 6.0], [2], 0)),
        (7, ([7.0, 8.0], [1], 0)),
        ([-1e308, 1e308], ([-1e308, 1e308], [2], 0)),
    ],
)
def test_histograms_of_little(run: TrackedRun, replica: Replica, values: Any, kept: Any) -> None:
    run.histogram("h", values)
    event = replica.event("histogram")
    assert (event["edges"], event["counts"], event["odd"]) == kept


def test_a_histogram_of_numpy(run: TrackedRun, replica: Replica) -> None:
    numpy = pytest.importorskip("numpy")
    run.histogram("h", numpy.arange(1000.0).reshape(10, 100))
    run.histogram("h", edges=numpy.array([0.0, 1.0, 2.0]), counts=numpy.array([3, 4]))
    first, second = replica.events("histogram")
    assert sum(first["counts"]) == 1000
    assert (second["edges"], second["counts"]) == ([0.0, 1.0, 2.0], [3, 4])


@pytest.mark.parametrize(
    "wrong",
    [
        {"values": "abc"},
        {"values": None},
        {"values": [1, "x"]},
        {"edges": [0, 1], "counts": [1, 2]},
        {"edges": [0, 1, 2], "counts": [math.nan, 1]},
        {"values": itertools.repeat([])},
    ],
)
def test_what_is_no_histogram_is_said(
    run: TrackedRun, replica: Replica, wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(wrong.get("values"), itertools.repeat):
        wrong = {"values": itertools.count()}
        monkeypatch.setattr("phalanx.tracking.values.MOST_NUMBERS", 1000)
    run.histogram("h", **wrong)
    run.log(loss=1.0)
    assert replica.events("histogram") == []
    assert len(run.dropped) == 1
    assert replica.count() == 1


def test_a_file_stays_open(run: TrackedRun, replica: Replica, tmp_path: Path) -> None:
    """It can be detached, as a tensor can; that ends it."""
    with (tmp_path / "x").open("w") as stream:
        run.histogram("h", stream)
        run.log(loss=stream)
        run.params(stream=stream)
        stream.write("still open")
    assert (tmp_path / "x").read_text() == "still open"


def test_a_list_that_holds_itself_is_no_histogram(run: TrackedRun, replica: Replica) -> None:
    ring: list[Any] = []
    ring.append(ring)
    run.histogram("h", ring)
    assert run.dropped == {"histogram: nested too deeply": 1}


def test_a_table(run: TrackedRun, replica: Replica) -> None:
    run.table("t", ["a", 2], ([n, str(n), None] for n in range(3)), step=4)
    event = replica.event("table")
    assert event["columns"] == ["a", "2"]
    assert event["rows"] == [[0, "0", None], [1, "1", None], [2, "2", None]]
    assert event["step"] == 4


@pytest.mark.parametrize("rows", [5, None, [1, 2], itertools.repeat([1]), [["x" * (1 << 20)]] * 20])
def test_what_is_no_table_is_said(run: TrackedRun, replica: Replica, rows: Any) -> None:
    run.table("t", ["a"], rows)
    assert replica.events("table") == []
    assert len(run.dropped) == 1


# all of them -------------------------------------------------------------------------------------------------------


def test_reported_names_are_valid_elsewhere(run: TrackedRun, replica: Replica) -> None:
    """JSON with texts that every database and every page takes."""
    bad = "\ud800\0"
    run.params({bad: bad, "list": [bad, {bad: bad}]})
    run.tags(bad + "x")
    run.labels({bad: bad})
    run.describe(name=bad, description=bad)
    run.text(bad, bad)
    run.table(bad, [bad], [[bad]])
    run.dataset(bad, uri=bad, info=bad)
    run.progress(1, 2, bad)
    kinds = set()
    for event in replica.all_events():
        text = json.dumps(event, ensure_ascii=False)
        text.encode("utf-8")
        assert "\0" not in text
        assert "\\u0000" not in text
        kinds.add(event["kind"])
    assert kinds == {"open", "params", "tags", "labels", "describe", "text", "table", "dataset", "progress"}
    assert run.dropped == {}


def test_what_was_dropped_is_reported_with_its_reasons(
    run: TrackedRun, replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(100):
        run.log({f"bad-{number}": None})
    tracking.finish()
    event = replica.event("dropped")
    assert event["count"] == 100
    assert len(event["why"]) == 21
    assert event["why"]["other reasons"] == 80
    said = capsys.readouterr().err
    assert said.count("something could not be recorded") == 5
    assert "100 values could not be recorded" in said
    assert len(said.splitlines()) == 6


def test_when_wandb_sends_a_value_is_no_metric(
    run: TrackedRun, replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    run.log({"loss": 0.5}, commit=False)
    run.log({"loss": 0.25}, step=7, commit=True, sync=None)
    run.log(sync=0.5)
    run.log({"commit": 1.0})
    run.finish()
    assert replica.values("loss") == [0.5, 0.25]
    assert (replica.values("sync"), replica.values("commit")) == ([0.5], [1.0])
    assert capsys.readouterr().err == "phalanx: log() ignores `commit`: every call is recorded at once\n"
