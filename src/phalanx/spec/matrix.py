"""The matrix of a group: finite dimensions are expanded into values, distributions are kept by name.

Numbers follow numpy: `range` excludes its stop, `linspace` includes it, `logspace` takes exponents.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from phalanx.spec.model import Search, freeze
from phalanx.spec.quantities import count, is_finite
from phalanx.spec.shapes import INVALID
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node
from phalanx.spec.yaml_reader import describe
from phalanx.tune.rungs import first_amount
from phalanx.tune.space import Dimension, typical

MAX_VALUES = 100_000
SEED = "seed"  # the param that tells the repeats of a point apart
HIGHEST_POWER = 700  # of e, within the floating-point range

Numbers = list[float]


class DimensionForm(NamedTuple):
    """One way to write a dimension: the names of its numbers, and how they expand to values (None: a distribution)."""

    names: tuple[str, ...]
    unfold: Callable[[Numbers], list[Any]] | None = None
    optional: tuple[str, ...] = ()


def _arange(numbers: Numbers) -> list[Any]:
    start, stop, step = numbers
    length = max(0, math.ceil((stop - start) / step))
    return [start + number * step for number in range(length)]


def _linspace(numbers: Numbers) -> list[Any]:
    start, stop, num = numbers[0], numbers[1], int(numbers[2])
    if num <= 1:
        return [float(start)][:num]
    gap = (stop - start) / (num - 1)
    return [start + number * gap for number in range(num - 1)] + [float(stop)]


def _logspace(numbers: Numbers) -> list[Any]:
    base = numbers[3] if len(numbers) > 3 else 10.0
    return [base**exponent for exponent in _linspace(numbers[:3])]


def _geomspace(numbers: Numbers) -> list[Any]:
    start, stop = numbers[:2]
    values = _logspace([math.log10(start), math.log10(stop), numbers[2]])
    values[0] = float(start)  # exact: powers of logarithms are not
    if len(values) > 1:
        values[-1] = float(stop)
    return values


FORMS: dict[str, DimensionForm] = {
    "values": DimensionForm(()),
    "pvalues": DimensionForm(()),
    "range": DimensionForm(("start", "stop", "step"), _arange),
    "linspace": DimensionForm(("start", "stop", "num"), _linspace),
    "logspace": DimensionForm(("start", "stop", "num"), _logspace, optional=("base",)),
    "geomspace": DimensionForm(("start", "stop", "num"), _geomspace),
    "uniform": DimensionForm(("low", "high")),
    "quniform": DimensionForm(("low", "high", "q")),
    "loguniform": DimensionForm(("low", "high")),
    "qloguniform": DimensionForm(("low", "high", "q")),
    "normal": DimensionForm(("loc", "scale")),
    "qnormal": DimensionForm(("loc", "scale", "q")),
    "lognormal": DimensionForm(("loc", "scale")),
    "qlognormal": DimensionForm(("loc", "scale", "q")),
}


class Matrix:
    """The shape of `hptuning.matrix`."""

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not node.entries:
            hint = "write `matrix: {lr: {values: [0.1, 0.01]}}`"
            findings.error(node, f"expected a map of parameters to try, found {describe(node)}", hint)
            return INVALID
        dimensions: list[Any] = []
        count = 0
        for name, child in node.entries.items():
            dimensions.append(_dimension(name, child, findings))
            count += len(getattr(dimensions[-1], "values", None) or ())
            if count > MAX_VALUES:
                findings.error(child, f"more than {MAX_VALUES} values in one matrix")
                return INVALID
        return INVALID if any(found is INVALID for found in dimensions) else tuple(dimensions)

    def schema(self) -> dict[str, Any]:
        numbers = {"type": ["string", "array", "object"]}
        forms: dict[str, Any] = dict.fromkeys(FORMS, numbers)
        forms["values"] = forms["pvalues"] = {"type": "array"}
        entry = {
            "type": "object",
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
            "properties": forms,
        }
        return {"type": "object", "minProperties": 1, "additionalProperties": entry}

    def words(self) -> str:
        return "a map of parameters, each with one of " + ", ".join(FORMS)


def _dimension(name: str, node: Node, findings: Diagnostics) -> Any:
    entries = node.entries
    if not entries or len(entries) != 1:
        hint = "write `values: [...]`" if node.elements is not None or entries is None else None
        findings.error(node, f"`{name}` needs exactly one of {', '.join(FORMS)}", hint)
        return INVALID
    kind, body = next(iter(entries.items()))
    if kind not in FORMS:
        findings.error(body, f"unknown key `{kind[:60]}` in a matrix entry", did_you_mean(kind, FORMS), at_key=True)
        return INVALID
    if kind == "values":
        return _values(name, body, findings)
    if kind == "pvalues":
        return _weighted(name, body, findings)
    return _numeric(name, kind, body, findings)


def _values(name: str, node: Node, findings: Diagnostics) -> Any:
    if not node.elements:
        findings.error(node, f"expected a list of values, found {describe(node)}", "write `values: [1, 2, 3]`")
        return INVALID
    return Dimension(name, "values", values=freeze(node.written()))


def _weighted(name: str, node: Node, findings: Diagnostics) -> Any:
    values, weights = [], []
    for pair in node.elements or []:
        items = pair.elements
        weight = items[1].value if items and len(items) == 2 else None
        if not items or isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < 1:
            hint = "write `[[a, 0.2], [b, 0.8]]`"
            findings.error(pair, "expected `[value, probability]`, with a probability from 0 to below 1", hint)
            return INVALID
        values.append(items[0].written())
        weights.append(float(weight))
    if not values or sum(weights) > 1 + 1e-9:
        findings.error(node, "expected a list of `[value, probability]` whose probabilities sum to at most 1")
        return INVALID
    return Dimension(name, "pvalues", values=freeze(values), weights=tuple(weights))


def _numeric(name: str, kind: str, node: Node, findings: Diagnostics) -> Any:
    form = FORMS[kind]
    numbers = _numbers(kind, form, node, findings)
    if numbers is None:
        return INVALID
    fault = _fault_of(kind, numbers)
    if fault is not None:
        findings.error(node, fault)
        return INVALID
    if form.unfold is None:
        names = form.names + form.optional
        return Dimension(name, kind, arguments=freeze(dict(zip(names, numbers, strict=False))))
    try:
        values = tuple(form.unfold(numbers))
    except ArithmeticError:
        values = (math.inf,)
    if not all(is_finite(value) for value in values):
        findings.error(node, "these numbers give values outside the floating-point range")
        return INVALID
    return Dimension(name, kind, values=values)


def _numbers(kind: str, form: DimensionForm, node: Node, findings: Diagnostics) -> Numbers | None:
    names = form.names + form.optional
    raw: list[Any]
    if node.entries is not None:
        unknown = next((child for key, child in node.entries.items() if key not in names), None)
        if unknown is not None:
            hint = did_you_mean(str(unknown.key), names)
            findings.error(unknown, f"unknown key `{unknown.key}` in `{kind}`", hint, at_key=True)
            return None
        raw = [node.entries[key].value for key in names if key in node.entries]
    elif node.elements is not None:
        raw = [child.value for child in node.elements]
    else:
        raw = list(str(node.value).split(":"))
    values = [_as_number(item) for item in raw]
    wanted = ":".join(form.names) + "".join(f"[:{extra}]" for extra in form.optional)
    if not len(form.names) <= len(values) <= len(names) or any(value is None for value in values):
        hint = "for a list of values write `values: [...]`" if node.elements is not None and form.unfold else None
        findings.error(node, f"`{kind}` takes {len(form.names)} numbers, {wanted}", hint)
        return None
    return [value for value in values if value is not None]


def _as_number(value: Any) -> float | None:
    if isinstance(value, str):
        value = count(value)
        return None if value is None else int(value) if value == int(value) and abs(value) < 1e15 else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_finite(value):
        return None
    return value


def _fault_of(kind: str, numbers: Numbers) -> str | None:
    if kind in ("range", "linspace", "logspace", "geomspace"):
        start, stop, third = numbers[:3]
        if start >= stop:
            return f"the start ({start}) must be below the stop ({stop})"
        if third <= 0:
            return f"the {'step' if kind == 'range' else 'number of values'} must be above 0"
        length = (stop - start) / third if kind == "range" else third
        if length > MAX_VALUES:
            return f"more than {MAX_VALUES} values"
        if kind != "range" and third != int(third):
            return "the number of values must be a whole number"
        if kind == "geomspace" and start <= 0:
            return "the start of `geomspace` must be above 0"
        if kind == "logspace" and len(numbers) > 3 and numbers[3] <= 0:
            return "the base of `logspace` must be above 0"
        if kind == "logspace" and max(abs(start), abs(stop)) > 300:
            return "`logspace` takes exponents: 10^start to 10^stop"
        return None
    if "uniform" in kind and numbers[0] >= numbers[1]:
        return f"the low end ({numbers[0]}) must be below the high end ({numbers[1]})"
    if "normal" in kind and numbers[1] < 0:
        return "the scale must not be negative"
    if "log" in kind and max(numbers[: 2 if "uniform" in kind else 1]) > HIGHEST_POWER:
        return f"`{kind}` takes exponents of e: at most {HIGHEST_POWER}"
    return None


def first_values(search: Search) -> dict[str, Any]:
    """One point of a search, used to check the templates of a group before anything runs."""
    point: dict[str, Any] = {}
    if "resource" in search.settings:  # it is also a param, which increases from round to round
        resource = search.settings["resource"]
        amount = first_amount(search.settings)
        point[resource["name"]] = int(amount) if resource.get("type") == "int" else float(amount)
    if search.repeat is not None:
        point[SEED] = 0
    return {**point, **{dimension.name: typical(dimension) for dimension in search.matrix}}
