"""The text of a report: Markdown, and fenced blocks that are charts and tables of runs.

The page has the same rules (`web/src/reports/blocks.ts`); tests/fixtures/report_blocks.json holds both to them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_RUNS = 100
MOST_METRICS = 20
MOST_BLOCKS = 100
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`]*)")
RUN_KEYS = ("runs", "query", "sort", "limit", "project")
KEYS = {
    "chart": (*RUN_KEYS, "metric", "title", "x", "by", "log_x", "log_y", "smooth", "range", "height"),
    "table": (*RUN_KEYS, "title", "columns"),
}


@dataclass(frozen=True, slots=True)
class RunChoice:
    """Which runs: by id, or by a query in the report's project or another."""

    runs: tuple[str, ...]
    query: str | None
    sort: str
    limit: int
    project: str


@dataclass(frozen=True, slots=True)
class MarkdownText:
    text: str


@dataclass(frozen=True, slots=True)
class ChartBlock:
    choice: RunChoice
    metrics: tuple[str, ...]
    title: str
    x: str  # `step`, `time` or `metric.NAME`
    by: tuple[str, ...]
    log_x: bool
    log_y: bool
    smooth: float
    range: tuple[float, float] | None
    height: int
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableBlock:
    choice: RunChoice
    title: str
    columns: tuple[str, ...]
    faults: tuple[str, ...]


Part = MarkdownText | ChartBlock | TableBlock


def parts_of(text: str) -> list[Part]:
    """Split a report at its blocks. A block inside of another fence is part of it."""
    parts: list[Part] = []
    plain: list[str] = []
    lines, at = text.split("\n"), 0
    while at < len(lines):
        fence = FENCE.fullmatch(lines[at])
        end = at + 1 if fence is None else _end(lines, at + 1, fence[1])
        kind = "" if fence is None else fence[2].strip()
        if kind in KEYS and len(parts) < 2 * MOST_BLOCKS:
            _flush(plain, parts)
            parts.append(_block(kind, lines[at + 1 : end]))
            at = end + 1
        else:
            stop = end if fence is None else end + 1
            plain += lines[at:stop]
            at = stop
    _flush(plain, parts)
    return parts


def faults_of(text: str) -> list[str]:
    """What is wrong with the blocks of a report."""
    blocks = [part for part in parts_of(text) if not isinstance(part, MarkdownText)]
    return [f"block {number}: {fault}" for number, part in enumerate(blocks, 1) for fault in part.faults]


def _flush(plain: list[str], parts: list[Part]) -> None:
    if any(line.strip() for line in plain):
        parts.append(MarkdownText("\n".join(plain)))
    plain.clear()


def _end(lines: Sequence[str], at: int, marks: str) -> int:
    """The line that closes a fence; the end of the text without one."""
    closing = re.compile(rf" {{0,3}}{re.escape(marks)}{re.escape(marks[0])}*\s*")
    return next((place for place in range(at, len(lines)) if closing.fullmatch(lines[place])), len(lines))


def _block(kind: str, lines: Sequence[str]) -> ChartBlock | TableBlock:
    faults: list[str] = []
    values: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if not line.strip() or line.strip().startswith("#"):
            continue
        if not colon:
            faults.append(f"“{line.strip()}” is not of the form `key: value`.")
        elif key.strip() not in KEYS[kind]:
            faults.append(f"Unknown key “{key.strip()}”. Known keys: {', '.join(KEYS[kind])}.")
        else:
            values[key.strip()] = value.strip()
    reader = _BlockReader(values, faults)
    choice, title = reader.choice(), reader.text("title")
    if kind == "table":
        return TableBlock(choice, title, reader.words("columns", 30), tuple(faults))
    metrics = reader.words("metric", MOST_METRICS)
    fields = (reader.x(), reader.words("by", 6), reader.flag("log_x"), reader.flag("log_y"))
    smooth, span = reader.number("smooth", 0.0, 0, 0.99), reader.span()
    height = int(reader.number("height", 300, 120, 900))
    if not metrics:
        faults.append("A chart needs `metric: NAME`.")
    return ChartBlock(choice, metrics, title, *fields, smooth, span, height, tuple(faults))


class _BlockReader:
    def __init__(self, values: Mapping[str, str], faults: list[str]) -> None:
        self.values = values
        self.faults = faults

    def text(self, key: str) -> str:
        return self.values.get(key, "")

    def words(self, key: str, most: int) -> tuple[str, ...]:
        found = [word.strip() for word in self.text(key).split(",") if word.strip()]
        if len(found) > most:
            self.faults.append(f"`{key}` has more than {most} entries.")
        return tuple(dict.fromkeys(found))[:most]

    def flag(self, key: str) -> bool:
        if self.text(key) not in ("", "true", "false", "yes", "no"):
            self.faults.append(f"`{key}` must be true or false.")
        return self.text(key) in ("true", "yes")

    def number(self, key: str, otherwise: float, least: float, most: float) -> float:
        if not self.text(key):
            return otherwise
        found = _number(self.text(key))
        if least <= found <= most:
            return found
        self.faults.append(f"`{key}` must be a number from {least} to {most}.")
        return otherwise

    def x(self) -> str:
        text = self.text("x")
        if text in ("", "step", "time") or (text.startswith("metric.") and len(text) > len("metric.")):
            return text or "step"
        self.faults.append("`x` must be step, time or metric.NAME.")
        return "step"

    def span(self) -> tuple[float, float] | None:
        if not self.text("range"):
            return None
        first, _, last = self.text("range").partition("..")
        found = _number(first), _number(last)
        if found[0] < found[1]:
            return found
        self.faults.append("`range` must be two numbers, such as 100..500.")
        return None

    def choice(self) -> RunChoice:
        runs, query = self.words("runs", MOST_RUNS), self.values.get("query")
        if runs and query is not None:
            self.faults.append("Use either `runs` or `query`.")
        limit = round(self.number("limit", 20, 1, MOST_RUNS))
        return RunChoice(runs, None if runs else query, self.text("sort"), limit, self.text("project"))


def _number(text: str) -> float:
    """NaN for what is no finite number."""
    try:
        found = float(text)
    except ValueError:
        return math.nan
    return found if math.isfinite(found) else math.nan
