"""Params: values from the file and the command line, checked against declared inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from phalanx.deferred_patterns import deferred_pattern
from phalanx.spec.model import Variable, freeze, thaw, thaw_written
from phalanx.spec.scalars import WrittenScalar, plain_scalar, resolve_plain, scalar_text, written
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.templates import REFERENCE, Renderer, is_template, names_in
from phalanx.spec.tree import Diagnostics, Node
from phalanx.spec.yaml_reader import describe

if TYPE_CHECKING:
    import ast

MAX_CHAIN = 100
_LINE_END = deferred_pattern(r"\r\n|\r|\n")
_NAME = deferred_pattern(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def parse_value(text: str) -> Any:
    """Parse a value from the command line: a number, true/false, a list or map in brackets, or text. Scalars keep their
    characters."""
    value = resolve_plain(text) if text else ""
    if isinstance(value, str) and value[:1] in "[{(" and len(value) <= 10_000 and not is_template(value):
        import ast

        try:
            lines = [line.encode() for line in _LINE_END.split(text)]
            return _literal(ast.parse(text, mode="eval").body, lines)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return text
    return written(value, text)


def _literal(node: ast.expr, lines: list[bytes]) -> Any:
    """A Python literal as a file can hold it. Raises ValueError for any other expression."""
    import ast

    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item, lines) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [_literal(key, lines) if key is not None else None for key in node.keys]
        if not all(isinstance(key, str | int) for key in keys):
            raise ValueError("a key that a file cannot hold")
        return {str(key): _literal(item, lines) for key, item in zip(keys, node.values, strict=True)}
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str | bool)):
        return node.value
    signed = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd)
    number = node.operand if isinstance(node, ast.UnaryOp) and signed else node
    if isinstance(number, ast.Constant) and isinstance(number.value, int | float) and node.lineno == node.end_lineno:
        text = lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
        return written(resolve_plain(text), text)
    raise ValueError("a value that a file cannot hold")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    "float": (_is_number, "a number"),
    "metric": (_is_number, "a number"),
    "str": (lambda value: isinstance(value, str), "text"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "list": (lambda value: isinstance(value, list | tuple), "a list"),
    "dict": (lambda value: isinstance(value, Mapping), "a map"),
    "dict_of_dicts": (
        lambda value: isinstance(value, Mapping) and all(isinstance(item, Mapping) for item in value.values()),
        "a map of maps",
    ),
    "uri": (lambda value: isinstance(value, str | Mapping), "a URI"),
    "auth": (lambda value: isinstance(value, str | Mapping), "a user and password"),
    "metadata": (lambda value: isinstance(value, Mapping), "a map"),
} | {
    name: ((lambda value: isinstance(value, str)), f"a path ({name})")
    for name in ("path", "gcs_path", "s3_path", "azure_path")
}

_SAMPLES: dict[str, Any] = {"int": 1, "float": 1.0, "metric": 1.0, "bool": True}


class Params:
    """The values of one file's params, resolved in dependency order."""

    def __init__(
        self,
        section: Node | None,
        variables: tuple[Variable, ...],
        fixed: Mapping[str, Any],
        findings: Diagnostics,
        *,
        is_complete: bool = True,
    ) -> None:
        """`fixed`: the values of a matrix. `is_complete`: all declared inputs could be read."""
        self.is_complete = is_complete
        self.nodes: dict[str, Node] = (section.entries if section is not None else None) or {}
        self.variables = {variable.name: variable for variable in variables}
        self.fixed = dict(fixed)  # matrix values: they override params of the same name
        self.findings = findings
        self.values = {variable.name: thaw(variable.default) for variable in variables if variable.is_optional}
        self.settled: set[str] = set()
        self.wrong: set[str] = set()  # already reported: params that use them are not reported again
        self.seen: dict[str, Any] = {}  # visible to templates
        defaults = {variable.name: thaw_written(variable.default) for variable in variables if variable.is_optional}
        for name, value in {**defaults, **self.fixed}.items():
            self._show(name, value)
        self.renderer = Renderer(self.seen, findings)
        self.renderer.unknown = self.wrong
        for name, node in self.nodes.items():
            if not _NAME.match(name):
                findings.note(node, f"`{name[:60]}` cannot be used in templates: it is not a plain name")
            if name in self.fixed:
                findings.note(node, f"the matrix also has `{name[:60]}`: its values are used, not this one")
            self._settle(name, ())
        self._check_inputs()

    def _show(self, name: str, value: Any) -> None:
        """Make a value visible to templates. A flag is rendered as its command-line option."""
        variable = self.variables.get(name)
        if variable is not None and variable.is_flag:
            value = f"--{name}" if plain_scalar(value) is True else ""
        self.seen[name] = value

    def _keep(self, name: str, node: Node) -> None:
        self.values[name] = node.plain()
        if name not in self.fixed:
            self._show(name, node.written())

    def _settle(self, name: str, chain: tuple[str, ...]) -> None:
        if name in self.settled or name not in self.nodes:
            return
        node = self.nodes[name]
        if name in chain or len(chain) > MAX_CHAIN:
            steps = " -> ".join([*chain[-5:], name])
            fault = "circular params" if name in chain else f"params nested more than {MAX_CHAIN} deep"
            self.findings.error(node, f"{fault}: {steps}")
            self.wrong.update((*chain, name))
            return
        for needed in _needs(node):
            if needed not in self.fixed:
                self._settle(needed, (*chain, name))
        if name not in self.wrong and name not in self.settled:
            self._render(name, node)
        self.settled.add(name)

    def _render(self, name: str, node: Node) -> None:
        reference = REFERENCE.match(node.value) if isinstance(node.value, str) else None
        if reference is not None:
            if reference[1] != "ops":
                self.findings.note(node, "outputs of other runs are only looked up in pipelines: it stays this text")
            self._keep(name, node)
            self._show(name, self._sample(name, str(node.value)))
            return
        result = self.renderer.tree(node)
        if any(scalar.poisoned for scalar in result.scalars()):
            self.wrong.add(name)
        else:
            if name in self.variables:
                take_declared_text(self.variables[name], result)
            self._keep(name, result)

    def _sample(self, name: str, reference: str) -> Any:
        """A value of the declared type, so that templates which compute with it can be checked. It renders as the
        reference."""
        variable = self.variables.get(name)
        sample = _SAMPLES.get(variable.type or "") if variable is not None and not variable.is_list else None
        return reference if sample is None else written(sample, reference)

    def _check_inputs(self) -> None:
        if not self.variables:
            return
        for name, node in self.nodes.items():
            if name not in self.variables:
                if not self.is_complete:
                    continue  # it may be the input that could not be read
                hint = did_you_mean(name, self.variables) or "declare it in `inputs`"
                self.findings.error(node, f"unknown input `{name[:60]}`", hint, at_key=True)
            elif name not in self.wrong:
                fault = type_fault(self.variables[name], self.values.get(name))
                if fault:
                    self.findings.error(node, f"{fault}, found {describe(node)}")

    def without_value(self) -> set[str]:
        """Optional inputs that have neither a value nor a default: templates render them as `None`."""
        return {name for name in self.variables if name in self.values and self.values[name] is None} - set(self.fixed)

    def missing(self) -> list[str]:
        """Required inputs without a value."""
        given = {*self.values, *self.fixed, *self.wrong}
        return [name for name, variable in self.variables.items() if not variable.is_optional and name not in given]


def _needs(node: Node) -> list[str]:
    names: set[str] = set()
    for scalar in node.scalars():
        if is_template(scalar.value) and not REFERENCE.match(str(scalar.value)):
            names |= names_in(str(scalar.value))
    return sorted(names)


def _is_text(variable: Variable, value: Any) -> bool:
    return variable.type == "str" and isinstance(plain_scalar(value), bool | int | float)


def declared_value(variable: Variable, value: Any) -> Any:
    """A value for an input as plain data. A number for an input of text is its characters."""
    if variable.is_list and isinstance(value, list | tuple):
        return [declared_value(variable, item) for item in value]
    if not _is_text(variable, value):
        return thaw(value)
    return value.text if isinstance(value, WrittenScalar) else scalar_text(value)


def take_declared_text(variable: Variable, node: Node) -> None:
    """Read numbers for an input of text as their characters."""
    for item in node.elements or () if variable.is_list else (node,):
        if _is_text(variable, item.value):
            item.value, item.text = item.take_text(), None


def take_declared_texts(values: dict[str, Any], node: Node) -> None:
    """Read numbers in the default and the options of a declared input of text as their characters."""
    variable = Variable(**{"name": "", **values})
    for key in ("default", "options"):
        child = node.get(key)
        if child is not None and key in values:
            for item in child.elements or () if key == "options" else (child,):
                take_declared_text(variable, item)
            values[key] = freeze(child.written())


def type_fault(variable: Variable, value: Any) -> str | None:
    """Why a value is not valid for an input; None when it is."""
    if isinstance(value, str) and REFERENCE.match(value):
        return None
    if variable.options is not None and thaw(value) not in thaw(variable.options):
        return f"`{variable.name}` must be one of {', '.join(str(thaw_written(option)) for option in variable.options)}"
    if variable.type is None:
        return None
    fits, words = _TYPES[variable.type]
    if variable.is_list and isinstance(value, list | tuple):
        return None if all(fits(item) for item in value) else f"`{variable.name}` must be a list of {variable.type}"
    return None if fits(value) else f"`{variable.name}` must be {words}"
