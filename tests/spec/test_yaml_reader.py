"""Text to tree: scalars, anchors, places, and files that mean harm."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from phalanx.errors import SpecErrors
from phalanx.spec import load
from phalanx.spec.scalars import resolve_plain
from phalanx.spec.tree import Node
from phalanx.spec.yaml_reader import MAX_BYTES, MAX_DEPTH, MAX_NODES, decode, describe, read
from tests.spec.helpers import (
    CPU_S,
    EXPERIMENT,
    FILE,
    assert_quickly_refused,
    error_of,
    errors_of,
    load_limited,
    load_text,
    messages_of,
    tree_of,
    where,
)


def _tree(text: str) -> Node:
    return read(decode(FILE, text.encode()))


def _plain(text: str) -> Any:
    return _tree(text).plain()


# scalars -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("NULL", None), ("nULL", "nULL"),
        ("true", True), ("Yes", True), ("on", True), ("OFF", False), ("no", False), ("y", "y"), ("n", "n"),
        ("0", 0), ("7", 7), ("-7", -7), ("+7", 7), ("1_000", 1000), ("010", 8), ("-010", -8), ("0o17", "0o17"),
        ("0x1F", 31), ("-0x1f", -31), ("0b101", 5),
        ("1.5", 1.5), ("-1.5", -1.5), (".5", 0.5), ("5.", 5.0), ("1e-3", 0.001), ("1E5", 1e5), ("1.5e+3", 1500.0),
        (".inf", math.inf), ("-.Inf", -math.inf), ("+.INF", math.inf),
        ("1:10:2", "1:10:2"), ("2019-01-01", "2019-01-01"), ("1.2.3", "1.2.3"), ("-", "-"), (".", "."), ("+", "+"),
        ("e5", "e5"), ("1e", "1e"), ("0x", "0x"), ("0b", "0b"), ("0o", "0o"), ("_1", "_1"), ("hello", "hello"),
    ],
)  # fmt: skip
def test_an_unquoted_scalar_means_what_yaml_and_common_sense_say(text: str, value: object) -> None:
    found = resolve_plain(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["0x_", "0b_", "0o_", "0b__", "-0x_"])
def test_a_prefix_without_digits_is_text(text: str) -> None:
    assert resolve_plain(text) == text
    assert load_text(f"{EXPERIMENT}params: {{a: {text}}}\n").params["a"] == text


@pytest.mark.parametrize("text", ["08", "09", "0189", "00.8.1"])
def test_digits_that_are_no_octal_number_stay_text(text: str) -> None:
    assert resolve_plain(text) == text


def test_nan_is_a_number() -> None:
    found = resolve_plain(".nan")
    assert isinstance(found, float)
    assert math.isnan(found)


def test_a_number_of_more_than_a_thousand_digits_stays_text() -> None:
    assert resolve_plain("9" * 1001) == "9" * 1001
    assert resolve_plain("9" * 1000) == 10**1000 - 1


@pytest.mark.parametrize("quoted", ["'1'", '"1"', "!!str 1", "|-\n  1", ">-\n  1"])
def test_a_quoted_number_is_text(quoted: str) -> None:
    assert _plain(f"a: {quoted}\n") == {"a": "1"}


@pytest.mark.parametrize(
    ("tagged", "value"), [("!!int 1", 1), ("!!float 1.5", 1.5), ("!!bool yes", True), ("!!null ~", None)]
)
def test_a_standard_tag_that_fits_is_read(tagged: str, value: object) -> None:
    assert _plain(f"a: {tagged}\n") == {"a": value}


def test_a_standard_tag_that_does_not_fit_is_a_fault() -> None:
    error = error_of(f"{EXPERIMENT}name: !!int hello\n")
    assert error.message == "`hello` is not a valid `!!int`"
    assert where(error) == (3, 7)


# anchors, aliases and merge keys -----------------------------------------------------------------------------


def test_an_alias_repeats_what_its_anchor_holds() -> None:
    assert _plain("a: &x {b: [1, 2]}\nc: *x\n") == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}}


def test_an_alias_may_stand_for_a_key() -> None:
    assert _plain("a: &x name\n*x : 1\n") == {"a": "name", "name": 1}


@pytest.mark.parametrize("value", ["{b: 1}", "[1]"])
def test_a_map_or_list_cannot_be_a_key_through_an_alias_either(value: str) -> None:
    assert "cannot be a key" in error_of(f"{EXPERIMENT}params:\n  x: &a {value}\n  y: {{*a : 3}}\n").message


def test_the_values_behind_an_alias_know_the_path_at_which_they_are_used() -> None:
    root = _tree("a: &x {b: 1}\nc: *x\n")
    assert root.entries is not None
    copy = root.entries["c"].get("b")
    assert copy is not None
    assert copy.path == "c.b"
    assert copy.mark.line == 0


def test_a_merge_key_gives_the_keys_that_are_not_there() -> None:
    assert _plain("base: &x {a: 1, b: 2}\nown:\n  <<: *x\n  b: 3\n") == {
        "base": {"a": 1, "b": 2},
        "own": {"a": 1, "b": 3},
    }


def test_a_merge_key_takes_several_maps_of_which_the_first_wins() -> None:
    assert _plain("x: &x {a: 1}\ny: &y {a: 2, b: 2}\nz: {<<: [*x, *y]}\n")["z"] == {"a": 1, "b": 2}


def test_merge_keys_go_on_through_several_maps() -> None:
    tree = _plain("a: &a {one: 1}\nb: &b {<<: *a, two: 2}\nc: &c {<<: *b, three: 3}\nd: *c\n")
    assert tree["c"] == {"one": 1, "two": 2, "three": 3}
    assert tree["d"] == {"one": 1, "two": 2, "three": 3}


def test_a_quoted_merge_key_is_a_key_like_any_other() -> None:
    assert load_text(f"{EXPERIMENT}params: {{'<<': 5}}\n").params == {"<<": 5}


def test_a_merge_key_with_something_else_than_maps_is_a_fault() -> None:
    error = error_of(f"{EXPERIMENT}params:\n  <<: 5\n")
    assert error.message == "`<<` can only merge maps; found the number 5"
    assert where(error) == (4, 7)


def test_an_alias_without_an_anchor_is_a_fault() -> None:
    error = error_of(f"{EXPERIMENT}params: *nowhere\n")
    assert error.message == "the alias `*nowhere` has no anchor `&nowhere` before it"
    assert where(error) == (3, 9)


@pytest.mark.parametrize(
    "text", ["params: &a\n  b: *a\n", "params: &a [*a]\n", "params: &a\n  b:\n    c: [1, {d: *a}]\n"]
)
def test_an_anchor_that_contains_itself_is_a_fault(text: str) -> None:
    assert error_of(EXPERIMENT + text).message == "the alias `*a` is inside its own anchor"


# places ------------------------------------------------------------------------------------------------------


def test_a_duplicate_key_is_a_fault_that_names_the_first_line() -> None:
    error = error_of(f"{EXPERIMENT}params:\n  lr: 1\n  lr: 2\n")
    assert error.message == "the key `lr` is duplicated (first on line 4)"
    assert error.path == "params.lr"
    assert error.suggestion == "keep one of the two"
    assert where(error) == (5, 3)
    assert error.place.width == 2
    assert error.place.excerpt == "  lr: 2"


def test_duplicate_keys_are_reported_all_at_once() -> None:
    text = "version: 1\nversion: 1\nkind: job\nrun: {cmd: a, cmd: b}\nkind: job\n"
    assert [where(error) for error in errors_of(text)] == [(2, 1), (4, 15), (5, 1)]


def test_a_duplicate_key_and_a_broken_end_are_reported_together() -> None:
    errors = errors_of(f"{EXPERIMENT}kind: job\nname: !own x\n")
    assert [where(error) for error in errors] == [(3, 1), (4, 7)]


def test_a_place_carries_its_line_without_the_carriage_return() -> None:
    error = error_of(b"version: 1\r\nkind: experiment\r\nfoo: 1\r\n")
    assert where(error) == (3, 1)
    assert error.place.excerpt == "foo: 1"


def test_a_place_on_a_very_long_line_carries_only_the_beginning_of_it() -> None:
    error = error_of(f"{EXPERIMENT}name: {'x ' * 100_000}\n")
    assert len(error.place.excerpt) <= 400
    assert len(error.message) < 200


def test_columns_count_characters_not_bytes() -> None:
    assert where(error_of(f"{EXPERIMENT}params: {{é: 1, 漢: 2, 漢: 3}}\n")) == (3, 22)


def test_a_byte_order_mark_is_passed_over() -> None:
    assert load_text(b"\xef\xbb\xbfversion: 1\nkind: experiment\nname: a\n").name == "a"


def test_a_file_may_say_where_it_starts_and_ends() -> None:
    assert load_text(f"---\n{EXPERIMENT}name: a\n...\n").name == "a"


# JSON --------------------------------------------------------------------------------------------------------


def test_a_json_file_may_be_indented_with_tabs() -> None:
    text = json.dumps(
        {"version": 1, "kind": "experiment", "params": {"lr": 1e-3, "on": True, "none": None}}, indent="\t"
    )
    spec = load([("polyaxonfile.json", text.encode())])
    assert spec.params == {"lr": 0.001, "on": True, "none": None}


def test_a_json_file_may_escape_characters_beyond_the_basic_plane() -> None:
    text = json.dumps({"version": 1, "kind": "experiment", "description": "\N{ROCKET} off"})
    assert "\\ud83d\\ude80" in text
    assert load([("polyaxonfile.json", text.encode())]).description == "\N{ROCKET} off"


# files that are no polyaxonfile ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "null\n", "~"])
def test_an_empty_file_is_a_fault(text: str) -> None:
    assert "empty" in error_of(text).message or "nothing" in error_of(text).message


@pytest.mark.parametrize(
    ("text", "found"), [("- a\n", "a list"), ("hello", "the text `hello`"), ("42", "the number 42"), ("true", "`true`")]
)
def test_a_file_that_is_no_map_is_a_fault(text: str, found: str) -> None:
    error = error_of(text)
    assert error.message == f"a polyaxonfile must be a map of sections, such as `version: 1`; found {found}"
    assert where(error) == (1, 1)


def test_a_file_of_more_than_a_mebibyte_is_a_fault_before_it_is_read() -> None:
    error = error_of(b"\xff" * (MAX_BYTES + 1))
    assert error.message == "the file is larger than 1 MiB"
    assert error.place.line == 0


def test_a_file_of_exactly_a_mebibyte_is_read() -> None:
    head = f"{EXPERIMENT}name: a\n#".encode()
    assert load_text(head + b"x" * (MAX_BYTES - len(head))).name == "a"


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 100, b"\x89PNG\r\n\x1a\n" + bytes(1000), b"\x1f\x8b\x08\x00" * 50]
)
def test_binary_junk_is_a_fault_that_names_the_byte(data: bytes) -> None:
    error = error_of(data)
    assert error.message.startswith("not a text file: byte 0x")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_another_encoding_is_a_fault_that_says_which_one_to_use(encoding: str) -> None:
    error = error_of(EXPERIMENT.encode(encoding))
    assert error.message.startswith("not a text file")
    assert error.suggestion == "save it as UTF-8"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_another_encoding_without_a_mark_is_a_fault(encoding: str) -> None:
    assert "#x0000" in error_of(EXPERIMENT.encode(encoding)).message


@pytest.mark.parametrize("data", [b"name: a\0b\n", b"\0", b'name: "a\\0b"\n', b"name: 'a\0b'\n", b"a\0: 1\n"])
def test_a_nul_is_a_fault(data: bytes) -> None:
    message = error_of(EXPERIMENT.encode() + data).message
    assert "NUL" in message or "control characters are not allowed" in message


@pytest.mark.parametrize("data", [b'name: "\\ud800"\n', b"name: \xed\xa0\x80\n", b'"\\udfff": 1\n'])
def test_a_lone_surrogate_is_a_fault(data: bytes) -> None:
    assert messages_of(EXPERIMENT.encode() + data)


@pytest.mark.parametrize("data", [b"name: \x1b[31mred\n", b"name: \x07\n", b"\x7f: 1\n"])
def test_what_a_terminal_would_obey_never_comes_through_in_a_message(data: bytes) -> None:
    for error in errors_of(EXPERIMENT.encode() + data):
        assert error.message.isprintable()


# YAML mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [("run:\n\tcmd: x\n", (4, 1)), ("params:\n  a: 1\n\tb: 2\n", (5, 1))],
)
def test_a_tab_in_the_indentation_is_a_fault(text: str, place: tuple[int, int]) -> None:
    error = error_of(EXPERIMENT + text)
    assert error.message == "not valid YAML: tab used for indentation"
    assert error.suggestion == "indent with spaces"
    assert where(error) == place


def test_a_tab_after_a_colon_is_fine() -> None:
    assert load_text(f"{EXPERIMENT}run:\n  cmd:\tx\n").command == "x"


def test_a_text_with_a_colon_is_a_fault_that_asks_for_quotes() -> None:
    error = error_of(f"{EXPERIMENT}description: this: that\n")
    assert "mapping values are not allowed" in error.message
    assert error.suggestion is not None
    assert "quote a value" in error.suggestion
    assert where(error) == (3, 18)


def test_a_key_without_a_space_after_its_colon_is_a_fault() -> None:
    error = error_of(f"{EXPERIMENT}name:a\nrun: {{cmd: x}}\n")
    assert error.suggestion == "write `key: value`, with a space after the colon"


def test_an_unquoted_template_is_a_fault_that_asks_for_quotes() -> None:
    error = error_of(f"{EXPERIMENT}params: {{a: 1}}\nrun:\n  cmd: {{{{ a }}}}\n")
    assert error.suggestion is not None
    assert "quote" in error.suggestion


@pytest.mark.parametrize(
    "text", ["name: 'a\n", "name: [a\n", "name: {a\n", "name: @a\n", "name: `a`\n", "? [a]\n: b\n", "%YAML 9\n"]
)
def test_broken_yaml_is_a_fault_with_a_place(text: str) -> None:
    error = error_of(EXPERIMENT + text)
    assert error.place.file == FILE
    assert error.place.line >= 3


def test_a_second_document_is_a_fault() -> None:
    error = error_of(f"{EXPERIMENT}---\nversion: 1\n")
    assert error.message == "the file has a second YAML document; only one is allowed"
    assert where(error) == (3, 1)


@pytest.mark.parametrize(
    "value",
    [
        "!!python/object/apply:os.system ['true']", "!!python/object:os.system {}", "!!python/name:os.system ''",
        "!own x", "!!binary aGVsbG8=", "!!set {a, b}", "!!timestamp 2019-01-01", "!!omap []", "!<tag:evil> x",
    ],
)  # fmt: skip
def test_a_tag_of_anyones_own_is_a_fault_and_runs_nothing(value: str) -> None:
    error = error_of(f"{EXPERIMENT}params:\n  a: {value}\n")
    assert error.message.startswith("the YAML tag `")
    assert error.suggestion == "remove the tag"
    assert where(error) == (4, 6)


# files that mean harm ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "params: " + "[" * 10_000 + "]" * 10_000,
        "params: " + "{a: " * 10_000 + "}" * 10_000,
        "params: " + "[{a: " * 5_000,
        "params:\n" + "\n".join(" " * depth + "a:" for depth in range(1, 1_000)),
        "params:\n  " + "- " * 10_000 + "x",
    ],
    ids=["lists", "maps", "never closed", "blocks", "dashes"],
)  # fmt: skip
def test_deep_nesting_is_a_fault(text: str) -> None:
    error = error_of(EXPERIMENT + text)
    assert error.message == f"nested more than {MAX_DEPTH} levels deep"


def test_nesting_up_to_the_limit_is_fine() -> None:
    depth = MAX_DEPTH - 3
    assert load_text(f"{EXPERIMENT}params: {{a: {'[' * depth}{']' * depth}}}\n").params["a"] is not None


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def test_what_an_old_form_or_a_param_nests_too_deeply_is_a_fault() -> None:
    """`convert` could not write it as a file that can be read."""
    old = "version: 1\nkind: group\nrun: {{cmd: x}}\nmatrix: {{a: {{values: {}}}}}\n"
    assert load_text(old.format(nested(MAX_DEPTH - 4))).search is not None
    assert error_of(old.format(nested(MAX_DEPTH - 3))).message == f"nested more than {MAX_DEPTH} levels deep"
    assert load([("a.yml", EXPERIMENT.encode())], {"a": nested(MAX_DEPTH - 2)}).params["a"] is not None
    with pytest.raises(SpecErrors, match=f"nested more than {MAX_DEPTH} levels deep"):
        load([("a.yml", EXPERIMENT.encode())], {"a": nested(MAX_DEPTH - 1)})


def test_nesting_deeper_and_deeper_through_aliases_is_a_fault() -> None:
    lines = ["  a0: &a0 " + "[" * 50 + "]" * 50]
    lines += [f"  a{n}: &a{n} {'[' * 50}*a{n - 1}{']' * 50}" for n in range(1, 60)]
    assert f"nested more than {MAX_DEPTH} levels deep" in error_of(EXPERIMENT + "params:\n" + "\n".join(lines)).message


def test_a_billion_laughs_are_a_fault() -> None:
    bomb = "params:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    assert_quickly_refused(EXPERIMENT + bomb, f"the file expands to more than {MAX_NODES} values")


def test_a_billion_laughs_through_merge_keys_are_a_fault() -> None:
    bomb = "params:\n  a0: &a0 {x: [1, 1, 1, 1, 1, 1, 1, 1]}\n"
    bomb += "".join(
        f"  a{n}: &a{n} {{" + ", ".join(f"k{k}: {{<<: *a{n - 1}}}" for k in range(8)) + "}\n" for n in range(1, 12)
    )
    assert_quickly_refused(EXPERIMENT + bomb, f"the file expands to more than {MAX_NODES} values")


@pytest.mark.slow
def test_many_anchors_that_are_named_anew_inside_themselves_cost_no_more_than_others() -> None:
    text = EXPERIMENT + "params:\n  l:\n" + "".join(f"  - &a{n} [&a{n} x]\n" for n in range(30_000))
    result = load_limited(text)
    assert result.ended == "spec", result
    assert result.cpu_s < CPU_S, result


@pytest.mark.slow
def test_a_hundred_thousand_unknown_keys_are_refused_quickly() -> None:
    assert_quickly_refused("".join(f"k{n:05}: 1\n" for n in range(95_000)), "unknown key `k0")


@pytest.mark.slow
def test_a_hundred_thousand_duplicate_keys_are_refused_quickly() -> None:
    assert_quickly_refused(EXPERIMENT + "params:\n" + " k: 1\n" * 100_000, "is duplicated")


@pytest.mark.slow
def test_a_hundred_thousand_faults_in_a_list_are_refused_quickly() -> None:
    assert_quickly_refused(EXPERIMENT + "environment:\n  secret_refs:\n" + "  - a b\n" * 100_000, "expected a name")


def test_a_line_of_a_mebibyte_is_read() -> None:
    assert load_text(f"{EXPERIMENT}description: {'x' * 1_000_000}\n").description == "x" * 1_000_000


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000 + ": 1\n", "? " + "x" * 500_000 + "\n: 1\n? " + "x" * 500_000 + "\n: 1\n"]
)
def test_a_key_of_a_mebibyte_is_a_fault_with_a_short_message(text: str) -> None:
    for error in errors_of(text):
        assert len(error.message) < 1_000


def test_a_message_quotes_no_more_than_the_beginning_of_a_text() -> None:
    assert describe(tree_of("x" * 1_000)) == "the text `" + "x" * 37 + "...`"
    assert len(describe(tree_of(10**1000))) < 60


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "an empty map"),
        ({"a": 1}, "a map"),
        ([], "an empty list"),
        ([1], "a list"),
        (None, "nothing"),
        (False, "`false`"),
        (1.5, "the number 1.5"),
        ("a", "the text `a`"),
    ],
)
def test_a_value_is_described_in_words(value: object, words: str) -> None:
    assert describe(tree_of(value)) == words


def test_a_fault_of_reading_ends_before_anything_else_is_checked() -> None:
    with pytest.raises(SpecErrors) as caught:
        load_text("kind: nonsense\nkind: nonsense\n")
    assert [error.message for error in caught.value.errors] == ["the key `kind` is duplicated (first on line 1)"]
