"""Tables that several verbs print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from phalanx.cli.output import printable, table

if TYPE_CHECKING:
    from phalanx.store import Replica

_COLOURS = {"succeeded": "green", "failed": "red", "running": "cyan", "stopped": "yellow", "warning": "yellow"}


def status_text(status: str) -> str:
    return click.style(status, fg=_COLOURS.get(status), bold=True)


def replica_table(replicas: Sequence[Replica]) -> list[str]:
    """What became of every replica, and what it used at most."""
    if not replicas:
        return ["no replica has started yet"]
    rows = [["REPLICA", "RANK", "STATUS", "TIME", "CPU", "MEMORY", "WHY"]]
    for row in replicas:
        took = (row.finished_at - row.started_at).total_seconds() if row.finished_at and row.started_at else None
        rows.append(
            [
                f"{row.role}-{row.number}",
                str(row.rank),
                row.status,
                "-" if took is None else f"{took:.1f} s",
                f"{row.peak['cpu_s']:.1f} s" if "cpu_s" in row.peak else "-",
                f"{row.peak['memory_mib']:.0f} MiB" if "memory_mib" in row.peak else "-",
                printable(row.reason),
            ]
        )
    return table(rows)
