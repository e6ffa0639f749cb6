"""When a schedule ticks: intervals and cron expressions. All times are UTC."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from phalanx.deferred_patterns import deferred_pattern

MOST_DAYS = 4 * 366 + 1  # a day of a cron expression comes again within four years, or never
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ["", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_PART = deferred_pattern(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/([0-9]+))?\Z")


class CronTimes(NamedTuple):
    """The times of a cron expression: sets of minutes, hours, days, months and weekdays (0 is Sunday)."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool  # both days and weekdays are given: one of them has to fit

    def after(self, moment: datetime) -> datetime | None:
        """The first time after a moment; None if there is none."""
        day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        for _ in range(MOST_DAYS):
            if self._has(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        found = day.replace(hour=hour, minute=minute)
                        if found > moment:
                            return found
            day += timedelta(days=1)
        return None

    def _has(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        fits, weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return fits or weekday if self.either else fits and weekday


def read_cron(text: str) -> CronTimes:
    """Raises ValueError, which says what is wrong."""
    words = _MACROS.get(text.strip().lower(), text).lower().split()
    if len(words) != len(_FIELDS):
        raise ValueError("a cron expression has 5 fields: minute, hour, day, month, weekday")
    minutes, hours, days, months, weekdays = (_values(word, *field) for word, field in zip(words, _FIELDS, strict=True))
    weekdays = frozenset(number % 7 for number in weekdays)
    found = CronTimes(minutes, hours, days, months, weekdays, not (words[2][0] == "*" or words[4][0] == "*"))
    if found.after(datetime(2024, 1, 1, tzinfo=UTC)) is None:
        raise ValueError("no day fits this cron expression")
    return found


def _values(word: str, name: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        match = _PART.match(part)
        if match is None:
            raise ValueError(f"`{part[:30]}` is no {name}")
        first, last, step = match.groups()
        if first == "*" and last is None:
            begin, end = low, min(high, 6) if name == "weekday" else high
        else:
            begin = _number(first, name, low, high)
            end = _number(last, name, low, high) if last else high if step else begin
        every = int(step or 1)
        if begin > end or every < 1:
            raise ValueError(f"`{part[:30]}` is no {name}")
        found.update(range(begin, end + 1, every))
    return frozenset(found)


def _number(word: str, name: str, low: int, high: int) -> int:
    names = {"month": _MONTHS, "weekday": _DAYS}.get(name, [])
    if word in names and word:
        return names.index(word)
    if not word.isdigit() or not low <= int(word) <= high:
        raise ValueError(f"`{word[:30]}` is no {name}: write {low} to {high}")
    return int(word)


def read_time(text: str) -> datetime:
    """A time of the file; UTC if it names no other zone. Raises ValueError."""
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


class TickTimes(NamedTuple):
    """When a schedule ticks. `start`: the first tick of an interval is then, that of cron not before."""

    start: datetime
    end: datetime | None
    every: timedelta | None  # None: by cron
    cron: CronTimes | None

    @classmethod
    def of(cls, schedule: Mapping[str, Any], submitted: datetime) -> TickTimes:
        """The ticks of a schedule whose fields are valid. Ticks before its submission are none."""
        start = read_time(schedule["start_at"]) if schedule.get("start_at") else submitted
        end = read_time(schedule["end_at"]) if schedule.get("end_at") else None
        if schedule["kind"] == "cron":
            return cls(max(start, submitted), end, None, read_cron(schedule["cron"]))
        every = timedelta(seconds=float(schedule["frequency"]))
        if start < submitted:
            start += every * -((start - submitted) // every)
        return cls(start, end, every, None)

    def after(self, last: datetime | None) -> datetime | None:
        """The first tick after the last one; None if the schedule is over."""
        if self.every is not None:
            steps = 0 if last is None or last < self.start else (last - self.start) // self.every + 1
            found: datetime | None = self.start + steps * self.every
        else:
            assert self.cron is not None
            before = self.start - timedelta(microseconds=1)
            found = self.cron.after(before if last is None else max(last, before))
        return None if found is None or (self.end is not None and found > self.end) else found

    def due(self, last: datetime | None, now: datetime) -> datetime | None:
        """The newest tick that is due and was not made: those that were missed before it are left out."""
        found = self.after(last)
        if found is None or found > now:
            return None
        if self.every is not None:
            until = now if self.end is None else min(now, self.end)
            return self.start + ((until - self.start) // self.every) * self.every
        while (later := self.after(found)) is not None and later <= now:
            found = later
        return found
