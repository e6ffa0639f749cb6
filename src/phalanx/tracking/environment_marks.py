"""The environment variables by which child processes find the run of this process.

Standard library only, Python 3.8+."""

from __future__ import annotations

import os
from collections.abc import Mapping

NAMES = ("PHALANX_TRACK", "PHALANX_RUN_ID", "PHALANX_PROJECT", "PHALANX_OUTPUTS", "PHALANX_OUTSIDE")


class EnvironmentMarks:
    """Runs may end in any order: the variables name the newest one, and are restored after the last."""

    def __init__(self) -> None:
        self._marks: list[dict[str, str]] = []
        self._before: dict[str, str | None] = {}

    def add(self, folder: str, run_id: str, project: str, outputs: str) -> None:
        if not self._marks:
            self._before = {name: os.environ.get(name) for name in NAMES}
        is_launched = self._before["PHALANX_RUN_ID"] and not self._before["PHALANX_OUTSIDE"]
        if is_launched:  # the scheduler finds the processes of a run that Phalanx started by its id
            run_id = str(self._before["PHALANX_RUN_ID"])
        self._marks.append(dict(zip(NAMES, (folder, run_id, project, outputs, "1"))))  # noqa: B905 - Python 3.8
        os.environ.update(self._marks[-1])

    def remove(self, folder: str) -> None:
        self._marks = [mark for mark in self._marks if mark["PHALANX_TRACK"] != folder]
        if os.environ.get("PHALANX_TRACK") != folder:
            return
        restored = self._marks[-1] if self._marks else self._before
        for name, value in restored.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def environment(self) -> Mapping[str, str]:
        """The environment as this process found it."""
        if not any(mark["PHALANX_TRACK"] == os.environ.get("PHALANX_TRACK") for mark in self._marks):
            return os.environ
        kept = {name: value for name, value in os.environ.items() if name not in NAMES}
        return {**kept, **{name: value for name, value in self._before.items() if value is not None}}

    def after_fork(self) -> None:
        """A forked process finds the run of its parent as any other child does."""
        self._marks = []


MARKS = EnvironmentMarks()
