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
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from phalanx.agent import processes
from phalanx.agent.launching import boot_id
from phalanx.backends.attempts import write_whole
from phalanx.errors import CallError, StoreError
from phalanx.scheduler.home import Home
from phalanx.scheduler.locks import locked
from phalanx.scheduler.run_tokens import MOST_SERVERS, server_file, server_secret, server_url
from phalanx.scheduler.serving import Attendant
from phalanx.server import sweeping
from phalanx.server.journal import Forwarded, Log
from phalanx.server.limiting import Limits
from phalanx.server.tokens import Tokens
from phalanx.server.turns import SharedTurns, Turns
from phalanx.store import Store

if TYPE_CHECKING:
    from phalanx.server.counting import Counting
    from phalanx.server.metrics import Metrics

IDLE_S = 0.25  # between two looks when no run is under way
OTHERS_S = 0.5  # … when somebody else schedules
TROUBLE_S = 1.0
LONGEST_PAUSE_S = 1.0
KEEP_ALIVE_S = 75  # longer than clients wait before they use a connection again
GRACE_S = 20  # for requests that are under way when the server is told to end
BACKLOG = 512
THREADS = 12  # that answer requests
SWITCH_S = 0.001  # after which another thread has its turn


class Started(NamedTuple):
    """What whoever starts a server is told."""

    url: str
    token_file: Path
    is_open: bool  # to other machines: nothing that is sent is encrypted


class Options(NamedTuple):
    """What a server may be told beside its address."""

    allowed_hosts: tuple[str, ...] = ()
    proxies: str | None = None  # addresses, with commas, whose word on who asks and how is believed
    open_metrics: bool = False
    access_log: bool = False
    log_format: str = "text"
    rate: float = Limits().rate  # requests a second of one identity, and of one address; 0: any number
    only_admins_start: bool = False


def serve(  # noqa: PLR0913 - what a server has
    home: Home,
    host: str,
    port: int,
    *,
    database: str | None = None,
    options: Options = Options(),  # noqa: B008 - it never changes
    say: Callable[[Started], None],
) -> None:
    """Serve until a signal comes. Raises CallError and StoreError when that cannot be begun."""
    import uvicorn

    from phalanx.server.app import make_app
    from phalanx.server.context import Context
    from phalanx.server.counting import Counting
    from phalanx.server.writing import Desks

    with seated(home, several=bool(database)) as number, bound(host, port) as listening:
        Store.open(home.path, database).close()
        token_file = Tokens(home.path).ensure_owner()
        server_secret(home.path)
        counting = Counting(options.log_format, access=options.access_log, is_open=options.open_metrics)
        turns = SharedTurns(home.path / "turns.lock") if database else Turns()
        scheduling = Scheduling(home, database, turns, counting.metrics, counting.log)
        context = Context(home, database, scheduling.wake, turns)
        if database:
            context.desks = Desks(home, turns, server=number)
        limits = Limits(rate=options.rate, burst=2 * options.rate)
        names = [*options.allowed_hosts, host]
        app = make_app(context, names, counting, limits, only_admins_start=options.only_admins_start)
        server = _server(uvicorn, app, options, counting)
        started = Started(url_of(host, listening), token_file, not is_loopback(listening))
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # The server catches the first two while it runs, and passes them on to these when it has ended.
            signal.signal(signal_number, lambda *_: setattr(server, "should_exit", True))
        scheduling.start()
        try:
            with announced(home, started.url, number):
                say(started)
                tell_manager("READY=1")
                asyncio.run(_answer(server, listening))
        finally:
            scheduling.stop()
            context.close()


async def _answer(server: Any, listening: socket.socket) -> None:
    """Python runs one thread at a time: the more of them want their turn, the longer each waits for it."""
    from anyio import to_thread

    to_thread.current_default_thread_limiter().total_tokens = THREADS
    sys.setswitchinterval(SWITCH_S)
    await server.serve(sockets=[listening])


def _server(uvicorn: Any, app: Any, options: Options, counting: Counting) -> Any:
    for name in ("uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).propagate = False
    logging.getLogger("uvicorn.error").handlers = [Forwarded(counting.log)]
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
    server = uvicorn.Server(config)
    shutdown = server.shutdown

    async def end(sockets: Any = None) -> None:
        tell_manager("STOPPING=1")
        counting.streams.end()  # they would go on as long as they may
        await shutdown(sockets)

    server.shutdown = end
    return server


def tell_manager(state: str) -> None:
    """systemd, where it started us and wants to know. https://www.freedesktop.org/software/systemd/man/sd_notify.html"""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if place:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as talking:
            talking.connect(f"\0{place[1:]}" if place.startswith("@") else place)
            talking.send(state.encode())


@contextmanager
def seated(home: Home, *, several: bool) -> Iterator[int]:
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
def announced(home: Home, url: str, number: int = 1) -> Iterator[None]:
    path = server_file(home.path, number)
    stat = processes.read_stat(os.getpid())
    told = {"url": url, "pid": os.getpid(), "started": stat.started if stat else 0, "boot": boot_id()}
    write_whole(path, json.dumps(told).encode())
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


class Scheduling:
    """An attendant in a thread of its own, with its own store."""

    def __init__(
        self,
        home: Home,
        database: str | None,
        turns: Turns | None = None,
        metrics: Metrics | None = None,
        log: Log | None = None,
    ) -> None:
        self.home = home
        self.database = database
        self.turns = turns or Turns()
        self.metrics = metrics
        self.log = log or Log()
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._work, name="phalanx-scheduling")
        self._told = ""

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look now, not later."""
        self._woken.set()

    def stop(self) -> None:
        self._ended.set()
        self._woken.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ended.is_set():
            try:
                with Store.open(self.home.path, self.database) as store:
                    self._attend(store)
            except (OSError, StoreError) as fault:  # a full disk, a database that restarts: it may pass
                if self.metrics is not None and isinstance(fault, StoreError):
                    self.metrics.database_error()
                self._tell(str(fault))
                self._ended.wait(TROUBLE_S)
            except Exception as fault:  # noqa: BLE001 - the edge: nobody else would schedule, or even say why
                self._tell(f"internal error: {type(fault).__name__}: {fault}")
                self._ended.wait(10 * TROUBLE_S)

    def _attend(self, store: Store) -> None:
        attendant = Attendant(self.home, store)
        sweeper = sweeping.Sweeper(self.home, store)
        try:
            while not self._ended.is_set():
                begun = time.monotonic()
                left = None
                if attendant.lease.take():
                    with self.turns.alone():
                        left = attendant.turn()
                if self.metrics is not None:
                    self.metrics.turn(time.monotonic() - begun, is_ours=left is not None)
                if left:
                    sweeper.turn()
                self._tell(attendant.scheduler.trouble if attendant.scheduler else "")
                pause = OTHERS_S if left is None else attendant.pause_s if left else IDLE_S
                # Looking at many runs takes a while: requests must be answered in between.
                self._woken.wait(min(LONGEST_PAUSE_S, max(pause, 5 * (time.monotonic() - begun))))
                self._woken.clear()
        finally:
            with suppress(StoreError):
                attendant.leave()

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self._told:
            self.log.trouble(trouble)
        self._told = trouble
