"""Templates (`{{ name }}`) in a file: Jinja2 in a sandbox, with typed and bounded results.

A string that is one expression renders to the value of the expression (`"{{ gpus }}"` is a number if gpus is one);
anything else renders to a string, in which a number has the characters it was written with. A file may be untrusted, so
nothing may run forever or exhaust memory: no calls but `range`, no assignments, macros or includes, no nested loops,
and results of bounded size.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache, wraps
from typing import Any

from phalanx.deferred_patterns import deferred_pattern
from phalanx.spec.commands import quote
from phalanx.spec.model import thaw
from phalanx.spec.scalars import (
    WrittenBool,
    WrittenFloat,
    WrittenInt,
    WrittenNull,
    WrittenScalar,
    is_valid_text,
    plain_scalar,
)
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node, from_plain

MAX_TEMPLATES = 5_000
MAX_TEMPLATE = 16_384
MAX_RESULT = 1 << 20
MAX_VALUE = 65_536
MAX_ITEMS = 10_000
MAX_RANGE = 1_000
MAX_TURNS = 200  # iterations of one loop
MAX_LOOP_BODY = 40  # nodes of its syntax tree
MAX_RENDERED = 16 << 20  # characters, in one file
MAX_SECONDS = 2.0  # for all templates of a file
MAX_BITS = 4_096
MAX_CONCATENATIONS = 16

REFERENCE = deferred_pattern(r"\s*\{\{\s*(jobs|experiments|ops)\.([-\w]+)\.outputs\.([-\w]+)\s*\}\}\s*\Z")
_MARKERS = ("{{", "{%", "{#")
_NAME_IN_BRACES = deferred_pattern(r"\{\{[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*\}\}")
RESERVED = frozenset(  # names reserved by Jinja2
    ["true", "false", "none", "True", "False", "None", "not", "and", "or", "in", "is", "if", "else", "self", "range"]
)
_SIMPLE = frozenset([str, int, float, bool, WrittenInt, WrittenFloat, WrittenBool, WrittenNull])
_TRUTHS = {"true": True, "false": False}
_TYPE_TESTS = ("boolean", "false", "integer", "none", "number", "sameas", "true")
_DEADLINE: ContextVar[float] = ContextVar("deadline", default=math.inf)
_FILTERS = (
    "abs", "capitalize", "count", "d", "default", "first", "float", "int", "items", "join", "last", "length", "list",
    "lower", "max", "min", "quote", "replace", "reverse", "round", "select", "reject", "sort", "string", "sum", "title",
    "tojson", "trim", "unique", "upper",
)  # fmt: skip


class TemplateError(Exception):
    """Why a template cannot be rendered, and what to write instead."""

    def __init__(self, message: str, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


def is_template(text: object) -> bool:
    return isinstance(text, str) and any(marker in text for marker in _MARKERS)


@lru_cache(maxsize=1_000)  # params and the renderer ask about the same texts
def names_in(text: str) -> frozenset[str]:
    """The names that a template uses from its context."""
    pieces = _NAME_IN_BRACES.split(text)
    if not any(is_template(piece) for piece in pieces[::2]) and RESERVED.isdisjoint(pieces[1::2]):
        return frozenset(pieces[1::2])  # the common case: no need to parse
    from jinja2 import TemplateError as JinjaError
    from jinja2 import nodes

    # not jinja2.meta, which evaluates constants on the way, such as `'a' * 10**9`
    try:
        found = list(_environment().parse(text[:MAX_TEMPLATE]).find_all(nodes.Name))
    except (JinjaError, RecursionError, ValueError, SyntaxError):
        return frozenset()  # rendering reports why
    stored = {node.name for node in found if node.ctx == "store"}
    return frozenset(node.name for node in found if node.ctx == "load") - stored


def render(text: str, context: Mapping[str, Any]) -> Any:
    """The value of a template. Raises TemplateError."""
    plain = _plain_names(text, context)
    if plain is not None:
        return plain
    from jinja2 import TemplateError as JinjaError
    from jinja2 import TemplateSyntaxError, UndefinedError
    from jinja2.exceptions import SecurityError

    try:
        value = _render(text, context)
    except TemplateSyntaxError as fault:
        hint = f"use one of {', '.join(sorted(_FILTERS))}" if "No filter named" in (fault.message or "") else None
        raise TemplateError(f"not a valid template: {fault.message}", hint) from None
    except UndefinedError as fault:
        unknown = sorted(names_in(text) - set(context) - {"range"})
        if not unknown:
            unset = sorted(name for name in names_in(text) if context.get(name, name) is None)
            if unset:
                hint = f"set it in `params` or with -P {unset[0]}=..."
                raise TemplateError(f"`{unset[0]}` has no value", hint) from None
            raise TemplateError(f"not found in the params: {fault.message}") from None
        dashed = next((name for name in context if "-" in name and name in text), None)
        if dashed is not None:
            fair = dashed.replace("-", "_")
            hint = f"`-` means minus in a template: name the param `{fair}`"
            raise TemplateError(f"`{dashed}` cannot be used in a template", hint) from None
        raise _unknown_params(unknown, context) from None
    except SecurityError as fault:
        raise TemplateError(f"not allowed in a template: {fault}") from None
    except (RecursionError, SyntaxError, MemoryError):
        raise TemplateError("the template is nested too deeply or is too large") from None
    except (JinjaError, ArithmeticError, TypeError, ValueError, LookupError, AttributeError, NameError) as fault:
        raise TemplateError(f"the template failed: {fault}"[:200]) from None
    if not all(map(is_valid_text, _texts_in(value))):
        raise TemplateError("the result has NUL or an invalid character")
    return value


def expression_names(text: str) -> frozenset[str]:
    """The names that a condition such as `loss > 0.1` uses. Raises TemplateError if it cannot be evaluated."""
    from jinja2 import TemplateError as JinjaError

    if any(mark in text for mark in ("{{", "}}", "{%", "%}", "{#")) or len(text) > MAX_TEMPLATE:
        raise TemplateError("not an expression", "write it without braces, such as `loss > 0.1`")
    try:
        _environment().compile_expression(text, undefined_to_none=False)
    except (JinjaError, RecursionError, ValueError, SyntaxError, MemoryError) as fault:
        raise TemplateError(f"not a valid expression: {fault}"[:200]) from None
    return names_in(f"{{{{ {text} }}}}")


def is_true(text: str, context: Mapping[str, Any]) -> bool:
    """Whether a condition is true. Raises TemplateError if it cannot be evaluated, or is neither true nor false."""
    until = _DEADLINE.set(_clock() + MAX_SECONDS)
    try:
        found = render(f"{{{{ {text} }}}}", context)
    finally:
        _DEADLINE.reset(until)
    if isinstance(found, bool | WrittenBool):
        return bool(plain_scalar(found))
    if isinstance(found, str) and found.strip().lower() in _TRUTHS:
        return _TRUTHS[found.strip().lower()]
    raise TemplateError(f"it is {str(found)[:60]!r}, neither true nor false")


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts_in(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *_texts_in(item)) if isinstance(key, str) else _texts_in(item)


def _unknown_params(unknown: list[str], context: Mapping[str, Any]) -> TemplateError:
    said = ", ".join(f"`{name}`" for name in unknown)
    hint = did_you_mean(unknown[0], context) or f"set it in `params` or with -P {unknown[0]}=..."
    return TemplateError(f"unknown param {said}", hint)


def _plain_names(text: str, context: Mapping[str, Any]) -> str | None:
    """Render a template that only uses names of simple values, as nearly all do, with the result of Jinja2 but
    without the time to import it and compile the template. None for all other templates.
    """
    if len(text) > MAX_TEMPLATE or "\r" in text:  # Jinja2 normalises line ends
        return None
    pieces = _NAME_IN_BRACES.split(text)
    is_one_name = len(pieces) == 3 and not pieces[0] and not pieces[2]
    if is_one_name or any(is_template(text) or text[-1:] == "{" or text[:1] == "}" for text in pieces[::2]):
        return None
    values = [context.get(name) for name in pieces[1::2]]
    if not RESERVED.isdisjoint(pieces[1::2]) or any(type(value) not in _SIMPLE for value in values):
        return None
    pieces[1::2] = [str(value) for value in values]
    return "".join(pieces) if sum(map(len, pieces)) <= MAX_RESULT else None


def _render(text: str, context: Mapping[str, Any]) -> Any:
    from jinja2 import nodes

    if len(text) > MAX_TEMPLATE:
        raise TemplateError(f"a template of more than {MAX_TEMPLATE} characters")
    environment = _environment()
    tree = environment.parse(text)
    _refuse_statements(tree)
    body = tree.body
    if len(body) == 1 and isinstance(body[0], nodes.Output) and len(body[0].nodes) == 1:
        bare = text.strip()
        if not isinstance(body[0].nodes[0], nodes.TemplateData) and bare.startswith("{{") and bare.endswith("}}"):
            expression = bare[2:-2].strip("-+")
            return _settled(environment.compile_expression(expression, undefined_to_none=False)(context))
    result, size = [], 0
    for part in environment.from_string(tree).generate(context):
        size += len(part)
        if size > MAX_RESULT:
            raise TemplateError(f"the result is longer than {MAX_RESULT} characters")
        result.append(part)
    return "".join(result)


def _settled(value: Any) -> Any:
    """The result of an expression as a plain value."""
    return _copied(value, [MAX_ITEMS])


def _copied(value: Any, left: list[int]) -> Any:
    """A deep copy without sharing. `left` counts down the items allowed: a list of twice the same list, of
    twice the same list … is small until it is expanded."""
    from jinja2 import Undefined

    left[0] -= 1
    if left[0] < 0:
        raise TemplateError(f"the result has more than {MAX_ITEMS} items")
    if isinstance(value, Undefined):
        str(value)  # a strict undefined raises here
    if isinstance(value, Mapping):
        return {str(key): _copied(item, left) for key, item in value.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | float | WrittenScalar) or value is None:
        return value
    if isinstance(value, list | tuple | range) or hasattr(value, "__iter__"):
        return [_copied(item, left) for item in value]
    raise TemplateError("the result is not a value that a file can contain")


def _refuse_statements(tree: Any) -> None:
    from jinja2 import nodes

    joined = sum(len(node.nodes) for node in tree.find_all(nodes.Concat))
    if joined > MAX_CONCATENATIONS:
        raise TemplateError(f"more than {MAX_CONCATENATIONS} strings joined in one template")
    allowed = (nodes.Template, nodes.Output, nodes.If, nodes.For, nodes.Helper, nodes.Expr)
    for node in list(tree.find_all(nodes.Node)):
        if not isinstance(node, allowed):
            named = {"Assign": "set", "AssignBlock": "set"}.get(type(node).__name__, type(node).__name__.lower())
            hint = "write the value in `params`" if named == "set" else None
            raise TemplateError(f"`{named}` statements are not allowed in a template", hint)
        if isinstance(node, nodes.For) and (next(node.find_all(nodes.For), None) is not None or node.recursive):
            raise TemplateError("loops inside loops are not allowed in a template")
        if isinstance(node, nodes.For) and len(list(node.find_all(nodes.Node))) > MAX_LOOP_BODY:
            raise TemplateError("the body of this loop is too large for a template")
        if isinstance(node, nodes.For):
            node.iter = nodes.Filter(node.iter, "iterations", [], [], None, None)
        if isinstance(node, nodes.Call) and not (isinstance(node.node, nodes.Name) and node.node.name == "range"):
            raise TemplateError("calls are not allowed in a template", "use a filter, such as `{{ name | lower }}`")


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import StrictUndefined
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import SandboxedEnvironment

    class Bounded(SandboxedEnvironment):
        intercepted_binops = frozenset(["+", "*", "**", "%"])

        def getattr(self, obj: Any, attribute: str) -> Any:
            if isinstance(obj, Mapping) and attribute in obj:  # the param named `values`, not the method
                return obj[attribute]
            return super().getattr(obj, attribute)

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            return not callable(value) and super().is_safe_attribute(obj, attr, value)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            fault = oversize(operator, left, right)
            if fault:
                raise SecurityError(fault)
            return super().call_binop(context, operator, left, right)

    # not optimized: a template is rendered once, and folding its constants takes seconds if it is nested deeply
    environment = Bounded(undefined=StrictUndefined, keep_trailing_newline=True, optimized=False)
    environment.filters |= {"quote": _quote}
    environment.filters = {name: environment.filters[name] for name in _FILTERS}
    environment.filters["replace"] = _replace
    environment.filters["join"] = _join
    environment.filters["tojson"] = _tojson
    environment.filters["int"] = _int
    environment.filters["round"] = _round
    environment.filters["string"] = _string
    environment.filters["iterations"] = _turns
    environment.filters["sum"] = _sum
    environment.filters = {name: _watched(function) for name, function in environment.filters.items()}
    environment.tests |= {name: _of_plain(environment.tests[name]) for name in _TYPE_TESTS}
    environment.globals = {"range": _range}
    return environment


def oversize(operator: str, left: Any, right: Any) -> str | None:
    """Why the result of an operation could be too large; None when it is fine."""
    if operator == "%":
        return None if not isinstance(left, str) else "formatting with `%`"
    sizes = [len(side) if isinstance(side, str | list | tuple) else None for side in (left, right)]
    if operator == "+":
        return "a text or list of that size" if sum(size or 0 for size in sizes) > MAX_VALUE else None
    numbers = [side for side in (left, right) if isinstance(side, int)]
    if operator == "*" and any(size is not None for size in sizes):
        grown = max(size or 0 for size in sizes) * max([0, *numbers])
        return "a text or list of that size" if grown > MAX_VALUE else None
    if len(numbers) < 2:
        return None
    bits = left.bit_length() * max(right, 1) if operator == "**" else left.bit_length() + right.bit_length()
    return "a number of that size" if bits > MAX_BITS else None


def _replace(text: object, old: str, new: str) -> str:
    source = str(text)
    if len(source) + source.count(old) * len(new) > MAX_VALUE:
        raise TemplateError("the result of `replace` is too long")
    return source.replace(old, new)


def _join(items: Any, separator: str = "") -> str:
    texts = [_string(item) for item in items]
    if sum(map(len, texts)) + len(texts) * len(separator) > MAX_VALUE:
        raise TemplateError("the result of `join` is too long")
    return separator.join(texts)


def _clock() -> float:
    """The CPU time of this thread: a busy machine must not make a file invalid."""
    return time.thread_time()


def _watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter with a check of the time limit: slow templates spend their time in filters."""

    @wraps(function)  # keeps Jinja2's mark of filters that take the environment
    def watched(*arguments: Any, **named: Any) -> Any:
        if _clock() > _DEADLINE.get():
            raise TemplateError("the template takes too long")
        return function(*arguments, **named)

    return watched


def _of_plain(test: Any) -> Callable[..., bool]:
    """A test of the type of a value, also for values that keep their characters."""
    return lambda *values: bool(test(*map(plain_scalar, values)))


def _sum(items: Any) -> float:
    """Sum of numbers only: a sum of lists copies them again and again."""
    total: float = 0
    for item in items:
        if not isinstance(item, int | float):
            raise TemplateError("`sum` takes numbers only")
        total += item
    return total


def _turns(items: Any) -> list[Any]:
    """The items of a loop. Raises TemplateError if there are too many."""
    listed = list(items)
    if len(listed) > MAX_TURNS:
        raise TemplateError(f"a loop of more than {MAX_TURNS} iterations")
    return listed


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    if abs(precision) > 300 or abs(value) > 1e300:
        raise TemplateError("`round` to too many digits")
    if method == "common":
        return round(value, precision)
    if method not in ("ceil", "floor"):
        raise TemplateError("the rounding method must be common, ceil or floor")
    scale = 10.0**precision
    return float(getattr(math, method)(value * scale) / scale)


def _string(value: Any) -> str:
    if weight(value) > MAX_VALUE:
        raise TemplateError("a text of that size")
    return str(value)


def _quote(value: Any) -> str:
    """A value as one word of bash, each item of a list as one; nothing as no word."""
    if isinstance(value, list | tuple):
        return " ".join(filter(None, map(_quote, value)))
    return "" if plain_scalar(value) is None else quote(_string(value))


def _int(value: Any, default: int = 0, base: int = 10) -> int:
    if isinstance(value, str) and len(value) > 400:
        raise TemplateError("a number of that size")
    try:
        return int(value, base) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        try:
            return int(float(value))
        except (TypeError, ValueError, OverflowError):
            return default


def _tojson(value: Any) -> str:
    if weight(value) > MAX_VALUE // 6:  # an escape takes six characters
        raise TemplateError("the result of `tojson` is too long")
    return json.dumps(thaw(_settled(value)))


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > MAX_RANGE:
        raise TemplateError(f"a range of more than {MAX_RANGE} numbers")
    return numbers


def weight(value: Any) -> int:
    """Approximate number of characters of a value when written out. Stops counting above the limit."""
    total, waiting = 0, [value]
    while waiting and total <= MAX_VALUE:
        item = waiting.pop()
        if isinstance(item, str):
            total += len(item) + 2
        elif isinstance(item, Mapping):
            total += 2 * len(item)
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            total += 2 * len(item)
            waiting += item
        else:
            total += 8
    return total


class Renderer:
    """Renders a tree of nodes with one context. Reports each error once and continues."""

    def __init__(self, context: Mapping[str, Any], findings: Diagnostics, clock: Callable[[], float] = _clock) -> None:
        self.context = context
        self.findings = findings
        self.unknown: set[str] = set()  # invalid params: their uses are not reported again
        self.count = 0
        self.deadline = clock() + MAX_SECONDS
        self.clock = clock
        self.gave_up = False
        self.left = MAX_RENDERED
        self.giants: dict[str, bool] = {}

    def tree(self, node: Node) -> Node:
        """The tree with every template replaced by its value."""
        if isinstance(node.value, dict):
            result = node.like(None)
            entries: dict[str, Node] = {}
            for key, child in node.value.items():
                name = self._key(key, child)
                if name in entries:
                    self.findings.error(child, f"two keys render to `{name[:60]}`", at_key=True)
                entries[name] = self.tree(child)
            result.value = entries
            result.poisoned = node.poisoned
            return result
        if isinstance(node.value, list):
            result = node.like([self.tree(child) for child in node.value])
            result.poisoned = node.poisoned
            return result
        return self._scalar(node) if is_template(node.value) else node

    def _is_giant(self, name: str) -> bool:
        """Whether a value is too large to be repeated at every use."""
        if name in self.context and name not in self.giants:
            self.giants[name] = weight(self.context[name]) > MAX_VALUE
        return self.giants.get(name, False)

    def _key(self, key: str, child: Node) -> str:
        if not is_template(key):
            return key
        try:
            return str(render(key, self.context))
        except TemplateError as fault:
            self.findings.error(child, str(fault), fault.suggestion, at_key=True)
            return key

    def _scalar(self, node: Node) -> Node:
        text = str(node.value)
        result = node.like(text)
        self.count += 1
        if self.count > MAX_TEMPLATES or self.left < 0 or self.clock() > self.deadline:
            if not self.gave_up:
                self.findings.error(node, "the templates of this file are too many or too slow")
            self.gave_up = True
            result.poisoned = True
            return result
        try:
            if any(self._is_giant(name) for name in names_in(text)):
                raise TemplateError(f"a param of more than {MAX_VALUE} characters cannot be used in a template")
            until = _DEADLINE.set(self.deadline)
            try:
                value = render(text, self.context)
            finally:
                _DEADLINE.reset(until)
            self.left -= weight(value)
        except TemplateError as fault:
            names = names_in(text)
            if names & self.unknown:  # reported; but not its other names
                others = sorted(names - self.unknown - set(self.context) - {"range"})
                reported = _unknown_params(others, self.context) if others else None
            else:
                reported = fault
            if reported is not None:
                self.findings.error(node, str(reported), reported.suggestion)
            result.poisoned = True
            return result
        found = from_plain(value, node.mark)
        result.value, result.text = found.value, found.text
        result.rendered = True
        return result
