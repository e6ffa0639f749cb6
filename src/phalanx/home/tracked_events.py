"""Reads the events that training tracked: texts, tables, images, alerts and so on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from phalanx import run_paths
from phalanx.spool import JSON, Reader

# Kinds that people look at
SHOWN = ("alert", "removed", "text", "table", "points", "image", "audio", "video", "histogram")


def read_events(
    run_folder: Path, kinds: Collection[str] = (), name: str | None = None, replica: str | None = None
) -> Iterator[dict[str, Any]]:
    """The events of all attempts in the order of writing, each with its `replica` and `attempt`. `kinds`: only these;
    none means all."""
    marks = [json.dumps(kind).encode() for kind in kinds]
    for path in sorted(run_folder.glob(f"{run_paths.ATTEMPT_FOLDERS}/*.events"), key=_place):
        if replica in (None, path.parent.parent.name):
            where = {"replica": path.parent.parent.name, "attempt": _place(path)[0]}
            for record in Reader(path).poll():
                # Tables may be large: only those that are wanted are decoded.
                if record.kind == JSON and (not marks or any(mark in record.payload for mark in marks)):
                    event = _decoded(record.payload)
                    if event and (not kinds or event.get("kind") in kinds) and name in (None, event.get("name")):
                        yield {**event, **where}


def _decoded(payload: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _place(path: Path) -> tuple[int, str, str]:
    return run_paths.attempt_number(path.parent.name) or 0, path.parent.parent.name, path.name


def event_text(event: dict[str, Any]) -> str:
    """One line about an event."""
    kind, name = str(event.get("kind")), str(event.get("name") or "")
    step = "" if event.get("step") is None else f" at step {event['step']}"
    if kind == "alert":
        more = f": {event['text']}" if event.get("text") else ""
        return f"{event.get('level')}: {event.get('title')}{more}"
    if kind == "removed":
        files, size = len(event.get("files") or ()), float(event.get("size") or 0) / (1 << 20)
        return f"removed {files} files ({size:.1f} MiB): {event.get('why')} (by {event.get('by')})"
    if kind == "text":
        return f"text {name}{step}: {event.get('text')}"
    if kind in ("table", "points"):
        return f"{kind} {name}{step}: {len(event.get('rows') or ())} rows of {', '.join(event.get('columns') or ())}"
    if kind == "histogram":
        return f"histogram {name}{step}: {sum(event.get('counts') or ())} values"
    caption = f": {event['caption']}" if event.get("caption") else ""
    return f"{kind} {name}{step}{caption} ({event.get('path')})"
