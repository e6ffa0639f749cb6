"""Whatever people write becomes a name that Kubernetes takes, and two texts never become the same name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import plan, spec
from phalanx.backends.kubernetes.render import names
from phalanx.plan.model import Plan
from tests.examples import examples

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?\Z")
KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
TEXTS = st.text(max_size=300) | st.sampled_from(["", "-", "..", "a/b/c", "A" * 300, "é日本\U0001f600", "a\nb", "UPPER"])


def planned(run_id: str = "r-1", **file: object) -> Plan:
    document = {"version": 1, "kind": "job", "run": {"cmd": "true"}, **file}
    return plan.make(spec.load_document("polyaxonfile.yml", document), run_id, "vision")


def test_a_valid_name_stays_as_it_is() -> None:
    assert names.kept_name("phalanx", "ab12", "worker", "3") == ("phalanx-ab12-worker-3", None)
    assert names.base(planned("ab12")) == "phalanx-ab12"


@pytest.mark.parametrize(
    ("written", "begins"),
    [("Run_1", "run-1-"), ("9lives", "x-9lives-"), ("", "x-"), ("a..b", "a-b-"), ("--", "x-"), ("日本", "x-")],
)
def test_another_one_is_made_valid_and_keeps_its_original(written: str, begins: str) -> None:
    kept = names.kept_name(written)
    assert kept.valid.startswith(begins)
    assert re.fullmatch(r"[0-9a-f]{8}", kept.valid.removeprefix(begins))
    assert kept.original == written


@given(parts=st.lists(TEXTS, min_size=1, max_size=4), room=st.integers(0, 20))
@examples(200)
def test_every_name_is_a_dns_label_with_room_for_what_is_appended(parts: list[str], room: int) -> None:
    name = names.object_name(*parts, room=room)
    assert LABEL.match(name)
    assert len(name) + room <= 63


@given(first=TEXTS, second=TEXTS)
@examples(200)
def test_two_texts_are_never_the_same_name_label_or_key(first: str, second: str) -> None:
    if first != second:
        assert names.object_name("phalanx", first) != names.object_name("phalanx", second)
        assert names.label_value(first).valid != names.label_value(second).valid
        assert names.label_key(first).valid != names.label_key(second).valid


def test_texts_that_look_alike_when_made_valid_stay_apart() -> None:
    alike = ["a b", "a_b", "A b", "a--b", "a b ", "ä b", "a" * 70, "a" * 71]
    assert len({names.object_name("x", text) for text in alike}) == len(alike)
    assert len({names.object_name(*parts) for parts in (("a", "B"), ("a-B",), ("A", "b"))}) == 3


@given(text=TEXTS)
@examples(200)
def test_values_and_keys_of_labels_are_valid(text: str) -> None:
    value, key = names.label_value(text), names.label_key(text)
    assert VALUE.match(value.valid)
    assert len(value.valid) <= 63
    assert KEY.match(key.valid)
    assert names.is_key(key.valid)
    for kept in (value, key):
        assert kept.original == (None if kept.valid == text else text)


@pytest.mark.parametrize("key", ["team", "example.com/team", "a.b/C_d.e-f"])
def test_a_valid_key_stays(key: str) -> None:
    assert names.label_key(key) == (key, None)


@pytest.mark.parametrize("key", ["", "/x", "x/", "a/b/c", "Example.com/x", "x" * 64, "a b", "-a", f"{'d' * 254}/x"])
def test_what_is_no_key_is_not_taken_for_one(key: str) -> None:
    assert not names.is_key(key)


def test_our_labels_are_never_overridden_and_what_was_changed_is_kept() -> None:
    users = {
        "phalanx.dev/run": "other",
        "app.kubernetes.io/managed-by": "me",
        "team": "computer vision",
        "é": "ok",
        "fine": "yes",
    }
    made = planned("ab12", name="digits")
    labels = names.labels(made, "worker", users)
    assert labels["phalanx.dev/run"] == "ab12"
    assert labels["phalanx.dev/role"] == "worker"
    assert labels["phalanx.dev/attempt"] == "1"
    assert labels["app.kubernetes.io/managed-by"] == "phalanx"
    assert labels["fine"] == "yes"
    assert re.fullmatch(r"computer-vision-[0-9a-f]{8}", labels["team"])
    notes = names.annotations(made, ["worker-0", "worker-1"], {"note": "any text\n", "a b": "x"}, users)
    assert notes["phalanx.dev/original-team"] == "computer vision"
    assert "é=ok" in notes.values()
    assert notes["note"] == "any text\n"
    assert "a b" in notes.values()
    assert notes["phalanx.dev/name"] == "digits"
    assert notes["phalanx.dev/project"] == "vision"
    assert notes["phalanx.dev/members"] == "worker-0,worker-1"
    assert all(map(names.is_key, notes))


@given(users=st.dictionaries(TEXTS, TEXTS, max_size=4))
@examples(150)
def test_labels_and_annotations_of_any_texts_are_valid(users: dict[str, str]) -> None:
    made = planned()
    for key, value in names.labels(made, "master", users).items():
        assert names.is_key(key)
        assert names.is_label_value(value)
    assert all(map(names.is_key, names.annotations(made, (), users, users)))


def test_a_run_id_that_is_no_label_is_kept_as_an_annotation() -> None:
    made = planned("Å" * 80)
    run = names.labels(made)["phalanx.dev/run"]
    assert VALUE.match(run)
    assert names.annotations(made)["phalanx.dev/original-run"] == "Å" * 80
    assert LABEL.match(names.base(made))
