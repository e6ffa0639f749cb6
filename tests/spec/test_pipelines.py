"""Pipelines: ops that run templates, in an order without circles."""

from __future__ import annotations

import pytest

from phalanx.spec import Kind
from phalanx.spec.model import Operation, OutputReference, Pipeline
from phalanx.spec.pipelines.fields import TRIGGERS
from phalanx.spec.pipelines.ops import op_spec
from tests.spec.helpers import (
    CPU_S,
    assert_converts,
    assert_quickly_refused,
    error_of,
    errors_of,
    load_limited,
    load_text,
    messages_of,
    notes_of,
    where,
)

HEAD = "version: 1\nkind: pipeline\n"
TEMPLATES = (
    "templates:\n- {kind: job, name: prepare, run: {cmd: prepare}}\n"
    "- {kind: experiment, name: train, inputs: [{name: lr, type: float}], run: {cmd: 'train {{ lr }}'}}\n"
)


def _pipeline(text: str) -> Pipeline:
    pipeline = load_text(text).pipeline
    assert pipeline is not None
    return pipeline


def _ops(*ops: str) -> str:
    return HEAD + "ops:\n" + "".join(f"- {{{op}}}\n" for op in ops) + TEMPLATES


def _op(pipeline: Pipeline, name: str) -> Operation:
    return next(op for op in pipeline.ops if op.name == name)


def test_every_op_comes_with_the_spec_that_would_run() -> None:
    pipeline = _pipeline(
        _ops(
            "name: a, template: {name: prepare}",
            "name: b, template: {name: train}, params: {lr: 0.1}, dependencies: [a], trigger: ALL_DONE, max_retries: 2",
            "name: c, template: {name: train}, params: {lr: 0.2}, dependencies: [a]",
        )
    )
    assert [op.name for op in pipeline.ops] == ["a", "b", "c"]
    first, second, third = (op.spec for op in pipeline.ops)
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.kind, first.command) == (Kind.JOB, "prepare")
    assert (second.kind, second.command, third.command) == (Kind.EXPERIMENT, "train 0.1", "train 0.2")
    op = _op(pipeline, "b")
    assert (op.dependencies, op.trigger, op.settings["max_retries"]) == (("a",), "all_done", 2)


def test_sections_of_an_op_are_laid_over_its_template() -> None:
    pipeline = _pipeline(
        HEAD
        + "ops:\n- name: a\n  template: {name: t}\n  environment: {max_restarts: 3}\n  build: {image: other}\n"
        + "  logging: {level: DEBUG}\n"
        + "templates:\n- {kind: job, name: t, environment: {resources: {cpu: {requests: 1}}}, build: {image: own}}\n"
    )
    spec = pipeline.ops[0].spec
    assert spec is not None
    assert spec.build is not None
    assert spec.environment.settings.max_restarts == 3
    assert spec.environment.settings.resources is not None
    assert (spec.build.image, spec.logging.level) == ("other", "DEBUG")


def test_a_template_has_the_version_of_its_pipeline_and_its_own_dialect() -> None:
    text = (
        HEAD
        + "ops: [{name: a, template: {name: t}}]\n"
        + "templates: [{name: t, declarations: {x: 1}, run: {image: i, cmd: 'x {{ x }}'}}]\n"
    )
    spec = _pipeline(text).ops[0].spec
    assert spec is not None
    assert (spec.kind, spec.command) == (Kind.EXPERIMENT, "x 1")
    assert sorted(notes_of(text)) == [
        "`declarations` read as `params`",
        "`templates[0].run.image` read as `build.image`",
        "no `kind`: read as `kind: experiment`",
    ]


def test_a_template_that_lives_elsewhere_is_noted() -> None:
    text = HEAD + "ops: [{name: a, template: {path: other.yml}}, {name: b, template: {url: 'http://x'}}]\n"
    assert [op.spec for op in _pipeline(text).ops] == [None, None]
    assert notes_of(text) == [
        "op `a` cannot run: a template by `path` (`other.yml`) cannot be read here: only this file was sent; "
        "write it into `templates`",
        "op `b` cannot run: a template by `url` (`http://x`) is looked up by Polyaxon's server; "
        "write it into `templates`",
    ]


def test_the_settings_of_a_pipeline_come_through() -> None:
    pipeline = _pipeline(
        HEAD + "concurrency: 2\ntimeout: 60\nexecute_at: '2020-01-01'\nschedule: {kind: cron, cron: '0 0 * * *'}\n"
        "ops: [{name: a, template: {path: x}}]\n"
    )
    assert (pipeline.concurrency, pipeline.timeout_s, pipeline.execute_at) == (2, 60, "2020-01-01")
    assert pipeline.schedule == {"kind": "cron", "cron": "0 0 * * *"}


def test_numbers_that_are_written_as_text_come_through_as_numbers() -> None:
    pipeline = _pipeline(HEAD + "concurrency: '2'\ntimeout: '60'\nops: [{name: a, template: {path: x}}]\n")
    assert (pipeline.concurrency, pipeline.timeout_s) == (2, 60)


READS = (
    "ops:\n- {name: a, template: {name: p}}\n- {name: b, template: {name: t}, params: {lr: '{{ ops.a.outputs.lr }}'}}\n"
)


def _typed(outputs: str, wanted: str) -> str:
    template = f"inputs: [{{name: lr, type: {wanted}}}], run: {{cmd: 'train {{{{ lr }}}}'}}"
    return (
        f"{HEAD}{READS}templates:\n- {{kind: job, name: p, outputs: [{outputs}], run: {{cmd: 'true'}}}}\n"
        f"- {{kind: job, name: t, {template}}}\n"
    )


def test_a_param_that_is_an_output_of_another_op_is_a_dependency() -> None:
    op = _op(_pipeline(_typed("{name: lr, type: float}", "float")), "b")
    assert (op.params["lr"], op.upstream) == ("{{ ops.a.outputs.lr }}", ("a",))
    assert op.references == (OutputReference("lr", "a", "lr"),)
    assert op.spec is not None
    assert op.spec.command == "train {{ ops.a.outputs.lr }}"
    assert op_spec(op, {"lr": 0.5}).command == "train 0.5"


def test_templates_may_compute_with_an_output() -> None:
    text = _typed("{name: lr, type: int}", "int").replace("{{ lr }}", "{{ lr + 1 }}")
    op = _op(_pipeline(text), "b")
    assert op_spec(op, {"lr": 5}).command == "train 6"


@pytest.mark.parametrize(
    ("outputs", "wanted", "message"),
    [
        ("", "float", "op `a` has no output `lr`"),
        ("{name: lr, type: str}", "int", "`lr` is int, but the output is str"),
        ("{name: lr, type: path}", "float", "`lr` is float, but the output is path"),
    ],
)
def test_outputs_that_do_not_suit_are_found_before_anything_runs(outputs: str, wanted: str, message: str) -> None:
    assert message in messages_of(_typed(outputs, wanted))


@pytest.mark.parametrize(
    ("output", "wanted"), [("int", "float"), ("metric", "float"), ("path", "str"), ("str", "path")]
)
def test_outputs_of_related_types_suit(output: str, wanted: str) -> None:
    assert _pipeline(_typed(f"{{name: lr, type: {output}}}", wanted)).ops


def test_a_circle_through_outputs_and_conditions_is_found() -> None:
    text = _typed("{name: lr, type: int}", "int").replace(
        "name: a, template", "name: a, conditions: [{kind: status, op: b}], template"
    )
    assert "circular dependency between ops: a, b" in messages_of(text)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("kind: status, op: x", "op `a` has a condition on the unknown op `x`"),
        ("kind: status, op: b, exp: eq", "a condition of kind `status` has no `exp`"),
        (
            "kind: outputs, op: b",
            "a condition of kind `outputs` requires `params`: the outputs to compare, with values",
        ),
        ("kind: outputs, op: b, params: {n: 1}", "op `b` has no output `n`"),
        ("kind: outputs, op: b, exp: gt, params: {n: 1}", "expected one of eq, ne, found the text `gt`"),
    ],
)
def test_faults_of_conditions(condition: str, message: str) -> None:
    found = messages_of(
        _ops(
            f"name: a, template: {{name: prepare}}, conditions: [{{{condition}}}]", "name: b, template: {name: prepare}"
        )
    )
    assert message in found


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("lr > 1 and nothing", "op `a` has no param `nothing`"),
        ("{{ lr > 1 }}", "not an expression"),
        ("lr >", "not a valid expression: "),
        ("open('x')", "op `a` has no param `open`"),
    ],
)
def test_faults_of_expressions(when: str, message: str) -> None:
    found = messages_of(_ops(f'name: a, template: {{name: prepare}}, params: {{lr: 1}}, when: "{when}"'))
    assert any(one.startswith(message) for one in found)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("kind: cron", "a schedule of kind `cron` requires `cron`"),
        ("kind: interval", "a schedule of kind `interval` requires `frequency`"),
        ("kind: cron, cron: '61 * * * *'", "`cron` cannot be read: `61` is no minute: write 0 to 59"),
        ("kind: cron, cron: 'x'",
         "`cron` cannot be read: a cron expression has 5 fields: minute, hour, day, month, weekday"),
        ("kind: cron, cron: '0 0 31 2 *'", "`cron` cannot be read: no day fits this cron expression"),
        ("kind: interval, frequency: 60, start_at: soon",
         "`start_at` cannot be read: write a time such as `2026-01-31T08:00:00+00:00`"),
    ],
)  # fmt: skip
def test_faults_of_schedules(schedule: str, message: str) -> None:
    assert messages_of(_ops("name: a, template: {name: prepare}") + f"schedule: {{{schedule}}}\n") == [message]


# faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ops", "message", "suggestion"),
    [
        (["name: a, template: {name: prepar}"], "op `a` uses the unknown template `prepar`",
         "did you mean `prepare`?"),
        (["name: a, template: {name: prepare}, dependencies: [b]"], "op `a` depends on the unknown op `b`", None),
        (["name: first, template: {name: prepare}", "name: b, template: {name: prepare}, dependencies: [frist]"],
         "op `b` depends on the unknown op `frist`", "did you mean `first`?"),
        (["name: a, template: {name: prepare}", "name: a, template: {name: prepare}"], "duplicate op name `a`", None),
        (["name: a, template: {name: prepare}, dependencies: [a]"], "circular dependency between ops: a", None),
        (["name: a, template: {name: prepare, path: x}"],
         "a template requires exactly one of name, url, path, action, event", None),
        (["name: a, template: {}"], "a template requires exactly one of name, url, path, action, event", None),
        (["name: a"], "an op needs `template`: what the op runs", None),
        (["template: {name: prepare}"], "an op needs `name`: the op's name", None),
        (["name: a, template: {name: prepare}, trigger: never"],
         f"expected one of {', '.join(TRIGGERS)}, found the text `never`",
         None),
        (["name: a, template: {name: train}"], "input `lr` has no value", "set it in `params` or with -P lr=..."),
        (["name: a, template: {name: train}, params: {lr: fast}"], "`lr` must be a number, found the text `fast`",
         None),
        (["name: a, template: {name: train}, params: {lr: 1, x: 1}"], "unknown input `x`", "declare it in `inputs`"),
    ],
)  # fmt: skip
def test_an_op_that_is_wrong_is_one_fault(ops: list[str], message: str, suggestion: str | None) -> None:
    error = error_of(_ops(*ops))
    assert (error.message, error.suggestion) == (message, suggestion)
    assert error.place.line > 2


def test_ops_that_wait_for_each_other_are_a_fault_that_names_them() -> None:
    op = "name: {}, template: {{name: prepare}}, dependencies: [{}]"
    assert messages_of(_ops(op.format("a", "b"), op.format("b", "c"), op.format("c", "a"))) == [
        "circular dependency between ops: a, b, c"
    ]


def test_a_pipeline_needs_ops() -> None:
    error = error_of(HEAD)
    assert (error.path, error.message) == ("ops", "a file of kind pipeline needs `ops`: the steps")


@pytest.mark.parametrize("value", ["5", "{a: 1}", "[5]", "[[1]]"])
def test_ops_that_are_no_list_of_maps_are_a_fault(value: str) -> None:
    assert errors_of(f"{HEAD}ops: {value}\n")


@pytest.mark.parametrize("value", ["5", "{a: 1}", "[5]", "[[1]]"])
def test_templates_that_are_no_list_of_maps_are_a_fault(value: str) -> None:
    assert errors_of(f"{HEAD}ops: [{{name: a, template: {{path: x}}}}]\ntemplates: {value}\n")


def test_a_template_without_a_name_is_a_fault() -> None:
    error = error_of(HEAD + "ops: [{name: a, template: {path: x}}]\ntemplates: [{kind: job}]\n")
    assert error.path == "templates[0].name"


def test_two_templates_of_one_name_are_a_fault() -> None:
    text = HEAD + "ops: [{name: a, template: {name: t}}]\ntemplates: [{kind: job, name: t}, {kind: job, name: t}]\n"
    error = error_of(text)
    assert error.message == "duplicate template name `t`"
    assert where(error) == (4, 53)


def test_a_fault_of_a_template_is_reported_with_its_place_in_the_pipeline() -> None:
    error = error_of(
        HEAD + "ops: [{name: a, template: {name: t}}]\ntemplates:\n- kind: job\n  name: t\n  rn: {cmd: x}\n"
    )
    assert (error.path, where(error), error.suggestion) == ("templates[0].rn", (7, 3), "did you mean `run`?")


def test_a_fault_of_a_template_is_reported_once_however_many_ops_use_it() -> None:
    ops = ", ".join(f"{{name: op{n}, template: {{name: t}}}}" for n in range(5))
    text = f"{HEAD}ops: [{ops}]\ntemplates: [{{kind: job, name: t, foo: 1, exec: {{cmd: x}}}}]\n"
    assert messages_of(text) == ["unknown key `foo` in a file of kind job"]
    assert notes_of(text.replace("foo: 1, ", "")) == ["`exec` read as `run`"]


def test_a_note_of_a_template_is_reported_once_however_many_ops_use_it() -> None:
    ops = ", ".join(f"{{name: op{n}, template: {{name: t}}}}" for n in range(5))
    text = f"{HEAD}ops: [{ops}]\ntemplates: [{{name: t, run: {{cmd: x}}}}]\n"
    assert notes_of(text) == ["no `kind`: read as `kind: experiment`"]


def test_a_template_that_no_op_uses_is_checked_but_for_what_an_op_would_give() -> None:
    text = HEAD + "ops: [{name: a, template: {path: x}}]\ntemplates: [{kind: job, name: t, %s}]\n"
    assert messages_of(text % "inputs: [{name: x}], run: {cmd: '{{ x }} {{ y }}'}") == []
    assert messages_of(text % "foo: 1") == ["unknown key `foo` in a file of kind job"]


def test_faults_of_all_ops_and_templates_are_reported_at_once() -> None:
    text = HEAD + (
        "ops:\n- {name: a, template: {name: nowhere}}\n- {name: b, template: {name: t}, foo: 1}\n"
        "- {name: c, template: {name: t}, dependencies: [z]}\ntemplates:\n- {kind: job, name: t, bar: 1}\n"
    )
    assert {error.place.line for error in errors_of(text)} == {4, 5, 6, 8}


def test_a_circle_of_many_ops_is_reported_with_a_few_of_them() -> None:
    ops = [f"name: op{n}, template: {{path: x}}, dependencies: [op{(n + 1) % 500}]" for n in range(500)]
    error = error_of(_ops(*ops))
    assert error.message.startswith("circular dependency between ops: op")
    assert len(error.message) < 400


# pipelines that mean harm ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_long_row_of_ops_that_are_listed_last_to_first_is_read() -> None:
    ops = "".join(f"- {{name: a{n}, template: {{path: x}}, dependencies: [a{n + 1}]}}\n" for n in range(10_000))
    result = load_limited(f"{HEAD}ops:\n{ops}- {{name: a10000, template: {{path: x}}}}\n", cpu_s=8)
    assert result.ended == "spec", result
    assert result.cpu_s < 6.0, result


def _nested(depth: int) -> str:
    """Pipelines inside pipelines, each running the one below it twice."""
    if depth == 0:
        return "{kind: job, name: t0, run: {cmd: x}}"
    ops = ", ".join(f"{{name: {name}, template: {{name: t{depth - 1}}}}}" for name in "ab")
    return f"{{kind: pipeline, name: t{depth}, ops: [{ops}], templates: [{_nested(depth - 1)}]}}"


def test_pipelines_inside_pipelines_that_double_are_refused_quickly() -> None:
    text = f"{HEAD}ops: [{{name: a, template: {{name: t25}}}}]\ntemplates: [{_nested(25)}]\n"
    assert_quickly_refused(text, "pipeline", "ops", "nested", "values")


@pytest.mark.slow
def test_many_ops_of_a_large_template_are_quick_or_refused() -> None:
    ops = "".join(f"- {{name: a{n}, template: {{name: t}}}}\n" for n in range(2_000))
    params = "".join(f"    k{n}: 1\n" for n in range(5_000))
    result = load_limited(
        f"{HEAD}ops:\n{ops}templates:\n- kind: job\n  name: t\n  params:\n{params}  run: {{cmd: x}}\n"
    )
    assert result.ended in ("spec", "errors"), result
    assert result.cpu_s < CPU_S, result


def test_an_op_may_write_its_environment_in_an_old_form() -> None:
    text = """version: 1
kind: pipeline
ops: [{name: a, template: {name: t}, environment: {resources: {gpu: 2}}}]
templates: [{name: t, kind: job, run: {cmd: x}}]
"""
    spec = load_text(text)
    assert spec.pipeline is not None
    made = spec.pipeline.ops[0].spec
    assert made is not None
    resources = made.environment.settings.resources
    assert resources is not None
    assert resources.gpu is not None
    assert resources.gpu.limits == 2
    assert_converts(spec)


def test_an_op_cannot_set_the_framework_of_its_template() -> None:
    text = """version: 1
kind: pipeline
ops: [{name: a, template: {name: t}, environment: {pytorch: {n_workers: 2}}}]
templates: [{name: t, kind: experiment, run: {cmd: x}}]
"""
    fault = error_of(text)
    assert fault.message == "an op cannot set the framework"
    assert fault.suggestion == "write `framework` in the template"
