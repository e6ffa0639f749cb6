from __future__ import annotations

import threading
import time

import pytest

from phalanx.server.write_gate import WriteGate
from tests.server.site import Site


def test_many_write_together_and_one_is_alone() -> None:
    turns, inside, worst = WriteGate(), [0, 0], [0, 0]

    def write() -> None:
        for _ in range(200):
            with turns.shared(), turns.shared():
                inside[0] += 1
                worst[0] = max(worst[0], inside[0])
                assert not inside[1]
                time.sleep(0)
                inside[0] -= 1

    def turn() -> None:
        for _ in range(200):
            with turns.exclusive():
                inside[1] += 1
                worst[1] = max(worst[1], inside[1] + inside[0])
                time.sleep(0)
                inside[1] -= 1

    threads = [threading.Thread(target=act) for act in (write, write, write, turn, turn)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert worst[1] == 1


def test_who_waits_to_be_alone_is_not_starved_by_who_asks_again() -> None:
    turns, done = WriteGate(), threading.Event()

    def turn() -> None:
        with turns.exclusive():
            done.set()

    with turns.shared():
        waiting = threading.Thread(target=turn)
        waiting.start()
        time.sleep(0.05)
        with turns.shared():  # by who has it already: it must not wait for the other, which waits for it
            assert not done.is_set()
    assert done.wait(5)
    waiting.join()


@pytest.mark.slow
def test_what_was_just_set_is_never_shown_as_it_was_before(site: Site) -> None:
    """The scheduler brings what it reads from the files into the store, while the files go on."""
    run_id = site.begin()
    ended = time.monotonic() + 2.5
    number = 0
    while time.monotonic() < ended:
        number += 1
        site.mlflow("POST", "runs/set-tag", {"run_id": run_id, "key": "k", "value": str(number)})
        assert site.tags(run_id)["k"] == str(number)
        site.mlflow("POST", "runs/delete-tag", {"run_id": run_id, "key": "k"})
        site.scheduling.wake()
        assert "k" not in site.tags(run_id)
