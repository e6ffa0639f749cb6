"""`phalanx serve`: a server for a home, which also schedules its runs while no other process does.

<home>/server.json  address and process id of the server; removed on a clean exit
<home>/server.lock  held by the server

A home with PostgreSQL may have several servers at once; the second has server-2.json and server-2.lock, and so on.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from phalanx.agent import processes
from phalanx.agent.processes import boot_id
from phalanx.atomic_files import write_atomic
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.home.run_tokens import MOST_SERVERS, server_file, server_secret, server_url
from phalanx.locks import locked
from phalanx.server.auth.rate_limits import RateLimits
from phalanx.server.auth.tokens import Tokens
from phalanx.server.ops.access_log import UvicornLogHandler
from phalanx.server.ops.scheduler_thread import SchedulerThread
from phalanx.server.write_gate import SharedWriteGate, WriteGate
from phalanx.store import Store

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from phalanx.server.auth.sign_on import SignOnSettings
    from phalanx.server.ops.request_stats import RequestStats

KEEP_ALIVE_S = 75  # longer than clients wait before they reuse a connection
GRACE_S = 20  # for active requests at shutdown
BACKLOG = 512
THREADS = 12  # number of threads that answer requests
SWITCH_S = 0.001  # interval after which another thread gets its turn


class ServerStarted(NamedTuple):
    """What the caller of `serve` gets to know about the started server."""

    url: str
    token_file: Path
    is_open: bool  # reachable from other machines without encryption


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


def serve(  # noqa: PLR0913 - the parts of a server
    home: Home,
    host: str,
    port: int,
    *,
    database: str | None = None,
    options: ServerOptions = ServerOptions(),  # noqa: B008 - the value is immutable
    say: Callable[[ServerStarted], None],
) -> None:
    """Serve until a signal arrives. Raises CallError and StoreError when the server cannot start."""
    from phalanx.server.app import make_app
    from phalanx.server.context import Context
    from phalanx.server.ops.request_stats import RequestStats
    from phalanx.server.run_writers import RunWriters

    with server_slot(home, several=bool(database)) as number, bound(host, port) as listening:
        Store.open(home.path, database).close()
        token_file = Tokens(home.path).ensure_owner()
        server_secret(home.path)
        counting = RequestStats(options.log_format, access=options.access_log, is_open=options.open_metrics)
        turns = SharedWriteGate(home.path / "turns.lock") if database else WriteGate()
        scheduling = SchedulerThread(home, database, turns, counting.metrics, counting.log)
        context = Context(home, database, scheduling.wake, turns)
        if database:
            context.run_writers = RunWriters(home, turns, server=number)
        limits = RateLimits(rate=options.rate, burst=2 * options.rate)
        names = [*options.allowed_hosts, host]
        app = make_app(
            context,
            names,
            counting,
            limits,
            only_admins_start=options.only_admins_start,
            sign_on=options.sign_on,
        )
        server = _server(app, options, counting)
        started = ServerStarted(url_of(host, listening), token_file, not is_loopback(listening))
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # The server catches the first two while it runs, and re-raises them to these handlers when it has stopped.
            signal.signal(signal_number, lambda *_: setattr(server, "should_exit", True))
        scheduling.start()
        try:
            with publish_address(home, started.url, number):
                say(started)
                notify_systemd("READY=1")
                asyncio.run(_answer(server, listening))
        finally:
            app.state.boards.close()
            scheduling.stop()
            context.close()


async def _answer(server: uvicorn.Server, listening: socket.socket) -> None:
    """Python runs one thread at a time: the more threads compete, the longer each one waits."""
    from anyio import to_thread

    to_thread.current_default_thread_limiter().total_tokens = THREADS
    sys.setswitchinterval(SWITCH_S)
    await server.serve(sockets=[listening])


def _server(app: ASGIApp, options: ServerOptions, counting: RequestStats) -> uvicorn.Server:
    import uvicorn

    from phalanx.server.auth.proxy_header import with_peer
    from phalanx.server.http.body_pace import TimedProtocol

    for name in ("uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).propagate = False
    logging.getLogger("uvicorn.error").handlers = [UvicornLogHandler(counting.log)]
    config = uvicorn.Config(
        with_peer(app, options.proxies) if options.proxies is not None else app,
        http=TimedProtocol,
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )

    class Server(uvicorn.Server):
        """Ends event streams before waiting for open connections. A lifespan handler would be too late: it runs after
        the wait."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            notify_systemd("STOPPING=1")
            counting.streams.end()
            await super().shutdown(sockets)

    return Server(config)


def notify_systemd(state: str) -> None:
    """Notifies systemd if it started this process and wants to be notified.
    https://www.freedesktop.org/software/systemd/man/sd_notify.html"""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if place:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as talking:
            talking.connect(f"\0{place[1:]}" if place.startswith("@") else place)
            talking.send(state.encode())


@contextmanager
def server_slot(home: Home, *, several: bool) -> Iterator[int]:
    """The number of this server among those of the home. With `several` there may be others, each with its own files,
    because a file has one writer. Raises CallError when all numbers are taken."""
    with ExitStack() as held:
        for number in range(1, MOST_SERVERS + 1 if several else 2):
            if held.enter_context(locked(server_file(home.path, number, "lock"), wait=False)):
                yield number
                return
        where = server_url(home.path)
        at = f", at {where}" if where else ""
        if several:
            raise CallError(f"{home.path} already has {MOST_SERVERS} servers, the maximum")
        raise CallError(f"{home.path} is already served{at}; several servers need PostgreSQL (PHALANX_DATABASE)")


@contextmanager
def publish_address(home: Home, url: str, number: int = 1) -> Iterator[None]:
    path = server_file(home.path, number)
    stat = processes.read_stat(os.getpid())
    record = {"url": url, "pid": os.getpid(), "started": stat.started if stat else 0, "boot": boot_id()}
    write_atomic(path, json.dumps(record).encode())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


# addresses ----------------------------------------------------------------------------------------------------------


@contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket. Raises CallError that states the reason for a failure."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise CallError(f"`{host}` is not an address of this machine") from None
    listening = socket.socket(family, kind, proto)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
            listening.listen(BACKLOG)
        except (OSError, OverflowError) as fault:
            raise CallError(_why_not(host, port, fault)) from None
        yield listening
    finally:
        listening.close()


def _why_not(host: str, port: int, fault: Exception) -> str:
    number = getattr(fault, "errno", None)
    if number == errno.EADDRINUSE:
        return f"port {port} of {host} is in use: choose another with --port, or any free one with --port 0"
    if number == errno.EACCES:
        return f"no permission to use port {port}: choose one from 1024 on"
    if number == errno.EADDRNOTAVAIL:
        return f"`{host}` is not an address of this machine"
    return f"cannot listen on {host}, port {port}: {fault}"


def url_of(host: str, listening: socket.socket) -> str:
    """The address under which processes on this machine reach the server."""
    address, port = listening.getsockname()[:2]
    if ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
        host = "[::1]" if ":" in address else "127.0.0.1"
    elif ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}"


def is_loopback(listening: socket.socket) -> bool:
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback
