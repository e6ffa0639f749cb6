"""Identical lines of many replicas, shown once."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from phalanx.logs.lines import WINDOW_S, LogLine
from phalanx.logs.merge import _order, in_order

MOST_OPEN = 2_000  # lines that wait for their like at a time: memory stays flat however much is printed
Who = TypeVar("Who", int, str)
Said = TypeVar("Said")


class FoldedLine(NamedTuple):
    """A line, and everyone who said it, in the order of their names."""

    line: LogLine
    replicas: tuple[str, ...]


class Groups(Generic[Who, Said]):
    """What many say at about the same time, once. Keeps everybody's words in their order."""

    def __init__(self) -> None:
        self._first = 0  # the number of the oldest group that is open
        self._open: deque[tuple[float, str | bytes, Said, list[Who]]] = deque()
        self._places: defaultdict[str | bytes, list[int]] = defaultdict(list)  # of a text: its open groups
        self._reached: dict[Who, int] = {}  # of who speaks: the last group that they are in

    def feed(self, at: float, who: Who, text: str | bytes, said: Said) -> None:
        """Once more something. `ready` gives what nobody will join any more."""
        places = self._places[text]
        # only what stands after all that they have said so far: else their words would change places
        found = bisect_right(places, self._reached.get(who, -1))
        if found < len(places):
            place = places[found]
            self._open[place - self._first][3].append(who)
        else:
            place = self._first + len(self._open)
            places.append(place)
            self._open.append((at, text, said, [who]))
        self._reached[who] = place

    def ready(self, before: float) -> bool:
        """Whether the oldest was said before that time, or there are too many."""
        return bool(self._open) and (self._open[0][0] <= before or len(self._open) >= MOST_OPEN)

    def pop(self) -> tuple[Said, list[Who]]:
        """The oldest, as it was first said, and who said it."""
        _, text, said, speakers = self._open.popleft()
        self._first += 1
        places = self._places[text]
        places.pop(0)
        if not places:
            del self._places[text]
        return said, speakers

    def __len__(self) -> int:
        return len(self._open)


class Fold:
    """Tells lines that many replicas say at about the same time once. Keeps every replica's lines in their order."""

    def __init__(self) -> None:
        self._groups: Groups[str, LogLine] = Groups()

    def feed(self, line: LogLine) -> Iterator[FoldedLine]:
        """One more line. Gives those that nobody will join any more."""
        while self._groups.ready(line.at - WINDOW_S):
            yield self._pop()
        self._groups.feed(line.at, line.replica, line.text, line)

    def close(self, before: float = float("inf")) -> Iterator[FoldedLine]:
        """What was said before that time and has waited long enough."""
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
    """`worker-0..6`, `master-0, worker-0..2, worker-5`: names in order, rows of neighbours by their ends."""
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
