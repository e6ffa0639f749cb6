"""Templates: typed results, faults with suggestions, and templates that mean harm."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.spec import Amount, Resources
from phalanx.spec.templates import TemplateError, is_template, is_true, names_in, oversize, render
from tests.spec.helpers import (
    CPU_S,
    EXPERIMENT,
    PEAK_MIB,
    assert_quickly_refused,
    error_of,
    errors_of,
    load_limited,
    load_text,
    messages_of,
    run_command,
    where,
)

CONTEXT: dict[str, Any] = {
    "n": 3, "lr": 0.001, "name": "net", "on": True, "off": False, "none": None, "sizes": [1, 2, 3],
    "model": {"depth": 2, "values": "own", "items": [4]}, "text": "a {{ b }}",
}  # fmt: skip


FILTER_HINT = (
    "use one of abs, capitalize, count, d, default, first, float, int, items, join, last, length, list, lower, max, "
)
FILTER_HINT += (
    "min, quote, reject, replace, reverse, round, select, sort, string, sum, title, tojson, trim, unique, upper"
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ n }}", 3), ("{{n}}", 3), ("{{- n -}}", 3), ("{{ n + 1 }}", 4), ("{{ n / 2 }}", 1.5),
        ("{{ lr }}", 0.001), ("{{ on }}", True), ("{{ not on }}", False), ("{{ none }}", None),
        ("{{ sizes }}", [1, 2, 3]), ("{{ sizes[1] }}", 2), ("{{ sizes | sum }}", 6), ("{{ sizes | length }}", 3),
        ("{{ sizes | reverse | list }}", [3, 2, 1]), ("{{ sizes | max }}", 3), ("{{ range(3) }}", [0, 1, 2]),
        ("{{ model }}", {"depth": 2, "values": "own", "items": [4]}), ("{{ model.depth }}", 2),
        ("{{ model['depth'] }}", 2), ("{{ model.values }}", "own"), ("{{ model.items }}", [4]),
        ("{{ 'many' if n > 1 else 'one' }}", "many"), ("{{ name | upper }}", "NET"), ("{{ n ~ '' }}", "3"),
        ("{{ name in ['net'] }}", True), ("{{ [n, name] }}", [3, "net"]), ("{{ {'a': n} }}", {"a": 3}),
        ("{{ missing | default(5) }}", 5), ("{{ '1' }}", "1"), ("{{ 2 ** 10 }}", 1024), ("{{ 7 % 3 }}", 1),
        ("{{ -n }}", -3), ("{{ n | string }}", "3"), ("{{ '5' | int }}", 5), ("{{ name | replace('n', 'j') }}", "jet"),
        ("{{ sizes | join(',') }}", "1,2,3"), ("{{ sizes | tojson }}", "[1, 2, 3]"), ("{{ 2.5 | round }}", 2.0),
    ],
)  # fmt: skip
def test_a_text_that_is_one_expression_gives_its_value(text: str, value: Any) -> None:
    found = render(text, CONTEXT)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a {{ n }}", "a 3"), ("{{ n }}{{ n }}", "33"), ("{{ n }} {{ name }}", "3 net"), ("x{{ lr }}", "x0.001"),
        ("{{ on }}!", "True!"), ("a{{ none }}", "aNone"), ("a {{ sizes }}", "a [1, 2, 3]"), ("{{ n }}\n", "3\n"),
        (" {{ n }} ", " 3 "),
        ("{% if on %}yes{% else %}no{% endif %}", "yes"), ("{% if off %}yes{% endif %}", ""),
        ("{% for s in sizes %}-s {{ s }} {% endfor %}", "-s 1 -s 2 -s 3 "), ("{# note #}a", "a"),
        ("{% raw %}{{ n }}{% endraw %}", "{{ n }}"), ("{{ '{{' }} n", "{{ n"), ("a {{ n + 1 }} b", "a 4 b"),
        ("a\n{{ n }}\n", "a\n3\n"), ("{{ text }} x", "a {{ b }} x"), ("{{ n -}}   x", "3x"),
        ("{% for i in range(3) %}{{ loop.index }}{% endfor %}", "123"),
    ],
)  # fmt: skip
def test_anything_else_gives_text(text: str, value: Any) -> None:
    assert render(text, CONTEXT) == value


@pytest.mark.parametrize(
    ("text", "answer"),
    [("{{ a }}", True), ("{% a %}", True), ("{# a #}", True), ("a", False), ("{ a }", False), (5, False)],
)
def test_a_template_is_known_by_its_braces(text: object, answer: bool) -> None:
    assert is_template(text) is answer


def test_the_names_that_a_template_needs_are_known() -> None:
    assert names_in("{{ a + b.c }} {% for d in e %}{{ d }}{% endfor %}") == {"a", "b", "e"}
    assert names_in("{{ broken") == set()


# where templates reach ---------------------------------------------------------------------------------------


def test_templates_reach_every_section_of_a_run() -> None:
    spec = load_text(
        EXPERIMENT
        + """
params: {n: 2, level: debug, image: 'py:3', where: local, label: team, gpus: "1"}
name: run-{{ n }}
description: with {{ n }}
tags: ["t{{ n }}", "{{ n }}"]
logging: {level: "{{ level }}"}
framework: "{{ 'pytorch' if n > 1 else 'none' }}"
backend: "{{ where }}"
environment:
  resources: {cpu: {requests: "{{ n }}", limits: "{{ n * 2 }}"}, gpu: {limits: "{{ gpus }}"}}
  labels: {"{{ label }}": "{{ n }}"}
  env_vars: [[N, "{{ n }}"]]
  replicas: {n_workers: "{{ n }}", worker: [{index: "{{ n - 1 }}", max_restarts: 1}]}
build: {image: "{{ image }}", build_steps: ["pip install a=={{ n }}"], nocache: "{{ n > 1 }}"}
run: {cmd: "train {{ n }}"}
"""
    )
    assert (spec.name, spec.description, spec.tags) == ("run-2", "with 2", ("t2", "2"))
    assert (spec.logging.level, spec.framework, spec.backend) == ("DEBUG", "pytorch", "local")
    assert spec.environment.settings.resources == Resources(cpu=Amount(2.0, 4.0), gpu=Amount(None, 1.0))
    assert spec.environment.settings.labels == {"team": "2"}
    assert spec.environment.settings.env_vars == (("N", "2"),)
    assert spec.environment.replicas is not None
    assert (spec.environment.replicas.n_workers, list(spec.environment.replicas.worker)) == (2, [1])
    assert spec.build is not None
    assert (spec.build.image, spec.build.build_steps, spec.build.nocache) == ("py:3", ("pip install a==2",), True)
    assert spec.command == "train 2"


def test_a_template_may_give_a_whole_list_or_map() -> None:
    spec = load_text(
        EXPERIMENT + "params: {all: [a, b], amounts: {cpu: {requests: 1}}}\ntags: '{{ all }}'\n"
        "environment: {resources: '{{ amounts }}'}\n"
    )
    assert spec.tags == ("a", "b")
    assert spec.environment.settings.resources == Resources(cpu=Amount(1.0))


def test_what_a_template_gives_is_not_rendered_again() -> None:
    text = "params:\n  inner: \"{{ '{{ n }}' }}\"\n  n: 1\nrun: {cmd: 'echo {{ inner }}'}\n"
    assert load_text(EXPERIMENT + text).command == "echo {{ n }}"


def test_a_rendered_value_of_the_wrong_kind_is_reported_at_its_template() -> None:
    error = error_of(EXPERIMENT + "params: {n: many}\nenvironment:\n  max_restarts: '{{ n }}'\n")
    assert error.message == "expected a whole number of at least 0, found the text `many`"
    assert (error.path, where(error)) == ("environment.max_restarts", (5, 17))


def test_two_keys_that_render_to_the_same_are_a_fault() -> None:
    text = EXPERIMENT + "params: {a: b}\nenvironment: {labels: {'{{ a }}': 1, b: 2}}\n"
    assert "b" in error_of(text).message


# faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "message", "suggestion"),
    [
        ("x {{ rte }}", "unknown param `rte`", "did you mean `rate`?"),
        ("{{ rte }}", "unknown param `rte`", "did you mean `rate`?"),
        ("{{ rte + 1 }} {{ xyz }}", "unknown param `rte`, `xyz`", "did you mean `rate`?"),
        ("{{ xyzzy }}", "unknown param `xyzzy`", "set it in `params` or with -P xyzzy=..."),
        ("{% for a in xyzzy %}{% endfor %}", "unknown param `xyzzy`",
         "set it in `params` or with -P xyzzy=..."),
        ("{{ rte.deep }}", "unknown param `rte`", "did you mean `rate`?"),
        ("{{ rate.deep }}", "not found in the params: 'float object' has no attribute 'deep'", None),
        ("{{ deep.shallow }}", "not found in the params: 'dict object' has no attribute 'shallow'", None),
        ("{{ rate", "not a valid template: unexpected end of template, expected 'end of print statement'.", None),
        ("{% if rate %}", None, None),
        ("{% nonsense %}", "not a valid template: Encountered unknown tag 'nonsense'.", None),
        ("{{ rate | nonsense }}", "not a valid template: No filter named 'nonsense'.", FILTER_HINT),
        ("{{ 1 / 0 }}", "the template failed: division by zero", None),
        ("{{ 'a' + 1 }}", 'the template failed: can only concatenate str (not "int") to str', None),
    ],
)  # fmt: skip
def test_a_template_that_is_wrong_is_one_fault(template: str, message: str | None, suggestion: str | None) -> None:
    error = error_of(run_command(template, "params: {rate: 0.1, deep: {a: 1}}\n"))
    assert message is None or error.message == message
    assert error.suggestion == suggestion
    assert error.path == "run.cmd"
    assert where(error) == (5, 8)


def test_a_name_with_a_dash_says_how_to_name_it() -> None:
    error = error_of(run_command("x {{ learning-rate }}", "params: {learning-rate: 0.1}\n"))
    assert error.message == "`learning-rate` cannot be used in a template"
    assert error.suggestion == "`-` means minus in a template: name the param `learning_rate`"


def test_all_wrong_templates_are_reported_at_once() -> None:
    text = "name: '{{ a }}'\ntags: ['{{ b }}', '{{ c }}']\nrun: {cmd: ['{{ d }}', ok, '{{ e']}\n"
    assert [error.path for error in errors_of(EXPERIMENT + text)] == [
        "name",
        "tags[0]",
        "tags[1]",
        "run.cmd[0]",
        "run.cmd[2]",
    ]


def test_a_wrong_template_in_a_key_is_reported_at_the_key() -> None:
    error = error_of(EXPERIMENT + "environment:\n  labels:\n    '{{ a }}': 1\n")
    assert error.message == "unknown param `a`"
    assert where(error) == (5, 5)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__ }}", "{{ ''['__class__'] }}", "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__.__base__ }}", "{{ rate.__init__ }}", "{{ deep.__class__ }}", "{{ [].append }}",
        "{{ ''.format }}", "{{ ''.join(['a']) }}", "{{ deep.get('a') }}", "{{ deep.items() }}", "{{ self }}",
        "{{ self.__init__ }}", "{{ cycler }}", "{{ joiner }}", "{{ namespace }}", "{{ lipsum }}", "{{ dict }}",
        "{{ config }}", "{{ request }}", "{{ loop }}", "{{ range.__class__ }}", "{{ lipsum(5) }}", "{{ dict(a=1) }}",
        "{{ 'x' | attr('__class__') }}", "{{ [1] | map(attribute='__class__') | list }}", "{{ 'a' | format }}",
        "{{ [deep] | sum(attribute='__class__') }}", "{{ deep | items | list | first | string | list | pprint }}",
        "{% set a = 1 %}", "{% set a %}x{% endset %}", "{% macro a() %}x{% endmacro %}", "{% include 'x' %}",
        "{% import 'x' as x %}", "{% from 'x' import y %}", "{% extends 'x' %}", "{% block a %}{% endblock %}",
        "{% filter upper %}a{% endfilter %}", "{% call a() %}{% endcall %}", "{% with %}{% endwith %}", "{% do 1 %}",
        "{% autoescape true %}{% endautoescape %}", "{{ caller() }}", "{{ super() }}", "{{ range }}",
        "{{ '%s' % 'a' }}", "{{ '%1000000000s' % 'a' }}", "{{ '%(a)s' % {'a': 1} }}",
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% for i in [1] %}{% for j in [1] %}x{% endfor %}{% endfor %}",
        "{% for i in [1] %}{% if 1 %}{% for j in [1] %}x{% endfor %}{% endif %}{% endfor %}",
    ],
)  # fmt: skip
def test_what_a_template_has_no_business_with_is_one_fault(template: str) -> None:
    error = error_of(run_command(template, "params: {rate: 0.1, deep: {a: 1}}\n"))
    assert error.path == "run.cmd"
    assert "object at 0x" not in error.message


def test_no_object_of_python_ever_comes_out_of_a_template() -> None:
    for name in ("range", "self", "loop", "context", "environment"):
        with pytest.raises(TemplateError):
            render(f"{{{{ {name} }}}}", {})


@pytest.mark.parametrize("name", ["range", "loop", "self", "true", "none"])
def test_a_param_that_bears_the_name_of_something_in_the_language_is_no_crash(name: str) -> None:
    assert isinstance(errors_of(run_command(f"x {{{{ {name} }}}} y", f"params: {{'{name}': 1}}\n")), tuple)


# templates that mean harm ------------------------------------------------------------------------------------

LONG = f"params:\n  a: {'x' * 60_000}\n"
MANY = f"params:\n  p: [{', '.join(map(str, range(50_000)))}]\n"

BOMBS = {
    "text times number": "{{ 'a' * 10**9 }}",
    "number times text": "{{ 10**9 * 'a' }}",
    "list times number": "{{ [1] * 10**9 }}",
    "lists times numbers": "{{ [[[1] * 60000] * 60000] * 60000 }}",
    "powers": "{{ 9 ** (9 ** 9) }}",
    "powers of powers": "{{ ((((10**1000)**1000)**1000)**1000)**1000 }}",
    "products": "{{ " + " * ".join(["(10**1000)"] * 40) + " }}",
    "a negative power": "{{ (-9) ** (9 ** 9) }}",
    "a power of a small float": "{{ 2.0 ** 100000 }}",
    "replacing again and again": "{{ 'a'" + " | replace('a', 'aaaaaaaaaa')" * 20 + " }}",
    "replacing nothing": "{{ ('a' * 60000) | replace('', 'x' * 60000) }}",
    "joining": "{{ range(1000) | join('x' * 60000) }}",
    "joining texts": "{{ [" + ", ".join(["'x' * 60000"] * 30) + "] | join }}",
    "a range": "{{ range(10**9) | list }}",
    "a range backwards": "{{ range(10**9, 0, -1) | list }}",
    "a number from letters": "{{ ('f' * 60000) | int(0, 16) }}",
    "rounding a whole number": "{{ 5 | round(-100000000) }}",
    "rounding down": "{{ 5.5 | round(100000000, 'floor') }}",
    "indented json": "{{ [1] | tojson(indent=1000000000) }}",
    "json of json": "{{ '\"'" + " | tojson" * 60 + " }}",
    "text of lists of text": "{{ " + "[" * 40 + "'\\\\'" + "] | string" * 40 + " }}",
    "joined lists of text": "{{ " + "[" * 40 + "'\\\\'" + "] ~ ''" * 40 + " }}",
    "a loop over a loop": "{% for i in range(999) %}{% for j in range(999) %}x{% endfor %}{% endfor %}",
    "a loop of long texts": "{% for i in range(999) %}{{ 'x' * 60000 }}{% endfor %}",
    "parentheses": "{{ " + "(" * 3_000 + "1" + ")" * 3_000 + " }}",
    "lists in lists": "{{ " + "[" * 300 + "1" + "]" * 300 + " }}",
    "many more lists in lists": "{{ " + "[" * 150 + "1" + "]" * 150 + " }}",
    "minus signs": "{{ " + "-" * 3_000 + "1 }}",
    "negations": "{{ " + "not " * 3_000 + "1 }}",
    "conditions in conditions": "{% if 1 %}" * 150 + "x" + "{% endif %}" * 150,
    "a number with many digits": "{{ " + "9" * 5_000 + " }}",
    "a float with many digits": "{{ " + "9" * 5_000 + ".0 }}",
    "attributes of attributes": "{{ 'a'" + ".a" * 3_000 + " }}",
    "a sum of many numbers": "{{ " + " + ".join(["1"] * 4_000) + " }}",
}  # fmt: skip


@pytest.mark.parametrize("template", BOMBS.values(), ids=BOMBS)
@pytest.mark.slow
def test_a_template_that_would_eat_time_or_memory_is_refused_quickly(template: str) -> None:
    result = load_limited(run_command(template))
    assert result.ended == "errors", result
    assert result.cpu_s < CPU_S, result
    assert result.peak_mib < PEAK_MIB, result


@pytest.mark.parametrize(
    "template",
    [
        "{{ " + "(" * 3_000 + "1" + ")" * 3_000 + " }}",
        "{{ " + "[" * 300 + "1" + "]" * 300 + " }}",
        "{{ " + "9" * 5_000 + " }}",
        "{% if 1 %}" * 150 + "x" + "{% endif %}" * 150,
    ],
    ids=["parentheses", "lists", "digits", "conditions"],
)
@pytest.mark.parametrize("home", ["params:\n  a: ", "name: ", "tags: ", "build:\n  image: "])
def test_a_template_too_deep_for_the_parser_is_a_fault_wherever_it_stands(home: str, template: str) -> None:
    assert errors_of(f'{EXPERIMENT}{home}"{template}"\n')


def test_joining_long_texts_in_groups_is_refused() -> None:
    group = "(" + " ~ ".join(["a"] * 15) + ")"
    groups = "(" + " ~ ".join([group] * 15) + ")"
    assert_quickly_refused(run_command("{{ " + " ~ ".join([groups] * 12) + " }}", LONG), "", "size", "long", "joined")


def test_a_long_param_a_hundred_thousand_times_is_refused() -> None:
    assert_quickly_refused(run_command("{{a}}" * 100_000, LONG), "longer than", "more than")


def test_many_templates_of_long_results_are_refused() -> None:
    steps = "build:\n  build_steps:\n" + ("  - 'a" + "{{a}}" * 16 + "'\n") * 4_900
    assert_quickly_refused(EXPERIMENT + LONG + steps, "templates", "long", "more than")


def test_many_templates_are_refused_once() -> None:
    steps = "build:\n  build_steps:\n" + "  - 'a{{ n }}'\n" * 20_000
    assert messages_of(EXPERIMENT + "params: {n: 1}\n" + steps) == [
        "the templates of this file are too many or too slow"
    ]


def test_a_template_of_a_mebibyte_is_refused_quickly() -> None:
    assert_quickly_refused(run_command("{{ n + 1 }}" * 90_000, "params: {n: 1}\n"), "a template of more than")


@pytest.mark.parametrize(
    "template",
    [
        "{% for x in p %}{% if x in p %}{% endif %}{% endfor %}",
        "{% for x in p %}{{ p | sum }}{% endfor %}",
        "{% for x in p %}{% if p | sort | length > x %}{% endif %}{% endfor %}",
        "{% for x in p %}{% if p | string | length > x %}{% endif %}{% endfor %}",
    ],
    ids=["in", "sum", "sort", "string"],
)
@pytest.mark.slow
def test_a_loop_over_a_long_list_that_looks_at_all_of_it_each_time_is_refused(template: str) -> None:
    assert_quickly_refused(run_command(template, MANY), "")


LISTS = "".join(
    f"  {name}: [{', '.join(map(str, range(start, start + 6_000)))}]\n" for name, start in (("p", 0), ("q", 9_000))
)
SLOW = {
    "a sum of lists": "{{ [" + ", ".join(["p"] * 4_000) + "] | sum(start=[]) | length }}",
    "what is in another list": "{{ " + " + ".join(["(p | select('in', q) | list | length)"] * 60) + " }}",
    "many loops": "{% for i in range(200) %}{{ p | sort | length }}{% endfor %}" * 200,
    "many loops that search": "{% for i in range(200) %}{{ -1 in p }}{% endfor %}" * 250,
}


@pytest.mark.parametrize("template", SLOW.values(), ids=SLOW)
@pytest.mark.slow
def test_a_template_of_many_slow_steps_is_quick_or_refused(template: str) -> None:
    result = load_limited(run_command(template, f"params:\n{LISTS}"), cpu_s=8)
    assert result.ended in ("spec", "errors"), result
    assert result.cpu_s < 6.0, result
    assert result.peak_mib < PEAK_MIB, result


@pytest.mark.slow
def test_a_param_of_many_values_shown_many_times_in_one_list_is_refused() -> None:
    assert_quickly_refused(run_command("{{ [" + ", ".join(["p"] * 4_000) + "] }}", MANY), "")


@pytest.mark.parametrize(
    ("operator", "left", "right", "refused"),
    [
        ("+", "a", "b", False), ("+", "a" * 60_000, "a" * 60_000, True), ("*", "ab", 3, False), ("*", 3, "ab", False),
        ("*", "ab", 100_000, True), ("*", 100_000, [1], True), ("*", 2**4_000, 2**4_000, True), ("*", 5, 5, False),
        ("**", 2, 10, False), ("**", 2, 10_000, True), ("**", 2, -10_000, False), ("**", 2.0, 10_000, False),
        ("%", 7, 3, False), ("%", "%s", 3, True), ("+", 1, 2, False), ("*", "ab", -5, False),
    ],
)  # fmt: skip
def test_an_operation_is_refused_before_it_is_too_large(operator: str, left: Any, right: Any, refused: bool) -> None:
    assert (oversize(operator, left, right) is not None) is refused


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'ab' * 3 }}", "{{ range(1000) | list | length }}", "{% for i in range(100) %}{{ i }} {% endfor %}",
        "{{ name | replace('a', 'b') | upper | lower | trim }}", "{{ 10 ** 100 }}", "{{ [n, n] | join('-') }}",
        "{{ 'a' ~ n ~ 'b' ~ name }}", "{{ (lr * 1000) | round(2) }}", "{{ {'a': [1, {'b': n}]} | tojson }}",
        "{{ sizes[0] if sizes else 0 }}", "{{ (n // 2) + (n % 2) }}",
    ],
)  # fmt: skip
def test_what_people_really_write_is_not_refused(template: str) -> None:
    params = "params: {n: 3, name: abc, lr: 0.1234, sizes: [1, 2]}\n"
    assert errors_of(run_command(template, params)) == ()


@pytest.mark.parametrize("image", ["{{ x", "{{ missing }}"])
def test_a_broken_template_of_an_image_is_reported_once(image: str) -> None:
    assert error_of(f"{EXPERIMENT}build: {{image: '{image}'}}\n").path == "build.image"


@pytest.mark.parametrize(
    "text", ["loss.__class__ == 1", "().__class__", "'x' * 10**9 == ''", "nothing > 1", "loss + 1"]
)
def test_a_condition_that_is_not_safe_or_has_no_truth_is_refused(text: str) -> None:
    with pytest.raises(TemplateError):
        is_true(text, {"loss": 0.5})


def test_a_condition_is_true_or_false_also_as_a_text() -> None:
    assert is_true("loss > 0.1 and name == 'a'", {"loss": 0.5, "name": "a"})
    assert not is_true("loss > 0.1 and name == 'a'", {"loss": 0.05, "name": "a"})
    assert [is_true("given", {"given": text}) for text in ("True", "false", True)] == [True, False, True]
