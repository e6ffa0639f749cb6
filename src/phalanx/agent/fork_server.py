"""A process that has imported the agent and forks one for each request: many times faster than starting Python.

It belongs to the process that started it, and ends with it; the agents go on. It serves one version of the agent only.
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

FORK_SERVER = "--fork-server"
STOP_S = 5.0  # for the process to end when it is closed
MOST_DEATHS = 3  # in a row, of the process while it starts an agent; then the start has failed
MOST_DESCRIPTORS = 200  # in one message; the kernel takes 253
ROOM = 255  # bytes for the value of a mark: the longest name of a folder
_SIZE = struct.Struct("<I")
_CODE = struct.Struct("<i")
# Variables that a new process reads before or beside Python; they cannot be changed later.
_OF_PROCESS = ("LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "TZ")
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
    """The process for all agents that its owner starts. It is started with the first of them, and anew when it was
    killed, or if a start asks for another program or for variables that need a new process."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: socket.socket | None = None
        self.serves: Any = None
        self.deaths = 0

    def start_agent(self, program: Sequence[str], asked: AgentStart, timeout_s: float) -> None:
        """Start an agent; `program` is its command line without arguments. Returns when it has ended: an agent that
        supervises forks first. Raises OSError if nothing was started, ForkServerLost, CalledProcessError,
        TimeoutExpired."""
        for_process = {name: value for name, value in asked.environment.items() if name.startswith(_OF_PROCESS)}
        if self.channel is None or self.serves != (program, for_process) or not self._is_alive():
            self.close()
            self._start(program, for_process, asked)
            self.serves = (program, for_process)
        assert self.channel is not None
        try:
            self.channel.settimeout(timeout_s)
            _send(self.channel, asked)
            answer = _receive(self.channel, _CODE.size)
        except socket.timeout:  # noqa: UP041 - not the same before Python 3.10
            self.close(is_stuck=True)
            raise subprocess.TimeoutExpired(list(program), timeout_s) from None
        except OSError:
            answer = None
        code = self._code_of_death() if answer is None else _CODE.unpack(answer)[0]
        if answer is None and code < 0 and self.deaths < MOST_DEATHS:
            self.deaths += 1
            raise ForkServerLost(f"the process that forks agents was killed by signal {-code}")
        self.deaths = 0
        if code:
            raise subprocess.CalledProcessError(code, list(program))

    def _is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _start(self, program: Sequence[str], for_process: Mapping[str, str], asked: AgentStart) -> None:
        own = {key: value for key, value in os.environ.items() if not key.startswith(_OF_PROCESS) and key != _OF_A_RUN}
        channel, theirs = socket.socketpair()
        try:
            self.process = subprocess.Popen(
                [*program, FORK_SERVER, str(theirs.fileno()), asked.mark[0]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=asked.stderr,
                env={**own, **for_process, asked.mark[0]: " " * ROOM},
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )
        except BaseException:
            channel.close()
            raise
        finally:
            theirs.close()
        self.channel = channel

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
        if self.process is not None:
            if is_stuck:
                self.process.kill()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


def _send(channel: socket.socket, asked: AgentStart) -> None:
    passed = [asked.stderr, *asked.descriptors]
    content = json.dumps([list(asked.arguments), dict(asked.environment), asked.mark[1], len(passed)]).encode()
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


def serve(descriptor: int, mark: str, run_agent: Callable[[], int]) -> int:
    """Fork for each request a process that calls `run_agent`, until the other end is closed."""
    channel = socket.socket(fileno=descriptor)
    gc.collect()
    gc.freeze()  # a collection in a child would copy all pages
    while True:
        request = _next_request(channel)
        if request is None:
            return 0
        arguments, environment, marked, passed = request
        pid = os.fork()
        if pid == 0:
            try:
                channel.close()
                _prepare(mark, marked, environment, passed)
                sys.argv[1:] = arguments
                _exit_with(run_agent)
            finally:
                os._exit(1)
        for one in passed:
            os.close(one)
        _, status = os.waitpid(pid, 0)
        channel.sendall(_CODE.pack(os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)))


def _next_request(channel: socket.socket) -> tuple[list[str], dict[str, str], str, list[int]] | None:
    """None once the owner has ended, even if it had sent a request: the next scheduler starts that agent."""
    size = _receive(channel, _SIZE.size)
    content = _receive(channel, _SIZE.unpack(size)[0]) if size is not None else None
    if content is None:
        return None
    arguments, environment, marked, count = json.loads(content)
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
    return None if watch.poll(0) else (arguments, environment, marked, passed)


def _prepare(mark: str, marked: str, environment: Mapping[str, str], passed: Sequence[int]) -> None:
    """Make this fork look like a process that was started for its agent."""
    os.setsid()
    show_mark(mark, marked)
    os.environ.clear()
    os.environ.update(environment)
    os.environ[mark] = marked
    os.dup2(passed[0], 2)
    os.close(passed[0])


def show_mark(name: str, value: str) -> None:
    """Write the value of a variable into the memory that /proc/<pid>/environ shows, where its place was kept free."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    place = libc.getenv(name.encode())
    data = value.encode() + b"\0"
    if place is None or len(data) > ROOM:
        raise ValueError(f"no room for {name}={value}")
    ctypes.memmove(place, data, len(data))


def _exit_with(run_agent: Callable[[], int]) -> None:
    code = 1
    try:
        code = run_agent()
    except BaseException:  # noqa: BLE001 - the edge of a process, as in a new one
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
