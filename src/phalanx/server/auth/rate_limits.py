"""How much anybody may ask: so many requests a second, so many costly ones at once, so many wrong passwords.

All of it is generous, and all memory of it is bounded: whom we have forgotten begins anew.
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
    """Of one server. `rate`: requests a second of one identity, and of one address; 0 is no limit."""

    rate: float = 1000.0
    burst: float = 2000.0
    costly: int = 8  # searches and the like at once: every one holds a thread
    uploads: int = 32  # bodies in memory at once
    packing: int = 8  # archives of code that are made at once
    waiting: int = 512  # … and those that wait for their turn
    patience_s: float = 30.0
    failures_of_name: int = 10  # wrong passwords in WINDOW_S
    failures_of_address: int = 50  # a whole office may be behind one


class TokenBuckets:
    """A token bucket for each key."""

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
        self._kept: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and when it was so

    def wait_s(self, key: str) -> float:
        """Takes one. How long to wait instead, when there is none; then none is taken."""
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
    """Wrong passwords, by name and by address. A try counts as wrong until it is found right, so that many at once are
    not let through together."""

    def __init__(self, limits: RateLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self._kept: OrderedDict[str, list[float]] = OrderedDict()

    def begin(self, name: str, address: str) -> None:
        """Raises Refusal when there were too many."""
        now = self.clock()
        keys = self._keys(name, address)
        for key, most in keys.items():
            times = [at for at in self._kept.get(key, []) if at > now - WINDOW_S]
            if len(times) >= most:
                wait = max(1.0, times[0] + WINDOW_S - now)
                raise too_much("there were too many wrong passwords", wait)
        for key in keys:
            times = [at for at in self._kept.pop(key, []) if at > now - WINDOW_S]
            self._kept[key] = [*times, now]
        while len(self._kept) > MOST_REMEMBERED:
            self._kept.popitem(last=False)

    def was_right(self, name: str, address: str) -> None:
        """The name begins anew; of the address only this try is forgotten: it may belong to others, too."""
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
    """Whoever has one address of IPv6 has 2 to the 64 of them."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return str(found)


class ConcurrencyGate:
    """So many at once; some wait, and who would wait too long is sent away."""

    def __init__(self, most: int, waiting: int, patience_s: float) -> None:
        self.most = most
        self.waiting = waiting
        self.patience_s = patience_s
        self._free = asyncio.Semaphore(most)
        self._queue = 0

    async def enter(self) -> None:
        """Raises Refusal. Whoever has entered must leave."""
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
    """What one server's requests have to pass."""

    def __init__(self, limits: RateLimits) -> None:
        self.limits = limits
        self.requests = TokenBuckets(limits.rate, limits.burst)
        self.costly = ConcurrencyGate(limits.costly, limits.waiting, limits.patience_s)
        self.uploads = ConcurrencyGate(limits.uploads, limits.waiting, limits.patience_s)
        self.packing = ConcurrencyGate(limits.packing, limits.waiting, limits.patience_s)

    def count(self, keys: Iterable[str]) -> None:
        """Raises Refusal when one of them asks too much."""
        for key in keys:
            wait = self.requests.wait_s(key)
            if wait:
                raise too_much(f"more than {self.limits.rate:,.0f} requests a second are too many", wait)


def too_much(message: str, wait_s: float) -> RequestError:
    seconds = max(1, math.ceil(wait_s))
    return RequestError(429, message, f"try again in {seconds} s").with_headers({"Retry-After": str(seconds)})


def busy() -> RequestError:
    return RequestError(503, "too much of this kind is under way", "try again soon").with_headers({"Retry-After": "2"})
