"""The folder of an array: a table of its tasks, each an attempt of a run, beside what the engine needs.

<home>/arrays/<id>/tasks   one line for each task: folder of the run, attempt, first attempt, working folder
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from phalanx.atomic_files import write_atomic

TABLE = "tasks"


class ArrayTask(NamedTuple):
    """An attempt of a run that is a task of an array. `first`: the attempt from which the run's time is counted."""

    folder: Path
    attempt: int
    first: int
    working: Path

    @property
    def run_id(self) -> str:
        return self.folder.name


def can_be_listed(paths: Iterable[Path]) -> bool:
    """Whether these paths can be written into a table, and into the comment of a job."""
    return all(str(path).isprintable() and "|" not in str(path) for path in paths)


def write_tasks(folder: Path, tasks: Sequence[ArrayTask]) -> None:
    """Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = ["\t".join(map(str, task)) + "\n" for task in tasks]
    write_atomic(folder / TABLE, "".join(lines).encode(), sync=False)


def read_tasks(folder: Path) -> list[ArrayTask]:
    """Raises OSError, ValueError."""
    parts = [line.split("\t") for line in (folder / TABLE).read_text(encoding="utf-8").splitlines()]
    return [ArrayTask(Path(run), int(attempt), int(first), Path(working)) for run, attempt, first, working in parts]


def tidy(arrays: Path, is_over: Callable[[str], bool]) -> None:
    """Remove the folders of arrays whose runs are all over or removed. A folder without a table is being made."""
    for folder in arrays.glob("*") if arrays.is_dir() else ():
        with suppress(OSError, ValueError):
            if all(not task.folder.exists() or is_over(task.run_id) for task in read_tasks(folder)):
                shutil.rmtree(folder, ignore_errors=True)
