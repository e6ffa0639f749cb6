"""The shapes of values: each reads a node into a plain value and describes itself as JSON Schema.

`read` returns INVALID after adding the reason to the findings; it never raises. One table of shapes
(`schema.py`) drives validation, suggestions, the JSON Schema for editors and the reference page of the docs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from phalanx.spec import quantities
from phalanx.spec.model import EMPTY, freeze
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node
from phalanx.spec.yaml_reader import describe, space_hint

INVALID: Any = object()
SUGGESTIONS = 20  # per map: it may have very many unknown keys
TEMPLATE_PATTERN = r"\{[\{%]"
_ALWAYS = (
    {"type": "string", "pattern": TEMPLATE_PATTERN},
    {"type": "null"},
)  # a template or null is allowed anywhere


class Shape(Protocol):
    def read(self, node: Node, findings: Diagnostics) -> Any:
        """The value, or INVALID after adding the reason to the findings."""

    def schema(self) -> dict[str, Any]:
        """This shape as JSON Schema."""

    def words(self) -> str:
        """This shape in a few words, for errors and docs."""


def _refuse(node: Node, findings: Diagnostics, wanted: str, suggestion: str | None = None) -> Any:
    if not node.poisoned:
        findings.error(node, f"expected {wanted}, found {describe(node)}", suggestion)
    return INVALID


class TextShape(NamedTuple):
    """A string. `choices` are matched case-insensitively and returned as listed here."""

    choices: tuple[str, ...] = ()
    pattern: str | None = None
    what: str = "text"
    numbers: bool = False  # names that people write without quotes, though YAML reads some as numbers: ids, tags

    def read(self, node: Node, findings: Diagnostics) -> Any:
        value = node.take_text() if self._is_text(node) else node.value
        if not isinstance(value, str):
            hint = f'write "{node.text or value}"' if isinstance(value, int | float) and not self.choices else None
            return _refuse(node, findings, self.words(), hint)
        if self.choices:
            found = next((choice for choice in self.choices if choice.casefold() == value.casefold()), None)
            if found is None:
                return _refuse(node, findings, self.words(), did_you_mean(value, self.choices))
            return found
        if self.pattern and not re.match(self.pattern, value):
            return _refuse(node, findings, self.words())
        return value

    def _is_text(self, node: Node) -> bool:
        if isinstance(node.value, bool):
            return self.numbers or (node.rendered and node.text is not None)  # `branch: on`
        return isinstance(node.value, int | float) and (self.numbers or node.rendered)

    def schema(self) -> dict[str, Any]:
        if self.choices:
            return {
                "enum": list(dict.fromkeys(f(c) for c in self.choices for f in (str, str.lower, str.upper, str.title)))
            }
        kinds = ["string", "number", "boolean"] if self.numbers else ["string"]
        result: dict[str, Any] = {"type": kinds if len(kinds) > 1 else "string"}
        if self.pattern and not self.numbers:
            result["pattern"] = f"^(?:{self.pattern.removesuffix(chr(92) + 'Z')})$"
        return result

    def words(self) -> str:
        return "one of " + ", ".join(self.choices) if self.choices else self.what


class Number(NamedTuple):
    """A number within bounds, also written as text ("2")."""

    low: float | None = None
    high: float | None = None
    whole: bool = False
    above_low: bool = False  # the low bound is exclusive

    def read(self, node: Node, findings: Diagnostics) -> Any:
        value: Any = node.value
        if isinstance(value, str):
            value = quantities.count(value)
        if (
            value is None
            or isinstance(value, bool)
            or not isinstance(value, int | float)
            or not quantities.is_finite(value)
        ):
            return _refuse(node, findings, self.words())
        if self.whole and value != int(value):
            return _refuse(node, findings, self.words())
        if self.low is not None and (value < self.low or (self.above_low and value == self.low)):
            return _refuse(node, findings, self.words())
        if self.high is not None and value > self.high:
            return _refuse(node, findings, self.words())
        return int(value) if self.whole else value

    def schema(self) -> dict[str, Any]:
        number: dict[str, Any] = {"type": "integer" if self.whole else "number"}
        if self.low is not None:
            number["exclusiveMinimum" if self.above_low else "minimum"] = self.low
        if self.high is not None:
            number["maximum"] = self.high
        return {"anyOf": [number, {"type": "string"}]}

    def words(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.low is not None and self.high is not None:
            return f"{kind} from {quantities.tidy(self.low)} to {quantities.tidy(self.high)}"
        if self.low is not None:
            return f"{kind} {'above' if self.above_low else 'of at least'} {quantities.tidy(self.low)}"
        return kind


class Quantity(NamedTuple):
    """A number with an optional unit, never negative."""

    parse: Callable[[str], float | None]
    wanted: str

    def read(self, node: Node, findings: Diagnostics) -> Any:
        value: Any = node.value
        if isinstance(value, str):
            value = self.parse(value)
        if value is None or isinstance(value, bool) or not isinstance(value, int | float):
            return _refuse(node, findings, self.wanted)
        if not quantities.is_finite(value) or value < 0:
            return _refuse(node, findings, f"{self.wanted}, not below 0")
        return float(value)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}

    def words(self) -> str:
        return self.wanted


class Boolean(NamedTuple):
    def read(self, node: Node, findings: Diagnostics) -> Any:
        if isinstance(node.value, bool):
            return node.value
        if isinstance(node.value, str) and node.value.casefold() in ("true", "false"):
            return node.value.casefold() == "true"
        return _refuse(node, findings, self.words())

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "boolean"}, {"type": "string"}]}

    def words(self) -> str:
        return "true or false"


class Anything(NamedTuple):
    """Any value. Foreign structures (affinity, params) pass through. With `written`, scalars keep their characters."""

    written: bool = False

    def read(self, node: Node, findings: Diagnostics) -> Any:  # noqa: ARG002
        if any(scalar.poisoned for scalar in node.scalars()):
            return INVALID
        return freeze(node.written() if self.written else node.plain())

    def schema(self) -> dict[str, Any]:
        return {}

    def words(self) -> str:
        return "any value"


class ListOf(NamedTuple):
    item: Shape
    lone: bool = False  # a single item needs no list around it
    unique: bool = False

    def read(self, node: Node, findings: Diagnostics) -> Any:
        nodes = node.elements
        if nodes is None:
            if not self.lone or node.entries is not None:
                return _refuse(node, findings, self.words())
            nodes = [node]
        values = [self.item.read(child, findings) for child in nodes]
        if any(value is INVALID for value in values):
            return INVALID
        return tuple(dict.fromkeys(values)) if self.unique else tuple(values)

    def schema(self) -> dict[str, Any]:
        whole = {"type": "array", "items": self.item.schema()}
        return {"anyOf": [self.item.schema(), whole]} if self.lone else whole

    def words(self) -> str:
        return f"a list (of {self.item.words()})"


class ListOrMap(NamedTuple):
    """A list, or a map that says something else."""

    items: ListOf
    fields: RecordShape

    def read(self, node: Node, findings: Diagnostics) -> Any:
        return (self.items if node.elements is not None else self.fields).read(node, findings)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self.items.schema(), self.fields.schema()]}

    def words(self) -> str:
        return "a map or a list"


class MapOf(NamedTuple):
    """A map with any keys. With `as_text`, scalar values are read as text, as in labels."""

    value: Shape = Anything()
    as_text: bool = False

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if node.entries is None:
            return _refuse(node, findings, self.words())
        result = {key: self._value(child, findings) for key, child in node.entries.items()}
        return INVALID if any(value is INVALID for value in result.values()) else freeze(result)

    def _value(self, node: Node, findings: Diagnostics) -> Any:
        if not self.as_text:
            return self.value.read(node, findings)
        if isinstance(node.value, dict | list) or node.poisoned:
            return _refuse(node, findings, "text")
        return node.take_text()

    def schema(self) -> dict[str, Any]:
        scalar = {"type": ["string", "number", "boolean", "null"]}
        return {"type": "object", "additionalProperties": scalar if self.as_text else self.value.schema()}

    def words(self) -> str:
        return "a map"


class EnvVars(NamedTuple):
    """Environment variables: a list of pairs as in Polyaxon, or a map."""

    def read(self, node: Node, findings: Diagnostics) -> Any:
        pairs: list[tuple[Node, str, Node]] = []
        if node.entries is not None:
            pairs = [(child, key, child) for key, child in node.entries.items()]
        else:
            if node.elements is None:
                return _refuse(node, findings, self.words())
            for child in node.elements:
                items = child.elements
                if items is None or len(items) != 2 or isinstance(items[0].value, dict | list):
                    return _refuse(child, findings, "a pair", "write `- [NAME, value]`")
                pairs.append((items[0], items[0].take_text(), items[1]))
        result = [(name, self._value(where, name, value, findings)) for where, name, value in pairs]
        return INVALID if any(value is INVALID for _, value in result) else tuple(result)

    def _value(self, where: Node, name: str, value: Node, findings: Diagnostics) -> Any:
        if value.poisoned or where.poisoned:
            return INVALID
        if not re.match(r"[A-Za-z_][A-Za-z0-9_]*\Z", name):
            findings.error(
                where, f"`{name[:60]}` is not a valid environment variable name", "use letters, digits and `_`"
            )
            return INVALID
        if isinstance(value.value, dict | list):
            return _refuse(value, findings, "text or a number")
        return value.take_text()

    def schema(self) -> dict[str, Any]:
        scalar = {"type": ["string", "number", "boolean", "null"]}
        pair = {"type": "array", "minItems": 2, "maxItems": 2, "items": scalar}
        table = {"type": "object", "additionalProperties": scalar}
        return {"anyOf": [{"type": "array", "items": pair}, table]}

    def words(self) -> str:
        return "a list of `[NAME, value]` pairs, or a map"


def frozen_map(**values: Any) -> Any:
    """For records that stay maps."""
    return freeze(values)


class Field(NamedTuple):
    shape: Shape
    doc: str
    required: bool = False


Check = Callable[[dict[str, Any], Node, Diagnostics], None]


class RecordShape(NamedTuple):
    """A map with known keys. `make` builds a frozen object from the values; `check` validates them together."""

    name: str
    fields: Mapping[str, Field]
    make: Callable[..., Any] = dict
    check: Check | None = None
    elsewhere: Mapping[str, str] = EMPTY  # unknown keys with a better hint than did-you-mean
    hint: str | None = None  # for a value that is not a map

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if node.entries is None:
            return _refuse(node, findings, self.words(), space_hint(node) or self.hint)
        faults = len(findings.errors)
        unknown = 0
        values: dict[str, Any] = {}
        for key, child in node.entries.items():
            known = self.fields.get(key)
            if known is None:
                unknown += 1
                near = did_you_mean(key, self.fields) if unknown <= SUGGESTIONS else None  # searching takes time
                hint = self.elsewhere.get(key) or near
                findings.error(child, f"unknown key `{key[:60]}` in {self.name}", hint, at_key=True)
            elif child.value is not None or child.poisoned:
                values[key] = known.shape.read(child, findings)
        for key, known in self.fields.items():
            if known.required and node.get(key) is None:
                findings.missing(node, key, f"{self.name} needs `{key}`: {known.doc}")
        fit = {key: value for key, value in values.items() if value is not INVALID}
        if self.check is not None:
            self.check(fit, node, findings)
        # A value can be invalid without a new error: its template was reported when it was rendered.
        is_valid = len(findings.errors) == faults and len(fit) == len(values)
        return self.make(**fit) if is_valid else INVALID

    def schema(self) -> dict[str, Any]:
        result: dict[str, Any] = {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                key: {"anyOf": [known.shape.schema(), *_ALWAYS], "description": known.doc}
                for key, known in self.fields.items()
            },
        }
        required = [key for key, known in self.fields.items() if known.required]
        return {**result, "required": required} if required else result

    def words(self) -> str:
        return "a map"
