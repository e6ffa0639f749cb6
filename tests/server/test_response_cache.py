"""Answers that many ask for at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from phalanx.server.http.response_cache import CHEAP_S, LONGEST_S, ResponseCache


def work(seconds: float) -> None:
    """Of a core."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def counted(made: list[int], seconds: float) -> Callable[[], bytes]:
    def make() -> bytes:
        work(seconds)
        made.append(len(made))
        return str(len(made)).encode()

    return make


def test_what_is_costly_is_made_once_for_those_who_ask_within_a_moment() -> None:
    recent, made = ResponseCache(), list[int]()
    make = counted(made, 4 * CHEAP_S)
    assert {recent.get("a", make) for _ in range(10)} == {b"1"}
    time.sleep(LONGEST_S + 0.1)
    assert recent.get("a", make) == b"2"


def test_what_is_cheap_is_always_as_it_is_now() -> None:
    recent, made = ResponseCache(), list[int]()
    assert [recent.get("a", counted(made, 0)) for _ in range(3)] == [b"1", b"2", b"3"]


def test_who_changes_something_sees_it() -> None:
    recent, made = ResponseCache(), list[int]()
    make = counted(made, 4 * CHEAP_S)
    assert recent.get("a", make) == b"1"
    recent.forget()
    assert recent.get("a", make) == b"2"


def test_what_was_begun_before_a_change_is_asked_to_no_one_else() -> None:
    recent, inside, go_on = ResponseCache(), threading.Event(), threading.Event()

    def slow() -> bytes:
        work(4 * CHEAP_S)
        inside.set()
        assert go_on.wait(10)
        return b"old"

    thread = threading.Thread(target=recent.get, args=("a", slow))
    thread.start()
    assert inside.wait(10)
    recent.forget()
    go_on.set()
    thread.join()
    assert recent.get("a", lambda: b"new") == b"new"


def test_who_asks_while_another_makes_it_anew_gets_the_one_before() -> None:
    recent, inside, go_on = ResponseCache(), threading.Event(), threading.Event()
    assert recent.get("a", counted([], 4 * CHEAP_S)) == b"1"
    time.sleep(LONGEST_S + 0.1)

    def slow() -> bytes:
        inside.set()
        assert go_on.wait(10)
        return b"new"

    thread = threading.Thread(target=recent.get, args=("a", slow))
    thread.start()
    assert inside.wait(10)
    assert recent.get("a", lambda: b"nobody asks me") == b"1"
    go_on.set()
    thread.join()


def test_memory_is_bounded() -> None:
    def make() -> bytes:
        work(2 * CHEAP_S)
        return bytes(400)

    recent = ResponseCache(most_bytes=1000)
    for number in range(20):
        recent.get(number, make)
    assert len(recent._kept) <= 3
