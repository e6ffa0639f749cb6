"""What the processes of a replica made in its working folder: the list that its agent writes and everyone else reads.

Names, sizes and times only. Standard library only, Python 3.8+. The states are stored in files: they never change.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.atomic_files import read_json

LEFT = "left"  # nothing says to keep it
COLLECTED = "collected"  # copied into the outputs
LARGE, MANY = "large", "many"  # more than `max_size`, more than `max_files`
SHARED = "shared"  # another run used the folder at that time: it is not known which one made it
EXISTS = "exists"  # the training wrote something else to that path of the outputs
UNREADABLE = "unreadable"
CHANGING = "changing"  # it changed while it was copied
FULL = "full"  # the disk of the outputs
LATE = "late"  # the time to collect was over
_STATES = (LEFT, COLLECTED, LARGE, MANY, SHARED, EXISTS, UNREADABLE, CHANGING, FULL, LATE)


class WorkingFile(NamedTuple):
    path: str  # relative to the working folder
    size: int
    at: float  # last modification
    is_own: bool = False  # a process of the replica was seen writing it, or its name has the process
    state: str = LEFT


class WorkingFiles(NamedTuple):
    """The list of one replica. While it runs, only event files are listed."""

    files: tuple[WorkingFile, ...] = ()
    is_final: bool = False
    is_complete: bool = True  # False: there were too many files, or they took too long to read
    more: int = 0  # files that are not listed
    more_bytes: int = 0
    neighbours: tuple[str, ...] = ()  # runs that used the folder at the same time

    def to_json(self) -> dict[str, Any]:
        files = [[file.path, file.size, round(file.at, 6), file.is_own, file.state] for file in self.files]
        return {"version": 1, **self._asdict(), "files": files, "neighbours": list(self.neighbours)}


def read_working_files(attempt_folder: str | os.PathLike[str]) -> WorkingFiles | None:
    """The list of a replica's attempt; None if it has none. It may come from elsewhere: paths that leave the folder are
    left out."""
    content = read_json(os.path.join(attempt_folder, run_paths.WORKING_FILES))
    rows = content.get("files") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        return None
    runs = content.get("neighbours")
    return WorkingFiles(
        files=tuple(file for file in map(_file, rows) if file is not None),
        is_final=content.get("is_final") is True,
        is_complete=content.get("is_complete") is not False,
        more=_count(content.get("more")),
        more_bytes=_count(content.get("more_bytes")),
        neighbours=tuple(str(run) for run in runs) if isinstance(runs, list) else (),
    )


def _file(row: Any) -> WorkingFile | None:
    try:
        path, size, at, is_own, state = row
    except (TypeError, ValueError):
        return None
    if not is_below(path) or not isinstance(at, (int, float)) or isinstance(at, bool):
        return None
    return WorkingFile(path, _count(size), float(at), is_own is True, state if state in _STATES else LEFT)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else 0


def is_below(path: Any) -> bool:
    """Whether a path is relative, and stays in its folder."""
    return isinstance(path, str) and "\0" not in path and all(step not in ("", ".", "..") for step in path.split("/"))


def merged(lists: Iterable[WorkingFiles]) -> WorkingFiles:
    """The lists of several replicas that share a working folder as one. The replica that ended last has collected."""
    found: dict[str, WorkingFile] = {}
    whole = WorkingFiles(is_final=True)
    for one in lists:
        for file in one.files:
            known = found.get(file.path)
            if known is None or (known.state == LEFT and (file.state != LEFT or file.at >= known.at)):
                found[file.path] = file
        whole = whole._replace(
            is_complete=whole.is_complete and one.is_complete,
            more=max(whole.more, one.more),
            more_bytes=max(whole.more_bytes, one.more_bytes),
            neighbours=tuple(dict.fromkeys((*whole.neighbours, *one.neighbours))),
        )
    return whole._replace(files=tuple(found[path] for path in sorted(found)))
