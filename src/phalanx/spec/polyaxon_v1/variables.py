"""Inputs, outputs and params."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from phalanx.spec.model import EMPTY
from phalanx.spec.polyaxon_v1.command_lines import Quoting
from phalanx.spec.polyaxon_v1.contexts import TemplateContext, argument
from phalanx.spec.polyaxon_v1.sections import VARIABLE, known_keys
from phalanx.spec.rewrites import Map
from phalanx.spec.schema import INPUT_TYPES
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node, from_plain

_SAME = frozenset(INPUT_TYPES)
TYPES = {  # of 1.x and 2.x, read as one of ours; None: any value
    **{name: name for name in INPUT_TYPES},
    **dict.fromkeys(("date", "datetime", "uuid", "image", "file", "md5", "auth"), "str"),
    **dict.fromkeys(("git", "dockerfile", "artifacts", "event", "tensorboard"), "dict"),
    "gcs": "gcs_path",
    "s3": "s3_path",
    "wasb": "azure_path",
    "any": None,
    "Any": None,
}
_GENERIC = re.compile(r"(List|Tuple|Set|Dict|Union|Optional)\[(.*)\]\Z", re.DOTALL)
_PARAM_KEYS = frozenset(("value", "ref", "contextOnly", "connection", "toInit", "toEnv", "context_only"))
_UPSTREAM = re.compile(r"\s*(?:\{\{)?\s*outputs\.([-\w]+)\s*(?:\}\})?\s*\Z")
_DAG_INPUT = re.compile(r"\s*(?:\{\{)?\s*inputs\.([-\w]+)\s*(?:\}\})?\s*\Z")


class Declared(NamedTuple):
    """The inputs or outputs of a component, in the modern form."""

    nodes: list[Node]
    arguments: Mapping[str, str] = EMPTY
    quoting: Quoting = Quoting()
    variables: Mapping[str, str] = EMPTY  # environment variables, by name: the input that sets each

    @property
    def names(self) -> set[str]:
        return {str(node.entries["name"].value) for node in self.nodes if node.entries and "name" in node.entries}


def declared(section: Node | None, findings: Diagnostics, *, are_inputs: bool = True) -> Declared:
    nodes: list[Node] = []
    arguments: dict[str, str] = {}
    numbers: set[str] = set()
    lists: set[str] = set()
    variables: dict[str, str] = {}
    if section is not None and section.elements is None:
        findings.error(section, f"`{section.key}` must be a list of maps with a `name`")
    for node in section.elements or () if section is not None else ():
        found = _Declaration(node, findings, are_inputs=are_inputs)
        nodes.append(found.modern())
        arguments[found.name] = found.argument()
        if found.type in ("int", "float", "bool") and not found.is_list:
            numbers.add(found.name)
        if found.is_nested:
            lists.add(found.name)
        if found.variable is not None:
            variables[found.variable] = f"{found.name}|tojson" if found.is_nested else found.name
    return Declared(nodes, arguments, Quoting(numbers, lists), variables)


class _Declaration:
    """One input or output."""

    def __init__(self, node: Node, findings: Diagnostics, *, are_inputs: bool) -> None:
        if node.entries is not None and "default" in node.entries and "value" not in node.entries:
            findings.note(node.entries["default"], "`default` read as `value`")
            node = node.like({("value" if key == "default" else key): item for key, item in node.entries.items()})
        self.node, self.findings, self.are_inputs = node, findings, are_inputs
        self.entries = known_keys(node, VARIABLE, "an input" if are_inputs else "an output", findings)
        self.name = str(self.entries["name"].value) if "name" in self.entries else ""
        self.is_list = _is_true(self.entries.get("isList"))
        self.type = self._type()
        env = self.entries.get("toEnv")
        self.variable = str(env.value) if env is not None else None

    def _type(self) -> str | None:
        node = self.entries.get("type")
        if node is None:
            return None
        written = str(node.value)
        generic = _GENERIC.match(written)
        if generic is not None:
            self.is_list = self.is_list or generic[1] in ("List", "Tuple", "Set")
            inner = generic[2].split(",")[0].strip() if generic[1] in ("List", "Set", "Optional") else ""
            name = {"Dict": "dict"}.get(generic[1]) or TYPES.get(inner)
        elif written in TYPES:
            name = TYPES[written]
        else:
            hint = did_you_mean(written, TYPES) or f"use one of {', '.join(sorted(TYPES))}"
            self.findings.error(node, f"unknown type `{written[:60]}`", hint)
            return None
        if name != written:
            self.findings.note(node, f"`{written}` read as {f'`{name}`' if name else 'any value'}")
        return name

    def modern(self) -> Node:
        result: Map = {key: self.entries[key] for key in ("name", "description") if key in self.entries}
        if self.type is not None:
            result["type"] = self.entries["type"].like(self.type)
        value = self.entries.get("value")
        if value is not None:
            result["default"] = self._whole(value)
        if self.may_be_missing:
            result["is_optional"] = (self.entries.get("isOptional") or self.node).like(True)
        if self.is_list:
            result["is_list"] = self.node.like(True)
        if _is_true(self.entries.get("isFlag")):
            result["is_flag"] = self.node.like(True)
        options = self._options()
        if options is not None:
            result["options"] = options
        for key in ("connection", "toInit", "validation"):
            if key in self.entries and not (key == "validation" and options is not None):
                self.findings.note(self.entries[key], f"`{key}` of an input is not used")
        return self.node.like(dict(result))

    @property
    def may_be_missing(self) -> bool:
        """Whether the input is optional, or checked only when the run starts."""
        return "value" in self.entries or any(
            _is_true(self.entries.get(key)) for key in ("isOptional", "delayValidation")
        )

    @property
    def is_nested(self) -> bool:
        return self.is_list or self.type in ("list", "dict", "dict_of_dicts")

    def _whole(self, value: Node) -> Node:
        """`4.0` for an input of whole numbers is 4."""
        if self.type == "int" and isinstance(value.value, float) and value.value.is_integer():
            return value.like(int(value.value))
        return value

    def _options(self) -> Node | None:
        validation = self.entries.get("validation")
        return self.entries.get("options") or (validation.get("options") if validation is not None else None)

    def argument(self) -> str:
        written = self.entries.get("argFormat")
        return argument(
            self.name,
            is_flag=_is_true(self.entries.get("isFlag")),
            has_value="value" in self.entries or (self.are_inputs and not self.may_be_missing),
            is_nested=self.is_nested,
            written=str(written.value) if written is not None else None,
        )


def _is_true(node: Node | None) -> bool:
    return node is not None and node.value in (True, "true", "True", "yes")


class GivenParams(NamedTuple):
    """Values for inputs, and what they say besides. `upstream`: the ops that they take values from."""

    values: Map
    variables: Mapping[str, str]
    upstream: tuple[str, ...]
    only_context: tuple[str, ...]


def params(section: Node | None, context: TemplateContext, findings: Diagnostics) -> GivenParams:
    values: Map = {}
    variables: dict[str, str] = {}
    upstream: list[str] = []
    only_context: list[str] = []
    if section is not None and section.entries is None:
        findings.error(section, "`params` must be a map of names and values")
    for name, node in (section.entries or {}).items() if section is not None else ():
        if not (node.entries and set(node.entries) <= _PARAM_KEYS):
            values[name] = context.tree(node, findings)
            continue
        values[name] = _value(name, node, context, findings, upstream)
        env = node.get("toEnv")
        if env is not None:
            variables[str(env.value)] = name
        if _is_true(node.get("contextOnly") or node.get("context_only")):
            only_context.append(name)
        for key in ("connection", "toInit"):
            extra = node.get(key)
            if extra is not None:
                findings.note(extra, f"`{key}` of a param is not used: connections belong to Polyaxon's server")
    return GivenParams(values, variables, tuple(dict.fromkeys(upstream)), tuple(only_context))


def _value(name: str, node: Node, context: TemplateContext, findings: Diagnostics, upstream: list[str]) -> Node:
    ref, value = node.get("ref"), node.get("value")
    if ref is None:
        return context.tree(value, findings) if value is not None else node.like(None)
    kind, _, which = str(ref.value).partition(".")
    text: Any = value.value if value is not None else None
    found = _UPSTREAM.match(str(text))
    if kind == "ops":
        upstream.append(which)
    if kind in ("ops", "runs") and found is not None and which:
        return node.like(f"{{{{ {'ops' if kind == 'ops' else 'experiments'}.{which}.outputs.{found[1]} }}}}")
    below = _DAG_INPUT.match(str(text))
    if kind == "dag" and below is not None and below[1] in context.dag:
        return context.dag[below[1]]
    message = f"`{str(ref.value)[:60]}` with `{str(text)[:60]}` cannot be passed to `{name[:60]}`"
    findings.error(node, message, "pass an output: `ref: ops.NAME` with `value: outputs.NAME`, or write the value")
    return node.like(None)


def given_inputs(inputs: Declared, values: GivenParams, given: Mapping[str, object], root: Node) -> dict[str, Node]:
    """The values of the inputs of a dag: of the command line, its params, or its defaults."""
    found: dict[str, Node] = {}
    for node in inputs.nodes:
        name = node.get("name")
        if name is None:
            continue
        text = str(name.value)
        default = node.get("default")
        if text in given:
            found[text] = from_plain(given[text], root.mark, root, text)
        elif text in values.values:
            found[text] = values.values[text]
        elif default is not None:
            found[text] = default
    return found
