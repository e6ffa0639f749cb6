"""`phalanx serve`: one server for a home, which also schedules its runs while nobody else does.

<home>/server.json  where the server is and which process it is; gone when it has ended in peace
<home>/server.lock  held by the server
"""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.agent import processes
from phalanx.agent.launching import boot_id
from phalanx.backends.attempts import write_whole
from phalanx.errors import CallError, StoreError
from phalanx.scheduler.home import Home
from phalanx.scheduler.locks import locked
from phalanx.scheduler.run_tokens import server_secret, server_url
from phalanx.scheduler.serving import Attendant
from phalanx.server import sweeping
from phalanx.server.tokens import Tokens
from phalanx.server.turns import Turns
from phalanx.store import Store

IDLE_S = 0.25  # between two looks when no run is under way
OTHERS_S = 0.5  # … when somebody else schedules
TROUBLE_S = 1.0
LONGEST_PAUSE_S = 1.0
KEEP_ALIVE_S = 75  # longer than clients wait before they use a connection again
GRACE_S = 5  # for requests that are under way when the server is told to end
BACKLOG = 512


class Started(NamedTuple):
    """What whoever starts a server is told."""

    url: str
    token_file: Path
    is_open: bool  # to other machines: nothing that is sent is encrypted


def serve(  # noqa: PLR0913 - what a server has
    home: Home,
    host: str,
    port: int,
    *,
    database: str | None = None,
    allowed_hosts: Iterable[str] = (),
    say: Callable[[Started], None],
) -> None:
    """Serve until a signal comes. Raises CallError and StoreError when that cannot be begun."""
    uvicorn = _uvicorn()
    from phalanx.server.app import make_app
    from phalanx.server.context import Context

    with only_one(home), bound(host, port) as listening:
        Store.open(home.path, database).close()
        tokens = Tokens(home.path)
        token_file = tokens.ensure_owner()
        server_secret(home.path)
        scheduling = Scheduling(home, database)
        context = Context(home, database, scheduling.wake, scheduling.turns)
        app = make_app(context, [*allowed_hosts, host])
        config = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        server = uvicorn.Server(config)
        started = Started(url_of(host, listening), token_file, not is_loopback(listening))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # The server catches the first two while it runs, and passes them on to these when it has ended.
            signal.signal(number, lambda *_: setattr(server, "should_exit", True))
        scheduling.start()
        try:
            with announced(home, started.url):
                say(started)
                server.run(sockets=[listening])
        finally:
            scheduling.stop()
            context.close()


def _uvicorn() -> Any:
    try:
        import fastapi  # noqa: F401 - whether it is there
        import uvicorn
    except ImportError as fault:
        raise CallError(f"a server needs the package `{fault.name}`: pip install 'phalanx[server]'") from None
    return uvicorn


@contextmanager
def only_one(home: Home) -> Iterator[None]:
    """Raises CallError while another server has the home: a file has one writer."""
    with locked(home.path / "server.lock", wait=False) as is_ours:
        if not is_ours:
            where = server_url(home.path)
            raise CallError(f"{home.path} is served already" + (f", at {where}" if where else ""))
        yield


@contextmanager
def announced(home: Home, url: str) -> Iterator[None]:
    path = home.path / "server.json"
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

    def __init__(self, home: Home, database: str | None) -> None:
        self.home = home
        self.database = database
        self.turns = Turns()
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
                with self.turns.alone():
                    left = attendant.turn()
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
            print(f"{datetime.now(UTC):%F %T} {trouble}", file=sys.stderr, flush=True)
        self._told = trouble
