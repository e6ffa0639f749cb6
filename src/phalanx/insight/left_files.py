"""What a run made in its working folder: how much was collected, what was left there, and what to write to keep it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from phalanx.working_files import COLLECTED, LEFT, WorkingFile, WorkingFiles, merged

MOST_GROUPS = 20
MANY_ALIKE = 4  # files with the same ending that one pattern stands for
TRACKERS = ("mlruns", "wandb", "mlflow.db")  # what they hold was read


def files_fact(lists: Iterable[WorkingFiles], *, has_trackers: bool = False) -> dict[str, Any] | None:
    """The fact `files` of a run; None if it made none."""
    whole = merged(lists)
    files = [file for file in whole.files if not (has_trackers and file.path.split("/")[0] in TRACKERS)]
    if not files and not whole.more:
        return None
    kept = [file for file in files if file.state == COLLECTED]
    left = [file for file in files if file.state != COLLECTED]
    groups: list[dict[str, Any]] = [
        {"pattern": pattern, "count": len(those), "size": sum(file.size for file in those), "state": state}
        for state in sorted({file.state for file in left}, key=lambda state: state == LEFT)
        for pattern, those in _groups([file for file in left if file.state == state]).items()
    ]
    is_left = any(file.state == LEFT for file in left)
    return {
        "collected": {"count": len(kept), "size": sum(file.size for file in kept)},
        "left": groups[:MOST_GROUPS],
        "more": whole.more + sum(group["count"] for group in groups[MOST_GROUPS:]),
        "is_complete": whole.is_complete,
        "neighbours": list(whole.neighbours),
        "collect": sorted(_groups([file for file in files if file.state in (LEFT, COLLECTED)])) if is_left else [],
    }


def _groups(files: list[WorkingFile]) -> dict[str, list[WorkingFile]]:
    """Files by a pattern that matches them: their top folder, or their name, or the ending that many have."""
    endings: dict[str, int] = {}
    for file in files:
        endings[_ending(file.path)] = endings.get(_ending(file.path), 0) + 1
    groups: dict[str, list[WorkingFile]] = {}
    for file in files:
        top, slash, _ = file.path.partition("/")
        ending = _ending(file.path)
        alike = f"*{ending}" if ending and endings[ending] >= MANY_ALIKE else file.path
        groups.setdefault(f"{top}/**" if slash else alike, []).append(file)
    return dict(sorted(groups.items(), key=lambda item: -sum(file.size for file in item[1])))


def _ending(path: str) -> str:
    dot = path.rfind(".")
    return path[dot:] if dot > 0 and "/" not in path else ""


def line_to_write(fact: Mapping[str, Any]) -> str | None:
    """The line of the file that keeps what was left; None if nothing was."""
    patterns = [str(pattern) for pattern in fact.get("collect") or ()]
    return f"outputs: {{collect: {json.dumps(patterns, ensure_ascii=False)}}}" if patterns else None
