"""Pipelines: ops that run templates, in an acyclic order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from phalanx.spec.dialects import modernise
from phalanx.spec.model import Operation, Pipeline, Spec, freeze
from phalanx.spec.schema import OP
from phalanx.spec.shapes import INVALID
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node

MAX_NODES = 50_000  # values in all templates of a pipeline, rendered for every op
SHOWN = 8
ReadSpec = Callable[[Node, Diagnostics], Spec | None]
_LAID_OVER = ("environment", "build", "logging")


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
    _check_dependencies(ops, findings)
    specs = _fill_in(ops, templates, findings, read_spec)
    _check_unused({name: node for name, node in templates.items() if name not in _used(ops)}, findings, read_spec)
    if findings.errors or settings is INVALID:
        return None
    return Pipeline(
        # read again: old forms in the sections of the ops were rewritten since
        ops=tuple(
            _operation(OP.read(node, findings))._replace(spec=specs.get(name)) for name, (_, node) in ops.items()
        ),
        schedule=settings.get("schedule"),
        concurrency=settings.get("concurrency"),
        execute_at=settings.get("execute_at"),
        timeout_s=settings.get("timeout"),
    )


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


def _check_dependencies(ops: Mapping[str, tuple[Operation, Node]], findings: Diagnostics) -> None:
    for op, node in ops.values():
        for name in op.dependencies:
            if name not in ops:
                where = node.get("dependencies") or node
                findings.error(where, f"op `{op.name}` depends on the unknown op `{name}`", did_you_mean(name, ops))
    circle = _circle({name: [step for step in op.dependencies if step in ops] for name, (op, _) in ops.items()})
    if circle:
        more = " …" if len(circle) > SHOWN else ""
        findings.error(ops[circle[0]][1], f"circular dependency between ops: {', '.join(circle[:SHOWN])}{more}")


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
            wanted = next(iter(op.template.values()))
            findings.note(node, f"the template `{wanted}` is looked up when the pipeline runs")
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
