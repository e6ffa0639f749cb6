"""What is said about a run: a subject, a text for people, and JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from phalanx.naming import without_control_characters
from phalanx.spec.model import NotifyEvent
from phalanx.store import Run

MOST_METRICS = 10
LONGEST_LINE = 300
_WORDS = {
    NotifyEvent.FAILED: "failed",
    NotifyEvent.SUCCEEDED: "succeeded",
    NotifyEvent.STOPPED: "was stopped",
    NotifyEvent.STALLED: "stalled",
    NotifyEvent.WAITING: "still waits",
}


class Message(NamedTuple):
    subject: str  # one line
    text: str
    data: Mapping[str, Any]


class Happening(NamedTuple):
    """What happened to a run. `failure`: which replica failed first, as the scheduler has stored it."""

    event: NotifyEvent
    attempt: int
    reason: str
    failure: Mapping[str, Any] | None = None


def message(run: Run, happened: Happening, url: str | None = None) -> Message:
    """`url`: of the run's page."""
    event, attempt, reason, failure = happened
    first = failure if failure is not None and failure.get("attempt") == attempt else None
    title = _line(f"{run.kind} {run.name or run.id}", 150)
    where = _line(run.project, 100)
    subject = f"{title} {_WORDS[event]} ({where})"
    lines = [f"{title} {_WORDS[event]}: {_line(reason)}", "", f"run {run.id}, attempt {attempt}, project {where}"]
    if first is not None and event in (NotifyEvent.FAILED, NotifyEvent.STALLED):
        lines += ["", f"{_line(str(first.get('replica')))} failed first: {_line(str(first.get('why')))}"]
        lines += [f"what to do: {_line(str(first['advice']))}"] if first.get("advice") else []
        lines += [f"  | {_line(str(line))}" for line in first.get("lines") or ()]
    metrics = dict(sorted(run.summary.items())[:MOST_METRICS])
    if metrics:
        lines += ["", *(f"{_line(name, 100)} = {value:g}" for name, value in metrics.items())]
    lines += ["", url or f"phalanx show {run.id}"]
    data = {
        "event": str(event),
        "text": f"{subject}\n{_line(reason)}",
        "run": {
            **{name: getattr(run, name) for name in ("id", "name", "project", "kind", "user", "backend", "group")},
            "status": str(event),
            "reason": reason,
            "attempt": attempt,
            "tags": list(run.tags),
            "metrics": {name: value if math.isfinite(value) else None for name, value in metrics.items()},
        },
        "failure": {name: first.get(name) for name in ("replica", "why", "advice", "lines")} if first else None,
        "url": url,
    }
    return Message(subject, "\n".join(lines) + "\n", data)


def _line(text: str, longest: int = LONGEST_LINE) -> str:
    """One line without control characters: names of runs are of users, and must not forge headers or lines."""
    clean = without_control_characters(text)
    return clean if len(clean) <= longest else f"{clean[: longest - 1]}…"
