"""The preflight check: before anything starts, every replica reaches its addresses, or the failing pair is reported.

A replica whose address others use listens at it until all of them have connected and sent their names. Then it
closes the listening socket, so that the framework finds the port free, and lets them go on: if one started earlier, its
framework would connect to this check. The clients close the connections: the side that closes first keeps its port busy
for a minute, and not every framework can bind such a port. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import errno
import itertools
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from phalanx.stored_plan import StoredPlan

PATIENCE_S = 120.0  # timeout for all to connect: the nodes of a cluster do not start at the same moment
MOST_MET = 64  # most addresses that each replica connects to
MOST_MEMBERS = 256  # larger runs skip the check: their frameworks find out themselves
RETRY_S = 0.05
FIRST_RETRIES_S = (0.002, 0.005, 0.01, 0.02)  # the replicas of one machine start within milliseconds
UNKNOWN_S = 1.0  # between lookups of a host name that is not known yet: a run may have many pods
HANG_UP_S = 2.0  # for clients to close their connections once they may go on
LOG_S = 10.0  # how often the awaited replicas are logged
_HELLO = "phalanx"
_HERE = b"here\n"
_GO = b"go\n"


class Address(NamedTuple):
    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name} at {self.host}:{self.port}"


class PreflightPlan(NamedTuple):
    """The part of one replica. `key` distinguishes this attempt from others that use the same ports."""

    name: str
    key: str
    home: Address | None  # where it listens; None if no other replica uses its address
    visitors: frozenset[str]
    visits: tuple[Address, ...]
    patience_s: float = PATIENCE_S


class PreflightFailed(Exception):
    """The check failed. The message is for the user."""


class PreflightInterrupted(Exception):
    """The caller stopped the wait."""


def meetings(
    plan: StoredPlan, addresses: Mapping[str, Address], key: str, patience_s: float = PATIENCE_S
) -> dict[str, PreflightPlan]:
    """The preflight plans of all replicas with an address, by name."""
    if not 1 < len(addresses) <= MOST_MEMBERS:
        return {}
    roles = {name: name.rpartition("-")[0] for name in addresses}
    met = [name for name in addresses if name in plan.meets or roles[name] in plan.meets]
    if plan.service:
        met = []  # it is up before any replica starts, and stays: see `reach`
    met = met[:MOST_MET]
    return {
        name: PreflightPlan(
            name,
            key,
            addresses[name] if name in met else None,
            frozenset(addresses) - {name} if name in met else frozenset(),
            tuple(addresses[other] for other in met if other != name),
            patience_s,
        )
        for name in addresses
    }


def run_preflight(meeting: PreflightPlan, say: Callable[[str], None], is_over: Callable[[], bool]) -> None:
    """Return when this replica may start. Raises PreflightFailed, or PreflightInterrupted once `is_over` is true."""
    if meeting.home is None and not meeting.visits:
        return
    with _ListeningSocket(meeting) as door:
        _Caller(meeting, door, say, is_over).call()


def listen(address: Address) -> socket.socket:
    """Listen at an address of this replica. Raises PreflightFailed."""
    listener = _socket_for(address.host)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    everywhere = "::" if listener.family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104 - a name may mean any interface
    try:
        listener.bind((address.host if address.host.startswith("127.") else everywhere, address.port))
        listener.listen(MOST_MEMBERS)
    except OSError as fault:
        listener.close()
        if fault.errno != errno.EADDRINUSE:
            raise PreflightFailed(
                f"{address.name} cannot listen at {address.host}:{address.port}: {fault.strerror}"
            ) from None
        raise PreflightFailed(
            f"port {address.port}, assigned to {address.name}, is used by another program{_owner(address.port)}: "
            "stop that program, or run again to get another port"
        ) from None
    return listener


def _socket_for(host: str) -> socket.socket:
    """A socket of the address family of a host. For a name, which may resolve to either family, one for both."""
    is_address = host.replace(".", "").isdigit()
    if is_address or not (":" in host or socket.has_dualstack_ipv6()):
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    if ":" not in host:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return listener


class _ListeningSocket:
    """The listening side."""

    def __init__(self, meeting: PreflightPlan) -> None:
        self.meeting = meeting
        self.awaited = set(meeting.visitors)
        self.peers: dict[socket.socket, str] = {}
        self.coming: dict[socket.socket, bytes] = {}
        self.listener: socket.socket | None = None
        self.dismissed_at: float | None = None

    def __enter__(self) -> _ListeningSocket:
        home = self.meeting.home
        if home is not None:
            self.listener = listen(home)
            self.listener.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        for connection in (*self.peers, *self.coming):
            _drop(connection)
        if self.listener is not None:
            self.listener.close()

    def sockets(self) -> list[socket.socket]:
        return [*([self.listener] if self.listener else []), *self.coming, *self.peers]

    @property
    def is_done(self) -> bool:
        """Whether all connected, were dismissed, and closed."""
        if self.dismissed_at is None:
            return False
        return not self.peers or time.monotonic() - self.dismissed_at > HANG_UP_S

    def attend(self, ready: Iterable[socket.socket]) -> None:
        """Accept connections and read names. Unknown clients get no response."""
        for connection in ready:
            if connection is self.listener:
                try:
                    peer, _ = self.listener.accept()
                except OSError:
                    continue
                peer.setblocking(False)
                self.coming[peer] = b""
            elif connection in self.coming:
                self._hear(connection)
            elif not _said(connection):
                connection.close()
                name = self.peers.pop(connection)
                if self.dismissed_at is None and name not in self.peers.values():
                    self.awaited.add(name)  # it left before all had connected

    def _hear(self, peer: socket.socket) -> None:
        try:
            heard = peer.recv(512)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        said = self.coming.pop(peer) + heard
        if heard and b"\n" not in said and len(said) < 512:
            self.coming[peer] = said
            return
        words = said.decode("utf-8", "replace").split()
        if len(words) == 3 and words[:2] == [_HELLO, self.meeting.key] and words[2] in self.meeting.visitors:
            self.awaited.discard(words[2])
            self.peers[peer] = words[2]
            try:
                peer.sendall(_HERE)
            except OSError:
                pass  # disconnected: it reconnects, or its own agent reports why
        else:
            _drop(peer)

    def dismiss(self) -> None:
        """Close the listening socket, then let the clients go on."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None
        for peer in self.peers:
            try:
                peer.setblocking(True)
                peer.sendall(_GO)
            except OSError:
                pass  # disconnected: its own agent reports why
        self.dismissed_at = time.monotonic()


class _Caller:
    """The connecting side: connects to all others while the listening side is served."""

    def __init__(
        self, meeting: PreflightPlan, door: _ListeningSocket, say: Callable[[str], None], is_over: Callable[[], bool]
    ) -> None:
        self.meeting = meeting
        self.door = door
        self.say = say
        self.is_over = is_over
        self.calls: dict[Address, socket.socket | None] = dict.fromkeys(meeting.visits)
        self.heard: dict[Address, bytes] = {}
        self.said_go: set[Address] = set()
        self.left: set[Address] = set()
        self.faults: dict[Address, str] = {}
        self.retry_at: dict[Address, float] = {}
        self.tries: dict[Address, int] = {}

    def call(self) -> None:
        started = time.monotonic()
        log_at = started + LOG_S
        try:
            while True:
                now = time.monotonic()
                for address in self.calls:
                    if self.calls[address] is None and now >= self.retry_at.get(address, 0.0):
                        self._dial(address)
                if self.door.dismissed_at is None and not self.door.awaited:
                    self.door.dismiss()
                if self.door.is_done and len(self.said_go) == len(self.calls):
                    return
                if self.is_over():
                    raise PreflightInterrupted
                if now - started > self.meeting.patience_s:
                    raise PreflightFailed(self._why())
                if now >= log_at:
                    log_at = now + LOG_S
                    self.say(f"phalanx: {self.meeting.name} is waiting to start: {self._why(is_over=False)}")
                self._listen()
        finally:
            for connection in self.calls.values():
                if connection is not None:
                    connection.close()

    def _dial(self, address: Address) -> None:
        tries = self.tries[address] = self.tries.get(address, -1) + 1
        self.retry_at[address] = time.monotonic() + _retry_s(tries)
        try:
            connection = socket.create_connection((address.host, address.port), timeout=2.0)
            connection.sendall(f"{_HELLO} {self.meeting.key} {self.meeting.name}\n".encode())
            connection.setblocking(False)
            self.calls[address] = connection
        except socket.gaierror as fault:
            self.retry_at[address] = time.monotonic() + UNKNOWN_S
            self.faults[address] = f"the host name {address.host} is unknown there ({fault.strerror or fault})"
        except TimeoutError:
            self.faults[address] = "no response: a firewall between the two, or the wrong interface"
        except OSError as fault:
            self.faults[address] = (fault.strerror or str(fault)).lower()

    def _listen(self) -> None:
        waiting = {
            connection: address
            for address, connection in self.calls.items()
            if connection is not None and address not in self.said_go
        }
        now = time.monotonic()
        retries = (self.retry_at[address] - now for address, connection in self.calls.items() if connection is None)
        pause_s = max(0.0, min([RETRY_S, *retries]))
        ready, _, _ = select.select([*waiting, *self.door.sockets()], [], [], pause_s)
        self.door.attend(connection for connection in ready if connection not in waiting)
        for connection in ready:
            if connection in waiting:
                self._hear(waiting[connection], connection)

    def _hear(self, address: Address, connection: socket.socket) -> None:
        try:
            heard = connection.recv(16)
        except BlockingIOError:
            return
        except OSError as fault:
            heard, self.faults[address] = b"", (fault.strerror or str(fault)).lower()
        said = self.heard.get(address, b"") + heard
        if heard and (_HERE + _GO).startswith(said):
            self.heard[address] = said
            if said == _HERE + _GO:
                self.said_go.add(address)
                connection.close()
            return
        # It closed the connection: another program that took the port, or a replica that was ended and restarts.
        connection.close()
        self.calls[address] = None
        if self.heard.pop(address, None):
            self.left.add(address)
        self.faults[address] = "another program responds at this port" if heard else "it closed the connection"

    def _why(self, *, is_over: bool = True) -> str:
        """Every pair that has not connected."""
        me = self.meeting.name
        unreached = [
            f"{address} was reached, but gave up waiting for others"
            if address in self.left
            else f"{me} cannot reach {address}: {self.faults.get(address, 'nothing there responds like a replica')}"
            for address, connection in self.calls.items()
            if connection is None or not self.heard.get(address)
        ]
        absent = sorted(self.door.awaited)
        if absent:
            named = ", ".join(absent[:8]) + (f" and {len(absent) - 8} more" if len(absent) > 8 else "")
            unreached.append(f"{named} did not connect to {self.meeting.home}")
        held = [str(address) for address in self.heard if address not in self.said_go]
        if held and not unreached:
            unreached.append(f"{', '.join(held[:8])} is still waiting for others")
        how_long = f"{'waited' if is_over else 'for at most'} {self.meeting.patience_s:g} s"
        waited = f"{how_long} for all replicas to reach each other" if is_over else how_long
        return f"{'; '.join(unreached)} ({waited})" if unreached else waited


def _retry_s(tries: int) -> float:
    return FIRST_RETRIES_S[tries] if tries < len(FIRST_RETRIES_S) else RETRY_S


def _said(connection: socket.socket) -> bytes:
    """The received bytes; empty when the connection was closed."""
    try:
        return connection.recv(512)
    except OSError:
        return b""


def _drop(connection: socket.socket) -> None:
    """Reset a connection, so that nothing of it stays on the port."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    connection.close()


def connect(
    address: Address,
    name: str,
    patience_s: float,
    is_over: Callable[[], bool],
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Wait for the server at an address. Raises PreflightFailed, PreflightInterrupted."""
    now = time.monotonic()
    deadline, log_at = now + patience_s, now + LOG_S
    for tries in itertools.count():
        try:
            socket.create_connection((address.host, address.port), timeout=2.0).close()
            return
        except OSError as fault:
            now = time.monotonic()
            why = f"{name} cannot reach {address}: {(fault.strerror or str(fault)).lower()}"
            if is_over():
                raise PreflightInterrupted from None
            if now > deadline:
                raise PreflightFailed(f"{why} (waited {patience_s:g} s)") from None
            if now >= log_at:
                log_at = now + LOG_S
                say(f"phalanx: {name} is waiting to start: {why} (for at most {patience_s:g} s)")
            time.sleep(UNKNOWN_S if isinstance(fault, socket.gaierror) else _retry_s(tries))


def _owner(port: int) -> str:
    """The process that listens at a port, as far as visible: ` (pid 7: nc)`."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as stream:
                rows = [line.split() for line in stream.readlines()[1:]]
        except OSError:
            continue
        inodes |= {row[9] for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port}
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for pid in filter(str.isdigit, os.listdir("/proc")) if wanted else ():
        try:
            held = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
            if held & wanted:
                with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as stream:
                    return f" (pid {pid}: {stream.read().strip()[:40]})"
        except OSError:
            continue
    return ""
