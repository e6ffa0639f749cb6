"""How notebooks show a run: its status, sparklines of its metrics and the end of its log, updated while a call waits.

IPython is used only if it is loaded, and its front end can replace what it showed. Elsewhere nothing is shown.
"""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.store import Run

EVERY_S = 0.5
TAIL, POINTS = 8, 60  # lines of the log, points of a sparkline
WIDTH, HEIGHT = 120, 20
COLORS = {"succeeded": "#2e7d32", "failed": "#c62828", "stopped": "#6d4c41", "running": "#1565c0"}


class ShownRun(Protocol):
    id: str

    def snapshot(self, tail: int, points: int) -> tuple[Run | None, list[str], dict[str, Sequence[float]]]: ...


class LiveDisplay:
    """Shows a run in the cell of a notebook. Does nothing without a front end."""

    def __init__(self, run: ShownRun, handle: Any) -> None:
        self.run = run
        self.handle = handle
        self.is_shown = False
        self.shown_at = float("-inf")

    @classmethod
    @contextmanager
    def open(cls, run: ShownRun) -> Iterator[LiveDisplay]:
        found = cls(run, _display_handle())
        try:
            yield found
        finally:
            if found.is_shown:  # its last state
                found.shown_at = float("-inf")
                found.update()

    def update(self) -> None:
        if self.handle is None or time.monotonic() - self.shown_at < EVERY_S:
            return
        show = self.handle.update if self.is_shown else self.handle.display
        self.is_shown, self.shown_at = True, time.monotonic()
        show(mime_bundle(self.run), raw=True)


def _display_handle() -> Any:
    """Of the cell that runs now; None outside of a kernel."""
    ipython = sys.modules.get("IPython")
    if ipython is None or getattr(ipython.get_ipython(), "kernel", None) is None:
        return None
    return ipython.display.DisplayHandle()


def mime_bundle(run: ShownRun) -> dict[str, str]:
    """The run for a front end: as text, and as HTML."""
    try:
        record, lines, series = run.snapshot(TAIL, POINTS)
    except PhalanxError as fault:
        return {"text/plain": f"<run {run.id}: {fault}>"}
    return {"text/plain": _title(run.id, record), "text/html": _html(run.id, record, lines, series)}


def text_of(run: ShownRun) -> str:
    with suppress(PhalanxError):
        return _title(run.id, run.snapshot(0, 0)[0])
    return f"<run {run.id}>"


def _title(run_id: str, record: Run | None) -> str:
    if record is None:
        return f"<run {run_id}: waits in its batch>"
    name = f" ({record.name})" if record.name else ""
    reason = f": {record.reason}" if record.reason and record.is_done else ""
    return f"<run {run_id}{name} {record.status}{reason}>"


def _html(run_id: str, record: Run | None, lines: Sequence[str], series: dict[str, Sequence[float]]) -> str:
    if record is None:
        return f"<div>run <code>{run_id}</code> waits in its batch</div>"
    color = COLORS.get(record.status, "#555")
    name = f" {html.escape(record.name)}" if record.name else ""
    parts = [
        f'<div>run <code>{run_id}</code>{name} <b style="color:{color}">{record.status}</b> '
        f'<span style="color:#777">{html.escape(record.reason)}</span></div>'
    ]
    for metric, values in series.items():
        last = f"{values[-1]:.6g}" if values else ""
        parts.append(f"<div><code>{html.escape(metric)}</code> {_sparkline(values)} {last}</div>")
    if lines:
        text = html.escape("\n".join(lines))
        parts.append(f'<pre style="margin:4px 0;font-size:11px;max-height:12em;overflow:auto">{text}</pre>')
    return "".join(parts)


def _sparkline(values: Sequence[float]) -> str:
    """The values as an SVG line; those that are not finite are left out."""
    kept = [(number, value) for number, value in enumerate(values) if math.isfinite(value)]
    if len(kept) < 2:
        return ""
    low, high = min(value for _, value in kept), max(value for _, value in kept)
    across, up = WIDTH / (len(values) - 1), (HEIGHT - 2) / ((high - low) or 1.0)
    points = " ".join(f"{number * across:.1f},{HEIGHT - 1 - (value - low) * up:.1f}" for number, value in kept)
    line = f'<polyline points="{points}" fill="none" stroke="#1565c0"/>'
    return f'<svg width="{WIDTH}" height="{HEIGHT}" style="vertical-align:middle">{line}</svg>'
