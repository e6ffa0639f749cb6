"""A dag as a pipeline: its components become templates, its operations become ops."""

from __future__ import annotations

import re
from collections.abc import Mapping

from phalanx.spec.polyaxon_v1.contexts import OF_RUN, TemplateContext
from phalanx.spec.polyaxon_v1.conversion import OperationConverter
from phalanx.spec.polyaxon_v1.variables import GivenParams, declared, given_inputs, params
from phalanx.spec.rewrites import Map
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Node

_EXPRESSION = re.compile(r"\s*\{\{((?:(?!\{\{|\}\}).)+)\}\}\s*", re.DOTALL)
_OF_OP = {"trigger": "trigger", "skipOnUpstreamSkip": "skip_on_upstream_skip"}
_PLAIN = frozenset(("name", "dagRef", "params", "dependencies", "description", "tags", "events", "conditions", *_OF_OP))


def pipeline(converter: OperationConverter, given: Mapping[str, object]) -> Node:
    findings, sections, run = converter.findings, converter.sections, converter.run
    inputs = declared(sections.get("inputs"), findings)
    values = params(sections.get("params"), TemplateContext(), findings)
    dag = given_inputs(inputs, values, given, converter.root)
    reader = _DagReader(converter, dag)
    body: Map = {"version": converter.root.like(1), "kind": converter.root.like("pipeline")}
    body |= {key: sections[key] for key in ("name", "description", "tags") if key in sections}
    if "concurrency" in run:
        body["concurrency"] = run["concurrency"]
    body |= _schedule(converter)
    timeout = sections["termination"].get("timeout") if "termination" in sections else None
    if timeout is not None:
        body["timeout"] = timeout
    origin = run.get("operations") or converter.root
    ops = [reader.op(node) for node in origin.elements or ()]
    if not ops:
        findings.error(origin, "a dag needs `operations`", "write `operations: [{name: train, dagRef: trainer}]`")
    body["ops"] = origin.like([op for op in ops if op is not None])
    body["templates"] = (run.get("components") or origin).like(list(reader.templates.values()))
    for key in ("earlyStopping", "environment", "connections", "volumes"):
        if key in run:
            findings.note(run[key], f"`{key}` of a dag is not used: write it in the components")
    return converter.root.like(body)


def _schedule(converter: OperationConverter) -> Map:
    node = converter.sections.get("schedule")
    kind = node.get("kind") if node is not None else None
    if node is None or node.entries is None:
        return {}
    start = node.get("startAt")
    if kind is not None and kind.value in ("datetime", "exact_time"):
        return {"execute_at": start.like(str(start.value))} if start is not None else {}
    names = {"kind": "kind", "cron": "cron", "frequency": "frequency", "startAt": "start_at", "endAt": "end_at"}
    found: Map = {ours: node.entries[key] for key, ours in names.items() if key in node.entries}
    for key in ("start_at", "end_at"):
        if key in found:
            found[key] = found[key].like(str(found[key].value))
    past = node.get("dependsOnPast")
    if past is not None:
        found["depends_on_past"] = past
    most = node.get("maxRuns")
    if most is not None:
        converter.findings.note(most, "`maxRuns` is not used")
    return {"schedule": node.like(dict(found))}


class _DagReader:
    """Reads the operations of a dag. Operations that only name a component share its template."""

    def __init__(self, converter: OperationConverter, dag: Mapping[str, Node]) -> None:
        self.converter, self.findings, self.dag = converter, converter.findings, dag
        self.templates: dict[str, Node] = {}
        self.components: dict[str, Node] = {}
        section = converter.run.get("components")
        for node in section.elements or () if section is not None else ():
            name = node.get("name")
            if name is None:
                self.findings.missing(node, "name", "a component of a dag requires a `name`")
            elif str(name.value) in self.components:
                self.findings.error(name, f"duplicate component name `{name.value}`")
            else:
                self.components[str(name.value)] = node
        self.names = {str(name.value) for node in self._operations() if (name := node.get("name")) is not None}

    def _operations(self) -> list[Node]:
        section = self.converter.run.get("operations")
        return section.elements or [] if section is not None else []

    def op(self, node: Node) -> Node | None:
        name = node.get("name")
        if node.entries is None or name is None:
            self.findings.missing(node, "name", "an operation of a dag requires a `name`")
            return None
        context = TemplateContext(dag=self.dag)
        values = params(node.get("params"), context, self.findings)
        template = self._template(node, str(name.value), values)
        if template is None:
            return None
        entries: Map = {"name": name, "template": name.like({"name": name.like(template)})}
        if values.values:
            where = node.get("params") or node
            entries["params"] = where.like(dict(values.values))
        needs = self._needs(node, values.upstream)
        if needs is not None:
            entries["dependencies"] = needs
        conditions = node.get("conditions")
        if conditions is not None:
            entries["when"] = conditions.like(self._expression(conditions, context))
        for key, ours in _OF_OP.items():
            found = node.get(key)
            if found is not None:
                entries[ours] = found
        return node.like(dict(entries))

    def _expression(self, node: Node, context: TemplateContext) -> str:
        """A condition as an expression without braces. One that cannot be decided here is an error: the op would run,
        or not, against the will of its author."""
        text = context.text(node, self.findings) if isinstance(node.value, str) else ""
        found = _EXPRESSION.fullmatch(text)
        if found is None or OF_RUN.search(text):
            hint = 'compare params of the operation: `conditions: "{{ loss > 0.1 }}"`'
            self.findings.error(node, "`conditions` must be one expression of params", hint, at_key=True)
            return "false"
        return found[1].strip()

    def _needs(self, node: Node, upstream: tuple[str, ...]) -> Node | None:
        written = node.get("dependencies")
        events = node.get("events")
        of_events = [
            str(ref.value).partition(".")[2]
            for entry in (events.elements or () if events else ())
            if (ref := entry.get("ref"))
        ]
        names = [str(item.value) for item in written.elements or ()] if written is not None else []
        where = written or node.get("params") or events
        for name in upstream:
            if name not in self.names and where is not None:
                hint = did_you_mean(name, self.names)
                self.findings.error(where, f"`ops.{name[:60]}` names no operation of this dag", hint)
        found = list(dict.fromkeys([*names, *(name for name in (*upstream, *of_events) if name in self.names)]))
        return where.like([where.like(name) for name in found]) if where is not None and found else None

    def _template(self, node: Node, name: str, values: GivenParams) -> str | None:
        """The name of the template of an operation."""
        assert node.entries is not None
        ref = node.get("dagRef")
        shared = (
            ref is not None
            and not values.only_context
            and set(node.entries) <= _PLAIN
            and str(ref.value) in self.components
        )
        key = str(ref.value) if shared and ref is not None else name
        if key in self.templates:
            return key
        own: Map = {
            part: child
            for part, child in node.entries.items()
            if part not in (*_OF_OP, "params", "dependencies", "events", "conditions")
        }
        if shared and ref is not None:
            own = {"dagRef": ref}
        if values.only_context:  # the template must know these names
            section = node.entries["params"]
            own["params"] = section.like({key: (section.entries or {})[key] for key in values.only_context})
        composed = self.converter.composer.compose([node.like(dict(own))], self.components)
        made = OperationConverter(composed, self.converter.composer, self.findings, self.dag)
        if made.run_kind == "dag":
            self.findings.error(node, "a dag inside of a dag is not known here", "list its operations in this dag")
            return None
        tree = made.tree()
        assert tree.entries is not None
        tree.entries["name"] = node.like(key)
        self.templates[key] = tree
        return key
