"""What is decided for the ops of a pipeline, from its journal."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.scheduler.pipelines.state import Ended, PipelineState, Start, What, holds, retry_delay_s
from phalanx.spec.model import Operation
from phalanx.spec.pipelines.fields import TRIGGERS
from phalanx.store.statuses import Status


def _op(name: str, *after: str, **fields: Any) -> Operation:
    return Operation(name=name, template={"name": "t"}, dependencies=after, **fields)


class Journal:
    """A state, and the records that it is folded from."""

    def __init__(self, *ops: Operation, concurrency: int | None = None) -> None:
        self.ops = {op.name: op for op in ops}
        self.concurrency = concurrency
        self.records: list[dict[str, Any]] = []
        self.state = PipelineState("p", self.ops, concurrency)

    def add(self, what: What, op: str = "", **fields: Any) -> None:
        number = {"number": 0, "after": 0, "params": {}} if what is What.START else {}
        record = {"seq": len(self.records) + 1, "at": 1.0, "what": what, "op": op, **number, **fields}
        self.records.append(record)
        self.state.fold(record)

    def next(self, now: float = 0.0) -> list[tuple[str, str]]:
        """What is to be done: recorded at once."""
        found = self.state.verdicts(now, lambda _: True, 100)
        for verdict in found:
            if isinstance(verdict, Start):
                self.add(What.START, verdict.op)
            else:
                self.add(What.END, verdict.op, status=verdict.status, why=verdict.why)
        return [(one.op, one.status if isinstance(one, Ended) else "start") for one in found]

    def end(self, op: str, status: str = "succeeded") -> None:
        self.add(What.END, op, status=status, why="")

    def again(self) -> PipelineState:
        return PipelineState("p", self.ops, self.concurrency, self.records)


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_an_op_without_upstream_ops_runs(trigger: str) -> None:
    assert holds(trigger, []) is True


@pytest.mark.parametrize(
    ("trigger", "statuses", "met"),
    [
        ("all_succeeded", ["succeeded", "succeeded"], True),
        ("all_succeeded", ["succeeded", "active"], None),
        ("all_succeeded", ["failed", "active"], None),
        ("all_succeeded", ["succeeded", "skipped"], False),
        ("all_succeeded", ["succeeded", "stopped"], False),
        ("all_failed", ["failed", "upstream_failed"], True),
        ("all_failed", ["failed", "stopped"], False),
        ("one_failed", ["upstream_failed", "active"], None),
        ("one_failed", ["upstream_failed", "succeeded"], False),
        ("one_failed", ["failed", "waiting"], True),
        ("all_done", ["skipped", "stopped"], True),
        ("all_done", ["skipped", "active"], None),
        ("one_done", ["skipped", "active"], True),
        ("one_succeeded", ["failed", "active"], None),
        ("one_succeeded", ["failed", "succeeded"], True),
        ("one_succeeded", ["failed", "skipped"], False),
    ],
)
def test_triggers(trigger: str, statuses: list[str], met: bool | None) -> None:
    assert holds(trigger, statuses) is met


def test_ops_are_decided_when_those_before_them_have_ended() -> None:
    journal = Journal(_op("a"), _op("b", "a"), _op("c", "a"), _op("d", "b", "c"))
    assert journal.next() == [("a", "start")]
    assert journal.next() == []
    journal.end("a")
    assert journal.next() == [("b", "start"), ("c", "start")]
    journal.end("b", "failed")
    assert journal.next() == []
    journal.end("c")
    assert journal.next() == [("d", Status.UPSTREAM_FAILED)]
    assert journal.state.is_over
    assert journal.state.outcome() == (Status.FAILED, "op `b` failed: ")


def test_only_so_many_ops_are_active() -> None:
    journal = Journal(*(_op(name) for name in "abcd"), concurrency=2)
    assert journal.next() == [("a", "start"), ("b", "start")]
    assert journal.next() == []
    assert journal.state.waits_for("c", 0.0) == "waits until another op has ended: `concurrency` is 2"
    journal.end("b")
    assert journal.next() == [("c", "start")]


def test_a_retry_waits_for_its_time() -> None:
    journal = Journal(_op("a", settings={"max_retries": 2}))
    journal.next()
    journal.add(What.RETRY, "a", due=10.0, why="exit code 1")
    assert journal.next(now=4.0) == []
    assert journal.state.waits_for("a", 4.0) == "retry 1 of 2 in 6 s: exit code 1"
    assert journal.next(now=10.0) == [("a", "start")]


@pytest.mark.parametrize(
    ("settings", "delays"),
    [
        ({}, [0, 0, 0]),
        ({"retry_delay": 3}, [3, 3, 3]),
        ({"retry_exp_backoff": True}, [1, 2, 4]),
        ({"retry_exp_backoff": True, "retry_delay": 3, "max_retry_delay": 3.5}, [3, 3, 3.5]),
    ],
)
def test_delays_of_retries(settings: dict[str, Any], delays: list[float]) -> None:
    assert [retry_delay_s(settings, number) for number in range(3)] == delays


def test_a_resume_keeps_what_succeeded() -> None:
    journal = Journal(_op("a"), _op("b", "a"), _op("c", "b"), _op("d", "b", trigger="all_done"), _op("e", "a"))
    journal.next()
    journal.end("a")
    journal.next()
    journal.end("b", "failed")
    journal.end("e", "skipped")
    journal.next()
    journal.end("d")
    assert journal.state.is_over
    assert journal.state.to_resume() == ["b", "c"]  # `e` was skipped for a reason that still holds
    journal.add(What.AGAIN, ops=["b", "c"], why="resumed")
    assert journal.next() == [("b", "start")]
    assert {name: state.status for name, state in journal.again().states.items()} == {
        name: state.status for name, state in journal.state.states.items()
    }
