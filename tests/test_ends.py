"""How replicas end, as it is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.ends import FAILURES, Cause, End, cause_of, decode_cause, read_end, status_of

STORED: dict[str, Any] = {
    "version": 1,
    "replica": "worker-1",
    "attempt": 2,
    "cause": "memory",
    "code": None,
    "signal": 9,
    "message": "killed at 31 of 32 MiB",
    "started_at": 1.5,
    "ended_at": 9.25,
    "host": "node-3",
    "log_bytes": 12,
    "last_lines": ["one", "two"],
    "peak": {"memory_mib": 31.5},
}


def test_an_end_is_stored_and_read_back_unchanged() -> None:
    end = End.from_json(STORED)
    assert end is not None
    assert (end.cause, end.signal, end.last_lines) == (Cause.MEMORY, 9, ("one", "two"))
    assert json.dumps(end.to_json()) == json.dumps(STORED)


def test_causes_are_written_as_their_values() -> None:
    assert [f"{cause} {cause:>9}" for cause in (Cause.LOST,)] == ["lost      lost"]
    assert str(Cause.FINISHED) == "finished"
    assert json.dumps({"cause": Cause.SETUP}) == '{"cause": "setup"}'
    assert {"stopped"} == {Cause.STOPPED}


def test_a_cause_of_a_newer_version_counts_as_an_error() -> None:
    end = End.from_json({**STORED, "cause": "evaporated"})
    assert end is not None
    assert end.cause == decode_cause("evaporated") == Cause.ERROR
    assert end.message == STORED["message"]


@pytest.mark.parametrize(
    "content",
    [None, [], "end", {}, {"cause": "error"}, {"ended_at": 1.0}, {"cause": 5, "ended_at": 1.0},
     {"cause": "error", "ended_at": "late"}, {"cause": "error", "ended_at": True},
     {"cause": "error", "ended_at": 1.0, "last_lines": 5}, {"cause": "error", "ended_at": 1.0, "last_lines": [7]}],
)  # fmt: skip
def test_what_is_no_end_is_none(content: Any, tmp_path: Path) -> None:
    (tmp_path / "end.json").write_text(json.dumps(content))
    assert read_end(tmp_path) is None


def test_fields_of_a_wrong_type_are_left_out() -> None:
    wrong = {"code": "x", "signal": [], "started_at": "x", "host": 3, "peak": {"cpu_s": "x", "gpu": 1}}
    end = End.from_json({"cause": "error", "ended_at": 3, **wrong})
    assert end == End(Cause.ERROR, None, None, "", ended_at=3, host=None, peak={"gpu": 1})


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"cause": "error", "ended_at": 1'])
def test_a_damaged_file_has_no_end(text: str, tmp_path: Path) -> None:
    assert read_end(tmp_path) is None
    (tmp_path / "end.json").write_text(text)
    assert read_end(tmp_path) is None


def test_statuses_and_causes_correspond() -> None:
    assert {cause: status_of(cause) for cause in Cause if status_of(cause) != "failed"} == {
        Cause.FINISHED: "succeeded",
        Cause.STOPPED: "stopped",
        Cause.SEGMENT: "stopped",
    }
    assert {status_of(cause) for cause in FAILURES} == {"failed"}
    assert [cause_of(status) for status in ("succeeded", "stopped", "failed", "other")] == [
        Cause.FINISHED,
        Cause.STOPPED,
        Cause.ERROR,
        Cause.ERROR,
    ]
