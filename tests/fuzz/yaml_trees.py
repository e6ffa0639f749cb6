"""Trees of YAML that keep what a mutation needs: the order of keys, duplicate keys, anchors, tags and raw scalars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Tree = Any  # a Map, a list, a Prefixed, or a str: a scalar as it is written in a file


class Map(list[list[Tree]]):
    """Pairs of a key and a value. A key is written as it is, too."""

    __slots__ = ()


class Prefixed(NamedTuple):
    """A value with an anchor or a tag before it."""

    prefix: str
    value: Tree


class Spot(NamedTuple):
    """Where a value is: an entry of a map (a pair) or an element of a list."""

    holder: list[Tree]
    position: int
    key: str  # of the nearest map above; empty at the root

    @property
    def value(self) -> Tree:
        return self.holder[self.position]

    def put(self, value: Tree) -> None:
        self.holder[self.position] = value


def parse(text: str) -> Map | None:
    """The tree of the first document; None for text that is not a map in YAML."""
    try:
        events = [event for event in yaml.parse(text, Loader=Loader) if hasattr(event, "anchor")
                  or isinstance(event, yaml.CollectionEndEvent)]  # fmt: skip
    except yaml.YAMLError:
        return None
    if not events or not isinstance(events[0], yaml.MappingStartEvent):
        return None
    tree = _node(iter(events))
    while isinstance(tree, Prefixed):
        tree = tree.value
    return tree if isinstance(tree, Map) else None


_END = object()


def _node(events: Iterator[Any]) -> Any:
    event = next(events)
    if isinstance(event, yaml.CollectionEndEvent):
        return _END
    if isinstance(event, yaml.AliasEvent):
        return f"*{event.anchor}"
    tree: Tree
    if isinstance(event, yaml.ScalarEvent):
        is_raw = event.style in (None, "") and "\n" not in event.value
        tree = event.value if is_raw else json.dumps(event.value, ensure_ascii=False).replace("\x7f", "\\x7f")
    elif isinstance(event, yaml.MappingStartEvent):
        tree = Map()
        while (key := _node(events)) is not _END:
            tree.append([key if isinstance(key, str) else "key", _node(events)])
    else:
        tree = []
        while (item := _node(events)) is not _END:
            tree.append(item)
    return Prefixed(f"&{event.anchor}", tree) if event.anchor else tree


def copy(tree: Tree) -> Tree:
    if isinstance(tree, Map):
        return Map([key, copy(value)] for key, value in tree)
    if isinstance(tree, list):
        return [copy(value) for value in tree]
    return Prefixed(tree.prefix, copy(tree.value)) if isinstance(tree, Prefixed) else tree


def bare(tree: Tree) -> Tree:
    """The value without its anchors and tags."""
    while isinstance(tree, Prefixed):
        tree = tree.value
    return tree


def spots(tree: Tree, key: str = "") -> Iterator[Spot]:
    """Where all values below a tree are."""
    tree = bare(tree)
    if isinstance(tree, Map):
        for pair in tree:
            yield Spot(pair, 1, pair[0])
            if not isinstance(pair[1], str):
                yield from spots(pair[1], pair[0])
    elif isinstance(tree, list):
        for position, value in enumerate(tree):
            yield Spot(tree, position, key)
            if not isinstance(value, str):
                yield from spots(value, key)


def maps(tree: Tree, key: str = "") -> Iterator[tuple[str, Map]]:
    """All maps of a tree with the key they are under."""
    tree = bare(tree)
    if isinstance(tree, Map):
        yield key, tree
        for name, value in tree:
            if not isinstance(value, str):
                yield from maps(value, name)
    elif isinstance(tree, list):
        for value in tree:
            if not isinstance(value, str):
                yield from maps(value, key)


def to_text(tree: Tree, *, flow: bool = False) -> str:
    """The YAML of a tree: in blocks, or in one line with braces."""
    return _flow(tree) + "\n" if flow else _block(tree, "").lstrip("\n")


def _block(tree: Tree, indent: str) -> str:
    if isinstance(tree, str):
        return f" {tree}\n"
    if isinstance(tree, Prefixed):
        return f" {tree.prefix}{_block(tree.value, indent)}"
    if not tree:
        return " {}\n" if isinstance(tree, Map) else " []\n"
    inner = indent + "  "
    if isinstance(tree, Map):
        return "\n" + "".join([f"{indent}{key}:{_block(value, inner)}" for key, value in tree])
    return "\n" + "".join([f"{indent}-{_block(value, inner)}" for value in tree])


def _flow(tree: Tree) -> str:
    if isinstance(tree, str):
        is_unsafe = tree[:1] not in "\"'[{*" and any(c in tree for c in ",[]{}#")
        return json.dumps(tree, ensure_ascii=False) if is_unsafe else tree
    if isinstance(tree, Prefixed):
        return f"{tree.prefix} {_flow(tree.value)}"
    if isinstance(tree, Map):
        return "{" + ", ".join([f"{key}: {_flow(value)}" for key, value in tree]) + "}"
    return "[" + ", ".join([_flow(value) for value in tree]) + "]"
