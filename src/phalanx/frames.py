"""Frames: transport of a replica's files in the output of its container, where only the pod log is readable.

Plain lines are the log of the pod's first member, readable with kubectl. Everything else is in frames: lines of
`::phalanx ` and compact JSON, short enough that container runtimes do not split them. Each piece has its offset in its
file, so reading a part twice does no harm. A position (`at`) precedes every batch of plain lines, so reading can start
anywhere. Standard library only, Python 3.8+.
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
LONGEST = 8192  # bytes of a line: Docker and containerd split at 16 KiB
BATCH_LINES = 64  # plain lines between two positions
BATCH_BYTES = 32_768
LARGEST_WHOLE = 16 << 20  # bytes of a file sent whole: enough for a figure, not for a model
MOST_UNFINISHED = 16  # incomplete files kept at a time
FARTHEST = 1 << 44  # largest offset of a piece
# Folders of the run itself, whose files travel where they are small
KEPT = (run_paths.OUTPUTS, run_paths.ARTIFACTS, run_paths.MODELS)
LONGEST_PATH = 400  # of such a file, with room for bytes of it beside
_OWN = (
    *(run_paths.AGENT, run_paths.END, run_paths.LOG, run_paths.SPOOL, run_paths.AGENT_LOG),
    run_paths.WORKING_FILES,
)
_NAME = re.compile(rf"(?:{run_paths.MEDIA}/)?[A-Za-z0-9_][A-Za-z0-9_.+=@-]{{0,199}}\Z")


class Piece(NamedTuple):
    """Bytes of a replica's file and their offset. A whole piece is the complete file and replaces the existing one."""

    member: str
    file: str
    offset: int
    data: bytes
    is_whole: bool = False


def is_file(name: str) -> bool:
    """Whether a file of an attempt's folder is sent, and may be written by the receiver."""
    if name in _OWN:
        return True
    is_tracked = name.startswith(f"{run_paths.MEDIA}/") or name.endswith((".points", ".events"))
    return is_tracked and _NAME.match(name) is not None


def is_kept(name: str) -> bool:
    """Whether a file of the run's folders is sent: its path stays in them and is not a hidden file."""
    top, *steps = name.split("/")
    return top in KEPT and bool(steps) and len(name) <= LONGEST_PATH and all(map(_is_step, steps))


def _is_step(step: str) -> bool:
    return bool(step) and step.isprintable() and len(step.encode()) <= 200 and step[0] != "." and "\\" not in step


def is_position(line: bytes) -> bool:
    """Whether a line has the offset of the next plain line: a stream can be read from there."""
    found = _content(line)
    return found is not None and isinstance(found.get("at"), int)


class Encoder:
    """Produces the lines, each with its newline. `first`: the member whose log is written as plain lines. `is_quiet`:
    if no reader starts in the middle, write positions only where a reader cannot know them."""

    def __init__(self, first: str, *, is_quiet: bool = False) -> None:
        self.first = first
        self.is_quiet = is_quiet
        self._assumed = 0  # the offset that a reader of everything assumes for the next plain line

    def greeting(self) -> bytes:
        """The first frame, which announces the agent."""
        return self._position(0, is_cut=False)

    def log(self, offset: int, data: bytes) -> Iterator[bytes]:
        """A part of the first member's log. An unfinished last line is written as a line with a `cut` mark: its newline
        is not part of the log."""
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
        """Data appended to a growing file."""
        content: dict[str, Any] = {"r": member, "f": file}
        size = _room({**content, "o": FARTHEST})
        for start in range(0, len(data), size):
            yield _line({**content, "o": offset + start, "d": _text(data[start : start + size])})

    def whole(self, member: str, file: str, data: bytes) -> Iterator[bytes]:
        """A complete file; nothing if it is too large."""
        if len(data) > LARGEST_WHOLE:
            return
        content: dict[str, Any] = {"r": member, "f": file, "n": len(data)}
        size = _room({**content, "o": FARTHEST})
        for start in range(0, len(data) or 1, size):
            yield _line({**content, "o": start, "d": _text(data[start : start + size])})


def _is_plain(text: bytes) -> bool:
    """Whether a line can be written unchanged: not every runtime preserves bytes that are not UTF-8, and containerd
    drops a carriage return at the end of a line."""
    if len(text) >= LONGEST or text.startswith(PREFIX) or text.endswith(b"\r"):
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
    """How many bytes of data fit into a frame with this content."""
    return max(3, (LONGEST - len(_line({**content, "d": ""}))) // 4 * 3)


class Decoder:
    """Decodes the lines of a container's output to pieces of files. `members`: the replicas of the pod, the first one
    first; their further processes (`worker-0.1`) belong to the pod too."""

    def __init__(self, members: Collection[str]) -> None:
        self.members = tuple(members)
        self.has_agent = False  # whether a frame was seen; without one, all lines are the log from its start
        self._position: int | None = 0
        self._is_cut = False
        self._unfinished: dict[tuple[str, str, int], bytearray] = {}

    def lose(self) -> None:
        """Lines were lost: ignore plain lines until the next position."""
        self._position = None

    def feed(self, line: bytes) -> list[Piece]:
        """Decode a complete line, with or without its newline. Callers must wait for the rest of an incomplete line."""
        if line.endswith(b"\n"):
            line = line[:-1]
        if line.startswith(PREFIX):
            content = _content(line)
            if content is not None and self._is_ours(content):
                self.has_agent = True
                return self._frame(content)
            if self.has_agent:
                return []  # damaged: an agent sends such log lines in frames
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
                return []  # these are sent whole
            return [Piece(member, file, offset, data)] if data else []
        total = _number(content["n"])
        if total is None or total > LARGEST_WHOLE:
            return []
        return self._gather(member, file, offset, data, total)

    def _gather(self, member: str, file: str, offset: int, data: bytes, total: int) -> list[Piece]:
        """The whole file, once all of it has arrived."""
        key = (member, file, total)
        before = self._unfinished.pop(key, bytearray())
        gathered = before if offset else bytearray()
        if offset > len(gathered) or offset + len(data) > total:
            return []  # its start was missed
        gathered[offset : offset + len(data)] = data
        if len(gathered) == total:
            return [Piece(member, file, 0, bytes(gathered), is_whole=True)]
        while len(self._unfinished) >= MOST_UNFINISHED:
            del self._unfinished[next(iter(self._unfinished))]
        self._unfinished[key] = gathered
        return []


def _content(line: bytes) -> dict[str, Any] | None:
    """The content of a frame; None if the line is not a frame."""
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
