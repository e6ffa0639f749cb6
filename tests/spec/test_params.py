"""Params: what the file gives, what the command line overrides, what declared inputs demand."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.spec.params import parse_value
from phalanx.spec.scalars import plain_scalar
from phalanx.spec.yaml_writer import modern_document, to_yaml
from tests.spec.helpers import (
    CPU_S,
    EXPERIMENT,
    assert_quickly_refused,
    error_of,
    errors_of,
    load_limited,
    load_text,
    messages_of,
    notes_of,
    where,
)

# the file ----------------------------------------------------------------------------------------------------


def test_params_may_be_anything() -> None:
    spec = load_text(EXPERIMENT + "params: {a: 1, b: 1.5, c: text, d: true, e: null, f: [1, [2]], g: {h: {i: 1}}}\n")
    assert spec.params == {
        "a": 1, "b": 1.5, "c": "text", "d": True, "e": None, "f": (1, (2,)), "g": {"h": {"i": 1}},
    }  # fmt: skip


def test_params_may_be_made_of_each_other_in_any_order() -> None:
    text = "params:\n  path: '{{ root }}/{{ name }}'\n  name: 'run-{{ n }}'\n  root: /data\n  n: 3\n"
    assert load_text(EXPERIMENT + text).params == {"path": "/data/run-3", "name": "run-3", "root": "/data", "n": 3}


def test_a_param_made_of_another_keeps_its_type() -> None:
    text = "params: {n: 3, same: '{{ n }}', twice: '{{ n * 2 }}', all: ['{{ n }}', {deep: '{{ n + 1 }}'}]}\n"
    assert load_text(EXPERIMENT + text).params == {"n": 3, "same": 3, "twice": 6, "all": (3, {"deep": 4})}


@pytest.mark.parametrize(
    "params",
    ["{a: '{{ a }}'}", "{a: '{{ b }}', b: '{{ a }}'}", "{a: '{{ b }}', b: '{{ c }}', c: ['{{ a }}']}"],
)
def test_params_that_need_each_other_are_a_fault(params: str) -> None:
    errors = errors_of(f"{EXPERIMENT}params: {params}\nrun: {{cmd: 'x {{{{ a }}}}'}}\n")
    assert len(errors) == 1
    assert errors[0].message.startswith("circular params: a -> ")
    assert errors[0].path.startswith("params.")


def test_a_chain_of_a_thousand_params_is_followed_when_each_comes_after_what_it_needs() -> None:
    lines = ["  p0: 1"] + [f"  p{n}: 'x{{{{ p{n - 1} }}}}'" for n in range(1, 1000)]
    assert load_text(EXPERIMENT + "params:\n" + "\n".join(lines)).params["p999"] == "x" * 999 + "1"


def test_a_chain_of_a_thousand_params_the_other_way_round_is_a_fault_or_followed() -> None:
    lines = [f"  p{n}: 'x{{{{ p{n + 1} }}}}'" for n in range(1000)] + ["  p1000: 1"]
    text = EXPERIMENT + "params:\n" + "\n".join(lines)
    errors = errors_of(text)
    if errors:
        assert all("need each other" not in error.message for error in errors), "a chain is no circle"
    else:
        assert load_text(text).params["p0"] == "x" * 1000 + "1"


def test_a_wrong_param_is_reported_once_and_not_blamed_on_those_who_use_it() -> None:
    text = "params: {a: '{{ nothing }}', b: '{{ a }}', c: 'x {{ b }}'}\nrun: {cmd: 'x {{ a }} {{ c }}'}\n"
    error = error_of(EXPERIMENT + text)
    assert error.path == "params.a"
    assert error.message == "unknown param `nothing`"


def test_a_param_that_no_template_can_name_is_noted() -> None:
    text = EXPERIMENT + "params: {learning-rate: 0.1}\n"
    assert load_text(text).params == {"learning-rate": 0.1}
    assert notes_of(text) == ["`learning-rate` cannot be used in templates: it is not a plain name"]


@pytest.mark.parametrize("entity", ["jobs", "experiments", "ops"])
def test_the_output_of_another_run_stays_a_reference(entity: str) -> None:
    text = f"{EXPERIMENT}params: {{data: '{{{{ {entity}.prep-1.outputs.path }}}}'}}\n"
    assert load_text(text).params["data"] == f"{{{{ {entity}.prep-1.outputs.path }}}}"
    note = "outputs of other runs are only looked up in pipelines: it stays this text"
    assert notes_of(text) == ([] if entity == "ops" else [note])


# the command line --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", 0.1), ("1e-3", 0.001), ("5", 5), ("true", True), ("no", False), ("null", None), ("", ""),
        ("a b", "a b"),
        ("[1, 2]", [1, 2]), ("['a', {'b': None}]", ["a", {"b": None}]), ("{'a': 1}", {"a": 1}), ("(1, 2)", [1, 2]),
        ("[1, 2", "[1, 2"), ("[a]", "[a]"), ("[__import__('os')]", "[__import__('os')]"), ("{{ x }}", "{{ x }}"),
        ("s3://bucket/{a}", "s3://bucket/{a}"), ("[" * 3000, "[" * 3000), ("1:2", "1:2"),
    ],
)  # fmt: skip
def test_a_value_of_the_command_line_is_typed_as_in_a_file(text: str, value: Any) -> None:
    assert parse_value(text) == value
    assert type(plain_scalar(parse_value(text))) is type(value)


@pytest.mark.parametrize("text", ["{1, 2}", "(1+2j)", "[b'a']", "[...]", "[{1}]", "{'a': b'x'}"])
def test_a_value_that_no_file_can_hold_stays_text(text: str) -> None:
    spec = load_text(EXPERIMENT, a=text)
    assert spec.params == {"a": text}
    assert load_text(to_yaml(modern_document(spec))) == spec


def test_the_command_line_overrides_adds_and_is_used_in_templates() -> None:
    spec = load_text(EXPERIMENT + "params: {lr: 0.1}\nrun: {cmd: 'x {{ lr }} {{ n }}'}\n", lr="0.2", n="3")
    assert spec.params == {"lr": 0.2, "n": 3}
    assert spec.command == "x 0.2 3"


def test_the_command_line_may_give_a_template() -> None:
    assert load_text(EXPERIMENT + "params: {n: 3}\n", twice="{{ n * 2 }}").params["twice"] == 6


def test_a_declared_text_keeps_its_digits() -> None:
    text = EXPERIMENT + "inputs: [{name: id, type: str}]\n"
    assert load_text(text, id="007").params == {"id": "007"}


def test_a_fault_of_the_command_line_shows_the_option() -> None:
    error = error_of(EXPERIMENT + "inputs: [{name: a, type: str}, {name: b, type: int}]\n", a="x", b="oops")
    assert error.place.file == "command line"
    assert error.place.excerpt == "-P b=oops"
    assert error.message == "`b` must be a whole number, found the text `oops`"


def test_a_value_of_several_lines_does_not_shift_the_options_after_it() -> None:
    error = error_of(EXPERIMENT + "inputs: [{name: a, type: str}, {name: b, type: int}]\n", a="1\n2", b="oops")
    assert error.place.excerpt == "-P b=oops"


# declared inputs ---------------------------------------------------------------------------------------------


def _inputs(declaration: str, params: str = "{}") -> str:
    return f"{EXPERIMENT}inputs: [{{name: a, {declaration}}}]\nparams: {params}\n"


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("int", "3", "3.5"), ("int", "-3", "true"), ("float", "3.5", "text"), ("float", "3", "true"),
        ("metric", "0.5", "text"), ("str", "text", "[3]"), ("bool", "true", "1"), ("list", "[1]", "1"),
        ("dict", "{b: 1}", "[1]"), ("dict_of_dicts", "{b: {c: 1}}", "{b: 1}"), ("uri", "http://x", "3"),
        ("auth", "{user: x}", "3"), ("metadata", "{b: 1}", "text"), ("path", "/x", "3"), ("s3_path", "s3://x", "3"),
        ("gcs_path", "gs://x", "[1]"), ("azure_path", "wasb://x", "3"),
    ],
)  # fmt: skip
def test_an_input_has_the_type_that_it_declares(kind: str, good: str, bad: str) -> None:
    load_text(_inputs(f"type: {kind}", f"{{a: {good}}}"))
    error = error_of(_inputs(f"type: {kind}", f"{{a: {bad}}}"))
    assert error.message.startswith("`a` must be ")
    assert error.path == "params.a"


def test_an_input_without_a_type_takes_anything() -> None:
    assert load_text(_inputs("description: x", "{a: [1]}")).params == {"a": (1,)}


def test_a_missing_required_input_says_how_to_give_it() -> None:
    error = error_of(_inputs("type: int"))
    assert error.message == "input `a` has no value"
    assert error.suggestion == "set it in `params` or with -P a=..."
    assert error.path == "inputs[0]"
    assert where(error) == (3, 10)


def test_a_missing_input_is_not_blamed_on_the_templates_that_use_it() -> None:
    assert messages_of(_inputs("type: int") + "run: {cmd: 'x {{ a }}'}\n") == ["input `a` has no value"]


def test_an_optional_input_gives_its_default() -> None:
    text = _inputs("type: int, is_optional: true, default: 5") + "run: {cmd: 'x {{ a }}'}\n"
    spec = load_text(text)
    assert (spec.params, spec.command) == ({"a": 5}, "x 5")
    assert load_text(text, a="7").command == "x 7"


def test_a_default_of_another_type_than_declared_is_a_fault() -> None:
    error = error_of(_inputs("type: int, is_optional: true, default: many"))
    assert "must be a whole number" in error.message
    assert error.path == "inputs[0].default"


def test_a_default_without_is_optional_is_a_fault() -> None:
    errors = errors_of(_inputs("type: int, default: 5"))
    assert ("only an optional input can have a default", "add `is_optional: true`") in [
        (error.message, error.suggestion) for error in errors
    ]


def test_a_flag_renders_as_an_option_or_as_nothing() -> None:
    text = _inputs("type: bool, is_flag: true, is_optional: true, default: false") + "run: {cmd: 'x {{ a }} y'}\n"
    assert load_text(text).command == "x y"
    assert load_text(text, a="true").command == "x --a y"
    assert load_text(text, a="true").params == {"a": True}


def test_a_flag_that_is_no_boolean_is_a_fault() -> None:
    assert "`is_flag` requires `type: bool`" in messages_of(_inputs("type: int, is_flag: true", "{a: 1}"))


def test_an_input_with_options_takes_one_of_them() -> None:
    assert load_text(_inputs("options: [1, two]", "{a: two}")).params == {"a": "two"}
    assert error_of(_inputs("options: [1, two]", "{a: 3}")).message == "`a` must be one of 1, two, found the number 3"


def test_an_input_with_lists_as_options_takes_one_of_them() -> None:
    assert load_text(_inputs("options: [[1, 2], [3]]", "{a: [1, 2]}")).params == {"a": (1, 2)}


def test_a_list_input_takes_a_list_of_its_type() -> None:
    assert load_text(_inputs("type: int, is_list: true", "{a: [1, 2]}")).params == {"a": (1, 2)}
    assert error_of(_inputs("type: int, is_list: true", "{a: [1, x]}")).message.startswith("`a` must be a list of int")


def test_with_inputs_declared_another_param_is_a_fault_with_what_was_meant() -> None:
    error = error_of(EXPERIMENT + "inputs: [{name: rate}]\nparams: {rate: 1, rte: 2}\n")
    assert error.message == "unknown input `rte`"
    assert error.suggestion == "did you mean `rate`?"
    assert where(error) == (4, 19)


@pytest.mark.parametrize("key", ["inputs", "outputs"])
def test_an_input_or_output_that_is_declared_twice_is_a_fault(key: str) -> None:
    messages = messages_of(f"{EXPERIMENT}{key}: [{{name: a}}, {{name: a}}]\nparams: {{a: 1}}\n")
    assert f"{key[:-1]} `a` is declared twice" in messages


def test_outputs_are_declared_like_inputs() -> None:
    spec = load_text(EXPERIMENT + "outputs: [{name: model, type: path, description: the best one}]\n")
    assert spec.outputs[0]._asdict() == {
        "name": "model", "type": "path", "description": "the best one", "default": None, "is_optional": False,
        "is_list": False, "is_flag": False, "options": None,
    }  # fmt: skip


def test_an_input_without_a_name_is_a_fault() -> None:
    error = error_of(EXPERIMENT + "inputs: [{type: int}]\n")
    assert error.path == "inputs[0].name"
    assert error.message == "an input or output needs `name`: the name used in templates"


def test_the_output_of_another_run_suits_an_input_of_any_type() -> None:
    assert load_text(_inputs("type: int", "{a: '{{ jobs.1.outputs.x }}'}")).inputs[0].type == "int"


# params that mean harm ---------------------------------------------------------------------------------------


def test_many_params_made_of_another_are_quick_or_refused() -> None:
    lines = "".join(f"  p{n}: 'x{{{{ p0 }}}}'\n" for n in range(1, 20_000))
    result = load_limited(EXPERIMENT + "params:\n  p0: 1\n" + lines)
    assert result.ended in ("spec", "errors"), result
    assert result.cpu_s < CPU_S, result


@pytest.mark.slow
def test_many_params_that_are_another_are_quick_or_refused() -> None:
    lines = "".join(f"  p{n}: '{{{{ p0 }}}}'\n" for n in range(1, 40_000))
    result = load_limited(EXPERIMENT + "params:\n  p0: 1\n" + lines, cpu_s=8)
    assert result.ended in ("spec", "errors"), result
    assert result.cpu_s < 6.0, result


@pytest.mark.slow
def test_ninety_thousand_params_are_read() -> None:
    result = load_limited(EXPERIMENT + "params:\n" + "".join(f" k{n:05}: 1\n" for n in range(90_000)))
    assert result.ended == "spec", result
    assert result.cpu_s < CPU_S, result


def test_texts_that_double_from_param_to_param_are_refused() -> None:
    lines = "".join(f"  p{n}: '{{{{ p{n - 1} }}}}{{{{ p{n - 1} }}}}'\n" for n in range(1, 60))
    assert_quickly_refused(EXPERIMENT + "params:\n  p0: x\n" + lines, "longer than", "more than")


def test_lists_that_double_from_param_to_param_are_refused() -> None:
    lines = "".join(f"  p{n}: '{{{{ [p{n - 1}, p{n - 1}] }}}}'\n" for n in range(1, 60))
    assert_quickly_refused(EXPERIMENT + "params:\n  p0: 1\n" + lines, "longer", "more than", "size", "large")


def test_a_template_of_a_mebibyte_in_a_param_is_quick_or_refused() -> None:
    result = load_limited(EXPERIMENT + 'params:\n  p: 1\n  q: "' + "{{p}}" * 200_000 + '"\n')
    assert result.ended in ("spec", "errors"), result
    assert result.cpu_s < CPU_S, result


def test_a_param_that_the_matrix_also_has_is_noted() -> None:
    group = "version: 1\nkind: group\nparams: {lr: 5, b: 1}\nhptuning: {matrix: {lr: {values: [1, 2]}}}\n"
    assert notes_of(group) == ["the matrix also has `lr`: its values are used, not this one"]
    spec = load_text(group, lr="3")
    assert [note.place.file for note in spec.notes] == ["command line"]


def test_one_wrong_input_does_not_hide_the_errors_of_others_and_of_params() -> None:
    text = """version: 1
kind: experiment
inputs:
- {name: a, type: integer}
- {name: b, type: int}
- {name: c, type: int}
params: {a: 1, b: text, d: 1}
run: {cmd: 'x {{ a }} {{ c }} {{ e }}'}
"""
    assert [(error.place.line, error.path) for error in errors_of(text)] == [
        (4, "inputs[0].type"),
        (6, "inputs[2]"),
        (7, "params.b"),
        (7, "params.d"),
        (8, "run.cmd"),
    ]


def test_a_param_is_not_unknown_while_an_input_has_no_readable_name() -> None:
    text = "version: 1\nkind: experiment\ninputs: [{name: [loss]}, {name: b}]\nparams: {loss: 1, b: 2}\n"
    assert [error.path for error in errors_of(text)] == ["inputs[0].name"]
