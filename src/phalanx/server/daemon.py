"""`phalanx serve`: a server for a home, which also schedules its runs while no other process does.

<home>/server.json  address and process id of the server; removed on a clean exit
<home>/server.lock  held by the server

A home with PostgreSQL may have several servers at once; the second has server-2.json and server-2.lock, and so on.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from phalanx.agent import processes
from phalanx.agent.processes import boot_id, is_alive_here
from phalanx.atomic_files import read_json, write_atomic
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.home.run_tokens import MOST_SERVERS, server_file, server_secret, server_url
from phalanx.locks import locked
from phalanx.server.auth.tokens import Tokens
from phalanx.server.ops.scheduler_thread import SchedulerThread
from phalanx.server.processes.addresses import bound, is_loopback, url_of
from phalanx.server.processes.shared_state import SharedState
from phalanx.server.processes.worker import GRACE_S, ServerOptions, ServerPlan, Worker
from phalanx.store import Store

__all__ = ["ServerOptions", "ServerStarted", "serve"]

MOST_PROCESSES = 32
DEFAULT_PROCESSES = 4  # at most: more only help where many people read at once
ORPHANS_S = GRACE_S + 5  # how long processes of a killed server may need to end
LOOK_S = 0.1


class ServerStarted(NamedTuple):
    """What the caller of `serve` gets to know about the started server."""

    url: str
    token_file: Path
    is_open: bool  # reachable from other machines without encryption


def default_processes() -> int:
    """One for each core that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(DEFAULT_PROCESSES, cores))


def serve(  # noqa: PLR0913 - the parts of a server
    home: Home,
    host: str,
    port: int,
    *,
    database: str | None = None,
    options: ServerOptions = ServerOptions(),  # noqa: B008 - the value is immutable
    say: Callable[[ServerStarted], None],
) -> None:
    """Serve until a signal arrives. Raises CallError, StoreError and SystemFault when the server cannot start."""
    patience_s = ORPHANS_S if has_orphans(home) else 0.0
    with (
        server_slot(home, several=bool(database), patience_s=patience_s) as number,
        bound(host, port, options.processes, patience_s) as sockets,
    ):
        Store.open(home.path, database).close()
        token_file = Tokens(home.path).ensure_owner()
        server_secret(home.path)
        started = ServerStarted(url_of(host, sockets[0]), token_file, not is_loopback(sockets[0]))
        plan = ServerPlan(home, database, options, number, host)

        def announce() -> None:
            say(started)
            notify_systemd("READY=1")

        with publish_address(home, started.url, number):
            if options.processes == 1:
                _serve_alone(plan, sockets[0], announce)
            else:
                _serve_together(plan, sockets, announce)


def _serve_alone(plan: ServerPlan, listening: socket.socket, announce: Callable[[], None]) -> None:
    """In this process, with the scheduler as a thread."""
    shared = SharedState()
    counting = plan.counting(shared)
    gate = plan.gate()
    scheduling = SchedulerThread(plan.home, plan.database, gate, counting.metrics, counting.log)
    worker = Worker(plan, shared, counting, gate, scheduling.wake)
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The server catches the first two while it runs, and re-raises them to these handlers when it has stopped.
        signal.signal(signal_number, lambda *_: worker.end())
    scheduling.start()
    try:
        announce()
        worker.answer(listening, handles_signals=True)
    finally:
        notify_systemd("STOPPING=1")
        scheduling.stop()


def _serve_together(plan: ServerPlan, sockets: list[socket.socket], announce: Callable[[], None]) -> None:
    """In several processes, besides one for the scheduler. What they all need is imported before they are forked, and
    so is in memory once."""
    from phalanx.server.processes.pool import ProcessPool

    shared = SharedState(1 + plan.options.processes, plan.home.path / "logins.lock")
    counting = plan.counting(shared)
    Worker(plan, shared, counting, plan.gate(), lambda: None).close()  # raises here what would fail in each of them
    ProcessPool(plan, shared, sockets, counting.log, notify_systemd).run(announce)


def notify_systemd(state: str) -> None:
    """Notifies systemd if it started this process and wants to be notified.
    https://www.freedesktop.org/software/systemd/man/sd_notify.html"""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if place:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as talking:
            talking.connect(f"\0{place[1:]}" if place.startswith("@") else place)
            talking.send(state.encode())


def has_orphans(home: Home) -> bool:
    """Whether a server of this home was killed whose processes are about to end: they still hold its lock."""
    for number in range(1, MOST_SERVERS + 1):
        record = read_json(server_file(home.path, number))
        if isinstance(record, dict) and not is_alive_here(record):
            with locked(server_file(home.path, number, "lock"), wait=False) as is_free:
                if not is_free:
                    return True
    return False


@contextmanager
def server_slot(home: Home, *, several: bool, patience_s: float = 0.0) -> Iterator[int]:
    """The number of this server among those of the home. With `several` there may be others, each with its own files,
    because a file has one writer. Raises CallError when all numbers are taken for longer than `patience_s`."""
    deadline = time.monotonic() + patience_s
    with ExitStack() as held:
        while True:
            for number in range(1, MOST_SERVERS + 1 if several else 2):
                if held.enter_context(locked(server_file(home.path, number, "lock"), wait=False)):
                    yield number
                    return
            if time.monotonic() >= deadline:
                break
            held.close()
            time.sleep(LOOK_S)
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
