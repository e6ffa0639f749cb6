"""Merges several files into one: maps merge key by key; the later layer replaces any other value, null included."""

from __future__ import annotations

from phalanx.spec.tree import Node


def merge(earlier: Node, later: Node) -> Node:
    """Merge the later layer over the earlier one. Changes neither.

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
