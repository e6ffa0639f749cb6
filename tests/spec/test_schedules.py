"""When schedules tick."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from phalanx.spec.pipelines.schedules import TickTimes, read_cron

START = datetime(2026, 11, 18, 5, 30, tzinfo=UTC)  # a Wednesday


def _times(**schedule: Any) -> TickTimes:
    return TickTimes.of(schedule, START)


@pytest.mark.parametrize(
    ("cron", "following"),
    [
        ("* * * * *", "2026-11-18T05:31"),
        ("*/15 * * * *", "2026-11-18T05:45"),
        ("0 0 * * *", "2026-11-19T00:00"),
        ("30 5 * * *", "2026-11-19T05:30"),
        ("0 9-17/4 * * mon-fri", "2026-11-18T09:00"),
        ("0 0 * * 0", "2026-11-22T00:00"),
        ("0 0 * * 7", "2026-11-22T00:00"),
        ("0 0 13 * 5", "2026-11-20T00:00"),  # a Friday, or the 13th
        ("0 0 29 feb *", "2028-02-29T00:00"),
        ("5,35 5,6 * * *", "2026-11-18T05:35"),
        ("@monthly", "2026-12-01T00:00"),
    ],
)
def test_the_next_time_of_a_cron_expression(cron: str, following: str) -> None:
    assert read_cron(cron).after(START) == datetime.fromisoformat(following).replace(tzinfo=UTC)


@pytest.mark.parametrize("cron", ["", "* * * *", "60 * * * *", "* * 0 * *", "*/0 * * * *", "5-1 * * * *", "a * * * *"])
def test_invalid_cron_expressions_are_refused(cron: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_cron(cron)


def test_an_interval_begins_with_its_submission() -> None:
    times = _times(kind="interval", frequency=60)
    assert times.after(None) == START
    assert times.after(START) == START + timedelta(minutes=1)


def test_ticks_before_the_submission_are_none() -> None:
    times = _times(kind="interval", frequency=3600, start_at="2019-06-24T21:20:07+00:00")
    assert times.after(None) == datetime(2026, 11, 18, 6, 20, 7, tzinfo=UTC)


@pytest.mark.parametrize("fields", [{"kind": "interval", "frequency": 60}, {"kind": "cron", "cron": "* * * * *"}])
def test_missed_ticks_are_caught_up_by_one(fields: dict[str, Any]) -> None:
    times = TickTimes.of(fields, START)
    now = START + timedelta(minutes=10, seconds=30)
    due = times.due(START, now)
    assert due == START + timedelta(minutes=10)
    assert times.due(due, now) is None


def test_a_schedule_ends() -> None:
    times = _times(kind="interval", frequency=60, end_at="2026-11-18T05:31:30")
    last = START + timedelta(minutes=1)
    assert times.due(START, START + timedelta(hours=1)) == last
    assert times.after(last) is None
    assert times.due(last, START + timedelta(hours=1)) is None
