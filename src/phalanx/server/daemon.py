"""`phalanx serve`: a server for a home, which also schedules its runs while nobody else does.

<home>/server.json  where the server is and which process it is; gone when it has ended in peace
<home>/server.lock  held by the server

A home whose database is PostgreSQL may have several at once; the second has server-2.json and server-2.lock, and so on.
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

    from phalanx.server.ops.request_stats import RequestStats

KEEP_ALIVE_S = 75  # longer than clients wait before they use a connection again
GRACE_S = 20  # for requests that are under way when the server is told to end
BACKLOG = 512
THREADS = 12  # that answer requests
SWITCH_S = 0.001  # after which another thread has its turn


class ServerStarted(NamedTuple):
    """What whoever starts a server is told."""

    url: str
    token_file: Path
    is_open: bool  # to other machines: nothing that is sent is encrypted


class ServerOptions(NamedTuple):
    """What a server may be told beside its address."""

    allowed_hosts: tuple[str, ...] = ()
    proxies: str | None = None  # addresses, with commas, whose word on who asks and how is believed
    open_metrics: bool = False
    access_log: bool = False
    log_format: str = "text"
    rate: float = RateLimits().rate  # requests a second of one identity, and of one address; 0: any number
    only_admins_start: bool = False


def serve(  # noqa: PLR0913 - what a server has
    home: Home,
    host: str,
    port: int,
    *,
    database: str | None = None,
    options: ServerOptions = ServerOptions(),  # noqa: B008 - it never changes
    say: Callable[[ServerStarted], None],
) -> None:
    """Serve until a signal comes. Raises CallError and StoreError when that cannot be begun."""
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
            context.desks = RunWriters(home, turns, server=number)
        limits = RateLimits(rate=options.rate, burst=2 * options.rate)
        names = [*options.allowed_hosts, host]
        app = make_app(context, names, counting, limits, only_admins_start=options.only_admins_start)
        server = _server(app, options, counting)
        started = ServerStarted(url_of(host, listening), token_file, not is_loopback(listening))
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # The server catches the first two while it runs, and passes them on to these when it has ended.
            signal.signal(signal_number, lambda *_: setattr(server, "should_exit", True))
        scheduling.start()
        try:
            with publish_address(home, started.url, number):
                say(started)
                notify_systemd("READY=1")
                asyncio.run(_answer(server, listening))
        finally:
            scheduling.stop()
            context.close()


async def _answer(server: uvicorn.Server, listening: socket.socket) -> None:
    """Python runs one thread at a time: the more of them want their turn, the longer each waits for it."""
    from anyio import to_thread

    to_thread.current_default_thread_limiter().total_tokens = THREADS
    sys.setswitchinterval(SWITCH_S)
    await server.serve(sockets=[listening])


def _server(app: ASGIApp, options: ServerOptions, counting: RequestStats) -> uvicorn.Server:
    import uvicorn

    for name in ("uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).propagate = False
    logging.getLogger("uvicorn.error").handlers = [UvicornLogHandler(counting.log)]
    config = uvicorn.Config(
        app,
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
        """Ends event streams before it waits for open connections. A lifespan handler would be too late for that: it
        runs after the wait."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            notify_systemd("STOPPING=1")
            counting.streams.end()
            await super().shutdown(sockets)

    return Server(config)


def notify_systemd(state: str) -> None:
    """systemd, where it started us and wants to know. https://www.freedesktop.org/software/systemd/man/sd_notify.html"""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if place:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as talking:
            talking.connect(f"\0{place[1:]}" if place.startswith("@") else place)
            talking.send(state.encode())


@contextmanager
def server_slot(home: Home, *, several: bool) -> Iterator[int]:
    """The number of this server among those of the home. With `several` there may be others, each of which has files
    of its own. Raises CallError when there is no place left: a file has one writer."""
    with ExitStack() as held:
        for number in range(1, MOST_SERVERS + 1 if several else 2):
            if held.enter_context(locked(server_file(home.path, number, "lock"), wait=False)):
                yield number
                return
        where = server_url(home.path)
        at = f", at {where}" if where else ""
        if several:
            raise CallError(f"{home.path} has {MOST_SERVERS} servers already, which is as many as it may have")
        raise CallError(f"{home.path} is served already{at}; several servers need PostgreSQL (PHALANX_DATABASE)")


@contextmanager
def publish_address(home: Home, url: str, number: int = 1) -> Iterator[None]:
    path = server_file(home.path, number)
    stat = processes.read_stat(os.getpid())
    told = {"url": url, "pid": os.getpid(), "started": stat.started if stat else 0, "boot": boot_id()}
    write_atomic(path, json.dumps(told).encode())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


# addresses ----------------------------------------------------------------------------------------------------------


@contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens. Raises CallError that says what stands in the way."""
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
        return f"port {port} of {host} is taken: choose another with --port, or any free one with --port 0"
    if number == errno.EACCES:
        return f"port {port} may not be used by you: take one from 1024 on"
    if number == errno.EADDRNOTAVAIL:
        return f"`{host}` is not an address of this machine"
    return f"cannot listen at {host}, port {port}: {fault}"


def url_of(host: str, listening: socket.socket) -> str:
    """How this machine's own processes reach the server."""
    address, port = listening.getsockname()[:2]
    if ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
        host = "[::1]" if ":" in address else "127.0.0.1"
    elif ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}"


def is_loopback(listening: socket.socket) -> bool:
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


# scheduling ---------------------------------------------------------------------------------------------------------
