"""Starts the processes of a server, replaces those that die, and ends them with itself.

The supervisor has no threads and answers no requests, so that it can fork at any time. It keeps the listening sockets:
connections that wait for a process which was killed are accepted by its replacement.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from phalanx.errors import SystemFault
from phalanx.server.ops.access_log import ServerLog
from phalanx.server.processes.shared_state import SharedState
from phalanx.server.processes.worker import GRACE_S, Lifeline, ServerPlan, WakePipe, answer_requests, schedule

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHORT_S = 5.0  # a process that lives shorter than this may never be able to start
MOST_SHORT = 5  # of one member in a row
LONGEST_PAUSE_S = 5.0


class PoolMember:
    """A place for a process: what it does, and the process that does it now."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self.work = work
        self.pid = 0
        self.started_at = 0.0
        self.start_at = 0.0  # not before
        self.short_lives = 0


class ProcessPool:
    def __init__(
        self,
        plan: ServerPlan,
        shared: SharedState,
        sockets: Sequence[socket.socket],
        log: ServerLog,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`notify` tells the service manager what the server does."""
        self.shared = shared
        self.sockets = sockets
        self.log = log
        self.notify = notify
        self.lifeline = Lifeline()
        wake = WakePipe()
        self.members = [PoolMember("scheduler", lambda: schedule(plan, shared, self.lifeline, wake))]
        self.members += [
            PoolMember(f"process {number}", _answering(plan, shared, listening, self.lifeline, wake, number))
            for number, listening in enumerate(sockets, 1)
        ]

    def run(self, started: Callable[[], None]) -> None:
        """Until a signal arrives. Raises SystemFault when processes cannot start."""
        gc.collect()
        gc.freeze()  # collections in the processes leave the memory that they share untouched
        with _signals() as arrived:
            try:
                for member in self.members:
                    self._start(member)
                started()
                while not any(number in ENDING for number in arrived(self._pause_s())):
                    self._replace()
            finally:
                self._end(arrived)

    def _start(self, member: PoolMember) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            self._become(member)
        member.pid, member.started_at = pid, time.monotonic()

    def _become(self, member: PoolMember) -> None:
        """Of a forked process; never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # a terminal sends them to all; the supervisor decides
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            self.lifeline.let_go()
            self.shared.begin(self.members.index(member))
            member.work()
            code = 0
        except Exception as fault:  # noqa: BLE001 - the edge of a process: no one else can report it
            self.log.trouble(f"phalanx serve: the {member.name} failed: {type(fault).__name__}: {fault}")
            if os.environ.get("PHALANX_DEBUG"):
                traceback.print_exception(fault)
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _pause_s(self) -> float | None:
        waiting = [member.start_at for member in self.members if not member.pid]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def _replace(self) -> None:
        for member, status in self._dead():
            how = f"was killed by signal {-status}" if status < 0 else f"ended with code {status}"
            lived_s = time.monotonic() - member.started_at
            member.short_lives = member.short_lives + 1 if lived_s < SHORT_S else 0
            if member.short_lives > MOST_SHORT:
                raise SystemFault(f"the {member.name} of the server {how}, again and again", transient=False)
            pause_s = min(LONGEST_PAUSE_S, 0.1 * 2**member.short_lives) if member.short_lives > 1 else 0.0
            member.start_at = time.monotonic() + pause_s
            self.log.trouble(f"phalanx serve: the {member.name} {how} and is replaced")
        for member in self.members:
            if not member.pid and time.monotonic() >= member.start_at:
                self._start(member)

    def _dead(self) -> Iterator[tuple[PoolMember, int]]:
        """Members whose process has ended, and its exit code, or its signal as a negative number."""
        for member in self.members:
            if member.pid:
                with suppress(ChildProcessError):
                    pid, status = os.waitpid(member.pid, os.WNOHANG)
                    if not pid:
                        continue
                    self.shared.records[self.members.index(member)].clear_gauges()
                    member.pid = 0
                    yield member, os.waitstatus_to_exitcode(status)

    def _end(self, arrived: Callable[[float | None], list[int]]) -> None:
        """Gracefully; a second signal, or a process that does not end, ends the patience."""
        self.notify("STOPPING=1")
        for listening in self.sockets:
            listening.close()
        self.lifeline.let_go()
        deadline = time.monotonic() + GRACE_S + 5
        while any(member.pid for member in self.members):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or any(number in ENDING for number in arrived(left_s)):
                for member in self.members:
                    if member.pid:
                        os.kill(member.pid, signal.SIGKILL)
                deadline = time.monotonic() + 5
            for _ in self._dead():
                pass


def _answering(  # noqa: PLR0913, PLR0917 - the parts of a process
    plan: ServerPlan, shared: SharedState, listening: socket.socket, lifeline: Lifeline, wake: WakePipe, number: int
) -> Callable[[], None]:
    return lambda: answer_requests(plan, shared, listening, lifeline, wake, number)


@contextmanager
def _signals() -> Iterator[Callable[[float | None], list[int]]]:
    """Yields a function that waits for signals, at most so many seconds, and returns their numbers."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)

    def arrived(longest_s: float | None) -> list[int]:
        select.select([reader], [], [], longest_s)
        with suppress(BlockingIOError):
            return list(os.read(reader, 4096))
        return []

    def ignore(_number: int, _frame: FrameType | None) -> None:
        """The number comes through the pipe."""

    before: Mapping[int, object] = {number: signal.signal(number, ignore) for number in (*ENDING, signal.SIGCHLD)}
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield arrived
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # what it was before
        os.close(reader)
        os.close(writer)
