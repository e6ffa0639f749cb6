"""What benchmarks measure, as rows: work, floor, peer, ours, ratio, aim; printed as one table and kept as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class Of(StrEnum):
    """What an aim limits: our own value, or its ratio to the floor or to the peer."""

    OURS = "ours"
    FLOOR = "floor"
    PEER = "peer"


@dataclass(frozen=True, slots=True)
class Beside:
    """A value that was measured in the same run: the least that the work can cost, or another tool."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Aim:
    limit: float
    of: Of = Of.OURS
    is_least: bool = False  # otherwise it is the most


def at_most(limit: float, of: Of = Of.OURS) -> Aim:
    return Aim(limit, of)


def at_least(limit: float, of: Of = Of.OURS) -> Aim:
    return Aim(limit, of, is_least=True)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `work` names it in all runs, so it never contains what was measured."""

    work: str
    ours: float
    unit: str  # "s", "/s", "MiB", "%", "B" or "" for counts
    floor: Beside | None = None
    peer: Beside | None = None
    aim: Aim | None = None

    @property
    def ratio(self) -> float | None:
        """To the floor, or to the peer if there is no floor."""
        return self.ratio_to(Of.FLOOR) if self.floor else self.ratio_to(Of.PEER)

    def ratio_to(self, of: Of) -> float | None:
        beside = {Of.OURS: None, Of.FLOOR: self.floor, Of.PEER: self.peer}[of]
        return self.ours / beside.value if beside and beside.value else None

    @property
    def is_met(self) -> bool | None:
        """None if the row has no aim, or what it is compared with is not installed."""
        if self.aim is None:
            return None
        value = self.ours if self.aim.of is Of.OURS else self.ratio_to(self.aim.of)
        if value is None:
            return None
        return value >= self.aim.limit if self.aim.is_least else value <= self.aim.limit


def value_text(value: float, unit: str) -> str:
    if unit == "s" and value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    if unit == "s" and value < 1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:,.0f} {unit}".strip() if value >= 100 else f"{value:.3g} {unit}".strip()


def ratio_text(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.3g}x"


def aim_text(row: Row) -> str:
    if row.aim is None:
        return ""
    sign = "≥" if row.aim.is_least else "≤"
    if row.aim.of is Of.OURS:
        return f"{sign} {value_text(row.aim.limit, row.unit)}"
    return f"{sign} {ratio_text(row.aim.limit)} {row.aim.of}"


def as_json(script: str, row: Row) -> dict[str, Any]:
    return {"script": script, **asdict(row), "ratio": row.ratio, "met": row.is_met}


def report_of(rows: Iterable[tuple[str, Row]]) -> dict[str, Any]:
    """The content of the JSON file: where the rows were measured, and the rows."""
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "rows": [as_json(script, row) for script, row in rows],
    }


def commit() -> str | None:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def cells(row: Row) -> list[str]:
    met = {None: "", True: "met", False: "MISSED"}[row.is_met]
    besides = ["" if one is None else f"{value_text(one.value, row.unit)} {one.name}" for one in (row.floor, row.peer)]
    return [row.work, *besides, value_text(row.ours, row.unit), ratio_text(row.ratio), aim_text(row), met]


def change_cells(row: Row, before: dict[str, Any] | None) -> list[str]:
    """What an earlier run measured, and the difference: of ratios where both have one, since machines differ."""
    if before is None:
        return ["", "new"]
    text = value_text(before["ours"], before["unit"])
    if row.ratio is not None and before["ratio"] is not None:
        old, new = before["ratio"], row.ratio
        text += f", {ratio_text(old)}"
    else:
        old, new = before["ours"], row.ours
    return [text, f"{(new - old) / old:+.0%}" if old else ""]


HEAD = ["work", "floor", "peer", "ours", "ratio", "aim", ""]


def table_text(rows: Sequence[tuple[str, Row]], against: dict[str, Any] | None = None) -> str:
    head = [*HEAD, f"at {against['commit']}", "change"] if against else HEAD
    earlier = {(one["script"], one["work"]): one for one in (against or {}).get("rows", [])}
    lines = [head]
    for script, row in rows:
        more = change_cells(row, earlier.get((script, row.work))) if against else []
        lines.append([*cells(row), *more])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
                     for line in lines)  # fmt: skip


def write_json(path: Path, rows: Iterable[tuple[str, Row]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report_of(rows), indent=1) + "\n")
