"""Files of a replica inside the output of its container: for where a pod's log is all that comes home.

Plain lines are the log of the pod's first member, for whoever reads it with kubectl. Everything else stands in frames:
lines of `::phalanx ` and compact JSON, never longer than what runtimes leave in one piece. Pieces name their place in
their file, so that reading a stretch twice does no harm, and positions (`at`) stand before every batch of plain lines,
so that reading may begin anywhere. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from phalanx import run_paths

PREFIX = b"::phalanx "
LONGEST = 8192  # bytes of a line: Docker and containerd cut at 16 KiB
BATCH_LINES = 64  # plain lines between two positions
BATCH_BYTES = 32_768
LARGEST_WHOLE = 16 << 20  # of a file that comes whole: a figure, not a model
MOST_UNFINISHED = 16  # files of which only a part has come
FARTHEST = 1 << 44  # where a piece may stand
# Folders of the run itself, whose files travel where they are small
KEPT = (run_paths.OUTPUTS, run_paths.ARTIFACTS, run_paths.MODELS)
LONGEST_PATH = 400  # of such a file, with room for bytes of it beside
_OWN = (run_paths.AGENT, run_paths.END, run_paths.LOG, run_paths.SPOOL, run_paths.AGENT_LOG)
_NAME = re.compile(rf"(?:{run_paths.MEDIA}/)?[A-Za-z0-9_][A-Za-z0-9_.+=@-]{{0,199}}\Z")


class Piece(NamedTuple):
    """Bytes of a replica's file and where they stand in it. A whole one is the file from its first byte to its last,
    there at once: it replaces whatever was there."""

    member: str
    file: str
    offset: int
    data: bytes
    is_whole: bool = False


def is_file(name: str) -> bool:
    """Whether a file of an attempt's folder travels, and may be written where it arrives."""
    if name in _OWN:
        return True
    is_tracked = name.startswith(f"{run_paths.MEDIA}/") or name.endswith((".points", ".events"))
    return is_tracked and _NAME.match(name) is not None


def is_kept(name: str) -> bool:
    """Whether this is a file of the run's own folders that travels: its path leads nowhere else, and is no draft."""
    top, *steps = name.split("/")
    return top in KEPT and bool(steps) and len(name) <= LONGEST_PATH and all(map(_is_step, steps))


def _is_step(step: str) -> bool:
    return bool(step) and step.isprintable() and len(step.encode()) <= 200 and step[0] != "." and "\\" not in step


def is_position(line: bytes) -> bool:
    """Whether a line says where in the log the next plain one stands: from there on a stream may be read again."""
    found = _content(line)
    return found is not None and isinstance(found.get("at"), int)


class Encoder:
    """Makes the lines, each with its newline. `first`: whose log goes as it is. `is_quiet`: where nobody needs to begin
    in the middle, positions are told only where they cannot be known."""

    def __init__(self, first: str, *, is_quiet: bool = False) -> None:
        self.first = first
        self.is_quiet = is_quiet
        self._assumed = 0  # where whoever read everything takes the next plain line to stand

    def greeting(self) -> bytes:
        """That there is an agent, before there is anything else to say."""
        return self._position(0, is_cut=False)

    def log(self, offset: int, data: bytes) -> Iterator[bytes]:
        """A stretch of the first member's log. One that ends within a line is shown as a line of its own, of which the
        reader is told that its newline is not the log's."""
        lines = left = 0
        for line in io.BytesIO(data):
            text = line[:-1] if line.endswith(b"\n") else line
            if _is_plain(text):
                is_cut = text is line
                if is_cut or self._assumed != offset or (not self.is_quiet and (lines <= 0 or left <= 0)):
                    yield self._position(offset, is_cut=is_cut)
                    lines, left = BATCH_LINES, BATCH_BYTES
                yield text + b"\n"
                lines -= 1
                left -= len(line)
                self._assumed = offset + len(line)
            else:
                yield from self.grown(self.first, run_paths.LOG, offset, line)
            offset += len(line)

    def _position(self, offset: int, *, is_cut: bool) -> bytes:
        content = {"r": self.first, "f": run_paths.LOG, "at": offset}
        return _line({**content, "cut": 1} if is_cut else content)

    def grown(self, member: str, file: str, offset: int, data: bytes) -> Iterator[bytes]:
        """What was added to a file that grows."""
        content: dict[str, Any] = {"r": member, "f": file}
        size = _room({**content, "o": FARTHEST})
        for start in range(0, len(data), size):
            yield _line({**content, "o": offset + start, "d": _text(data[start : start + size])})

    def whole(self, member: str, file: str, data: bytes) -> Iterator[bytes]:
        """A file that is there at once. Nothing of one that is too large to be held in one piece."""
        if len(data) > LARGEST_WHOLE:
            return
        content: dict[str, Any] = {"r": member, "f": file, "n": len(data)}
        size = _room({**content, "o": FARTHEST})
        for start in range(0, len(data) or 1, size):
            yield _line({**content, "o": start, "d": _text(data[start : start + size])})


def _is_plain(text: bytes) -> bool:
    """Whether a line comes through as it is: not every runtime keeps bytes that are no text."""
    if len(text) >= LONGEST or text.startswith(PREFIX):
        return False
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _line(content: dict[str, Any]) -> bytes:
    return PREFIX + json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _room(content: dict[str, Any]) -> int:
    """How many bytes find room in a frame of such content."""
    return max(3, (LONGEST - len(_line({**content, "d": ""}))) // 4 * 3)


class Decoder:
    """Takes the lines of a container's output and gives the pieces of files that they hold. `members`: of the pod, the
    first before all others; their further processes (`worker-0.1`) are the pod's, too."""

    def __init__(self, members: Collection[str]) -> None:
        self.members = tuple(members)
        self.has_agent = False  # whether a frame was seen: without one, all lines are the log from its beginning on
        self._position: int | None = 0
        self._is_cut = False
        self._unfinished: dict[tuple[str, str, int], bytearray] = {}

    def lose(self) -> None:
        """What follows does not follow what came before: plain lines are not taken until a position is told."""
        self._position = None

    def feed(self, line: bytes) -> list[Piece]:
        """What a whole line says, with its newline or without. Of lines that were cut off, wait for the rest."""
        if line.endswith(b"\n"):
            line = line[:-1]
        if line.startswith(PREFIX):
            content = _content(line)
            if content is not None and self._is_ours(content):
                self.has_agent = True
                return self._frame(content)
            if self.has_agent:
                return []  # damaged: an agent sends such lines of a log inside of frames
        return self._plain(line)

    def _plain(self, line: bytes) -> list[Piece]:
        if self._position is None:
            return []
        data = line if self._is_cut else line + b"\n"
        self._is_cut = False
        piece = Piece(self.members[0], run_paths.LOG, self._position, data)
        self._position += len(data)
        return [piece]

    def _is_ours(self, content: dict[str, Any]) -> bool:
        member, file = content.get("r"), content.get("f")
        if not isinstance(member, str) or not isinstance(file, str) or not (is_file(file) or is_kept(file)):
            return False
        replica, _, process = member.partition(".")
        is_process = process.isdigit() and process.isascii() and len(process) < 7
        return member in self.members or (replica in self.members and is_process)

    def _frame(self, content: dict[str, Any]) -> list[Piece]:
        member, file = content["r"], content["f"]
        at = _number(content.get("at"))
        if at is not None:
            if (member, file) == (self.members[0], run_paths.LOG):
                self._position, self._is_cut = at, content.get("cut") == 1
            return []
        offset, data = _number(content.get("o")), _bytes(content.get("d"))
        if offset is None or data is None:
            return []
        if "n" not in content:
            if is_kept(file):
                return []  # these come whole
            return [Piece(member, file, offset, data)] if data else []
        total = _number(content["n"])
        if total is None or total > LARGEST_WHOLE:
            return []
        return self._gather(member, file, offset, data, total)

    def _gather(self, member: str, file: str, offset: int, data: bytes, total: int) -> list[Piece]:
        """A whole file once all of it is there."""
        key = (member, file, total)
        before = self._unfinished.pop(key, bytearray())
        gathered = before if offset else bytearray()
        if offset > len(gathered) or offset + len(data) > total:
            return []  # its beginning was missed
        gathered[offset : offset + len(data)] = data
        if len(gathered) == total:
            return [Piece(member, file, 0, bytes(gathered), is_whole=True)]
        while len(self._unfinished) >= MOST_UNFINISHED:
            del self._unfinished[next(iter(self._unfinished))]
        self._unfinished[key] = gathered
        return []


def _content(line: bytes) -> dict[str, Any] | None:
    """Of a frame; None when it is none."""
    if not line.startswith(PREFIX) or len(line) > LONGEST:
        return None
    try:
        found = json.loads(line[len(PREFIX) :])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _number(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= FARTHEST else None


def _bytes(value: Any) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        return None
