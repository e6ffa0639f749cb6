"""Several files as one: maps merge key by key; anything else, a null too, is replaced by the later layer."""

from __future__ import annotations

from phalanx.spec.tree import Node


def merge(earlier: Node, later: Node) -> Node:
    """The later layer over the earlier one. Neither is changed.

    Merging is associative: a map that once took the place of a text or a null is marked as `replaces`, so that
    what it hid stays hidden whichever pair of layers is merged first.
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
