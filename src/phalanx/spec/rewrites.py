"""Moves and renames nodes in the tree of a file, with a note for each change that matters to the user."""

from __future__ import annotations

from phalanx.spec.tree import Diagnostics, Node

Map = dict[str, Node]


class TreeRewriter:
    """Common operations of the rewriters of old forms. `top`: the sections of the file."""

    def __init__(self, top: Map, findings: Diagnostics) -> None:
        self.top = top
        self.findings = findings

    def _note(self, node: Node, message: str) -> None:
        self.findings.note(node, message)

    def _rename(self, holder: Map, old: str, new: str, prefix: str = "") -> None:
        """Read `old` as `new`. Both at once is an error, because it would be ambiguous which one counts."""
        if old not in holder:
            return
        node = holder[old]
        if new in holder:
            self.findings.error(
                node,
                f"`{old}` is the old name of `{new}`, which is also set",
                f"keep only `{new}`",
                at_key=True,
            )
        else:
            self._note(node, f"`{prefix}{old}` read as `{prefix}{new}`")
            # keep the order of keys: `convert` shows it to the user
            entries = [(new if key == old else key, child) for key, child in holder.items()]
            holder.clear()
            holder.update(entries)
            return
        del holder[old]

    def _drop(self, holder: Map, key: str, why: str) -> None:
        if key in holder:
            self._note(holder.pop(key), f"`{key}` is not used: it {why}")

    def _section(self, holder: Map, key: str, origin: Node) -> Map:
        """The map under a key, created at the location of `origin` if missing."""
        node = holder.get(key)
        if node is None or node.value is None:
            node = Node({}, origin.mark, None, key, origin.key_mark)
            holder[key] = node
        if node.entries is None:
            return {}  # not a map: the schema reports it
        return node.entries

    def _move(self, source: Map, key: str, target: Map, new: str, shown: str) -> None:
        if key not in source:
            return
        node = source.pop(key)
        if new in target:
            self.findings.error(
                node, f"`{key}` means `{shown}`, which is also set", f"keep only `{shown}`", at_key=True
            )
            return
        target[new] = node
        self._note(node, f"`{node.path}` read as `{shown}`")
