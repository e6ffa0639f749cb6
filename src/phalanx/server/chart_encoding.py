"""Encodes columns of numbers as JSON, many at once: most of a chart request's time is spent here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import starmap
from math import isfinite, isnan
from typing import Any

from phalanx.store.series.run_series import Bucket, Spread

VALUE = "%.9g"  # more digits than any screen resolves
TIME = "%.3f"
STEP = "%d"


def column(values: Sequence[float | None], form: str = VALUE) -> str:
    """Gaps become null; NaN and infinities become strings, as everywhere in the API."""
    if not values:
        return "[]"
    if None not in values and isfinite(sum(values)):  # type: ignore[arg-type] # it contains no None
        return f"[{','.join([form] * len(values)) % tuple(values)}]"
    return f"[{','.join(_one(value, form) for value in values)}]"


def _one(value: float | None, form: str) -> str:
    if value is None:
        return "null"
    if isnan(value):
        return '"NaN"'
    if not isfinite(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    return form % value


def line_text(about: dict[str, Any], rows: Sequence[Bucket] | Sequence[Spread], of: int = 0) -> str:
    """A line of a chart: its labels and its columns. A bucket is placed at its end.

    `odd` is there if values are not finite; `ranks` if a mean over `of` replicas lacks some of them somewhere."""
    names = ("steps", "times", "low", "high", "mean", "last")
    if not rows:
        texts = ["[]"] * len(names)
        return joined(about, starmap('"{}":{}'.format, zip(names, texts, strict=True)))
    fields = dict(zip(type(rows[0])._fields, zip(*rows, strict=True), strict=True))
    low, high, middle = (column(fields[name]) for name in ("min", "max", "mean"))
    last = column(fields["last"]) if "last" in fields else middle
    columns = [column(fields["last_step"], STEP), column(fields["last_time"], TIME), low, high, middle, last]
    parts = dict(zip(names, columns, strict=True))
    if any(fields["odd"]):
        parts["odd"] = column(fields["odd"], STEP)
    if "ranks" in fields and any(count < of for count in fields["ranks"]):
        parts["ranks"] = column(fields["ranks"], STEP)
    return joined(about, starmap('"{}":{}'.format, parts.items()))


def lost_text(about: dict[str, Any], rows: Sequence[Bucket]) -> str:
    steps, times, last = ([getattr(row, name) for row in rows] for name in ("last_step", "last_time", "last"))
    texts = {"steps": column(steps, STEP), "times": column(times, TIME), "last": column(last)}
    return joined(about, starmap('"{}":{}'.format, texts.items()))


def joined(about: dict[str, Any], parts: Any) -> str:
    """A JSON object from small values and large, already encoded values."""
    head = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in about.items()]
    return "{" + ",".join([*head, *parts]) + "}"
