"""Rate limits: requests per second, concurrent expensive requests, bodies in memory, and wrong passwords.

No single identity can use up what all share: it has at most half of the slots, of the queue and of the memory.

The limits are generous and their memory is bounded: a forgotten client starts with a fresh allowance.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from typing import NamedTuple

from starlette.types import Scope

from phalanx.server.http.bodies import BodyMemory, half
from phalanx.server.http.responses import RequestError, busy
from phalanx.server.processes.shared_state import FAILURE_TIMES, SharedState, SharedTable

MOST_REMEMBERED = 10_000
WINDOW_S = 300.0


class RateLimits(NamedTuple):
    """The limits of one server. `rate`: requests per second for each identity and each address; 0 means no limit."""

    rate: float = 1000.0
    burst: float = 2000.0
    costly: int = 8  # concurrent searches and similar requests: each occupies a thread
    memory: int = 512 << 20  # bytes of bodies
    packing: int = 8  # concurrent code archives being packed
    waiting: int = 512  # requests waiting for a slot
    patience_s: float = 30.0
    failures_of_name: int = 10  # wrong passwords within WINDOW_S
    failures_of_address: int = 50  # at most FAILURE_TIMES; an entire office may share one address

    def shared_by(self, processes: int) -> RateLimits:
        """The limits of each of the processes of a server. Rates and wrong passwords are counted by all together."""
        return self._replace(
            costly=max(2, self.costly // processes),
            memory=self.memory // processes,
            packing=max(2, self.packing // processes),
            waiting=max(2, self.waiting // processes),
        )


class TokenBuckets:
    """A token bucket per key."""

    def __init__(
        self,
        rate: float,
        burst: float,
        most: int = MOST_REMEMBERED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate = rate
        self.burst = burst
        self.most = most
        self.clock = clock
        # remaining tokens, and when they were counted
        self._kept: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, key: str) -> float:
        """Take one token, or take none and return the time to wait for one."""
        if self.rate <= 0:
            return 0.0
        now = self.clock()
        left, at = self._get(key) or (self.burst, now)
        left = min(self.burst, left + max(0.0, now - at) * self.rate)
        taken = left >= 1.0
        self._put(key, left - 1.0 if taken else left, now)
        return 0.0 if taken else (1.0 - left) / self.rate

    def _get(self, key: str) -> tuple[float, ...] | None:
        return self._kept.pop(key, None)

    def _put(self, key: str, left: float, at: float) -> None:
        self._kept[key] = left, at
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)


class SharedTokenBuckets(TokenBuckets):
    """The buckets of all processes of a server. Two that count the same key at the same moment may count it once: a
    limit of requests may be off by that."""

    def __init__(self, rate: float, burst: float, table: SharedTable) -> None:
        super().__init__(rate, burst)
        self._table = table

    def _get(self, key: str) -> tuple[float, ...] | None:
        return self._table.get(key)

    def _put(self, key: str, left: float, at: float) -> None:
        self._table.put(key, left, at)


class LoginFailures:
    """Wrong passwords by name and by address. An attempt counts as wrong until it is verified, so that concurrent
    attempts cannot exceed the limit."""

    def __init__(
        self,
        limits: RateLimits,
        clock: Callable[[], float] = time.monotonic,
        shared: SharedState | None = None,
    ) -> None:
        self.limits = limits
        self.clock = clock
        self.shared = shared or SharedState()

    def begin(self, name: str, address: str) -> None:
        """Raises RequestError after too many wrong passwords."""
        now = self.clock()
        keys = self._keys(name, address)
        with self.shared.alone():
            times = {key: self._times(key, now) for key in keys}
            for key, most in keys.items():
                if len(times[key]) >= most:
                    raise too_much("too many wrong passwords", max(1.0, times[key][0] + WINDOW_S - now))
            for key in keys:
                self._put(key, [*times[key], now])

    def was_right(self, name: str, address: str) -> None:
        """Reset the name's count. For the address remove only this attempt: other users may share it."""
        by_name, by_address = self._keys(name, address)
        with self.shared.alone():
            self.shared.failures.remove(by_name)
            self._put(by_address, self._times(by_address, self.clock())[:-1])

    def _times(self, key: str, now: float) -> list[float]:
        count, *times = self.shared.failures.get(key) or (0.0,)
        return [at for at in times[: int(count)] if at > now - WINDOW_S]

    def _put(self, key: str, times: list[float]) -> None:
        """The newest."""
        kept = times[-FAILURE_TIMES:]
        self.shared.failures.put(key, len(kept), *kept, *[0.0] * (FAILURE_TIMES - len(kept)))

    def _keys(self, name: str, address: str) -> dict[str, int]:
        return {
            f"name {name[:200]}": self.limits.failures_of_name,
            f"address {network_of(address)}": self.limits.failures_of_address,
        }


def network_of(address: str) -> str:
    """One IPv6 client owns 2 to the 64 addresses, so they count as one."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return str(found)


class _Slots:
    """Slots, and the number of requests that wait for one or have one."""

    def __init__(self, most: int) -> None:
        self.free = asyncio.Semaphore(most)
        self.users = 0


class ConcurrencyGate:
    """Limits concurrency: some requests wait for a slot, and those that would wait too long are rejected."""

    def __init__(self, most: int, waiting: int, patience_s: float) -> None:
        self.most = most
        self.waiting = waiting
        self.patience_s = patience_s
        self._all = _Slots(most)
        self._by_key: dict[str, _Slots] = {}

    async def enter(self, key: str) -> None:
        """`key`: the caller. Raises RequestError. Every entry must be followed by a leave."""
        own = self._by_key.setdefault(key, _Slots(half(self.most)))
        if self._all.users >= self.most + self.waiting or own.users >= half(self.most) + half(self.waiting):
            self._forget(key, own)
            raise busy()
        self._all.users += 1
        own.users += 1
        with ExitStack() as undo:
            undo.callback(self._count_out, key, own)
            try:
                async with asyncio.timeout(self.patience_s):
                    await own.free.acquire()
                    undo.callback(own.free.release)
                    await self._all.free.acquire()
            except TimeoutError:
                raise busy() from None
            undo.pop_all()

    def leave(self, key: str) -> None:
        own = self._by_key[key]
        self._all.free.release()
        own.free.release()
        self._count_out(key, own)

    def _count_out(self, key: str, own: _Slots) -> None:
        self._all.users -= 1
        own.users -= 1
        self._forget(key, own)

    def _forget(self, key: str, own: _Slots) -> None:
        if not own.users:
            self._by_key.pop(key, None)

    @asynccontextmanager
    async def entered(self, key: str) -> AsyncIterator[None]:
        await self.enter(key)
        try:
            yield
        finally:
            self.leave(key)


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


class Traffic:
    """The limits that every request of one server must pass."""

    def __init__(self, limits: RateLimits, shared: SharedState) -> None:
        self.limits = limits
        self.requests = SharedTokenBuckets(limits.rate, limits.burst, shared.tokens)
        self.costly = ConcurrencyGate(limits.costly, limits.waiting, limits.patience_s)
        self.memory = BodyMemory(limits.memory)
        self.packing = ConcurrencyGate(limits.packing, limits.waiting, limits.patience_s)

    def count(self, keys: Iterable[str]) -> None:
        """Raises RequestError when one of the keys exceeds its rate."""
        for key in keys:
            wait = self.requests.wait_s(key)
            if wait:
                raise too_much(f"rate limit exceeded: {self.limits.rate:,.0f} requests per second", wait)


def too_much(message: str, wait_s: float) -> RequestError:
    seconds = max(1, math.ceil(wait_s))
    return RequestError(429, message, f"retry in {seconds} s").with_headers({"Retry-After": str(seconds)})
