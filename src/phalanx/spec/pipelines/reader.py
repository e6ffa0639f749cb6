"""Pipelines: ops that run templates, in an acyclic order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from phalanx.spec.dialects import modernise
from phalanx.spec.model import Operation, OutputReference, Pipeline, Spec, Variable, freeze
from phalanx.spec.pipelines.fields import OP, check_texts
from phalanx.spec.pipelines.schedules import read_time
from phalanx.spec.shapes import INVALID
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.templates import REFERENCE, TemplateError, expression_names
from phalanx.spec.tree import Diagnostics, Node

MAX_NODES = 50_000  # values in all templates of a pipeline, rendered for every op
SHOWN = 8
ReadSpec = Callable[[Node, Diagnostics], Spec | None]
_LAID_OVER = ("environment", "build", "logging")
_PATHS = ("path", "gcs_path", "s3_path", "azure_path", "uri")
_FITTING = {  # types of outputs that an input of another type accepts
    "float": ("int", "metric"),
    "metric": ("int", "float"),
    "str": _PATHS,
    **dict.fromkeys(_PATHS, (*_PATHS, "str")),
    "metadata": ("dict", "dict_of_dicts"),
    "dict": ("metadata", "dict_of_dicts"),
}
WITHOUT_HUB = ("url", "action", "event")  # templates that only Polyaxon's hub or server has


def read_pipeline(root: Node, settings: Any, findings: Diagnostics, read_spec: ReadSpec) -> Pipeline | None:
    """The pipeline of a file; None after adding the reason to the findings. Ops were validated against their record."""
    templates = _templates(root, findings)
    ops: dict[str, tuple[Operation, Node]] = {}
    for node in root.items("ops"):
        values = OP.read(node, Diagnostics())
        if values is INVALID:
            continue  # reported by the record of the whole file
        if values["name"] in ops:
            findings.error(node, f"duplicate op name `{values['name']}`")
        ops[values["name"]] = (_operation(values), node)
    specs = _fill_in(ops, templates, findings, read_spec)
    ops = {name: (_with_references(op, specs.get(name)), node) for name, (op, node) in ops.items()}
    _check_dependencies(ops, findings)
    _check_outputs(ops, specs, findings)
    _check_expressions(ops, specs, findings)
    if settings is not INVALID:
        check_texts(settings, root, findings, {"execute_at": read_time})
    _check_unused({name: node for name, node in templates.items() if name not in _used(ops)}, findings, read_spec)
    if findings.errors or settings is INVALID:
        return None
    return Pipeline(
        # read again: old forms in the sections of the ops were rewritten since
        ops=tuple(
            _operation(OP.read(node, findings))._replace(spec=specs.get(name), references=op.references)
            for name, (op, node) in ops.items()
        ),
        schedule=settings.get("schedule"),
        concurrency=settings.get("concurrency"),
        execute_at=settings.get("execute_at"),
        timeout_s=settings.get("timeout"),
        reuse=settings.get("reuse", False),
    )


def elsewhere(op: Operation) -> str:
    """Why an op whose template is not in the file cannot run."""
    key, wanted = next(iter(op.template.items()))
    if key in WITHOUT_HUB:
        return f"a template by `{key}` (`{wanted}`) is looked up by Polyaxon's server; write it into `templates`"
    return f"a template by `path` (`{wanted}`) cannot be read here: only this file was sent; write it into `templates`"


def _used(ops: Mapping[str, tuple[Operation, Node]]) -> set[str | None]:
    return {op.template.get("name") for op, _ in ops.values()}


def _operation(values: Mapping[str, Any]) -> Operation:
    named = ("name", "template", "params", "dependencies", "trigger")
    return Operation(
        **{key: values[key] for key in named if key in values},
        settings=freeze({key: value for key, value in values.items() if key not in named}),
    )


def _templates(root: Node, findings: Diagnostics) -> dict[str, Node]:
    """Templates by name. Each is a file with its own dialect, which is rewritten here."""
    found: dict[str, Node] = {}
    for node in root.items("templates"):
        if node.entries is None:
            continue  # reported by the record of the whole file
        kind = node.get("kind")
        if kind is not None and kind.value == "pipeline":
            findings.error(kind, "a pipeline cannot be used as a template")
            continue
        if kind is None:
            findings.note(node, "no `kind`: read as `kind: experiment`")
            node.entries["kind"] = node.like("experiment")
        if node.get("version") is None:
            node.entries["version"] = node.like(1)  # a template has the version of its pipeline
        modernise([node], findings)
        name = node.get("name")
        if name is None:
            findings.missing(node, "name", "a template requires a `name` that ops refer to")
        elif str(name.value) in found:
            findings.error(name, f"duplicate template name `{name.value}`")
        else:
            found[str(name.value)] = node
    return found


def _with_references(op: Operation, spec: Spec | None) -> Operation:
    """The op with those of its params, or of its template's, that are outputs of other ops."""
    found = []
    for name, value in (op.params if spec is None else spec.params).items():
        match = REFERENCE.match(value) if isinstance(value, str) else None
        if match is not None and match[1] == "ops":
            found.append(OutputReference(name, match[2], match[3]))
    return op._replace(references=tuple(found))


def _check_dependencies(ops: Mapping[str, tuple[Operation, Node]], findings: Diagnostics) -> None:
    for op, node in ops.values():
        about = {"dependencies": op.dependencies, "conditions": [condition["op"] for condition in op.conditions]}
        for key, names in about.items():
            verb = "depends on" if key == "dependencies" else "has a condition on"
            for name in names:
                if name not in ops:
                    message = f"op `{op.name}` {verb} the unknown op `{name}`"
                    findings.error(node.get(key) or node, message, did_you_mean(name, ops))
    circle = _circle({name: [step for step in op.awaited if step in ops] for name, (op, _) in ops.items()})
    if circle:
        more = " …" if len(circle) > SHOWN else ""
        findings.error(ops[circle[0]][1], f"circular dependency between ops: {', '.join(circle[:SHOWN])}{more}")


def _check_outputs(ops: Mapping[str, tuple[Operation, Node]], specs: Mapping[str, Spec], findings: Diagnostics) -> None:
    """Check that the outputs which ops read are declared, and have the types of the params that they become."""
    for op, node in ops.values():
        params, inputs = node.get("params"), _declared(specs.get(op.name), "inputs")
        for reference in op.references:
            where = (params.get(reference.param) if params is not None else None) or params or node
            if reference.op not in ops:
                message = f"op `{op.name}` reads an output of the unknown op `{reference.op}`"
                findings.error(where, message, did_you_mean(reference.op, ops))
                continue
            output = _output(specs.get(reference.op), reference.op, reference.output, where, findings)
            wanted = inputs.get(reference.param)
            if output is not None and wanted is not None and not _fits(output, wanted):
                findings.error(where, f"`{reference.param}` is {wanted.type}, but the output is {output.type}")
        for condition in op.conditions if node.get("conditions") is not None else ():
            for name in condition.get("params", ()) if condition["op"] in ops else ():
                _output(specs.get(condition["op"]), condition["op"], name, node.get("conditions") or node, findings)


def _check_expressions(
    ops: Mapping[str, tuple[Operation, Node]], specs: Mapping[str, Spec], findings: Diagnostics
) -> None:
    """Check that `when` of each op is an expression of params that the op has."""
    for op, node in ops.values():
        where = node.get("when")
        if op.when is None or where is None or op.name not in specs:
            continue
        try:
            unknown = expression_names(op.when) - set(specs[op.name].params) - {"range"}
        except TemplateError as fault:
            findings.error(where, str(fault), fault.suggestion)
            continue
        for name in sorted(unknown):
            hint = did_you_mean(name, specs[op.name].params) or f"add it to the `params` of the op: `{name}: ...`"
            findings.error(where, f"op `{op.name}` has no param `{name}`", hint)


def _declared(spec: Spec | None, what: str) -> dict[str, Variable]:
    return {variable.name: variable for variable in getattr(spec, what)} if spec is not None else {}


def _output(spec: Spec | None, op: str, name: str, where: Node, findings: Diagnostics) -> Variable | None:
    """A declared output. Reports one that is not declared."""
    outputs = _declared(spec, "outputs")
    if spec is not None and name not in outputs:
        hint = did_you_mean(name, outputs) or f"declare it in the template: `outputs: [{{name: {name}}}]`"
        findings.error(where, f"op `{op}` has no output `{name}`", hint)
    return outputs.get(name)


def _fits(output: Variable, wanted: Variable) -> bool:
    if output.type is None or wanted.type is None or (wanted.is_list and not output.is_list):
        return True
    return output.type == wanted.type or output.type in _FITTING.get(wanted.type, ())


def _circle(needs: Mapping[str, list[str]]) -> list[str]:
    """The ops that can never start because they wait for each other."""
    followers: dict[str, list[str]] = {}
    for name, before in needs.items():
        for step in before:
            followers.setdefault(step, []).append(name)
    open_needs = {name: len(before) for name, before in needs.items()}
    ready = [name for name, count in open_needs.items() if not count]
    while ready:
        for follower in followers.get(ready.pop(), ()):
            open_needs[follower] -= 1
            if not open_needs[follower]:
                ready.append(follower)
    return sorted(name for name, count in open_needs.items() if count)


def _fill_in(
    ops: Mapping[str, tuple[Operation, Node]],
    templates: Mapping[str, Node],
    findings: Diagnostics,
    read_spec: ReadSpec,
) -> dict[str, Spec]:
    """The spec of every op: its template rendered with its params."""
    specs: dict[str, Spec] = {}
    sizes = {name: sum(1 for _ in node.scalars()) for name, node in templates.items()}
    left = MAX_NODES
    for op, node in ops.values():
        name = op.template.get("name")
        left -= sizes.get(name or "", 0)
        if left < 0:
            findings.error(node, f"the ops of this pipeline expand to more than {MAX_NODES} values")
            break
        if name is None:
            findings.note(node, f"op `{op.name}` cannot run: {elsewhere(op)}")
        elif name not in templates:
            where, hint = node.get("template") or node, did_you_mean(name, templates)
            findings.error(where, f"op `{op.name}` uses the unknown template `{name}`", hint)
        else:
            spec = read_spec(_laid_over(templates[name], node, findings), findings)
            if spec is not None:
                specs[op.name] = spec
    return specs


def _check_unused(templates: Mapping[str, Node], findings: Diagnostics, read_spec: ReadSpec) -> None:
    """Report the errors of templates that no op uses, except for missing values that an op would provide."""
    for template in templates.values():
        quiet = Diagnostics()
        read_spec(template.copy(template.parent, template.key, template.key_mark), quiet)
        wanting = ("has no value", "unknown param")
        findings.errors += [error for error in quiet.errors if not any(word in error.message for word in wanting)]


def _laid_over(template: Node, op: Node, findings: Diagnostics) -> Node:
    """The template with the op's params, and the op's sections merged over those of the template."""
    own = template.copy(template.parent, template.key, template.key_mark)
    layer = Node({}, op.mark, op.parent, op.key, op.key_mark)
    layer.value = {key: op.entries[key] for key in ("params", *_LAID_OVER) if op.entries and op.get(key)}
    result = modernise([own, layer], findings)
    named = layer.get("framework")
    if named is not None:
        findings.error(named, "an op cannot set the framework", "write `framework` in the template", at_key=True)
    result.mark, result.parent, result.key, result.key_mark = own.mark, own.parent, own.key, own.key_mark
    return result
