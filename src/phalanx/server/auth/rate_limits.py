"""Rate limits: requests per second, concurrent expensive requests, and wrong passwords.

The limits are generous and their memory is bounded: a forgotten client starts with a fresh allowance.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

from phalanx.server.http.responses import RequestError

MOST_REMEMBERED = 10_000
WINDOW_S = 300.0


class RateLimits(NamedTuple):
    """The limits of one server. `rate`: requests per second for each identity and each address; 0 means no limit."""

    rate: float = 1000.0
    burst: float = 2000.0
    costly: int = 8  # concurrent searches and similar requests: each occupies a thread
    uploads: int = 32  # concurrent bodies in memory
    packing: int = 8  # concurrent code archives being packed
    waiting: int = 512  # requests waiting for a slot
    patience_s: float = 30.0
    failures_of_name: int = 10  # wrong passwords within WINDOW_S
    failures_of_address: int = 50  # an entire office may share one address


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
        left, at = self._kept.pop(key, (self.burst, now))
        left = min(self.burst, left + (now - at) * self.rate)
        taken = left >= 1.0
        self._kept[key] = (left - 1.0 if taken else left), now
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)
        return 0.0 if taken else (1.0 - left) / self.rate


class LoginFailures:
    """Wrong passwords by name and by address. An attempt counts as wrong until it is verified, so that concurrent
    attempts cannot exceed the limit."""

    def __init__(self, limits: RateLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self._kept: OrderedDict[str, list[float]] = OrderedDict()

    def begin(self, name: str, address: str) -> None:
        """Raises RequestError after too many wrong passwords."""
        now = self.clock()
        keys = self._keys(name, address)
        for key, most in keys.items():
            times = [at for at in self._kept.get(key, []) if at > now - WINDOW_S]
            if len(times) >= most:
                wait = max(1.0, times[0] + WINDOW_S - now)
                raise too_much("too many wrong passwords", wait)
        for key in keys:
            times = [at for at in self._kept.pop(key, []) if at > now - WINDOW_S]
            self._kept[key] = [*times, now]
        while len(self._kept) > MOST_REMEMBERED:
            self._kept.popitem(last=False)

    def was_right(self, name: str, address: str) -> None:
        """Reset the name's count. For the address remove only this attempt: other users may share it."""
        by_name, by_address = self._keys(name, address)
        self._kept.pop(by_name, None)
        times = self._kept.get(by_address)
        if times:
            times.pop()

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


class ConcurrencyGate:
    """Limits concurrency: some requests wait for a slot, and those that would wait too long are rejected."""

    def __init__(self, most: int, waiting: int, patience_s: float) -> None:
        self.most = most
        self.waiting = waiting
        self.patience_s = patience_s
        self._free = asyncio.Semaphore(most)
        self._queue = 0

    async def enter(self) -> None:
        """Raises RequestError. Every entry must be followed by a leave."""
        if self._free.locked() and self._queue >= self.waiting:
            raise busy()
        self._queue += 1
        try:
            async with asyncio.timeout(self.patience_s):
                await self._free.acquire()
        except TimeoutError:
            raise busy() from None
        finally:
            self._queue -= 1

    def leave(self) -> None:
        self._free.release()

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        await self.enter()
        try:
            yield
        finally:
            self.leave()


class Traffic:
    """The limits that every request of one server must pass."""

    def __init__(self, limits: RateLimits) -> None:
        self.limits = limits
        self.requests = TokenBuckets(limits.rate, limits.burst)
        self.costly = ConcurrencyGate(limits.costly, limits.waiting, limits.patience_s)
        self.uploads = ConcurrencyGate(limits.uploads, limits.waiting, limits.patience_s)
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


def busy() -> RequestError:
    return RequestError(503, "too many concurrent requests of this kind", "retry later").with_headers(
        {"Retry-After": "2"}
    )
