"""Text keeps the characters it was written with, however YAML reads them; numbers are numbers where used as such."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from phalanx import plan
from phalanx.spec import Spec, load
from phalanx.spec.groups import first_suggestion, suggestion
from phalanx.spec.model import thaw
from phalanx.spec.scalars import WrittenScalar, plain_scalar, resolve_plain, written
from phalanx.spec.yaml_writer import modern_document, to_yaml
from tests.examples import examples
from tests.spec.helpers import EXPERIMENT, GROUP, error_of, load_text, load_texts

SPELLINGS = [
    "1234e56", "12e4567", "0123456", "1e-3", "1E5", "1e5", "123e45", "0.10", "1.50", "+7", "-0", "007", "0x1F", "0b101",
    "1e+300", "1e-05", "2.5e-07",
    "1_000", "1_0.5", "5.", ".5", "-.5", "1.5e3", "1.5E+03", "1e400", "-1e400", "1e-400", "0e1234567", "00e12",
    "1e00005", "9" * 30, "0.1000000000000000055511151231257827", "1:20", "1:20:30", "190:20:30.15", "2024-01-01",
    "2001-12-14t21:59:43.10-05:00",   "yes", "No", "ON", "off", "y", "~", "0o17", "08", "1.2.3", "3.10", "1__0", "0_1",
]  # fmt: skip
WORDS = ["true", "True", "FALSE", ".inf", "-.Inf", ".NaN"]  # values in templates, characters in a field of text


@st.composite
def number_like(draw: st.DrawFn) -> str:
    """What may look like a number, a date or a hash."""
    if draw(st.booleans()):
        return draw(st.sampled_from(SPELLINGS))
    first = draw(st.sampled_from("0123456789+-."))
    text = first + draw(st.text("0123456789abcdefx_.+-eE", min_size=1, max_size=9))
    if not isinstance(resolve_plain(text), int | float) and text[0] in "-.":
        return "0" + text.lstrip("-.")  # `-`, `...` and `---` have a meaning of their own in YAML
    return text


def _outputs(spec: Spec) -> list[Any]:
    """Everything that a text of the file below ends up in."""
    made = plan.make(spec, "r1")
    replica = made.replicas[0]
    assert spec.build is not None
    settings = spec.environment.settings
    return [
        spec.command, made.command, spec.build.commit, spec.build.branch, spec.tags, dict(spec.build.env_vars),
        dict(settings.env_vars or ()), dict(settings.labels or {}), replica.environment["A"],
        spec.environment.kubernetes.revision, spec.environment.slurm.account,
    ]  # fmt: skip


def _file(text: str) -> str:
    return EXPERIMENT + (
        f"params: {{p: {text}, nested: {{list: [{text}]}}}}\n"
        f"tags: [{text}]\n"
        f"environment:\n  env_vars: [[A, {text}]]\n  labels: {{l: {text}}}\n"
        f"  kubernetes: {{revision: {text}}}\n  slurm: {{account: {text}}}\n"
        f"build: {{commit: {text}, branch: {text}, env_vars: {{B: {text}}}}}\n"
        "run: {cmd: 'x {{ p }} {{ nested.list[0] }} {% if p is defined %}{{ p }}{% endif %} {{ p | string }} end'}\n"
    )


@given(number_like().filter(lambda text: text != "~" and text[0] != "-" and ":" not in text))
@examples(150)
def test_text_keeps_its_characters_in_every_place_and_through_converting(text: str) -> None:
    spec = load_text(_file(text))
    assert spec.command == f"x {text} {text} {text} {text} end"
    assert spec.build is not None
    assert (spec.build.commit, spec.build.branch, spec.tags) == (text, text, (text,))
    assert spec.environment.settings.env_vars == (("A", text),)
    assert spec.environment.settings.labels == {"l": text}
    assert spec.build.env_vars == (("B", text),)
    assert (spec.environment.kubernetes.revision, spec.environment.slurm.account) == (text, text)
    assert plan.make(spec, "r1").replicas[0].environment["A"] == text
    document = modern_document(spec)
    again = load_text(to_yaml(document))
    assert _outputs(again) == _outputs(spec)
    assert again == spec
    assert to_yaml(modern_document(again)) == to_yaml(document)


@given(number_like())
@examples(100)
def test_a_quoted_scalar_is_text_also_as_a_param(text: str) -> None:
    spec = load_text(_file("'x'"), p=text)
    quoted = load_text(EXPERIMENT + f"params: {{p: '{text}'}}\n")
    assert quoted.params["p"] == text
    assert load_text(to_yaml(modern_document(quoted))).params["p"] == text
    assert spec.command is not None
    assert spec.command.split()[1] == text


@given(number_like())
@examples(100)
def test_a_value_of_the_command_line_keeps_its_characters(text: str) -> None:
    spec = load_text(EXPERIMENT + "run: {cmd: 'x {{ p }} end'}\n", p=text)
    assert spec.command == f"x {text} end"
    assert load_text(to_yaml(modern_document(spec))).command == spec.command
    assert spec.params["p"] == plain_scalar(resolve_plain(text))


@pytest.mark.parametrize("text", [*SPELLINGS, *WORDS])
def test_a_variable_and_a_label_have_the_characters_of_the_file(text: str) -> None:
    quoted = text if ":" not in text else f" {text} "
    spec = load_text(EXPERIMENT + f"environment:\n  env_vars:\n  - - A\n    - {quoted}\n  labels:\n    l: {quoted}\n")
    assert spec.environment.settings.env_vars == (("A", text),)
    assert spec.environment.settings.labels == {"l": text}
    assert load_text(to_yaml(modern_document(spec))) == spec
    as_json = json.dumps(thaw(modern_document(spec)))
    assert load([("a.json", as_json.encode())]) == spec


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_param_in_a_command_has_the_characters_of_the_file(text: str) -> None:
    spec = load_text(EXPERIMENT + f"params:\n  p: {text}\nrun: {{cmd: 'x {{{{ p }}}} end'}}\n")
    assert spec.command == f"x {text} end"
    assert load_text(to_yaml(modern_document(spec))).command == spec.command


@pytest.mark.parametrize(
    ("written_as", "rendered"),
    [("true", "True"), ("TRUE", "True"), ("False", "False"), ("null", "None"), ("", "None"), (".inf", "inf")],
)
def test_the_words_of_yaml_for_values_are_rendered_as_polyaxon_does(written_as: str, rendered: str) -> None:
    spec = load_text(EXPERIMENT + f"params:\n  p: {written_as}\nrun: {{cmd: 'x {{{{ p }}}} end'}}\n")
    assert spec.command == f"x {rendered} end"


@pytest.mark.parametrize("nothing", ["null", "NULL", ""])
def test_null_where_text_is_expected_is_empty(nothing: str) -> None:
    spec = load_text(EXPERIMENT + f"environment:\n  labels:\n    l: {nothing}\n")
    assert spec.environment.settings.labels == {"l": ""}
    assert load_text(to_yaml(modern_document(spec))) == spec


def test_the_name_of_a_variable_is_text_too() -> None:
    spec = load_text(EXPERIMENT + "environment: {env_vars: [[NO, 1], [On, 2]]}\n")
    assert spec.environment.settings.env_vars == (("NO", "1"), ("On", "2"))


def test_an_alias_keeps_the_characters_of_its_anchor_also_as_a_key() -> None:
    text = "environment:\n  env_vars: {A: &x 0123, B: *x}\n  labels: {a: &y yes, *y : *y}\n"
    settings = load_text(EXPERIMENT + text).environment.settings
    assert settings.env_vars == (("A", "0123"), ("B", "0123"))
    assert settings.labels == {"a": "yes", "yes": "yes"}


def test_a_later_file_keeps_its_characters() -> None:
    first = EXPERIMENT + "params: {p: 1}\nbuild: {commit: a}\nrun: {cmd: 'x {{ p }}'}\n"
    spec = load_texts(first, "params: {p: 0123}\nbuild: {commit: 1234e56}\n")
    assert spec.command == "x 0123"
    assert spec.build is not None
    assert spec.build.commit == "1234e56"


def test_a_param_of_another_param_keeps_its_characters() -> None:
    text = "params: {a: 0123, b: '{{ a }}', c: 'v{{ b }}'}\nbuild: {commit: '{{ b }}'}\nrun: {cmd: '{{ b }} {{ c }}'}\n"
    spec = load_text(EXPERIMENT + text)
    assert spec.params == {"a": 83, "b": 83, "c": "v0123"}
    assert spec.command == "0123 v0123"
    assert spec.build is not None
    assert spec.build.commit == "0123"


def test_arithmetic_uses_the_number() -> None:
    text = (
        "params: {a: 0x10, r: 1e-3, f: yes}\nrun: {cmd: '{{ a + 1 }} {{ r * 2 }} {{ f and a > 15 }} {{ a | int }}'}\n"
    )
    assert load_text(EXPERIMENT + text).command == "17 0.002 True 16"


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ("{{ 1 if f else 2 }}", 1), ("{{ f == true }}", True), ("{{ f is boolean }}", True), ("{{ f is true }}", True),
        ("{{ f is integer }}", False), ("{{ f is number }}", True), ("{{ n is none }}", True),
        ("{{ n == none }}", True),
        ("{{ n or 3 }}", 3), ("{{ f | tojson }}", "true"), ("{{ n | tojson }}", "null"), ("{{ o | tojson }}", "8"),
        ("{{ not f }}", False), ("{{ f }}", True), ("{{ n }}", None), ("{{ [f, n, o] }}", [True, None, 8]),
        ("{{ [f, n, o] | join(',') }}", "yes,~,010"), ("x {{ [f, n, o] }}", "x [True, None, 8]"),
        ("{{ f ~ o }}", "yes010"), ("{{ f is sameas true }}", True),
    ],
)  # fmt: skip
def test_a_template_computes_with_values(template: str, result: object) -> None:
    text = f'params: {{f: yes, n: ~, o: 010, r: "{template}"}}\n'
    found = thaw(load_text(EXPERIMENT + text).params["r"])
    assert found == result
    assert type(found) is type(result)


def test_params_are_plain_values_for_the_run_and_for_json() -> None:
    spec = load_text(EXPERIMENT + "params: {a: 0123, b: 1e-3, c: yes, d: ~, e: [0x10, off], f: 0.10}\n")
    assert json.dumps(thaw(spec.params)) == ('{"a": 83, "b": 0.001, "c": true, "d": null, "e": [16, false], "f": 0.1}')
    variables = plan.make(spec, "r1").shared
    assert json.loads(str(variables["PHALANX_PARAMS"])) == thaw(spec.params)
    assert not any(isinstance(value, WrittenScalar) for value in spec.params.values())


def test_a_matrix_keeps_numbers_for_the_search_and_characters_for_commands() -> None:
    text = "hptuning: {matrix: {a: {values: [1e-3, 0.01, 0123456, 1234e56, on]}}}\nrun: {cmd: 'x {{ a }}'}\n"
    group = load_text(GROUP + text)
    assert group.search is not None
    values = group.search.matrix[0].values
    assert values == (0.001, 0.01, 42798, "1234e56", True)
    trials = [suggestion(group, {"a": value}) for value in values]
    assert [trial.command for trial in trials] == ["x 1e-3", "x 0.01", "x 0123456", "x 1234e56", "x on"]
    assert [trial.params["a"] for trial in trials] == [0.001, 0.01, 42798, "1234e56", True]
    assert group.command == first_suggestion(group).command == "x 1e-3"
    again = load_text(to_yaml(modern_document(group)))
    assert again.search is not None
    assert [suggestion(again, {"a": value}).command for value in again.search.matrix[0].values or ()] == [
        trial.command for trial in trials
    ]


def test_an_input_of_text_keeps_the_characters_of_its_value_default_and_options() -> None:
    inputs = (
        "inputs:\n- {name: a, type: str}\n- {name: b, type: str, is_optional: true, default: 0123}\n"
        "- {name: c, type: str, options: [010, 1e-3]}\n- {name: d, type: str, is_list: true}\n"
    )
    text = EXPERIMENT + inputs + "params: {a: 1e3, c: 010, d: [007, yes]}\nrun: {cmd: '{{ a }} {{ b }} {{ c }}'}\n"
    spec = load_text(text)
    assert spec.command == "1e3 0123 010"
    assert spec.params == {"a": "1e3", "b": "0123", "c": "010", "d": ("007", "yes")}
    assert load_text(to_yaml(modern_document(spec))) == spec
    assert load([("a.json", json.dumps(thaw(modern_document(spec))).encode())]) == spec


def test_a_default_of_any_type_keeps_its_characters_in_templates() -> None:
    inputs = "inputs: [{name: b, type: int, is_optional: true, default: 0123}]\n"
    spec = load_text(EXPERIMENT + inputs + "run: {cmd: 'x {{ b }}'}\n")
    assert (spec.command, spec.params["b"]) == ("x 0123", 83)


def test_a_matrix_of_an_input_of_text_is_text() -> None:
    text = "inputs: [{name: a, type: str}]\nhptuning: {matrix: {a: {values: [0123, 2]}}}\nrun: {cmd: 'x {{ a }}'}\n"
    group = load_text(GROUP + text)
    assert [suggestion(group, {"a": value}).params["a"] for value in group.search.matrix[0].values or ()] == [  # type: ignore[union-attr]
        "0123",
        "2",
    ]


def test_the_op_of_a_pipeline_keeps_the_characters_of_its_params_and_build() -> None:
    text = (
        "version: 1\nkind: pipeline\nops:\n"
        "- {name: a, template: {name: t}, params: {p: 0123}, build: {image: i, commit: 1234e56}}\n"
        "templates:\n- {kind: job, name: t, inputs: [{name: p}], run: {cmd: 'x {{ p }}'}}\n"
    )
    spec = load_text(text)
    assert spec.pipeline is not None
    op = spec.pipeline.ops[0].spec
    assert op is not None
    assert op.build is not None
    assert (op.command, op.build.commit) == ("x 0123", "1234e56")


@pytest.mark.parametrize(
    ("value", "command"),
    [("[1e-3, 0123]", "[1e-3, 0123]"), ("[1e-3, 0x10]", "1e-3 0x10"), ("[1234e56, -1.50]", "1234e56 -1.50")],
)
def test_a_list_of_the_command_line_keeps_the_characters_of_its_numbers(value: str, command: str) -> None:
    text = EXPERIMENT + "run: {cmd: \"x {{ p if p is string else p | join(' ') }}\"}\n"
    assert load_text(text, p=value).command == f"x {command}"


@given(number_like())
@examples(300)
def test_numbers_are_those_of_pyyaml_and_a_few_more(text: str) -> None:
    ours, theirs = resolve_plain(text), yaml.safe_load(f"[{text}]")[0] if not _is_odd(text) else None
    if isinstance(theirs, int | float) and not isinstance(theirs, bool) and ":" not in text:
        assert ours == theirs or (isinstance(ours, float) and math.isnan(ours)) or not math.isfinite(theirs)
    elif isinstance(ours, float):
        assert "e" in text.lower() or text.startswith(("-.", "+."))
        assert len(text) < 7 or not text.isalnum()  # never what can be the hash of a commit


def _is_odd(text: str) -> bool:
    """PyYAML raises ValueError for `0x_` and dates such as 2024-99-99."""
    try:
        yaml.safe_load(f"[{text}]")
    except (ValueError, yaml.YAMLError):
        return True
    return False


@pytest.mark.parametrize("text", ["1e400", "12e4567", "-1e999", "1" + "0" * 320 + ".5", "9e99999"])
def test_a_finite_number_is_never_read_as_infinite(text: str) -> None:
    assert resolve_plain(text) == text


def test_a_fault_shows_the_characters_of_the_file() -> None:
    error = error_of(EXPERIMENT + "description: 0123\n")
    assert error.message == "expected text, found the number 0123"
    assert error.suggestion == 'write "0123"'
    assert error_of(EXPERIMENT + "description: yes\n").suggestion == 'write "yes"'


@pytest.mark.parametrize(("value", "text"), [(83, "0123"), (0.001, "1e-3"), (True, "yes"), (None, "~")])
def test_a_written_scalar_is_its_value_and_can_be_copied(value: Any, text: str) -> None:
    scalar = written(value, text)
    twin = copy.deepcopy([scalar])[0]
    assert scalar == value
    assert hash(scalar) == hash(value)
    assert repr(scalar) == repr(value)
    assert (str(scalar), bool(scalar)) == (text, bool(value))
    assert (type(twin), str(twin), twin.plain) == (type(scalar), text, value)


@pytest.mark.parametrize(
    ("value", "text"), [(3, "3"), (0.1, "0.1"), (True, "true"), (None, ""), (None, "null"), ("a", None)]
)
def test_an_ordinary_scalar_is_a_plain_value(value: Any, text: str | None) -> None:
    assert not isinstance(written(value, text), WrittenScalar)
