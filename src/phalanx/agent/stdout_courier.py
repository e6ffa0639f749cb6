"""Forwards what replicas write into their folders to the output of their container, which the scheduler collects.

The command writes to files and never waits for the agent, which reads them a few times a second and writes as much as
the output accepts. A blocked output, without a reader, costs only these records. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator

from phalanx import run_paths
from phalanx.frames import KEPT, LARGEST_WHOLE, LONGEST, Encoder, is_file

STRETCH = 1 << 18  # bytes read from one file at once
MOST_WAITING = 1 << 20  # bytes buffered for the output
TURN_S = 0.05  # of work per pass: training needs the processor more than its log does
CUT_S = 2.0  # an unfinished line is forwarded after this time
STUCK_S = 30.0  # timeout at the end, for a blocked output
LAST_S = 300.0  # timeout at the end, in total
WHOLE = (run_paths.AGENT, run_paths.END)
GROWING = (run_paths.LOG, run_paths.SPOOL, run_paths.AGENT_LOG)
ENDINGS = (".points", ".events")


class Output:
    """A file descriptor that may be slow, blocked or closed, with a bounded buffer."""

    def __init__(self, descriptor: int = 1) -> None:
        self.descriptor = descriptor
        self.waiting = bytearray()
        self.is_gone = False
        try:
            os.set_blocking(descriptor, False)
        except OSError:
            self.is_gone = True

    @property
    def has_room(self) -> bool:
        return len(self.waiting) < MOST_WAITING

    def put(self, line: bytes) -> None:
        if not self.is_gone:
            self.waiting += line

    def drain(self) -> int:
        """Write as much as it accepts now; return the number of bytes."""
        taken = 0
        while self.waiting and not self.is_gone:
            try:
                count = os.write(self.descriptor, self.waiting[:65_536])
            except BlockingIOError:
                break
            except InterruptedError:
                continue
            except OSError:
                self.is_gone = True
                self.waiting.clear()
                break
            del self.waiting[:count]
            taken += count
        return taken

    def wait(self, patience_s: float) -> None:
        """Wait until it accepts data, or until the timeout."""
        if self.waiting and not self.is_gone:
            select.select([], [self.descriptor], [], patience_s)

    def release(self) -> None:
        """Restore its flags: others may write to it."""
        try:
            os.set_blocking(self.descriptor, True)
        except OSError:
            pass


def attempt_files(replicas: str, attempt: int) -> Iterator[tuple[str, str, str]]:
    """The files of an attempt to deliver: member, file name and path. Ends come last."""
    for member in _listed(replicas):
        folder = os.path.join(replicas, member, run_paths.attempt_name(attempt))
        names = [name for name in _listed(folder) if name not in WHOLE and name != run_paths.MEDIA]
        names += [f"{run_paths.MEDIA}/{name}" for name in _listed(os.path.join(folder, run_paths.MEDIA))]
        for name in (WHOLE[0], *names, WHOLE[1]):
            path = os.path.join(folder, name)
            if is_file(name) and os.path.isfile(path) and not os.path.islink(path):
                yield member, name, path


def kept_files(run_folder: str, outputs: str | None) -> Iterator[tuple[str, str]]:
    """The files of a run to keep, by name in the run's folder and path: outputs, unless they are stored
    elsewhere, and what the client stores beside them. Names that begin with a dot are drafts."""
    bases = [(base, os.path.join(run_folder, base)) for base in KEPT[1:]]
    bases += [(KEPT[0], outputs)] if outputs is not None else []
    for inside, base in bases:
        for folder, folders, names in os.walk(base):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                path = os.path.join(folder, name)
                if not name.startswith(".") and os.path.isfile(path):
                    yield f"{inside}/{os.path.relpath(path, base).replace(os.sep, '/')}", path


def is_growing(name: str) -> bool:
    return name in GROWING or (name.endswith(ENDINGS) and "/" not in name)


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


class StdoutCourier:
    """`first`: the member whose log is written unencoded. `is_log_alone`: everything else is delivered another way."""

    def __init__(self, replicas: str, attempt: int, first: str, output: Output, *, is_log_alone: bool = False) -> None:
        self.replicas = replicas
        self.attempt = attempt
        self.first = first
        self.output = output
        self.is_log_alone = is_log_alone
        self.encoder = Encoder(first, is_quiet=is_log_alone)
        self.sent: dict[str, int] = {}  # offset by path; for whole files their modification time
        self.cut: tuple[int, float] | None = None  # start of an unfinished line, and when it was first seen
        self.left_behind: set[str] = set()  # too large to be sent this way
        self.kept: list[tuple[str, str]] = []  # files of the run's folders to send before the ends
        self.begin = 0

    def greet(self) -> None:
        """Announce to the reader of the output that there is an agent."""
        self.output.put(self.encoder.greeting())
        self.output.drain()

    def send_everything(self) -> None:
        """Send everything from now on: the other way of delivery has failed."""
        self.is_log_alone = self.encoder.is_quiet = False

    def turn(self, *, is_last: bool = False) -> bool:
        """Forward new data for a moment, as far as the output accepts it. True when nothing is left."""
        until = time.monotonic() + TURN_S
        while True:
            is_done = self._pass_on(is_last)
            self.output.drain()
            if is_done or not self.output.has_room or time.monotonic() >= until:
                return is_done and not self.output.waiting

    def finish(self, most_s: float = LAST_S, pulse: Callable[[], object] = lambda: None) -> bool:
        """Forward everything, unless the output is blocked, or `pulse`, which is called meanwhile, says that it is
        time to exit. False in those cases."""
        now = time.monotonic()
        until, stuck_at = now + most_s, now + STUCK_S
        before = -1
        while not self.turn(is_last=True):
            is_late = pulse()
            now = time.monotonic()
            waiting = len(self.output.waiting)
            if waiting != before:
                before, stuck_at = waiting, now + STUCK_S
            if is_late or now > until or now > stuck_at:
                return False
            self.output.wait(0.2)
        return True

    def _pass_on(self, is_last: bool) -> bool:
        """Forward one chunk of every file with new data. True when nothing is left for now."""
        files = self._files()
        if files:
            self.begin = (self.begin + 1) % len(files)  # rotate the order, so that all files get their share
            files = files[self.begin :] + files[: self.begin]
        behind: set[str] = set()
        is_more = False
        for member, name, path in sorted(files, key=lambda file: file[1] == WHOLE[1]):
            if not self.output.has_room:
                return False
            if name == WHOLE[1] and member in behind:
                continue  # after its end a member has nothing more
            try:
                if not is_growing(name):
                    self._whole(member, name, path)
                    continue
                passed, left = self._grown(member, name, path, is_last)
            except OSError:
                continue  # removed or unreadable: continue with the others
            if left:
                behind.add(member)
            is_more = is_more or (passed > 0 and left > 0)
        return not is_more

    def _files(self) -> list[tuple[str, str, str]]:
        if self.is_log_alone:
            path = os.path.join(self.replicas, self.first, run_paths.attempt_name(self.attempt), run_paths.LOG)
            return [(self.first, run_paths.LOG, path)]
        along = [(self.first, name, path) for name, path in self.kept]
        return [*attempt_files(self.replicas, self.attempt), *along]

    def _grown(self, member: str, name: str, path: str, is_last: bool) -> tuple[int, int]:
        """How many bytes were forwarded, and how many are left."""
        offset = self.sent.get(path, 0)
        size = os.stat(path).st_size
        if size <= offset:
            return 0, 0
        with open(path, "rb") as stream:
            stream.seek(offset)
            data = stream.read(min(STRETCH, size - offset))
        is_plain = (member, name) == (self.first, run_paths.LOG)
        if is_plain and not is_last:
            data = self._whole_lines(offset, data)
        for line in self.encoder.log(offset, data) if is_plain else self.encoder.grown(member, name, offset, data):
            self.output.put(line)
        self.sent[path] = offset + len(data)
        return len(data), size - self.sent[path]

    def _whole_lines(self, offset: int, data: bytes) -> bytes:
        """The data without an unfinished last line, while it may still be finished."""
        end = data.rfind(b"\n") + 1
        if end == len(data) or len(data) - end >= LONGEST:
            self.cut = None
            return data
        now = time.monotonic()
        if self.cut is None or self.cut[0] != offset + end:
            self.cut = (offset + end, now)
        return data if now - self.cut[1] >= CUT_S else data[:end]

    def _whole(self, member: str, name: str, path: str) -> None:
        stat = os.stat(path)
        if self.sent.get(path) != stat.st_mtime_ns:
            if stat.st_size > LARGEST_WHOLE:
                self.left_behind.add(path)
            else:
                with open(path, "rb") as stream:
                    data = stream.read(LARGEST_WHOLE + 1)
                for line in self.encoder.whole(member, name, data):
                    self.output.put(line)
            self.sent[path] = stat.st_mtime_ns
