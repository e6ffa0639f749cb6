"""phalanx top"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.commands.ps import span
from phalanx.cli.options import json_option
from phalanx.cli.render.live_screen import REDRAW_S, is_terminal, watch
from phalanx.cli.render.output import print_json, printable, table
from phalanx.cli.workspace.base import open_workspace

if TYPE_CHECKING:
    from phalanx.backends.local.capacity import Capacity
    from phalanx.cli.workspace.activity import ActivitySnapshot, ReplicaActivity, RunActivity
    from phalanx.store import ReplicaRecord

REDRAW_THERE_S = 3.0  # slower, because each replica on a server takes one request


@click.command("top")
@click.option("--once", is_flag=True, help="Print one snapshot and exit.")
@json_option
def command(once: bool, as_json: bool) -> None:
    """Watch active runs and their replicas: status, CPU, memory, and free resources of the machine.

    Press q or Ctrl-C to quit; the runs continue. --json, or output to a file or pipe, implies --once.
    """
    is_once = as_json or once or not is_terminal()
    with open_workspace(settled=is_once, quiet=True) as workspace:
        if as_json:
            print_json(frame_json(workspace.frame()))
        elif is_once:
            click.echo("\n".join(frame_lines(workspace.frame())))
        else:
            redraw_s = REDRAW_S if workspace.server is None else REDRAW_THERE_S
            with workspace.attended() as turn:
                watch(lambda: frame_lines(workspace.frame()), turn, redraw_s)


# showing -------------------------------------------------------------------------------------------------------------


def frame_lines(frame: ActivitySnapshot) -> list[str]:
    when = frame.at.astimezone()
    waiting = sum(seen.queue_position is not None for seen in frame.runs)
    head = f"phalanx top   {when:%H:%M:%S}   {len(frame.runs) - waiting} running, {waiting} queued   {frame.home}"
    lines = [head, _machine_text(frame), ""]
    if not frame.runs:
        return [*lines, "No active runs."]
    rows = [["RUN / REPLICA", "RANK", "STATUS", "TIME", "CPU %", "MEMORY", "THREADS", "WHY"]]
    for seen in frame.runs:
        rows.append(_run_row(seen, frame.at))
        rows += [_replica_row(replica, use) for replica, use in seen.replicas]
    return [*lines, *table(rows)]


def _machine_text(frame: ActivitySnapshot) -> str:
    room, asked = frame.room, frame.asked
    free = _left(room, asked)
    parts = [f"CPUs {asked.cpus:g} of {room.cpus:g} requested, {free.cpus:g} free"]
    gib = [mib / 1024 for mib in (asked.memory_mib, room.memory_mib, free.memory_mib)]
    parts.append("memory {:.1f} of {:.1f} GiB, {:.1f} free".format(*gib))
    if room.gpus or asked.gpus:
        parts.append(f"GPUs {asked.gpus} of {room.gpus}, {free.gpus} free")
    return "   ".join(parts)


def _left(room: Capacity, asked: Capacity) -> Capacity:
    return room._replace(
        cpus=max(0.0, room.cpus - asked.cpus),
        memory_mib=max(0.0, room.memory_mib - asked.memory_mib),
        gpus=max(0, room.gpus - asked.gpus),
    )


def _run_row(seen: RunActivity, now: datetime) -> list[str]:
    run = seen.run
    uses = [use for _, use in seen.replicas if use is not None]
    name = f"{run.id} ({run.name})" if run.name else run.id
    status = run.status if seen.queue_position is None else f"queued, {seen.queue_position}."
    threads = [use.threads for use in uses if use.threads is not None]
    percents = [use.cpu_percent for use in uses if use.cpu_percent is not None]
    return [
        printable(name),
        "",
        status,
        span(now - (run.started_at or run.created_at)),
        f"{sum(percents):.0f}" if percents else "-",
        f"{sum(use.memory_mib for use in uses):.0f} MiB" if uses else "-",
        str(sum(threads)) if threads else "-",
        printable(run.reason)[:60],
    ]


def _replica_row(replica: ReplicaRecord, use: ReplicaActivity | None) -> list[str]:
    row = [f"  {replica.name}", str(replica.rank), replica.status, ""]
    if use is None:
        row += ["-", "-", "-"]
    else:
        percent = "-" if use.cpu_percent is None else f"{use.cpu_percent:.0f}"
        row += [percent, f"{use.memory_mib:.0f} MiB", "-" if use.threads is None else str(use.threads)]
    return [*row, printable(replica.reason)[:60]]


def frame_json(frame: ActivitySnapshot) -> dict[str, Any]:
    return {
        "ok": True,
        "at": frame.at.isoformat(),
        "machine": frame.room._asdict(),
        "asked": frame.asked._asdict(),
        "free": _left(frame.room, frame.asked)._asdict(),
        "runs": [_run_json(seen) for seen in frame.runs],
    }


def _run_json(seen: RunActivity) -> dict[str, Any]:
    from phalanx.store.rows import replica_row, run_row

    return {
        **run_row(seen.run),
        "queue_position": seen.queue_position,
        "asked": seen.asked._asdict(),
        "replicas": [
            {**replica_row(replica), "use": None if use is None else _use_json(use)} for replica, use in seen.replicas
        ],
    }


def _use_json(use: ReplicaActivity) -> dict[str, Any]:
    return {**use._asdict(), "at": datetime.fromtimestamp(use.at, UTC).isoformat()}
