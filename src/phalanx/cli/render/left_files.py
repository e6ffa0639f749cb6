"""What a run left in its working folder, in lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phalanx.cli.render.output import printable
from phalanx.cli.render.progress import bytes_text, count_text
from phalanx.insight.left_files import line_to_write
from phalanx.working_files import CHANGING, EXISTS, FULL, LARGE, LATE, LEFT, MANY, SHARED, UNREADABLE

SHOWN = 6
_REASONS = {
    LARGE: "more than `max_size`: write a larger one in `outputs`",
    MANY: "more than `max_files`: write a larger one in `outputs`",
    SHARED: "run {run} used the folder at the same time: write to $PHALANX_OUTPUTS, or run with --snapshot",
    EXISTS: "the outputs have another file of that name",
    UNREADABLE: "could not be read",
    CHANGING: "changed while it was copied",
    FULL: "the disk with the outputs is full",
    LATE: "no time was left to copy: the run was ended",
}


def left_lines(fact: Any) -> list[str]:
    """The lines on what was collected and what was left; none without such files."""
    if not isinstance(fact, Mapping):
        return []
    collected, groups = fact["collected"], fact["left"]
    lines = []
    if collected["count"]:
        lines.append(f"collected: {count_text(collected['count'])}, {bytes_text(collected['size'])}")
    left = [group for group in groups if group["state"] == LEFT]
    if left:
        rest = sum(group["count"] for group in left[SHOWN:]) + fact["more"]
        more = f", and {count_text(rest)} more" if rest else ""
        lines.append(f"left in the working folder: {', '.join(map(_group, left[:SHOWN]))}{more}")
    for group in [group for group in groups if group["state"] != LEFT][:SHOWN]:
        run = ", ".join(map(str, fact["neighbours"][:3])) or "another"
        reason = _REASONS.get(group["state"], group["state"]).format(run=run)
        lines.append(f"not collected: {_group(group)}: {printable(reason)}")
    line = line_to_write(fact)
    if line is not None:
        lines.append(f"  to keep them, write `{printable(line)}` in the file")
    if not fact["is_complete"]:
        lines.append("  the working folder has too many files: some were not looked at")
    return lines


def _group(group: Mapping[str, Any]) -> str:
    count = f"{count_text(group['count'])}, " if group["count"] > 1 or "*" in group["pattern"] else ""
    return f"{printable(group['pattern'])} ({count}{bytes_text(group['size'])})"
