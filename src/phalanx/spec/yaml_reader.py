"""Reads YAML into a tree with positions, within limits that make hostile files a quick, clear error.

The parser's events are composed here rather than by PyYAML, because its composer loses the positions of keys,
accepts duplicate keys, and expands aliases without a bound. Scalars follow YAML 1.1 as in Polyaxon
(`scalars.py`), with three exceptions: `1e-3` is a number; `1:10:2` and dates are text. A node keeps the characters of
its scalar, for the places where it is used as text.
"""

from __future__ import annotations

import re
from typing import Any

from phalanx.deferred_patterns import deferred_pattern, patterns_deferred
from phalanx.errors import Location, SpecError, SpecErrors
from phalanx.spec.scalars import Scalar, is_valid_text, resolve_plain
from phalanx.spec.tree import Mark, Node, Source, one_line

with patterns_deferred():  # the parser in C needs none of them
    import yaml

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_NODES = 250_000

_SURROGATES = deferred_pattern(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_KEY_WITHOUT_SPACE = deferred_pattern(r"([A-Za-z_]\w{0,40}):([^\s/:][^\s:]{0,20})")
_STANDARD_TAG = "tag:yaml.org,2002:"

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def decode(name: str, data: bytes) -> Source:
    """Decode the bytes of a file. Raises SpecErrors if they are not text."""
    if len(data) > MAX_BYTES:
        raise _fault(name, f"the file is larger than {MAX_BYTES >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        hint = "save it as UTF-8" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else None
        raise _fault(name, f"not a text file: byte {data[fault.start]:#04x} at offset {fault.start}", hint) from None
    if name.endswith(".json"):
        text = text.replace("\t", " ")  # white space in JSON, forbidden as indentation in YAML
        text = _SURROGATES.sub(_joined, text)  # one character as two escapes, which YAML does not support
    return Source(name, text)


def _joined(pair: re.Match[str]) -> str:
    high, low = int(pair[1], 16), int(pair[2], 16)
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def read(source: Source) -> Node:
    """The tree of one file. Raises SpecErrors."""
    composer = _Composer(source)
    try:
        root = composer.compose()
    except yaml.MarkedYAMLError as fault:
        raise _syntax_fault(source, fault, composer.last_path()) from None
    except yaml.YAMLError as fault:
        raise _fault(source.name, _first_line(fault) or "not valid YAML") from None
    if root is None:
        raise _fault(source.name, "the file is empty", "`phalanx init` writes a starter file")
    if root.entries is None:
        place = root.mark.place()
        wanted = "a polyaxonfile must be a map of sections, such as `version: 1`"
        raise SpecErrors([SpecError(place, "", f"{wanted}; found {describe(root)}", space_hint(root))])
    return root


def describe(node: Node) -> str:
    value = node.value
    if isinstance(value, dict):
        return "a map" if value else "an empty map"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        shown = value if len(value) <= 40 else value[:37] + "..."
        return f"the text `{one_line(shown).rstrip()}`"
    shown = str(node.written())
    return f"the number {shown}" if len(shown) <= 40 else "the number with many digits"


def space_hint(node: Node) -> str | None:
    """What to write instead of `cmd:python train.py`, which YAML reads as one text."""
    match = _KEY_WITHOUT_SPACE.match(node.value) if isinstance(node.value, str) else None
    if match is None or not isinstance(node.value, str):
        return None
    rest = "" if match.end() == len(node.value) else "..."
    return f"write a space after the colon: `{match[1]}: {match[2]}{rest}`"


class _Composer:
    """Builds the tree from parser events with an explicit stack, counting what it builds."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.faults: list[SpecError] = []
        self.anchors: dict[str, Node] = {}
        self.opened_at: dict[int, int] = {}  # number of values when an anchored map or list began
        self.stack: list[Node] = []
        self.weights: dict[int, int] = {}  # nodes below an anchored node, itself included
        self.heights: list[int] = []  # levels below each node of the stack so far, itself included
        self.depths: dict[int, int] = {}  # levels of an anchored map or list
        self.count = 0
        self.key: tuple[str, Mark] | None = None
        self.merging = False  # the key at hand is YAML's `<<`
        self.merges: dict[int, list[Node]] = {}  # what `<<` merges into a map, by the map's identity
        self.root: Node | None = None
        self.last: Node | None = None  # the value that was read last

    def compose(self) -> Node | None:
        documents = 0
        for event in yaml.parse(self.source.text, Loader=Loader):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._fail(self._mark(event), "the file has a second YAML document; only one is allowed")
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._open(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._close(event)
        if self.faults:
            raise SpecErrors(self.faults)
        return self.root

    def _mark(self, event: Any) -> Mark:
        start, end = event.start_mark, event.end_mark
        return Mark(self.source, start.line, start.column, end.line, end.column)

    def _fail(self, mark: Mark, message: str, suggestion: str | None = None) -> None:
        """Raise an error after which reading cannot continue."""
        raise SpecErrors([*self.faults, SpecError(mark.place(), one_line(self._path()), one_line(message), suggestion)])

    def _path(self) -> str:
        return self.stack[-1].path if self.stack else ""

    def last_path(self) -> str:
        """The path of the last key or value that was read."""
        if self.key is None:
            return one_line(self.last.path) if self.last is not None else ""
        path = self._path()
        return one_line(f"{path}.{self.key[0]}" if path else self.key[0])

    def _grow(self, mark: Mark, amount: int = 1) -> None:
        self.count += amount
        if self.count > MAX_NODES:
            self._fail(mark, f"the file expands to more than {MAX_NODES} values (are its anchors and aliases right?)")

    def _scalar(self, event: Any) -> None:
        mark = self._mark(event)
        self._grow(mark)
        if not is_valid_text(event.value):
            self._fail(mark, "NUL or invalid character in a string")
        if self._expects_key():
            self._take_key(event.value, mark, event)
            return
        node = self._place(Node(self._resolve(event, mark), mark))
        node.text = None if isinstance(node.value, str) else event.value
        if event.anchor:
            self._anchor(event.anchor, node, 1)

    def _open(self, event: Any) -> None:
        mark = self._mark(event)
        self._grow(mark)
        if len(self.stack) >= MAX_DEPTH:
            self._fail(mark, f"nested more than {MAX_DEPTH} levels deep")
        if self._expects_key():
            outer = self.stack[-1].key
            if isinstance(outer, str) and any(c in outer for c in " '\""):
                hint = "the text before `:` was parsed as a key: quote the whole value"
            elif self.source.line(mark.line)[max(0, mark.column - 1) :].startswith("{{"):
                hint = 'a template at the start of a value needs quotes: "{{ name }}"'
            else:
                hint = None
            self._fail(mark, "a map or list cannot be a key", hint)
        self._check_tag(event, mark, ("map", "seq"))
        is_map = isinstance(event, yaml.MappingStartEvent)
        node = self._place(Node({} if is_map else [], mark))
        if event.anchor:
            self.opened_at[id(node)] = self.count
            self._anchor(event.anchor, node, 0)
        self.stack.append(node)
        self.heights.append(1)

    def _close(self, event: Any) -> None:
        node = self.stack.pop()
        height = self.heights.pop()
        self._rise(height)
        for merged in self.merges.pop(id(node), ()):
            self._merge_key(node, merged)  # now, so that aliases of this map get what was merged into it
        start = node.mark
        node.mark = Mark(self.source, start.line, start.column, event.end_mark.line, event.end_mark.column)
        opened_at = self.opened_at.pop(id(node), None)
        if opened_at is not None:
            self.weights[id(node)] = self.count - opened_at + 1
            self.depths[id(node)] = height

    def _rise(self, height: int) -> None:
        """Record the levels of a child of the innermost open node."""
        if self.heights:
            self.heights[-1] = max(self.heights[-1], height + 1)

    def _anchor(self, name: str, node: Node, weight: int) -> None:
        self.anchors[name] = node
        self.weights[id(node)] = weight

    def _alias(self, event: Any) -> None:
        mark = self._mark(event)
        target = self.anchors.get(event.anchor)
        if target is None:
            self._fail(mark, f"the alias `*{event.anchor}` has no anchor `&{event.anchor}` before it")
            return
        if target in self.stack:
            self._fail(mark, f"the alias `*{event.anchor}` is inside its own anchor")
        if self._expects_key():
            if isinstance(target.value, dict | list):
                self._fail(mark, "a map or list cannot be a key")
            self._take_key(target.text if target.text is not None else str(target.value), mark, event)
            return
        self._grow(mark, self.weights.get(id(target), 1))
        depth = self.depths.get(id(target), 1)
        if len(self.stack) + depth > MAX_DEPTH:
            self._fail(mark, f"nested more than {MAX_DEPTH} levels deep")
        self._rise(depth)
        copy = target.copy(None, None, None)
        copy.mark = mark
        self._place(copy)

    def _expects_key(self) -> bool:
        return bool(self.stack) and self.stack[-1].entries is not None and self.key is None

    def _take_key(self, text: str, mark: Mark, event: Any) -> None:
        parent = self.stack[-1].entries
        assert parent is not None
        if text in parent:
            first = parent[text].key_mark
            where = f" (first on line {first.line + 1})" if first else ""
            path = f"{self._path()}.{text}" if self._path() else text
            message = f"the key `{text[:60]}` is duplicated{where}"
            self.faults.append(SpecError(mark.place(), one_line(path), one_line(message), "keep one of the two"))
        self.merging = text == "<<" and getattr(event, "style", "'") in (None, "")
        self.key = (text, mark)

    def _place(self, node: Node) -> Node:
        """Attach a finished or just opened node to its parent."""
        self.last = node
        if not self.stack:
            self.root = node
            return node
        parent = self.stack[-1]
        node.parent = parent
        if isinstance(parent.value, dict):
            assert self.key is not None
            node.key, node.key_mark = self.key
            self.key = None
            if self.merging:
                self.merges.setdefault(id(parent), []).append(node)
            self.merging = False
            parent.value[str(node.key)] = node
        elif isinstance(parent.value, list):
            node.key = len(parent.value)
            parent.value.append(node)
        return node

    def _merge_key(self, target: Node, merged: Node) -> None:
        """YAML's `<<: *defaults`: add the keys of the other map that this one lacks."""
        entries = target.entries
        assert entries is not None
        entries.pop("<<", None)
        parts = merged.elements if merged.elements is not None else [merged]
        for part in parts:
            if part.entries is None:
                self._fail(part.mark, f"`<<` can only merge maps; found {describe(part)}")
            for key, child in (part.entries or {}).items():
                if key not in entries and key != "<<":
                    self._grow(part.mark, 1)
                    entries[key] = child.copy(target, key, child.key_mark)

    def _check_tag(self, event: Any, mark: Mark, known: tuple[str, ...]) -> str | None:
        tag: str | None = event.tag
        if tag is None or tag == "!":
            return None
        name = tag.removeprefix(_STANDARD_TAG)
        if name not in known or name == tag:
            self._fail(mark, f"the YAML tag `{tag[:60]}` is not supported", "remove the tag")
        return name

    def _resolve(self, event: Any, mark: Mark) -> Scalar:
        text: str = event.value
        tag = self._check_tag(event, mark, ("str", "int", "float", "bool", "null"))
        if tag == "str" or (tag is None and event.style not in (None, "")):
            return text
        value = resolve_plain(text)
        wanted = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}
        if tag is not None and not isinstance(value, wanted[tag]):  # type: ignore[arg-type]
            self._fail(mark, f"`{text[:40]}` is not a valid `!!{tag}`")
        return value


def _fault(name: str, message: str, suggestion: str | None = None) -> SpecErrors:
    return SpecErrors([SpecError(Location(name), "", message, suggestion)])


def _first_line(fault: Exception) -> str:
    """The first line of a parser's message, without control characters."""
    line = str(fault).split("\n", 1)[0]
    return "".join(c if c.isprintable() else "?" for c in line)[:200]


def _syntax_fault(source: Source, fault: yaml.MarkedYAMLError, path: str) -> SpecErrors:
    position = fault.problem_mark or fault.context_mark
    if fault.problem == "could not find expected ':'" and fault.context_mark is not None:
        position = fault.context_mark  # the position of the lone word, not where the parser gave up
    line, column = (position.line, position.column) if position else (0, 0)
    mark = Mark(source, line, column, line, column + 1)
    text = source.line(line)
    message = f"not valid YAML: {fault.problem or fault.context or 'cannot be read'}"
    suggestion = None
    indentation = text[: len(text) - len(text.lstrip())]
    if "\t" in indentation or text[column : column + 1] == "\t":
        message = "not valid YAML: tab used for indentation"
        suggestion = "indent with spaces"
    elif (opened := _open_quote(source, fault)) is not None:
        mark, message, suggestion = opened
    elif "mapping values are not allowed" in message:
        suggestion = "quote a value that contains `: `; indent keys like their neighbours"
    elif "could not find expected ':'" in message:
        suggestion = "write `key: value`, with a space after the colon"
    elif text[column : column + 1] in ("{", "}", "[", "]", "%", "@", "`", "&", "*", "!"):
        suggestion = 'quote a text that starts with a special character, such as "{{ name }}"'
    return SpecErrors([SpecError(mark.place(), path, message, suggestion)])


def _open_quote(source: Source, fault: yaml.MarkedYAMLError) -> tuple[Mark, str, str] | None:
    """Where the quote opens that is probably not closed: the parser reports an error far below it."""
    failed = fault.problem_mark
    opened: tuple[int, int] | None = None
    if "quoted scalar" in (fault.context or "") and fault.context_mark is not None:
        opened = (fault.context_mark.line, fault.context_mark.column)
    elif failed is not None:
        opened = _long_quote_before(source, (failed.line, failed.column))
    if opened is None:
        return None
    line, column = opened
    quote = source.line(line)[column : column + 1]
    mark = Mark(source, line, column, line, column + 1)
    return (
        mark,
        f"not valid YAML: the quote {quote} that opens here is not closed on its line",
        f"close it with {quote}",
    )


def _long_quote_before(source: Source, failed: tuple[int, int]) -> tuple[int, int] | None:
    """The start of a quoted text of several lines that ends where the parser failed."""
    found: tuple[int, int] | None = None
    try:
        for token in yaml.scan(source.text, Loader=Loader):
            start, end = token.start_mark, token.end_mark
            if (start.line, start.column) >= failed:
                break
            is_quoted = isinstance(token, yaml.ScalarToken) and token.style in ("'", '"')
            found = (start.line, start.column) if is_quoted and start.line < end.line == failed[0] else found
    except yaml.YAMLError:
        pass  # the error that is being reported
    return found
