"""Tables printed by several verbs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.render.output import printable, table

if TYPE_CHECKING:
    from phalanx.store import ReplicaRecord

_COLOURS = {"succeeded": "green", "failed": "red", "running": "cyan", "stopped": "yellow", "warning": "yellow"}


def status_text(status: str) -> str:
    return click.style(status, fg=_COLOURS.get(status), bold=True)


def replica_table(replicas: Sequence[ReplicaRecord]) -> list[str]:
    """Status, reason and peak usage of every replica."""
    if not replicas:
        return ["No replica has started yet."]
    rows = [["REPLICA", "RANK", "STATUS", "TIME", "CPU", "MEMORY", "WHY"]]
    for row in replicas:
        took = (row.finished_at - row.started_at).total_seconds() if row.finished_at and row.started_at else None
        rows.append(
            [
                row.name,
                str(row.rank),
                row.status,
                "-" if took is None else f"{took:.1f} s",
                f"{row.peak['cpu_s']:.1f} s" if "cpu_s" in row.peak else "-",
                memory_text(row.peak),
                printable(row.reason),
            ]
        )
    return table(rows)


def memory_text(peak: Mapping[str, float]) -> str:
    """Peak memory: without memory shared with other processes, if that was measured."""
    most = peak.get("fair_mib", peak.get("memory_mib"))
    return "-" if most is None else f"{most:.0f} MiB"


def failure_lines(facts: Mapping[str, Any], attempt: int) -> list[str]:
    """Which replica failed first, its last lines, and what to do. Empty if an earlier attempt failed."""
    failure = facts.get("failure")
    if not isinstance(failure, dict) or failure.get("attempt") != attempt:
        return []
    lines = [click.style(f"{failure['replica']} failed first", bold=True) + f": {printable(failure['why'])}"]
    if failure["advice"]:
        lines.append(f"what to do: {printable(failure['advice'])}")
    followed = len(failure["consequences"])
    if followed:
        lines.append(f"{followed} other{'s' if followed > 1 else ''} ended as a consequence")
    if failure["lines"]:
        lines += ["its last lines:", *(f"  | {printable(line)}" for line in failure["lines"])]
    return [*lines, ""]


def span_text(seconds: float) -> str:
    """`90 s`, `5 min`, `3.2 h`"""
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
