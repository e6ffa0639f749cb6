"""Lines of many logs as one: when each was written, their order, which are the same, where the error is."""

from __future__ import annotations

import heapq
import re
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

LOOK_S = 0.2  # how often an agent looks at its log: what a note covers was written at most so long before
WINDOW_S = 2.0  # how far apart the same line of two replicas is still told as one
MOST_OPEN = 2_000  # lines that wait for their like at a time: memory stays flat however much is printed
LONGEST_LINE = 8_192  # bytes: an endless line is told in pieces
CONTEXT = 6  # lines shown before an error
AFTER = 10  # and after it
LONGEST_TRACEBACK = 200

TRACEBACK = "Traceback (most recent call last)"
_STYLE = re.compile(r"\x1b\[[0-9;]*[mK]")  # a program's own colours: nothing to read, nothing to obey
_ERROR = re.compile(
    r"^\s*(\[[^\]]*\]:?\s*)?([\w.]+\.)?\w*(Error|Exception|Interrupt)\b(:|\s*$)"
    r"|\b(ERROR|FATAL|CRITICAL|PANIC)\b"
    r"|^([^\s:]+:\s*)*([Ff]atal|[Pp]anic|[Ee]rror)\b.*:"
    r"|command not found|No such file or directory|Permission denied|cannot start"
    r"|Segmentation fault|core dumped|terminate called|Assertion .* failed|[Oo]ut of memory|^Killed\b"
)
# What a line that speaks of an error has in it: to be looked for in many lines at once.
ERROR_WORDS = (
    *(b"rror", b"Exception", b"Interrupt", b"ERROR", b"FATAL", b"CRITICAL", b"PANIC", b"atal", b"anic"),
    *(b"command not found", b"No such file", b"Permission denied", b"cannot start", b"Segmentation fault"),
    *(b"core dumped", b"terminate called", b"Assertion ", b"ut of memory", b"Killed"),
)


class Line(NamedTuple):
    at: float
    replica: str
    rank: int | None
    attempt: int
    text: str
    first: int = 0  # where in its log it begins
    end: int = 0  # and ends


class Folded(NamedTuple):
    """A line, and everyone who said it, in the order of their names."""

    line: Line
    replicas: tuple[str, ...]


class Times:
    """When a log had grown how far, by an agent's notes (time, size). To be asked for ever later places of the log.

    `notes` gives those that are new since it was last called. A line was written between the look before the note
    that covers it and that note; many lines of one note are spread over that time, in their order.
    """

    def __init__(self, notes: Callable[[], Iterator[tuple[float, int]]]) -> None:
        self._more = notes
        self._notes: Iterator[tuple[float, int]] | None = None
        self._from = self._to = (float("-inf"), 0)

    def refresh(self) -> None:
        """New notes may have come."""
        self._notes = None

    def at(self, end: int) -> float | None:
        """When the log had reached that size; None while no note says so."""
        while self._to[1] < end:
            if self._notes is None:
                self._notes = self._more()
            note = next(self._notes, None)
            if note is None:
                return None
            self._from, self._to = self._to, note
        (before, low), (at, high) = self._from, self._to
        since = max(before, at - LOOK_S)
        return since + (at - since) * min(1.0, max(0.0, (end - low) / (high - low))) if high > low else at


def cut(line: bytes, longest: int = LONGEST_LINE) -> list[bytes]:
    """A line in pieces that are not too long, none of which ends within a character; those of a progress bar end where
    it is drawn anew."""
    if len(line) <= longest:
        return [line]
    pieces = []
    start = 0
    while len(line) - start > longest:
        end = line.rfind(b"\r", start + 1, start + longest) + 1
        if end <= start + 1:
            end = start + longest
            end -= next((step for step in range(4) if line[end - step] & 0xC0 != 0x80), 0)
        pieces.append(line[start:end])
        start = end
    return [*pieces, line[start:]]


def split_lines(chunks: Iterable[bytes], offset: int = 0, *, whole: bool = True) -> Iterator[tuple[bytes, int]]:
    """The lines of a stretch of a log, and where in the log each ends. With `whole`, what stands at the end without a
    newline is a line too."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            *pieces, last = cut(line)
            for piece in pieces:
                offset += len(piece)
                yield piece, offset
            offset += len(last) + 1
            yield last, offset
        *pieces, rest = cut(rest)
        for piece in pieces:
            offset += len(piece)
            yield piece, offset
    if rest and whole:
        yield rest, offset + len(rest)


def merged(logs: Iterable[Iterable[Line]]) -> Iterator[Line]:
    """The lines of all in the order of time. Reads no further ahead than one line of each."""
    return heapq.merge(*logs, key=lambda line: line.at)


Who = TypeVar("Who", int, str)
Said = TypeVar("Said")


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
        self._groups: Groups[str, Line] = Groups()

    def feed(self, line: Line) -> Iterator[Folded]:
        """One more line. Gives those that nobody will join any more."""
        while self._groups.ready(line.at - WINDOW_S):
            yield self._pop()
        self._groups.feed(line.at, line.replica, line.text, line)

    def close(self, before: float = float("inf")) -> Iterator[Folded]:
        """What was said before that time and has waited long enough."""
        while self._groups.ready(before):
            yield self._pop()

    def _pop(self) -> Folded:
        line, replicas = self._groups.pop()
        return Folded(line, in_order(replicas))


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=_order))


def folded(lines: Iterable[Line]) -> Iterator[Folded]:
    fold = Fold()
    for line in lines:
        yield from fold.feed(line)
    yield from fold.close()


def unfolded(lines: Iterable[Line]) -> Iterator[Folded]:
    return (Folded(line, (line.replica,)) for line in lines)


def _order(name: str) -> tuple[str, int]:
    role, _, index = name.rpartition("-")
    return (role, int(index)) if index.isdigit() else (name, -1)


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


def shown(text: str) -> str:
    """A line as it would stand on a terminal in the end, without anything that a terminal would obey."""
    if text.isprintable():
        return text
    text = _STYLE.sub("", text).rstrip().rpartition("\r")[2]  # a progress bar: what it wrote over is gone
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text)


class Excerpt(NamedTuple):
    """A few lines of a log. `error` says which of them the error is; None when there was none, and it is the end."""

    lines: tuple[Line, ...]
    error: int | None


def first_error(lines: Iterable[Line]) -> Excerpt:
    """The first traceback of a log, or else the first line that speaks of an error, or else its end."""
    before: deque[Line] = deque(maxlen=CONTEXT)
    spoken: list[Line] = []
    place: int | None = None
    rest = iter(lines)
    for line in rest:
        if TRACEBACK in line.text:
            return Excerpt((*before, *_traceback(line, rest)), len(before))
        if place is None and speaks_of_error(line.text):
            spoken, place = [*before, line], len(before)
        elif place is not None and len(spoken) <= place + AFTER:
            spoken.append(line)
        before.append(line)
    return Excerpt(tuple(spoken) if place is not None else tuple(before), place)


def speaks_of_error(text: str) -> bool:
    return TRACEBACK in text or _ERROR.search(text) is not None


def _traceback(first: Line, rest: Iterator[Line]) -> Iterator[Line]:
    """All of a traceback, with those that follow from it, and a little more."""
    prefix = first.text[: first.text.index(TRACEBACK)]  # such as the `[rank0]: ` of torchrun
    left: int | None = None  # None while inside of a traceback
    yield first
    for line in islice(rest, LONGEST_TRACEBACK):
        text = line.text.removeprefix(prefix)
        if TRACEBACK in text:
            left = None
        elif left is None and text.strip() and not text[0].isspace():
            left = AFTER
        elif left is not None:
            if left == 0:
                return
            left -= 1
        yield line
