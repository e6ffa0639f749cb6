"""One process of a server: it answers requests, or runs the scheduler, or both if it is the only one."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from phalanx.errors import path_error
from phalanx.home.home import Home
from phalanx.server.auth.rate_limits import RateLimits
from phalanx.server.ops.access_log import UvicornLogHandler
from phalanx.server.ops.scheduler_thread import SchedulerThread
from phalanx.server.processes.shared_state import SharedState
from phalanx.server.write_gate import SharedWriteGate, WriteGate

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from phalanx.server.auth.sign_on import SignOnSettings
    from phalanx.server.ops.request_stats import RequestStats

KEEP_ALIVE_S = 75  # longer than clients wait before they reuse a connection
GRACE_S = 20  # for active requests at shutdown
THREADS = 12  # number of threads that answer requests
SWITCH_S = 0.001  # interval after which another thread gets its turn


class ServerOptions(NamedTuple):
    """Settings of a server besides its address."""

    allowed_hosts: tuple[str, ...] = ()
    proxies: str | None = None  # comma-separated addresses of proxies whose forwarded headers are trusted
    open_metrics: bool = False
    access_log: bool = False
    log_format: str = "text"
    rate: float = RateLimits().rate  # requests per second for each identity and each address; 0 means no limit
    only_admins_start: bool = False
    sign_on: SignOnSettings | None = None
    processes: int = 1  # that answer requests


class ServerPlan(NamedTuple):
    """What the processes of a server have in common."""

    home: Home
    database: str | None
    options: ServerOptions
    number: int  # of the server among those of the home
    host: str

    @property
    def has_siblings(self) -> bool:
        """Whether other processes may write to the same runs."""
        return bool(self.database) or self.options.processes > 1

    def gate(self) -> WriteGate:
        """Raises CallError, SystemFault if its lock cannot be opened."""
        path = self.home.path / "turns.lock"
        try:
            return SharedWriteGate(path) if self.has_siblings else WriteGate()
        except OSError as fault:
            raise path_error(f"cannot use {path} as a lock", fault) from None

    def counting(self, shared: SharedState) -> RequestStats:
        from phalanx.server.ops.request_stats import RequestStats

        options = self.options
        return RequestStats(options.log_format, access=options.access_log, is_open=options.open_metrics, shared=shared)


class Worker:
    """Answers requests. `process`: which of the server's processes it is, from 1 on; `wake` wakes the scheduler."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a process
        self,
        plan: ServerPlan,
        shared: SharedState,
        counting: RequestStats,
        gate: WriteGate,
        wake: Callable[[], None],
        process: int = 1,
    ) -> None:
        from phalanx.server.app import make_app
        from phalanx.server.context import Context
        from phalanx.server.run_writers import RunWriters, writer_name

        options = plan.options
        self.context = Context(plan.home, plan.database, wake, gate, shared)
        if plan.has_siblings:
            self.context.run_writers = RunWriters(plan.home, gate, writer=writer_name(plan.number, process))
        limits = RateLimits(rate=options.rate, burst=2 * options.rate).shared_by(options.processes)
        names = [*options.allowed_hosts, plan.host]
        app = make_app(
            self.context,
            names,
            counting,
            limits,
            only_admins_start=options.only_admins_start,
            sign_on=options.sign_on,
        )
        self.boards = app.state.boards
        self.server = _server(app, options, counting)

    def end(self) -> None:
        """Stop accepting requests, and return from `answer` when active ones are done. For any thread or signal."""
        self.server.should_exit = True

    def answer(self, listening: socket.socket, *, handles_signals: bool) -> None:
        """Answer requests until the end."""
        self.server.handles_signals = handles_signals
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(_answer(self.server, listening))
        finally:
            self.close()

    def close(self) -> None:
        self.boards.close()
        self.context.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop takes about a third of the CPU time of the standard library's loop for a small request."""
    try:
        import uvloop
    except ImportError:  # there is none for this platform
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _answer(server: uvicorn.Server, listening: socket.socket) -> None:
    """Python runs one thread at a time: the more threads compete, the longer each one waits."""
    from anyio import to_thread

    to_thread.current_default_thread_limiter().total_tokens = THREADS
    sys.setswitchinterval(SWITCH_S)
    await server.serve(sockets=[listening])


def _server(app: ASGIApp, options: ServerOptions, counting: RequestStats) -> Any:
    import uvicorn

    from phalanx.server.http.body_pace import TimedProtocol

    for name in ("uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).propagate = False
    logging.getLogger("uvicorn.error").handlers = [UvicornLogHandler(counting.log)]
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        proxy_headers=options.proxies is not None,
        forwarded_allow_ips=options.proxies or "",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )

    class Server(uvicorn.Server):
        """Ends event streams before waiting for open connections. A lifespan handler would be too late: it runs after
        the wait."""

        handles_signals = True

        def capture_signals(self) -> Any:
            return super().capture_signals() if self.handles_signals else nullcontext()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            counting.streams.end()
            await super().shutdown(sockets)

    return Server(config)


# processes of a server that has several ----------------------------------------------------------------------------


class Lifeline:
    """A pipe whose other end only the supervisor has. When that is closed, or the supervisor is killed, its processes
    end."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()

    def let_go(self) -> None:
        """For the supervisor: its processes end. For a process: only the supervisor holds on."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def watch(self, end: Callable[[], None]) -> None:
        """Call `end` when the supervisor lets go; a process that then does not end is stuck, and is killed."""

        def wait() -> None:
            os.read(self.reader, 1)
            end()
            threading.Event().wait(GRACE_S + 10)
            os._exit(1)

        threading.Thread(target=wait, name="phalanx-lifeline", daemon=True).start()


class WakePipe:
    """Wakes the scheduler from another process."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        for descriptor in (self.reader, self._writer):
            os.set_blocking(descriptor, False)

    def wake(self) -> None:
        with suppress(BlockingIOError):  # it is woken already
            os.write(self._writer, b"w")


def answer_requests(  # noqa: PLR0913, PLR0917 - the parts of a process
    plan: ServerPlan, shared: SharedState, listening: socket.socket, lifeline: Lifeline, wake: WakePipe, process: int
) -> None:
    """The work of one process that answers."""
    worker = Worker(plan, shared, plan.counting(shared), plan.gate(), wake.wake, process)
    signal.signal(signal.SIGTERM, lambda *_: worker.end())
    lifeline.watch(worker.end)
    worker.answer(listening, handles_signals=False)


def schedule(plan: ServerPlan, shared: SharedState, lifeline: Lifeline, wake: WakePipe) -> None:
    """The work of the process that schedules."""
    counting = plan.counting(shared)
    scheduling = SchedulerThread(plan.home, plan.database, plan.gate(), counting.metrics, counting.log)
    ended, ends = os.pipe()

    def end(*_: Any) -> None:
        os.write(ends, b"e")

    signal.signal(signal.SIGTERM, end)
    lifeline.watch(end)
    scheduling.start()
    try:
        while ended not in (ready := select.select([wake.reader, ended], [], [])[0]):
            if ready:
                os.read(wake.reader, 4096)
                scheduling.wake()
    finally:
        scheduling.stop()
