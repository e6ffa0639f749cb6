"""Folding: identical lines of several replicas are shown once."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from phalanx.logs.lines import WINDOW_S, LogLine
from phalanx.logs.merge import _order, in_order

MOST_OPEN = 2_000  # open groups: bounds the memory
Who = TypeVar("Who", int, str)
Said = TypeVar("Said")


class FoldedLine(NamedTuple):
    """A line and the replicas that wrote it, ordered by name."""

    line: LogLine
    replicas: tuple[str, ...]


class Groups(Generic[Who, Said]):
    """Groups identical lines that several writers write at about the same time. Keeps the order of every writer."""

    def __init__(self) -> None:
        self._first = 0  # the number of the oldest open group
        self._open: deque[tuple[float, str | bytes, Said, list[Who]]] = deque()
        self._indices: defaultdict[str | bytes, list[int]] = defaultdict(list)  # text -> its open groups
        self._reached: dict[Who, int] = {}  # writer -> the last group it is in

    def feed(self, at: float, who: Who, text: str | bytes, said: Said) -> None:
        """Add a line. `ready` says whether the oldest group is complete."""
        indices = self._indices[text]
        # only groups after the writer's last one: else its lines would change their order
        found = bisect_right(indices, self._reached.get(who, -1))
        if found < len(indices):
            index = indices[found]
            self._open[index - self._first][3].append(who)
        else:
            index = self._first + len(self._open)
            indices.append(index)
            self._open.append((at, text, said, [who]))
        self._reached[who] = index

    def ready(self, before: float) -> bool:
        """Whether the oldest group was started before that time, or there are too many groups."""
        return bool(self._open) and (self._open[0][0] <= before or len(self._open) >= MOST_OPEN)

    def pop(self) -> tuple[Said, list[Who]]:
        """The first line of the oldest group, and its writers."""
        _, text, said, writers = self._open.popleft()
        self._first += 1
        indices = self._indices[text]
        indices.pop(0)
        if not indices:
            del self._indices[text]
        return said, writers

    def __len__(self) -> int:
        return len(self._open)


class Fold:
    """Folds identical lines that several replicas write at about the same time. Keeps the order of every replica."""

    def __init__(self) -> None:
        self._groups: Groups[str, LogLine] = Groups()

    def feed(self, line: LogLine) -> Iterator[FoldedLine]:
        """Add a line. Returns the groups that are complete."""
        while self._groups.ready(line.at - WINDOW_S):
            yield self._pop()
        self._groups.feed(line.at, line.replica, line.text, line)

    def close(self, before: float = float("inf")) -> Iterator[FoldedLine]:
        """The groups started before that time."""
        while self._groups.ready(before):
            yield self._pop()

    def _pop(self) -> FoldedLine:
        line, replicas = self._groups.pop()
        return FoldedLine(line, in_order(replicas))


def folded(lines: Iterable[LogLine]) -> Iterator[FoldedLine]:
    fold = Fold()
    for line in lines:
        yield from fold.feed(line)
    yield from fold.close()


def unfolded(lines: Iterable[LogLine]) -> Iterator[FoldedLine]:
    return (FoldedLine(line, (line.replica,)) for line in lines)


def names_text(replicas: Sequence[str]) -> str:
    """`worker-0..6`, `master-0, worker-0..2, worker-5`: sorted names, with ranges of consecutive indices."""
    rows: list[tuple[str, int, int]] = []
    for role, index in sorted(map(_order, replicas)):
        if rows and rows[-1][0] == role and rows[-1][2] == index - 1:
            rows[-1] = (role, rows[-1][1], index)
        else:
            rows.append((role, index, index))
    return ", ".join(_row_text(*row) for row in rows)


def _row_text(role: str, first: int, last: int) -> str:
    if first < 0:
        return role
    return f"{role}-{first}" if first == last else f"{role}-{first}..{last}"
