"""How much anybody may ask, and that nobody else suffers from it."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from phalanx.server.auth.identities import Role
from phalanx.server.auth.rate_limits import (
    MOST_REMEMBERED,
    WINDOW_S,
    ConcurrencyGate,
    LoginFailures,
    RateLimits,
    TokenBuckets,
    network_of,
)
from phalanx.server.http.bodies import BodyMemory
from phalanx.server.http.responses import RequestError
from tests.server.people import PASSWORD, sign_in
from tests.server.site import Site


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# buckets ------------------------------------------------------------------------------------------------------------


def test_a_bucket_gives_what_it_holds_and_then_what_flows_in() -> None:
    clock = Clock()
    buckets = TokenBuckets(rate=10, burst=3, clock=clock)
    assert [buckets.wait_s("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert buckets.wait_s("a") == pytest.approx(0.1)
    assert buckets.wait_s("b") == 0.0, "others have their own"
    clock.now += 0.1
    assert buckets.wait_s("a") == 0.0
    assert buckets.wait_s("a") > 0
    clock.now += 1000
    assert [buckets.wait_s("a") > 0 for _ in range(4)] == [False, False, False, True], "never more than it holds"


def test_the_memory_of_buckets_is_bounded() -> None:
    buckets = TokenBuckets(rate=1, burst=1, most=100)
    for number in range(10_000):
        buckets.wait_s(str(number))
    assert len(buckets._kept) == 100


def test_a_rate_of_nothing_is_no_limit() -> None:
    assert not any(TokenBuckets(rate=0, burst=0).wait_s("a") for _ in range(1000))


def test_two_hundred_clients_of_one_token_are_far_from_the_limit() -> None:
    """Each with five requests a second, all of them at once."""
    clock = Clock()
    buckets = TokenBuckets(RateLimits().rate, RateLimits().burst, clock=clock)
    for _ in range(20):
        assert not any(buckets.wait_s("token ci") for _ in range(200 * 5))
        clock.now += 1.0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("x" * 500, "x" * 100),
    ],
)
def test_an_address_stands_for_all_that_one_has(address: str, network: str) -> None:
    assert network_of(address) == network


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Site]:
    limits = RateLimits(rate=0.001, burst=20, failures_of_name=3, failures_of_address=6)
    with Site(tmp_path, limits=limits) as found:
        yield found


def test_a_client_with_too_many_requests_learns_when_to_retry(strict: Site) -> None:
    answers = [strict.ask("GET", "/api/v1/projects") for _ in range(25)]
    assert [answer.status_code for answer in answers] == [200] * 20 + [429] * 5
    assert int(answers[-1].headers["Retry-After"]) >= 1
    assert "requests per second" in answers[-1].json()["error"]["message"]
    response = strict.mlflow_answer("GET", "runs/get", {"run_id": "x"})
    assert (response.status_code, response.json()["error_code"]) == (429, "REQUEST_LIMIT_EXCEEDED")


# wrong passwords ----------------------------------------------------------------------------------------------------


def test_after_some_wrong_passwords_no_more_are_tried(strict: Site) -> None:
    strict.context.accounts.add("ana", PASSWORD, {"*": Role.VIEWER})
    token = strict.context.tokens.create("x")
    for _ in range(3):
        assert sign_in(strict, user="ana", password="wrong password").status_code == 401
    answer = sign_in(strict, user="ana", password=PASSWORD)
    assert answer.status_code == 429, "not even the right one"
    assert 1 <= int(answer.headers["Retry-After"]) <= WINDOW_S
    basic = "Basic " + base64.b64encode(f"ana:{PASSWORD}".encode()).decode()
    assert httpx.get(f"{strict.url}/api/v1/runs", headers={"Authorization": basic}, trust_env=False).status_code == 429
    assert sign_in(strict, token=token).status_code == 200, "tokens cannot be guessed: they need no limit"


def test_names_that_no_one_has_are_limited_like_others(strict: Site) -> None:
    """Else one could tell which names there are."""
    assert [sign_in(strict, user="nobody", password=PASSWORD).status_code for _ in range(4)] == [401, 401, 401, 429]


def test_an_address_that_tries_many_names_is_limited(strict: Site) -> None:
    assert [sign_in(strict, user=f"u{n}", password=PASSWORD).status_code for n in range(7)] == [401] * 6 + [429]


def test_tries_are_forgotten_after_a_while_and_by_a_right_one() -> None:
    clock = Clock()
    failures = LoginFailures(RateLimits(failures_of_name=2, failures_of_address=100), clock)
    failures.begin("ana", "10.0.0.1")
    failures.begin("ana", "10.0.0.2")
    with pytest.raises(RequestError):
        failures.begin("ana", "10.0.0.3")
    clock.now += WINDOW_S + 1
    failures.begin("ana", "10.0.0.1")
    failures.was_right("ana", "10.0.0.1")
    for _ in range(2):
        failures.begin("ana", "10.0.0.1")


def test_many_tries_at_once_are_counted_before_they_are_looked_at() -> None:
    failures = LoginFailures(RateLimits(failures_of_name=5))
    passed = 0
    for _ in range(50):  # none of which has been answered
        try:
            failures.begin("ana", "10.0.0.1")
            passed += 1
        except RequestError:
            pass
    assert passed == 5


def test_the_memory_of_failures_is_bounded() -> None:
    failures = LoginFailures(RateLimits(failures_of_name=1))
    for number in range(MOST_REMEMBERED):
        failures.begin(f"name {number}" + "x" * 10_000, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    with pytest.raises(RequestError):  # the last one is remembered
        failures.begin(f"name {MOST_REMEMBERED - 1}" + "x" * 10_000, "10.9.9.9")
    assert failures.shared.failures.size_bytes < 8 << 20


# gates --------------------------------------------------------------------------------------------------------------


def test_a_gate_lets_some_in_some_wait_and_the_rest_go() -> None:
    async def play() -> list[object]:
        gate = ConcurrencyGate(most=2, waiting=1, patience_s=10)
        said: list[object] = []

        async def visit(name: str) -> None:
            try:
                await gate.enter(name)
            except RequestError as refusal:
                said.append((name, refusal.status, refusal.headers["Retry-After"]))
                return
            said.append(name)

        await visit("a")
        await visit("b")
        waiting = asyncio.create_task(visit("c"))
        await asyncio.sleep(0)
        await visit("d")
        gate.leave("a")
        await waiting
        return said

    assert asyncio.run(play()) == ["a", "b", ("d", 503, "2"), "c"]


def test_who_waits_too_long_goes_and_takes_no_place_along() -> None:
    async def play() -> None:
        gate = ConcurrencyGate(most=1, waiting=5, patience_s=0.01)
        await gate.enter("a")
        with pytest.raises(RequestError, match="too many concurrent requests"):
            await gate.enter("b")
        gate.leave("a")
        await gate.enter("b")

    asyncio.run(play())


def test_a_place_is_free_again_after_every_answer(tmp_path: Path) -> None:
    """Also after refusals and faults."""
    with Site(tmp_path, limits=RateLimits(costly=1, memory=100, waiting=1, patience_s=5)) as site:
        run_id = site.begin()
        place = f"/api/v1/runs/{run_id}/files"
        for _ in range(3):
            assert site.mlflow_answer("POST", "runs/search", {"experiment_ids": ["0"]}).status_code == 200
            assert site.mlflow_answer("POST", "runs/search", {"filter": "("}).status_code == 400
            assert site.ask("PUT", f"{place}/replicas/master-0/attempt-1/a.points", content=b"x").status_code == 200
            assert site.ask("PUT", f"{place}/nowhere", content=b"x").status_code == 400
            assert site.ask("PUT", f"{place}/artifacts/x?offset=-1", content=b"x").status_code == 400


def test_one_caller_has_at_most_half_of_the_slots_and_of_the_queue() -> None:
    async def play() -> None:
        gate = ConcurrencyGate(most=4, waiting=4, patience_s=10)
        await gate.enter("a")
        await gate.enter("a")
        waiting = [asyncio.create_task(gate.enter("a")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="too many concurrent requests"):
            await gate.enter("a")
        await gate.enter("b")
        await gate.enter("c")
        for _ in waiting:
            gate.leave("a")
        await asyncio.gather(*waiting)
        for key in ("a", "a", "b", "c"):
            gate.leave(key)
        assert not gate._by_key

    asyncio.run(play())


def test_one_caller_has_at_most_half_of_the_memory_for_bodies() -> None:
    memory = BodyMemory(100)
    memory.take("a", 50)
    with pytest.raises(RequestError, match="too many concurrent requests"):
        memory.take("a", 1)
    memory.take("b", 30)
    memory.take("c", 20)
    with pytest.raises(RequestError):
        memory.take("d", 1)
    memory.give_back("a", 50)
    memory.take("d", 50)


# sizes --------------------------------------------------------------------------------------------------------------


def raw(site: Site, head: bytes) -> bytes:
    """The first line of the answer, or nothing when there is none."""
    with socket.create_connection(site.listening.getsockname(), timeout=10) as connection:
        try:
            connection.sendall(head)
            return connection.recv(1000).split(b"\r\n")[0]
        except ConnectionError:
            return b""


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 50_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz?" + b"a" * 50_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: %s\r\n" % (b"a" * 200_000) + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
    ],
)
def test_addresses_and_headers_without_end_are_refused(site: Site, head: bytes) -> None:
    assert raw(site, head).split(b" ")[1:2] in ([b"414"], [b"431"], [b"400"], [])
    assert site.client.get("/healthz").status_code == 200


@pytest.mark.slow
def test_a_crowd_of_wrong_tokens_does_not_keep_others_from_their_work(site: Site) -> None:
    def knock() -> None:
        with httpx.Client(base_url=site.url, trust_env=False) as client:
            for _ in range(30):
                assert client.get("/api/v1/runs", headers={"Authorization": "Bearer phx_wrong"}).status_code == 401

    threads = [threading.Thread(target=knock) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert all(site.ask("GET", "/api/v1/projects").status_code == 200 for _ in range(20))
    for thread in threads:
        thread.join()
