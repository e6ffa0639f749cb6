"""Readers of pod logs, which write them to the replicas' log files as they grow.

Without shared storage, a pod's log is the only channel from it; its other files are embedded as frames. Reading resumes
at the last position after a broken connection and after a restart of this process.
"""

from __future__ import annotations

import heapq
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from phalanx import atomic_files, run_paths
from phalanx.backends.kubernetes.cluster.api import Api, ApiFault, ApiUnreachable, Stream
from phalanx.frames import Decoder, Piece, is_file, is_kept, is_position
from phalanx.home.attempts import AttemptFolder

FOLLOWED = 24  # logs that are followed concurrently
THREADS = 32  # the other logs take turns
POLL_S = 2.0  # between two reads of a log that is not followed
POLLS_APART_S = 0.1  # between reads of all such logs, to limit the load on the API server
AGAIN_S, SLOWEST_S = 0.3, 5.0
UNREACHABLE_S = 10.0  # then the log of a finished pod is given up
CLOSE_S = 5.0  # for threads to end; one that waits for a dead server ends with the process
IDLE_S = 5.0  # then an idle thread ends
OPEN_FILES = 8
LONGEST = 64 << 20  # bytes of a line
FARTHEST_GAP = 1 << 30  # bytes between the end of a file and a piece of it
NO_AGENT = b"phalanx: no Python"  # the first words of a container that starts without an agent
_STAMPED = re.compile(rb"(\d{4}-\d\d-\d\dT\S+) (.*)", re.DOTALL)


def stamped(line: bytes) -> tuple[bytes, bytes]:
    """The time and the text of a line. Both are empty for a line without a time: that is an error message of the
    kubelet in the place of the log, such as "unable to retrieve container logs"."""
    found = _STAMPED.match(line)
    return (found[1], found[2]) if found is not None else (b"", b"")


class LogPosition(NamedTuple):
    """How far a log has been read: the time of the last line, the number of lines with that time, and the number of
    bytes if no frame has arrived."""

    stamp: bytes = b""
    number: int = 0
    plain: int = 0


class PodLogReader:
    """The reader of one pod's log. `source`: the names of the pod and its container. `members`: its replicas and their
    processes, the first before all others. `heard` receives complete files about the state of a replica."""

    def __init__(  # noqa: PLR0913 - all that a log has to do with
        self,
        api: Api,
        attempt_folder: AttemptFolder,
        source: tuple[str, str],
        members: tuple[str, ...],
        heard: Callable[[str, str, bytes], None],
        *,
        kept: Mapping[str, Any] | None = None,
    ) -> None:
        self.api, self.attempt_folder = api, attempt_folder
        self.pod, self.container = source
        self.members, self.heard = members, heard
        self.decoder = Decoder(members)
        self.at = LogPosition()
        self.safe = LogPosition()  # where a reader without history may start
        self.before = 0  # bytes of a log without frames that earlier readers have read
        self.had_agent = False
        self.is_agentless = False
        self.over_at: float | None = None  # since when no more output is expected
        self.is_done = False
        self.is_busy = False
        self.is_halted = False
        self.trouble = ""
        self.last_line_at = time.monotonic()
        self._stream: Stream | None = None
        self._files: dict[tuple[str, str], int] = {}
        self._begun = b""
        if kept is not None:
            self._restore(kept)

    # where we are

    def _restore(self, kept: Mapping[str, Any]) -> None:
        self.before = int(kept.get("plain", 0))
        self.at = self.safe = LogPosition(str(kept.get("stamp", "")).encode(), int(kept.get("count", 0)), self.before)
        self.is_agentless, self.had_agent = bool(kept.get("is_agentless")), bool(kept.get("has_agent"))
        if self.had_agent:
            self.decoder.lose()

    def kept(self) -> dict[str, Any]:
        """The position for a later reader."""
        has_agent = self.had_agent or self.decoder.has_agent
        at = self.safe if has_agent else self.at
        position = {"stamp": at.stamp.decode("ascii", "replace"), "count": at.number, "has_agent": has_agent}
        return {**position, "plain": 0 if has_agent else at.plain, "is_agentless": self.is_agentless}

    def hurry(self) -> None:
        """The pod is over: a stream without data is broken."""
        stream = self._stream
        if stream is not None and time.monotonic() - self.last_line_at > UNREACHABLE_S / 2:
            stream.close()

    def halt(self) -> None:
        """Stop reading soon. Another reader continues from this position."""
        self.is_halted = True
        stream = self._stream
        if stream is not None:
            stream.close()

    # reading

    def read(self, *, follow: bool) -> None:
        """Read from the current position to the current end or, with `follow`, to the end of the container. Raises
        ApiFault, ApiUnreachable, OSError."""
        from_stamp, to_skip = self.at.stamp, self.at.number
        since = from_stamp.decode("ascii") or None
        self._begun = b""
        with self.api.log(self.pod, self.container, follow=follow, since=since) as stream:
            self._stream = stream
            try:
                for raw in stream if not self.is_halted else ():
                    self.last_line_at = time.monotonic()
                    line = self._begun + raw
                    if not raw.endswith(b"\n") and len(line) < LONGEST:
                        self._begun = line  # the rest follows
                        continue
                    self._begun = b""
                    stamp, text = stamped(line)
                    if stamp < from_stamp or not stamp:
                        continue
                    if stamp == from_stamp and to_skip > 0:
                        to_skip -= 1
                        continue
                    self._take(stamp, text)
            finally:
                self._stream = None
        if self._begun and not follow and self.over_at is not None and not self.is_halted:
            stamp, text = stamped(self._begun)  # the very last line has no newline
            if stamp and (stamp > from_stamp or (stamp == from_stamp and to_skip <= 0)):
                self._take(stamp, text + b"\n")

    def _take(self, stamp: bytes, text: bytes) -> None:
        was = self.at
        if is_position(text):
            self.safe = was
        if not was.plain and not self.decoder.has_agent and text.startswith(NO_AGENT):
            self.is_agentless = True
        plain = was.plain
        for piece in self.decoder.feed(text):
            if not self.decoder.has_agent and not piece.is_whole:
                piece = piece._replace(offset=piece.offset + self.before)  # noqa: PLW2901
                plain = piece.offset + len(piece.data)
            self._put(piece)
        # Only written data counts as read. The position is replaced in one step, because another thread saves it.
        self.at = LogPosition(stamp, was.number + 1 if stamp == was.stamp else 1, plain)

    def _put(self, piece: Piece) -> None:
        if is_kept(piece.file):
            self._keep(piece)
            return
        if not is_file(piece.file):
            return
        if piece.is_whole and piece.file in (run_paths.AGENT, run_paths.END):
            self.heard(piece.member, piece.file, piece.data)
        elif piece.is_whole:
            folder = self._folder(piece.member, piece.file)
            atomic_files.write_atomic(folder / piece.file.rpartition("/")[2], piece.data, sync=False)
        else:
            self._write(piece)

    def _keep(self, piece: Piece) -> None:
        """Write a complete file into the run's folders. Never writes through a link."""
        path = self.attempt_folder.run_folder / piece.file
        above = [path, *path.parents][: piece.file.count("/") + 1]
        if any(step.is_symlink() for step in above) or path.is_dir():
            return
        atomic_files.make_private(path.parent, self.attempt_folder.run_folder)
        atomic_files.write_atomic(path, piece.data, sync=False)

    def _folder(self, member: str, file: str) -> Any:
        folder = self.attempt_folder.folder(member)
        if "/" in file:
            folder /= file.rpartition("/")[0]
        if not folder.is_dir():
            atomic_files.make_private(folder, self.attempt_folder.run_folder)
        return folder

    def _write(self, piece: Piece) -> None:
        key = (piece.member, piece.file)
        descriptor = self._files.get(key)
        if descriptor is None:
            if len(self._files) >= OPEN_FILES:
                self.close()
            path = self._folder(*key) / piece.file.rpartition("/")[2]
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = self._files[key] = os.open(path, flags, 0o600)
        if piece.offset > os.fstat(descriptor).st_size + FARTHEST_GAP:
            return
        data, offset = memoryview(piece.data), piece.offset
        while data:
            written = os.pwrite(descriptor, data, offset)
            data, offset = data[written:], offset + written

    def close(self) -> None:
        for descriptor in self._files.values():
            with suppress(OSError):
                os.close(descriptor)
        self._files.clear()

    # to the end

    def attend(self, *, follow: bool) -> float | None:
        """Try once. Return the delay until the next try; None if everything has been read."""
        was_over = self.over_at is not None
        began = time.monotonic()
        try:
            self.read(follow=follow and not was_over)
            self.trouble = ""
        except ApiFault as fault:
            if fault.code == 404 and was_over:
                self.finish()  # the log was deleted with its pod
                return None
            self.trouble = str(fault)
        except ApiUnreachable as fault:
            self.trouble = str(fault)
        except OSError as fault:  # the local disk failed, or the run was removed
            self.trouble = str(fault)
            self.close()
        else:
            if was_over and not self.is_halted:
                self.finish()
                return None
        if self.is_halted:
            self.close()
            return None
        if self.over_at is not None and time.monotonic() - self.over_at > UNREACHABLE_S and was_over:
            self.finish()
            return None
        return AGAIN_S if time.monotonic() - began > 1.0 else min(SLOWEST_S, AGAIN_S * 3)

    def finish(self) -> None:
        self.close()
        self.is_done = True


class LogReaderPool:
    """A thread pool for all logs: most are followed, the rest are polled in turn."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.due: list[tuple[float, int, PodLogReader]] = []  # a heap
        self.busy: set[PodLogReader] = set()
        self.threads = self.idle = self.followed = self.number = 0
        self.next_poll_at = 0.0
        self.closed = threading.Event()

    def add(self, reader: PodLogReader) -> None:
        with self.changed:
            self._push(reader, 0.0)

    def wake(self, reader: PodLogReader) -> None:
        """The pod is over: read its log now."""
        with self.changed:
            if not reader.is_busy and not reader.is_done:
                self._push(reader, 0.0)

    def _push(self, reader: PodLogReader, at: float) -> None:
        self.number += 1
        heapq.heappush(self.due, (at, self.number, reader))
        if self.idle == 0 and self.threads < THREADS and not self.closed.is_set():
            self.threads += 1
            threading.Thread(target=self._work, name="phalanx-logs", daemon=True).start()
        self.changed.notify()

    def close(self) -> None:
        """Stop reading, close all files and end the threads."""
        with self.changed:
            self.closed.set()
            self.changed.notify_all()
            for reader in self.busy:
                reader.halt()
            self.changed.wait_for(lambda: not self.threads, CLOSE_S)
            for _, _, reader in self.due:
                if reader not in self.busy:
                    reader.close()

    def _next(self) -> PodLogReader | None:
        """The next reader that is due; None after an idle period."""
        until = time.monotonic() + IDLE_S
        while not self.closed.is_set():
            now = time.monotonic()
            while self.due and (self.due[0][2].is_busy or self.due[0][2].is_done):
                heapq.heappop(self.due)
            if self.due and self.due[0][0] <= now:
                reader = heapq.heappop(self.due)[2]
                reader.is_busy = True
                self.busy.add(reader)
                return reader
            if now >= until and not self.due:
                return None
            self.idle += 1
            self.changed.wait(min(until - now if not self.due else self.due[0][0] - now, IDLE_S) + 0.001)
            self.idle -= 1
        return None

    def _work(self) -> None:
        while True:
            with self.changed:
                reader = self._next()
                if reader is None:
                    self.threads -= 1
                    self.changed.notify_all()
                    return
                is_followed = self.followed < FOLLOWED
                self.followed += is_followed
            pause_s: float | None = POLL_S
            try:
                if not is_followed:
                    self._take_turn(reader)
                pause_s = reader.attend(follow=is_followed)
            finally:
                with self.changed:
                    self.followed -= is_followed
                    reader.is_busy = False
                    self.busy.discard(reader)
                    if pause_s is not None:
                        self._push(reader, time.monotonic() + (pause_s if is_followed else max(pause_s, POLL_S)))

    def _take_turn(self, reader: PodLogReader) -> None:
        if reader.over_at is not None or not reader.at.number:
            return  # the first and last output is not delayed
        with self.changed:
            at = max(self.next_poll_at, time.monotonic())
            self.next_poll_at = at + POLLS_APART_S
        self.closed.wait(max(0.0, at - time.monotonic()))


def read_positions(attempt_folder: AttemptFolder) -> dict[str, Any]:
    found = atomic_files.read_json(_positions_file(attempt_folder))
    return found if isinstance(found, dict) else {}


def write_positions(attempt_folder: AttemptFolder, kept: Mapping[str, Any]) -> None:
    atomic_files.make_private(_positions_file(attempt_folder).parent, attempt_folder.run_folder)
    atomic_files.write_atomic(_positions_file(attempt_folder), json.dumps(kept).encode(), sync=False)


def _positions_file(attempt_folder: AttemptFolder) -> Any:
    return attempt_folder.run_folder / run_paths.positions_file(attempt_folder.attempt)


def log_size(attempt_folder: AttemptFolder, replica: str) -> int:
    try:
        return (attempt_folder.folder(replica) / run_paths.LOG).stat().st_size
    except OSError:
        return 0
