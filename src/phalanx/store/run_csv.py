"""Runs as CSV, for `phalanx ps --csv` and the server's export.

Spreadsheets execute cells that begin like a formula, and names, tags and params come from anyone who may run something:
such a text begins with an apostrophe, which spreadsheets hide. Numbers stay as they are.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from phalanx.store.query import number
from phalanx.store.records import Run
from phalanx.store.run_fields import value_of

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", *"\uff1d\uff0b\uff0d\uff20")  # also wide forms


def csv_lines(columns: Sequence[str], runs: Iterable[Run]) -> Iterator[str]:
    """The header, then a line for each run. The columns are valid: see `check_column`."""
    yield _line(columns)
    for run in runs:
        yield _line([value_of(run, column) for column in columns])


def _line(values: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow([cell(value) for value in values])
    return text.getvalue()


def cell(value: Any) -> str:
    """A value as the text of a cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    is_formula = text.lstrip(" ").startswith(_FORMULA) and number(text.strip()) is None
    return f"'{text}" if is_formula else text
