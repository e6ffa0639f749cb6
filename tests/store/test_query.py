"""The query language: what it refuses, and that nothing of it becomes SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from phalanx.errors import CallError
from phalanx.store import Store, quoted
from phalanx.store.query import FIELDS, order, where
from tests.examples import examples


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(Path(tmp_path_factory.mktemp("store"))) as store:
        yield store


def error_of(query: str) -> str:
    with pytest.raises(CallError) as error:
        where(query, "lower({})")
    return str(error.value)


@pytest.mark.parametrize(
    ("query", "place", "part", "message"),
    [
        ("status", 1, "status", "write `field:value`"),
        ("status:running, oops", 17, "oops", "write `field:value`"),
        ("status:running, staus:failed", 17, "staus", "no such field; did you mean `status`? The fields are id, "),
        ("metrc.loss:<1", 1, "metrc.loss", "did you mean `metric.loss`?"),
        ("param.lr:<1", 1, "param.lr", "did you mean `params.lr`?"),
        ("STATUS:running", 1, "STATUS", "did you mean `status`?"),
        ("qwertz:1", 1, "qwertz", "there is no such field. The fields are"),
        ("status.x:1", 1, "status.x", "there is no such field"),
        ("metric:<1", 1, "metric", "name one: `metric.NAME`"),
        ("params.:<1", 1, "params.", "there is no such field"),
        (":1", 1, "", "there is no such field"),
        ("status:", 1, "status:", "a value is missing"),
        ("status:~", 1, "status:~", "a value is missing"),
        ("user:ann, status: a||b", 11, "status: a||b", "a value is missing"),
        ("metric.loss:<", 13, "<", "a value is missing"),
        ("metric.loss:<much", 14, "much", "expected a number"),
        ("metric.loss:<nan", 14, "nan", "expected a number"),
        ("metric.loss:0.1..0.2", 13, "0.1..0.2", "expected a number"),
        ("user:ann, status: >b", 19, ">b", "`>` is not supported for texts: write a value, `a|b` or `%part%`"),
        ("tags:<x", 6, "<x", "is not supported for texts"),
        ("created_at:yesterday", 12, "yesterday", "expected a time such as `2026-01-31`, `2026-01-31 13:45` or `1h`"),
        ("created_at:2026-02-30", 12, "2026-02-30", "day"),
        ("created_at:2026-01-01 25:00", 12, "2026-01-01 25:00", "hour"),
        ("created_at:2026-01-01..x", 24, "x", "expected a time such as"),
        ("created_at:..", 12, "..", "expected a range such as"),
        ("created_at:<2026-01-01..2026-01-02", 12, "<2026-01-01..2026-01-02", "expected a range such as"),
        ('name:"a', 1, 'name:"a', "a double quote is not closed"),
        ("priority:high", 10, "high", "expected a number"),
    ],
)
def test_the_error_of_a_query_says_what_and_where(query: str, place: int, part: str, message: str) -> None:
    said = error_of(query)
    assert f"the query `{query}` is wrong at character {place}, `{part}`: " in said
    assert message in said


def test_the_known_fields_are_listed_when_one_is_wrong() -> None:
    said = error_of("nothing:1")
    assert all(field in said for field in FIELDS)
    assert {"id", "tags", "created_at", "params.NAME", "metric.NAME"} <= set(FIELDS)


def test_a_query_has_bounds() -> None:
    assert "10,000 characters" in error_of("name:" + "x" * 10_000)
    assert len(error_of("name:<" + "x" * 9_000)) < 600
    assert "200 parts" in error_of("name:" + "x|" * 201)


def test_a_wrong_sort_is_reported() -> None:
    with pytest.raises(CallError, match=r"cannot sort by `metrc\.loss`: .* did you mean `metric\.loss`"):
        order("-metrc.loss")


def test_what_was_written_is_a_parameter() -> None:
    found = where("name:Robert'); DROP TABLE runs;--, params.x'y:>1, tags:%'%", "lower({})")
    assert "Robert" not in found.sql
    assert "x'y" not in found.sql
    assert found.args == ("Robert'); DROP TABLE runs;--", "x'y", 1.0, "x'y", "1", "%'%")


WORDS = st.sampled_from(
    [
        *FIELDS,
        "params.lr",
        "metric.loss",
        *":~|,<>=%\"'._-; ?",
        "<=",
        "..",
        "2026-01-01",
        "10:30",
        "0.1",
        "nan",
        "a b",
        "é",
    ]
)
QUERIES = st.one_of(
    st.lists(WORDS, max_size=12).map("".join),
    st.text(max_size=60),
    st.builds("{}:{}".format, st.sampled_from(FIELDS), st.text(max_size=20)),
    st.builds(
        "{}:{}{}".format, st.sampled_from(FIELDS), st.sampled_from(["", "<", "~", "%", "=>"]), st.floats().map(str)
    ),
)


@pytest.mark.slow
@examples(100, HealthCheck.function_scoped_fixture)
@given(query=QUERIES, sort=st.one_of(st.sampled_from(FIELDS), QUERIES))
def test_any_text_is_a_query_or_a_call_error(empty: Store, query: str, sort: str) -> None:
    try:
        found = where(query, "lower({})")
    except CallError:
        pass
    else:
        assert found.sql.count("?") == len(found.args)
        assert re.fullmatch(r"[\w\s.\"?()<>=,'\\]*", found.sql)
        assert empty.count(query) == 0
    with suppress(CallError):
        assert empty.runs(sort=sort) == []


@given(text=st.text(max_size=30))
def test_quoted_text_is_taken_as_it_is(text: str) -> None:
    assert where(f"name:{quoted(text)}", "lower({})").args == (text,)
    assert where(f"status:a, name:~{quoted(text)}|b, params.{quoted(text)}:c", "lower({})").args == (
        *("a", text, "b", text, "c"),
    )
