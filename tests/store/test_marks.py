"""Archived and starred runs, resources, hosts and relative times in queries; groups of runs; over every database."""

from __future__ import annotations

import csv
import io
from datetime import timedelta

import pytest

from phalanx.errors import CallError
from phalanx.store import Store
from phalanx.store.grouped_runs import MOST_COLUMNS
from phalanx.store.metric_direction import best_of
from phalanx.store.query import mentions, where
from phalanx.store.records import Summary
from phalanx.store.run_csv import cell, csv_lines
from phalanx.store.run_fields import check_column, value_of
from tests.store.samples import NOON, after, replica, run, status


def found(store: Store, query: str, **which: object) -> list[str]:
    return sorted(one.id for one in store.runs(query, limit=None, **which))  # type: ignore[arg-type]


def moment(query: str) -> tuple[str, tuple[object, ...]]:
    clause = where(query, "lower({})", now=NOON)
    return clause.sql, clause.args


def ago(**amount: float) -> int:
    return round((NOON - timedelta(**amount)).timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("value", "way", "at"),
    [
        (">1h", ">=", ago(hours=1)),
        (">=1h", ">=", ago(hours=1)),
        ("1h", ">=", ago(hours=1)),
        (">-1h", ">=", ago(hours=1)),
        ("<7d", "<", ago(days=7)),
        ("<=2w", "<", ago(weeks=2)),
        (">90s", ">=", ago(seconds=90)),
        (">30m", ">=", ago(minutes=30)),
        (">30min", ">=", ago(minutes=30)),
        (">1.5d", ">=", ago(days=1.5)),
        ("2d..", ">=", ago(days=2)),
        ("..2d", "<", ago(days=2)),
        (">999999999w", ">=", 0),
    ],
)
def test_a_duration_is_the_moment_that_long_ago(value: str, way: str, at: int) -> None:
    sql, args = moment(f"created_at:{value}")
    assert f'runs."created_at" {way} ?' in sql
    assert args == (at,)


def test_a_range_of_durations_and_days_mixed_is_read() -> None:
    assert moment("created_at:2d..1d")[1] == (ago(days=2), ago(days=1))
    assert moment("created_at:2026-01-01..1d")[1][1] == ago(days=1)


@pytest.mark.parametrize("query", ["created_at:>1x", "created_at:>1y", "created_at:>h", "created_at:>--1h", "gpus:many",
                                   "memory:>lots", "memory:>1x", "archived:maybe", "starred:5", "nodes:a"])  # fmt: skip
def test_a_wrong_value_says_what_is_expected(query: str) -> None:
    with pytest.raises(CallError, match="expected"):
        where(query, "lower({})")


def test_a_query_mentions_a_field_only_as_a_field() -> None:
    assert mentions("archived:true", "archived")
    assert not mentions('name:"archived:true", tags:archived', "archived")


class TestQueries:
    @pytest.fixture(autouse=True, scope="class")
    @staticmethod
    def filled(class_store: Store) -> None:
        store = class_store
        store.add(run("small", 0, replica_count=1, cpus=2.0, memory_mib=512.0, gpus=0.0, params={"lr": 0.1, "seed": 1}))
        store.add(
            run("large", 60, replica_count=8, cpus=64.0, memory_mib=65536.0, gpus=8.0, params={"lr": 0.1, "seed": 2})
        )
        store.add(run("older", 120, params={"lr": "0.10", "seed": 3}, tags=("a", "b"), status="failed"))
        store.add(run("other", 180, params={"lr": 0.01, "opt": "adam"}, tags=("b",), status="succeeded"))
        for number, run_id in enumerate(["small", "large", "older", "other"]):
            store.put_summaries(
                run_id, {"loss": Summary(number / 10, number / 20, 1.0, 5, 4, 0.0), "acc": float("nan")}
            )
        hosts = [("large", 0, "node7"), ("large", 1, "node8"), ("small", 0, "node7")]
        store.put_replicas([replica(run_id=run_id, number=number, host=host) for run_id, number, host in hosts])
        store.change_stars("ann", ["small", "older", "nothing"], is_starred=True)
        store.change_stars("bob", ["small"], is_starred=True)
        store.change_stars("ann", ["older"], is_starred=False)
        store.record(status(1, "succeeded", 1, run_id="small"))
        store.update("small", archived=True)

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("gpus:>2", ["large"]),
            ("gpus:0", ["small"]),
            ("gpus:nil", ["older", "other"]),
            ("cpus:<=2", ["small"]),
            ("memory:>16g", ["large"]),
            ("memory:512", ["small"]),
            ("memory:>=0.5GiB, memory:<1t", ["large", "small"]),
            ("replicas:>1", ["large"]),
            ("nodes:2", ["large"]),
            ("nodes:0", ["older", "other"]),
            ("host:node7", ["large", "small"]),
            ("host:%8", ["large"]),
            ("host:nil", ["older", "other"]),
            ("archived:true", ["small"]),
            ("archived:false", ["large", "older", "other"]),
            ("archived:true|false", ["large", "older", "other", "small"]),
            ("starred:true", ["small"]),
            ("starred:~true", ["large", "older", "other"]),
            ("tags:nil", ["large", "small"]),
            ("params.opt:nil", ["large", "older", "small"]),
            ("params.opt:~nil", ["other"]),
            ("name:nil", ["large", "older", "other", "small"]),
            ('name:"nil"', []),
            ("metric.loss:nil", []),
            ("metric.none:nil", ["large", "older", "other", "small"]),
            ("parent:nil, finished_at:nil", ["large", "older", "other"]),
            ("best.loss:<0.06", ["large", "small"]),
            ("created_at:>1h", []),
        ],
    )
    def test_a_query_finds_its_runs(self, class_store: Store, query: str, expected: list[str]) -> None:
        assert found(class_store, query, user="ann") == expected

    def test_stars_are_those_of_the_user(self, class_store: Store) -> None:
        assert found(class_store, "starred:true", user="nobody") == []
        assert (class_store.starred("ann"), class_store.starred("ann", "elsewhere")) == (["small"], [])

    def test_lists_leave_archived_runs_out_unless_asked(self, class_store: Store) -> None:
        assert found(class_store, "", unarchived=True) == ["large", "older", "other"]
        assert found(class_store, "host:node7", unarchived=True) == ["large"]
        assert found(class_store, "archived:true", unarchived=True) == ["small"]
        counts = [class_store.count_archived(query) for query in ("", "host:node7", "gpus:8", "archived:true")]
        assert counts == [1, 1, 0, 0]
        assert class_store.count("", unarchived=True) == 3

    def test_runs_are_sorted_by_resources(self, class_store: Store) -> None:
        for sort, first in (("-gpus", "large"), ("memory", "small"), ("-nodes", "large"), ("-archived", "small")):
            assert class_store.runs("", sort)[0].id == first
        with pytest.raises(CallError, match="cannot sort by `host`"):
            class_store.runs("", "host")

    def test_groups_have_counts_and_spreads(self, class_store: Store) -> None:
        groups, count = class_store.grouped(["params.lr"], ["metric.loss", "min.loss", "metric.acc"])
        assert (count, [group.values for group in groups]) == (2, [(0.01,), (0.1,)])
        tenth = groups[1]
        assert (tenth.runs, tenth.statuses) == (3, {"succeeded": 1, "failed": 1, "stopped": 0, "active": 1})
        assert tenth.metrics["metric.loss"] == pytest.approx((3, 0.1, 0.0, 0.2))
        assert tenth.metrics["min.loss"].max == pytest.approx(0.1)
        assert tenth.metrics["metric.acc"] == (0, None, None, None)
        assert (tenth.first_at, tenth.last_at) == (after(0), after(120))

    @pytest.mark.parametrize(
        "by", [["params.lr"], ["params.opt"], ["tags"], ["status", "params.seed"], ["gpus"], ["user"]]
    )
    def test_the_query_of_a_group_finds_its_runs(self, class_store: Store, by: list[str]) -> None:
        groups, count = class_store.grouped(by)
        assert len(groups) == count > 0
        for group in groups:
            assert class_store.count(group.query) == group.runs, group

    def test_groups_are_filtered_sorted_and_paged(self, class_store: Store) -> None:
        by_loss = class_store.grouped(["params.seed"], ["metric.loss"], sort="-metric.loss")[0]
        assert [group.values[0] for group in by_loss] == [None, 3, 2, 1]
        page, count = class_store.grouped(["params.seed"], sort="-count", limit=1, offset=1)
        assert (len(page), count) == (1, 4)
        assert class_store.grouped(["params.lr"], query="gpus:8")[1] == 1
        assert class_store.grouped(["params.lr"], unarchived=True)[0][1].runs == 2

    @pytest.mark.parametrize("by", [[], ["id"], ["nothing"], ["params."], ["a", "b", "c", "d"], ["metric.loss"]])
    def test_what_cannot_be_grouped_is_refused(self, class_store: Store, by: list[str]) -> None:
        with pytest.raises(CallError, match=r"cannot group by|1 to 3 fields"):
            class_store.grouped(by)

    def test_columns_of_groups_are_bounded(self, class_store: Store) -> None:
        for columns in (["params.lr"], ["metric.x"] * (MOST_COLUMNS + 1)):
            with pytest.raises(CallError, match="column"):
                class_store.grouped(["tags"], columns)

    def test_hostile_names_group_like_others(self, store: Store) -> None:
        name = "a\"b,c' --"
        store.add(run("one", params={name: 'x"y, z|~nil'}))
        (group,), _ = store.grouped([f"params.{name}"])
        assert group.values == ('x"y, z|~nil',)
        assert found(store, group.query) == ["one"]


def test_an_archived_run_that_goes_on_is_no_longer_archived(store: Store) -> None:
    store.add(run(status="succeeded"))
    store.update("a1b2c3", archived=True)
    store.record(status(1, "succeeded", 1))
    assert store.find("a1b2c3").archived
    store.record(status(2, "resuming", 2))
    assert not store.find("a1b2c3").archived


def test_a_removed_run_takes_its_stars_with_it(store: Store) -> None:
    store.add(run())
    store.change_stars("ann", ["a1b2c3", "a1b2c3"], is_starred=True)
    store.delete("a1b2c3")
    assert (store.starred("ann"), store.check()) == ([], [])


@pytest.mark.parametrize("metric", ["loss", "val_loss", "valLoss", "train/error", "WER", "epoch_time"])
def test_lower_is_better_for_losses(metric: str) -> None:
    assert best_of(metric) == "min"


@pytest.mark.parametrize("metric", ["accuracy", "f1", "glossary", "throughput"])
def test_higher_is_better_for_others(metric: str) -> None:
    assert best_of(metric) == "max"


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-x", "@SUM(A1)", "\t=1", "\r=1", " =1", "\uff1d1+1", "-1+2|calc"])
def test_a_cell_is_no_formula(text: str) -> None:
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-0.5, "-0.5"),
        ("-1e-3", "-1e-3"),
        ("+5", "+5"),
        (None, ""),
        (True, "true"),
        ([1, "="], '[1, "="]'),
        ("a-b", "a-b"),
    ],
)
def test_numbers_and_plain_texts_stay_as_they_are(value: object, text: str) -> None:
    assert cell(value) == text


def test_runs_become_lines_that_csv_readers_understand() -> None:
    one = run(
        name='a "quoted", name\n=next', tags=("x", "y"), params={"lr": 0.1}, finished_at=after(2), started_at=NOON
    )
    columns = ["id", "name", "tags", "params.lr", "metric.loss", "duration_s", "created_at", "gpus"]
    rows = list(csv.reader(io.StringIO("".join(csv_lines(columns, [one])))))
    assert rows == [columns, ["a1b2c3", one.name, "x, y", "0.1", "", "120.0", "2026-05-01T12:00:00.000+00:00", ""]]


def test_columns_are_checked_and_read() -> None:
    for field in ("nothing", "metric.", "params"):
        with pytest.raises(CallError):
            check_column(field)
    check_column("best.loss")
    assert value_of(run(params={"a.b": 1}), 'params."a.b"') == 1
