"""Paths given by clients: they never leave the folder they are meant for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO
from unicodedata import category

from phalanx.artifacts.trees import FILE, FOLDER, LINK, Tree, TreeEntry
from phalanx.errors import CallError
from phalanx.server.http.responses import RequestError

LONGEST_PATH = 1000
LONGEST_STEP_BYTES = 240  # leaves room for the suffix of a draft's name
MOST_STEPS = 32
RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{3,63}\Z", re.ASCII)
REPLICA_NAME = re.compile(r"[a-z]{1,20}-\d{1,6}(?:\.\d{1,4})?\Z", re.ASCII)


def steps_of(path: str) -> tuple[str, ...]:
    """The parts of a relative path, none of which leads upwards or contains problematic characters. Raises
    RequestError."""
    steps = tuple(step for step in path.split("/") if step)
    if len(path) > LONGEST_PATH or len(steps) > MOST_STEPS:
        raise RequestError(400, f"a path may have at most {LONGEST_PATH} characters and {MOST_STEPS} parts")
    for step in steps:
        is_odd = any(sign == "\\" or category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in step)
        if step in (".", "..") or is_draft(step) or is_odd:
            hint = "its parts must not be `.` or `..`, nor contain control characters or backslashes"
            raise RequestError(400, f"{path[:100]!r} is not a valid path", hint)
        if len(step.encode("utf-8", "replace")) > LONGEST_STEP_BYTES:
            raise RequestError(400, f"a name in a path may have at most {LONGEST_STEP_BYTES} bytes")
    return steps


def is_draft(name: str) -> bool:
    """A path that does not exist yet."""
    return name.startswith(".") and name.endswith(".draft")


def check_run_id(run_id: str) -> str:
    """Raises RequestError for an invalid run id, before it becomes part of a path."""
    if not RUN_ID.match(run_id):
        raise RequestError(
            400, f"{run_id[:100]!r} is not a valid run id", "a run id has 4 to 64 lowercase letters, digits and dashes"
        )
    return run_id


def opened(tree: Tree, path: str) -> BinaryIO:
    """A file of a tree, or the target of a link within it. Raises RequestError."""
    try:
        if tree.tops and path.partition("/")[0] not in tree.tops:
            raise CallError("only these folders of a run are accessible")
        found = tree.look(path)
        if found is not None and found.kind == LINK:
            path = tree.leads_to(path) or ""
        return tree.open(path)
    except (CallError, OSError, ValueError):
        raise RequestError(404, f"there is no file {path[:200]!r}") from None


def new_inside(folder: Path, path: str) -> Path:
    """The location for a new file under a path. Creates the parent folders and does not follow links. Raises
    RequestError."""
    steps = steps_of(path)
    if not steps:
        raise RequestError(400, "the path is missing")
    place = folder
    for step in steps[:-1]:
        place /= step
        try:
            place.mkdir(mode=0o700, exist_ok=True)
        except OSError as fault:
            raise RequestError(409, f"{path[:200]!r}: {(fault.strerror or str(fault)).lower()}") from None
        if place.is_symlink():
            raise RequestError(403, f"{step!r} in {path[:200]!r} is a link")
    target = place / steps[-1]
    if target.is_dir():
        raise RequestError(409, f"{path[:200]!r} is a folder")
    return target


def entries(folder: Path, path: str) -> list[TreeEntry]:
    """The files and folders in a folder, by name; none when it is not a folder. Raises RequestError."""
    found = Tree(folder).entries("/".join(steps_of(path)))
    return [entry for entry in found if entry.kind in (FILE, FOLDER) and not is_draft(entry.name)]
