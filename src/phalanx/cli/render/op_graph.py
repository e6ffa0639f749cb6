"""The graph of a pipeline as text: each op below the last of the ops that it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.spec.model import Operation

MOST_LEVELS = 40  # deeper ops are not indented any further


def graph_lines(ops: Sequence[Operation]) -> Iterator[str]:
    """A line for each op: `├─ train (group) after prepare: data; also after setup`."""
    named = {op.name: op for op in ops}
    levels: dict[str, int] = {}
    for name in TopologicalSorter({op.name: op.awaited for op in ops}).static_order():
        levels[name] = max((levels[other] + 1 for other in named[name].awaited), default=0)
    below: dict[str | None, list[Operation]] = {}
    for op in ops:
        below.setdefault(max(op.awaited, key=lambda name: levels[name], default=None), []).append(op)
    stack: list[tuple[Operation, str, str, int]] = [(op, "", "", 0) for op in reversed(below.get(None, []))]
    while stack:
        op, head, indent, level = stack.pop()
        yield f"{head}{_words(op, levels)}"
        found = below.get(op.name, [])
        for number, other in reversed(list(enumerate(found))):
            is_last, is_deep = number == len(found) - 1, level >= MOST_LEVELS
            bar = "" if is_deep else "   " if is_last else "│  "
            stack.append((other, f"{indent}{'└─ ' if is_last else '├─ '}", indent + bar, level + 1))


def _words(op: Operation, levels: Mapping[str, int]) -> str:
    parent = max(op.awaited, key=lambda name: levels[name], default=None)
    kind = f" ({op.spec.kind})" if op.spec is not None else f" ({next(iter(op.template.values()))})"
    trigger = f", if {op.trigger}" if op.trigger != "all_succeeded" else ""
    others = [name for name in op.awaited if name != parent]
    also = f", also after {', '.join(others)}" if others else ""
    reads = [f"{one.param} = {one.op}.{one.output}" for one in op.references]
    conditions = f", {len(op.conditions)} condition{'s' if len(op.conditions) > 1 else ''}" if op.conditions else ""
    return f"{op.name}{kind}{trigger}{conditions}{also}{'; ' if reads else ''}{', '.join(reads)}"
