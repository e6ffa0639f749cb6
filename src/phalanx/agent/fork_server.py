"""A process that has imported the agent and forks one for each request: many times faster than starting Python.

It belongs to the process that started it, and ends with it; the agents go on. It serves one version of the agent only.
Requests may be sent before earlier ones are answered. It also says when an agent has ended, so that its owner need not
look all the time.
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from phalanx.agent import processes

FORK_SERVER = "--fork-server"
STOP_S = 5.0  # for the process to end when it is closed
MOST_DEATHS = 3  # in a row, of the process while it starts an agent; then the start has failed
MOST_DESCRIPTORS = 200  # in one message; the kernel takes 253
ROOM = 255  # bytes for the value of a mark: the longest name of a folder
_SIZE = struct.Struct("<I")
_ANSWER = struct.Struct("<Ii")  # the number of a request, and an exit code
_NO_REQUEST = 0  # instead of its number, if a process ends that was forked by one that was requested
# Decide the encoding of file names when Python starts. Other variables that only a new process reads (LD_PRELOAD, TZ)
# reach the command, which is a new process; the agent itself has those of its owner.
_OF_LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")
_OF_A_RUN = "PHALANX_RUN_ID"


class ForkServerLost(Exception):
    """The process was killed during a request. An agent may have been started, or not."""


class AgentStart(NamedTuple):
    """An agent to start, as if by its command line: in a new session, without an input, errors to `stderr`."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    mark: tuple[str, str]  # a variable that `processes.find_marked` finds it by
    stderr: int
    descriptors: Sequence[int] = ()  # open ones to pass on


class ForkServer:
    """The process for all agents that its owner starts. It is started with the first of them or before, and anew when
    it was killed, or if a start asks for another program or another encoding of file names."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: socket.socket | None = None
        self.serves: Any = None
        self.is_early = False  # started before the first request, and has not answered yet
        self.deaths = 0
        self.number = 0  # of the last request
        self.waiting: list[int] = []  # the numbers of requests without an answer, in order
        self.results: dict[int, Exception | None] = {}
        self.received = b""
        self.has_ended = False  # an agent, since `wait_for_end` was called

    def start_early(self, program: Sequence[str], environment: Mapping[str, str], mark: str) -> None:
        """Start the process before the first request, for those with such an environment. Raises OSError."""
        self._start(program, environment, mark, subprocess.DEVNULL)
        self.is_early = True

    def start_agent(self, program: Sequence[str], asked: AgentStart, timeout_s: float) -> None:
        """Start an agent and wait until it runs. Raises what `send` and `answers` have."""
        number = self.send(program, asked, timeout_s)
        fault = self.answers(timeout_s)[number]
        if fault is not None:
            raise fault

    def send(self, program: Sequence[str], asked: AgentStart, timeout_s: float) -> int:
        """Request an agent; `program` is its command line without arguments. Returns the number of the request, for
        `answers`. Raises OSError if nothing was started."""
        if self.channel is not None:
            self._read(0.0)
        if self.channel is None or self.serves != _served(program, asked.environment) or not self._is_alive():
            if self.channel is not None:
                self._wait(timeout_s)  # for what was requested from the earlier process
            self.close()
            self._start(program, asked.environment, asked.mark[0], asked.stderr)
        assert self.channel is not None
        self.number += 1
        self.waiting.append(self.number)
        try:
            self.channel.settimeout(timeout_s)
            _send(self.channel, asked, self.number)
        except socket.timeout:  # noqa: UP041 - not the same before Python 3.10
            self._give_up(timeout_s)
        except OSError:
            self._bury()
        return self.number

    def answers(self, timeout_s: float) -> dict[int, Exception | None]:
        """Wait for the answers to all requests. By number: None if the agent runs or has ended; else ForkServerLost,
        CalledProcessError or TimeoutExpired: then an agent may or may not have been started."""
        self._wait(timeout_s)
        found, self.results = self.results, {}
        return found

    def wait_for_end(self, timeout_s: float) -> bool:
        """Wait until an agent has ended since the last call. False if none has within this time."""
        if self.channel is None:
            time.sleep(timeout_s)
        elif not self.has_ended:
            self._read(timeout_s)
        found, self.has_ended = self.has_ended, False
        return found

    def _wait(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while self.waiting and self.channel is not None:
            if not self._read(max(0.0, until - time.monotonic())) and self.waiting and time.monotonic() >= until:
                self._give_up(timeout_s)

    def _read(self, timeout_s: float) -> bool:
        """Take what has arrived, or arrives within this time. False if nothing has."""
        assert self.channel is not None
        watch = select.poll()
        watch.register(self.channel, select.POLLIN)
        if not watch.poll(1000 * timeout_s):
            return False
        try:
            more = self.channel.recv(1 << 16)
        except OSError:
            more = b""
        if not more:
            self._bury()
            return True
        self.received += more
        whole = len(self.received) - len(self.received) % _ANSWER.size
        for number, code in _ANSWER.iter_unpack(self.received[:whole]):
            if number not in self.waiting:
                self.has_ended = True
                continue
            self.waiting.remove(number)
            self.results[number] = subprocess.CalledProcessError(code, self.serves[0]) if code else None
            self.deaths = 0
            self.is_early = False
        self.received = self.received[whole:]
        return True

    def _give_up(self, timeout_s: float) -> None:
        """It is stuck with the first request that has no answer, and has not looked at the others."""
        first, *others = self.waiting
        self.results[first] = subprocess.TimeoutExpired(list(self.serves[0]), timeout_s)
        self.results.update((number, ForkServerLost("the process that forks agents was stuck")) for number in others)
        self.waiting = []
        self.close(is_stuck=True)

    def _bury(self) -> None:
        """The process is dead. If it cannot even start, that is the fault of the request that it was started for; so
        are deaths in a row."""
        is_refused, code = not self.is_early, self._code_of_death()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        lost = ForkServerLost(f"the process that forks agents {how}")
        self.results.update((number, lost) for number in self.waiting)
        if self.waiting and ((code > 0 and is_refused) or self.deaths >= MOST_DEATHS):
            self.results[self.waiting[0]] = subprocess.CalledProcessError(code, list(self.serves[0]))
            self.deaths = 0
        elif self.waiting:
            self.deaths += 1
        self.waiting = []

    def _is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _start(self, program: Sequence[str], environment: Mapping[str, str], mark: str, stderr: int) -> None:
        own = {key: value for key, value in os.environ.items() if key not in (*_OF_LOCALE, _OF_A_RUN)}
        locale = {key: environment[key] for key in _OF_LOCALE if key in environment}
        channel, theirs = socket.socketpair()
        try:
            self.process = subprocess.Popen(
                [*program, FORK_SERVER, str(theirs.fileno()), mark],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env={**own, **locale, mark: " " * ROOM},
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )
        except BaseException:
            channel.close()
            raise
        finally:
            theirs.close()
        self.channel = channel
        self.serves = _served(program, environment)
        self.is_early = False

    def _code_of_death(self) -> int:
        """The exit code of the process, which has closed its end; negative: the signal that killed it."""
        assert self.process is not None
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        code = self.process.wait() or 1
        self.close()
        return code

    def close(self, *, is_stuck: bool = False) -> None:
        """End the process. Agents that it started go on."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        self.received = b""
        if self.process is not None:
            if is_stuck:
                self.process.kill()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


def _served(program: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], str]:
    """What a process for such agents must have in common with one that runs."""
    return list(program), _special_locale(environment)


def _special_locale(environment: Mapping[str, str]) -> str:
    """The locale whose encoding Python uses for file names; empty if that is UTF-8, also for lack of a locale."""
    name = next((environment[key] for key in _OF_LOCALE if environment.get(key)), "")
    encoding = name.partition(".")[2].partition("@")[0].replace("-", "").lower()
    return "" if name in ("C", "POSIX") or encoding == "utf8" else name


def _send(channel: socket.socket, asked: AgentStart, number: int) -> None:
    passed = [asked.stderr, *asked.descriptors]
    content = json.dumps([list(asked.arguments), dict(asked.environment), asked.mark[1], len(passed), number]).encode()
    channel.sendall(_SIZE.pack(len(content)) + content)
    for first in range(0, len(passed), MOST_DESCRIPTORS):
        some = array.array("i", passed[first : first + MOST_DESCRIPTORS])
        channel.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, some)])


def _receive(channel: socket.socket, size: int) -> bytes | None:
    """None at the end."""
    found = b""
    while len(found) < size:
        more = channel.recv(size - len(found))
        if not more:
            return None
        found += more
    return found


# in the process ------------------------------------------------------------------------------------------------------


class Request(NamedTuple):
    arguments: list[str]
    environment: dict[str, str]
    marked: str
    number: int
    passed: list[int]


class StartReport:
    """Tells the owner that an agent runs. A process that only forks agents closes it instead, before it does: its exit
    code is the answer then."""

    def __init__(self, channel: socket.socket, number: int) -> None:
        self.channel = channel
        self.number = number

    def send(self) -> None:
        try:
            self.channel.sendall(_ANSWER.pack(self.number, 0))
        except OSError:
            pass  # the owner is gone; the next one finds this agent
        self.close()

    def close(self) -> None:
        self.channel.close()


def serve(descriptor: int, mark: str, run_agent: Callable[[StartReport], int]) -> int:
    """Fork for each request a process that calls `run_agent`, until the other end is closed."""
    channel = socket.socket(fileno=descriptor)
    ends = _ChildEnds()
    _warm_up()
    requested: dict[int, int] = {}  # the numbers of requests by pid
    watch = select.poll()
    watch.register(channel, select.POLLIN)
    watch.register(ends.reading, select.POLLIN)
    while True:
        ready = dict(watch.poll())
        if ends.reading in ready:
            ended = [_ANSWER.pack(requested.pop(pid, _NO_REQUEST), code) for pid, code in ends.reap()]
            try:
                channel.sendall(b"".join(ended))
            except OSError:
                return 0  # the owner is gone
        if channel.fileno() not in ready:
            continue
        request = _next_request(channel)
        if request is None:
            return 0
        pid = os.fork()
        if pid == 0:
            try:
                ends.close()
                _prepare(mark, request)
                sys.argv[1:] = request.arguments
                _exit_with(run_agent, StartReport(channel, request.number))
            finally:
                os._exit(1)
        requested[pid] = request.number
        for one in request.passed:
            os.close(one)


def _warm_up() -> None:
    """Do once what every agent would do."""
    import resource  # noqa: F401 - for os.wait4

    processes.boot_id()
    processes.adopt_orphans()  # agents whose parent only forks them
    gc.collect()
    gc.freeze()  # a collection in a child would copy all pages


class _ChildEnds:
    """The ends of child processes, as something to poll."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        for one in (self.reading, self.writing):
            os.set_blocking(one, False)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(self.writing, warn_on_full_buffer=False)

    def reap(self) -> list[tuple[int, int]]:
        """The processes that have ended, with their exit codes; negative: the signal that killed them."""
        try:
            os.read(self.reading, 1 << 16)
        except BlockingIOError:
            pass
        found: list[tuple[int, int]] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if pid == 0:
                return found
            found.append((pid, os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)))

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self.reading)
        os.close(self.writing)


def _ignore(*_: object) -> None:
    """A handler that makes the kernel report the signal."""


def _next_request(channel: socket.socket) -> Request | None:
    """None once the owner has ended, even if it had sent a request: the next scheduler starts that agent."""
    size = _receive(channel, _SIZE.size)
    content = _receive(channel, _SIZE.unpack(size)[0]) if size is not None else None
    if content is None:
        return None
    arguments, environment, marked, count, number = json.loads(content)
    passed: list[int] = []
    while len(passed) < count:
        some = array.array("i")
        _, more, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(MOST_DESCRIPTORS * some.itemsize))
        if not more:
            return None
        for _, _, data in more:
            some.frombytes(data[: len(data) - len(data) % some.itemsize])
        passed += some
    watch = select.poll()
    watch.register(channel, select.POLLHUP)
    return None if watch.poll(0) else Request(arguments, environment, marked, number, passed)


def _prepare(mark: str, request: Request) -> None:
    """Make this fork look like a process that was started for its agent."""
    os.setsid()
    show_mark(mark, request.marked)
    os.environ.clear()
    os.environ.update(request.environment)
    os.environ[mark] = request.marked
    os.dup2(request.passed[0], 2)
    os.close(request.passed[0])


def show_mark(name: str, value: str) -> None:
    """Write the value of a variable into the memory that /proc/<pid>/environ shows, where its place was kept free."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    place = libc.getenv(name.encode())
    data = value.encode() + b"\0"
    if place is None or len(data) > ROOM:
        raise ValueError(f"no room for {name}={value}")
    ctypes.memmove(place, data, len(data))


def _exit_with(run_agent: Callable[[StartReport], int], report: StartReport) -> None:
    code = 1
    try:
        code = run_agent(report)
    except BaseException:  # noqa: BLE001 - the edge of a process, as in a new one
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
