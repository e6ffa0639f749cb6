"""The tree of a file: values with their locations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from phalanx.errors import Location, Note, SpecError
from phalanx.spec.scalars import Scalar, WrittenScalar, plain_scalar, scalar_text, written

EXCERPT_LIMIT = 400  # characters of a source line shown in an error


class Source:
    """One input text: a file, standard input, or the params of the command line."""

    __slots__ = ("_lines", "name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._lines: list[str] | None = None

    def line(self, number: int) -> str:
        if self._lines is None:
            self._lines = self.text.split("\n")
        return self._lines[number].rstrip("\r") if 0 <= number < len(self._lines) else ""


class Mark(NamedTuple):
    """A location. Lines and columns start at 0, as in the YAML parser."""

    source: Source
    line: int
    column: int
    end_line: int
    end_column: int

    def place(self) -> Location:
        text = self.source.line(self.line)[:EXCERPT_LIMIT]
        end = self.end_column if self.end_line == self.line else len(text)
        width = max(1, min(end, len(text)) - self.column)
        return Location(self.source.name, self.line + 1, self.column + 1, width, text)


class Node:
    """A value, its location, and the path under which the user wrote it.

    A node keeps the parent and key it was parsed with, even when a dialect moves it elsewhere, so that messages
    name the path that the user finds in the file.
    """

    __slots__ = ("key", "key_mark", "mark", "parent", "poisoned", "rendered", "replaces", "text", "value")

    def __init__(
        self,
        value: Scalar | list[Node] | dict[str, Node],
        mark: Mark,
        parent: Node | None = None,
        key: str | int | None = None,
        key_mark: Mark | None = None,
    ) -> None:
        self.value = value
        self.text: str | None = None  # the characters of an unquoted scalar whose value is not text
        self.mark = mark
        self.parent = parent
        self.key = key
        self.key_mark = key_mark
        self.replaces = False  # a map that replaced a non-map while merging: it hides earlier layers
        self.rendered = False  # rendered from a template, so numbers are accepted where text is expected
        self.poisoned = False  # an error was already reported for it: readers skip it silently

    @property
    def entries(self) -> dict[str, Node] | None:
        return self.value if isinstance(self.value, dict) else None

    @property
    def elements(self) -> list[Node] | None:
        return self.value if isinstance(self.value, list) else None

    @property
    def path(self) -> str:
        steps: list[str | int] = []
        node: Node | None = self
        while node is not None and node.key is not None:
            steps.append(node.key)
            node = node.parent
        return join_path(reversed(steps))

    def get(self, key: str) -> Node | None:
        """The child under a key of a map; None when absent or null."""
        child = self.entries.get(key) if self.entries is not None else None
        return None if child is None or child.value is None else child

    def items(self, key: str) -> list[Node]:
        """The list under a key of a map; empty when there is none."""
        child = self.get(key)
        return child.elements or [] if child is not None else []

    def copy(self, parent: Node | None, key: str | int | None, key_mark: Mark | None) -> Node:
        twin = Node(None, self.mark, parent, key, key_mark)
        twin.replaces, twin.rendered, twin.poisoned = self.replaces, self.rendered, self.poisoned
        if isinstance(self.value, dict):
            twin.value = {k: child.copy(twin, child.key, child.key_mark) for k, child in self.value.items()}
        elif isinstance(self.value, list):
            twin.value = [child.copy(twin, child.key, None) for child in self.value]
        else:
            twin.value, twin.text = self.value, self.text
        return twin

    def like(self, value: Scalar | list[Node] | dict[str, Node]) -> Node:
        """Another value at the same location, for the result of a dialect or a template."""
        twin = Node(value, self.mark, self.parent, self.key, self.key_mark)
        twin.replaces = self.replaces
        if value is self.value:
            twin.text = self.text
        return twin

    def take_text(self) -> str:
        """The characters of a scalar. Unless they follow from its value, they are its value from now on, also in the
        document of the file: as JSON it could not keep them."""
        if isinstance(self.value, str):
            return self.value
        text = scalar_text(self.value, self.text)
        if self.value is None or text != scalar_text(self.value):
            self.value, self.text = text, None
        return text

    def written(self) -> Any:
        """Plain data whose scalars keep their characters."""
        if isinstance(self.value, dict):
            return {key: child.written() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.written() for child in self.value]
        return written(self.value, self.text)

    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def scalars(self) -> Iterator[Node]:
        stack = [self]
        while stack:
            node = stack.pop()
            if isinstance(node.value, dict):
                stack.extend(node.value.values())
            elif isinstance(node.value, list):
                stack.extend(node.value)
            else:
                yield node


def join_path(steps: Iterator[str | int]) -> str:
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def from_plain(value: Any, mark: Mark, parent: Node | None = None, key: str | int | None = None) -> Node:
    """A tree of plain data with a single location (params of the command line, defaults). Keeps the characters of
    scalars that have them."""
    node = Node(None, mark, parent, key, mark if isinstance(key, str) else None)
    if isinstance(value, Mapping):
        node.value = {str(name): from_plain(item, mark, node, str(name)) for name, item in value.items()}
    elif isinstance(value, list | tuple):
        node.value = [from_plain(item, mark, node, number) for number, item in enumerate(value)]
    else:
        node.value = plain_scalar(value)
        node.text = value.text if isinstance(value, WrittenScalar) else None
    return node


def one_line(text: str) -> str:
    """Text of a file for a message: line breaks and tabs as spaces."""
    return text if text.isprintable() else "".join(" " if c in "\n\r\t" else c for c in text)


def _error(mark: Mark, path: str, message: str, suggestion: str | None) -> SpecError:
    return SpecError(
        mark.place(), one_line(path), one_line(message), None if suggestion is None else one_line(suggestion)
    )


class Diagnostics:
    """Errors and notes found while reading the user's files, in any order."""

    def __init__(self) -> None:
        self.errors: list[SpecError] = []
        self.notes: list[Note] = []

    def error(self, node: Node, message: str, suggestion: str | None = None, *, at_key: bool = False) -> None:
        mark = node.key_mark if at_key and node.key_mark is not None else node.mark
        self.errors.append(_error(mark, node.path, message, suggestion))

    def missing(self, node: Node, key: str, message: str, suggestion: str | None = None) -> None:
        """Report a missing key below this node."""
        kind = node.get("kind") if node.parent is None else None  # sections that a file lacks belong to its kind
        mark = node.key_mark or (kind.mark if kind is not None else node.mark)
        path = f"{node.path}.{key}" if node.path else key
        self.errors.append(_error(mark, path, message, suggestion))

    def note(self, node: Node, message: str) -> None:
        mark = node.key_mark or node.mark
        self.notes.append(Note(mark.place(), one_line(node.path), one_line(message)))


def merge(earlier: Node, later: Node) -> Node:
    """Merge two files: maps key by key; the later one replaces any other value, null included. Changes neither.

    Merging is associative: a map that replaced a string or a null is marked as `replaces`, so that
    what it hid stays hidden in any order of merging.
    """
    if earlier.entries is None or later.entries is None or later.replaces:
        result = later.like(later.value)
        result.replaces = later.replaces or (later.entries is not None and earlier.entries is None)
        result.rendered = later.rendered
        return result
    result = later.like(None)
    result.replaces = earlier.replaces
    entries = dict(earlier.entries)
    for key, node in later.entries.items():
        entries[key] = merge(entries[key], node) if key in entries else node
    result.value = entries
    return result
