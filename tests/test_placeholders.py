"""Text with holes: filling, unfolding, and the way through JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.placeholders import Each, Hole, Value, decode, encode, fill, host, path, port, unfold

MEMBERS = {"master": ["master-0"], "worker": ["worker-0", "worker-1"], "ps": []}

NAMES = st.from_regex(r"[a-z]{1,8}-[0-9]{1,4}", fullmatch=True)
HOLES = st.builds(Hole, st.sampled_from(["host", "port", "path"]), st.one_of(NAMES, st.just("*")))
PARTS = st.lists(st.one_of(st.text(max_size=20), HOLES), max_size=5).map(tuple)
EACH = st.builds(Each, st.sampled_from([*MEMBERS, "nobody"]), PARTS, st.text(max_size=3))
VALUES: st.SearchStrategy[Value] = st.one_of(
    st.text(max_size=40), st.lists(st.one_of(st.text(max_size=20), HOLES, EACH), max_size=6).map(tuple)
)


def answer(hole: Hole) -> str:
    return {"host": f"{hole.of}.example", "port": "2222", "path": f"/run/{hole.of}"}[hole.kind]


def test_plain_text_is_itself() -> None:
    assert fill("as it is", MEMBERS, answer) == "as it is"


def test_holes_are_answered_in_order() -> None:
    value = ("tcp://", host("master-0"), ":", port("master-0"), path("outputs"))
    assert fill(value, MEMBERS, answer) == "tcp://master-0.example:2222/run/outputs"


def test_each_repeats_its_parts_for_every_replica_of_the_role() -> None:
    value = ("[", Each("worker", ('"', host(), ":", port(), '"'), ", "), "]")
    assert fill(value, MEMBERS, answer) == '["worker-0.example:2222", "worker-1.example:2222"]'


def test_inside_each_a_hole_may_still_name_another_replica() -> None:
    value = (Each("worker", (host(), ">", host("master-0")), " "),)
    assert fill(value, MEMBERS, answer) == "worker-0.example>master-0.example worker-1.example>master-0.example"


@pytest.mark.parametrize("role", ["ps", "nobody"])
def test_each_of_a_role_without_replicas_is_nothing(role: str) -> None:
    assert fill(("[", Each(role, (host(),), ","), "]"), MEMBERS, answer) == "[]"


def test_a_value_without_parts_is_empty() -> None:
    assert fill((), MEMBERS, answer) == ""
    assert list(unfold((), MEMBERS)) == []


def test_unfolding_leaves_only_texts_and_holes_of_one_replica() -> None:
    value = ("a", Each("worker", (host(), "/"), ","), port("master-0"))
    assert list(unfold(value, MEMBERS)) == [
        "a", Hole("host", "worker-0"), "/", ",", Hole("host", "worker-1"), "/", Hole("port", "master-0"),
    ]  # fmt: skip


def test_unfolding_plain_text_gives_the_text() -> None:
    assert list(unfold("<master-0>", MEMBERS)) == ["<master-0>"]


@pytest.mark.parametrize("text", ["<master-0>", '{"host": "x"}', '{"parts": []}', "{{ name }}", "$(hostname)", "*"])
def test_text_that_looks_like_a_hole_is_only_text(text: str) -> None:
    assert fill(text, MEMBERS, answer) == text
    assert fill((text,), MEMBERS, answer) == text
    assert decode(json.loads(json.dumps(encode((text,))))) == (text,)
    assert decode(json.loads(json.dumps(encode(text)))) == text


@pytest.mark.parametrize(
    "hostile",
    ['a"b', "a'b", "a\\b", "$(touch x)", "${HOME}", "`id`", "a\nb", "a\n", "\n", "a;b", "a&b", "a|b", "a\x00b", "a\tb",
     "\x1b[31m", "\u2028", "\u202e"],
)  # fmt: skip
@pytest.mark.parametrize("hole", [host("worker-1"), port("worker-1"), path("worker-1")])
def test_an_answer_that_could_break_out_of_its_quotes_is_refused(hole: Hole, hostile: str) -> None:
    with pytest.raises(ValueError, match="worker-1") as fault:
        fill(("before ", hole, " after"), MEMBERS, lambda _: hostile)
    assert hole.kind in str(fault.value)
    assert hostile not in str(fault.value) or hostile.isprintable()


@pytest.mark.parametrize(
    "honest",
    [
        "node-1",
        "gpu01.cluster.example",
        "10.0.0.7",
        "fe80::1%eth0",
        "2222",
        "/scratch/my run/outputs",
        "",
        "~/x+y=z@1,2",
    ],
)
def test_addresses_and_folders_as_machines_have_them_are_passed_on(honest: str) -> None:
    assert fill(("<", path("outputs"), ">"), MEMBERS, lambda _: honest) == f"<{honest}>"


@pytest.mark.parametrize("folder", ["/home/josé/läufe", "/data/学習/outputs"])
def test_folders_named_in_any_language_are_passed_on(folder: str) -> None:
    assert fill((path("outputs"),), MEMBERS, lambda _: folder) == folder


@given(VALUES)
def test_a_value_comes_back_from_json_as_it_went(value: Value) -> None:
    again = decode(json.loads(json.dumps(encode(value))))
    assert repr(again) == repr(value)  # a Hole equals a bare tuple; their texts differ


@given(VALUES)
def test_filling_after_json_gives_the_same_text(value: Value) -> None:
    again = decode(json.loads(json.dumps(encode(value))))
    assert fill(again, MEMBERS, answer) == fill(value, MEMBERS, answer)


@given(VALUES)
def test_filling_asks_for_nothing_but_the_holes_that_unfolding_shows(value: Value) -> None:
    asked: list[Hole] = []

    def listen(hole: Hole) -> str:
        asked.append(hole)
        return "x"

    text = fill(value, MEMBERS, listen)
    parts = list(unfold(value, MEMBERS))
    assert asked == [part for part in parts if isinstance(part, Hole)]
    assert text == "".join("x" if isinstance(part, Hole) else part for part in parts)


@given(st.text(max_size=60))
def test_no_text_is_ever_taken_for_a_hole(text: str) -> None:
    def never(hole: Hole) -> str:
        raise AssertionError(f"asked for {hole}")

    assert fill(text, MEMBERS, never) == text
    assert fill((text, text), MEMBERS, never) == text + text
