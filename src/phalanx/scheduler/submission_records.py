"""Records of submissions: written before a job is submitted and again right after, so that it is found after a crash.

The record of an attempt without a handle says that a job may exist. `JobFinder` finds it, or establishes that there is
none; until then the attempt is neither submitted nor stopped nor concluded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import atomic_files, run_paths
from phalanx.agent.claims import owner_of
from phalanx.agent.processes import boot_id
from phalanx.backends.contract import JobDependency, SubmissionStart
from phalanx.home.attempts import AttemptFolder
from phalanx.scheduler.engine_view import EngineView

LATE_S = 5.0  # after it responds again, an engine may still accept a submission that it had received before


@dataclass(frozen=True, slots=True)
class SubmissionRecord:
    """The submission of an attempt. Without a handle it is in progress, or its scheduler was killed meanwhile."""

    start: SubmissionStart
    handle: str | None = None
    after: tuple[JobDependency, ...] | None = None  # the jobs that it waits for in the engine; None: unknown

    @classmethod
    def now(cls, array: str = "", after: tuple[JobDependency, ...] = ()) -> SubmissionRecord:
        return cls(SubmissionStart(time.time(), boot_id(), array), after=after)

    @classmethod
    def read(cls, attempt_folder: AttemptFolder) -> SubmissionRecord | None:
        """The record of an attempt; None if it was never submitted."""
        path = _file(attempt_folder)
        found: Any = atomic_files.read_json(path)
        if not isinstance(found, dict):
            return None
        handle = found.get("handle")
        at, boot, array = float(found.get("at") or _written_at(path)), found.get("boot"), found.get("array")
        start = SubmissionStart(at, str(boot or ""), str(array or ""))
        return cls(start, str(handle) if handle else None, _after(found.get("after")))

    def write(self, attempt_folder: AttemptFolder) -> None:
        """Raises OSError. Not synced: if a power failure loses it, the job is found in the engine."""
        path = _file(attempt_folder)
        atomic_files.make_private(path.parent, attempt_folder.run_folder)
        data = {"handle": self.handle, **self.start._asdict(), "after": self.after}
        atomic_files.write_atomic(path, json.dumps(data).encode(), sync=False)


def remove(attempt_folder: AttemptFolder) -> None:
    """Remove the record of a submission that the engine has rejected. Raises OSError."""
    _file(attempt_folder).unlink(missing_ok=True)


def claimed_by(attempt_folder: AttemptFolder, engine: str) -> str | None:
    """The job of this engine that runs an attempt, as the job itself has recorded."""
    owner = owner_of(str(attempt_folder.run_folder), attempt_folder.attempt)
    return owner if owner is not None and owner.startswith(f"{engine}:") else None


class JobSearch(NamedTuple):
    """Whether it is certain that there is a job of an attempt, with this handle, or that there is none."""

    is_certain: bool
    handle: str | None = None


class JobFinder:
    """Finds the jobs of attempts that a killed scheduler may have submitted."""

    def __init__(self, view: EngineView) -> None:
        self.view = view
        self.reasons: dict[str, str] = {}  # what the search for the job of a run waits for
        self._absent: set[tuple[str, int]] = set()  # attempts that certainly have no job
        self._over_at: dict[tuple[str, int], float] = {}  # when their submission was seen to be over
        self._quiet_at: dict[tuple[str, int], float] = {}  # when the engine then answered that it has no such job

    def find(self, attempt_folder: AttemptFolder) -> JobSearch:
        """The job of an attempt without a handle. While the result is not certain, `reasons` says what it waits for."""
        key = run_id, attempt = attempt_folder.run_id, attempt_folder.attempt
        if key in self._absent:
            return JobSearch(is_certain=True)
        result = self._find(attempt_folder)
        if result.is_certain:
            self.forget(attempt_folder)
            if result.handle is None:
                self._absent.add((run_id, attempt))
        return result

    def keep(self, live: Set[tuple[str, int]]) -> None:
        """Forget all other attempts."""
        self._absent = {key for key in self._absent if key in live}
        runs = {run_id for run_id, _ in live}
        self.reasons = {run_id: reason for run_id, reason in self.reasons.items() if run_id in runs}
        for kept in (self._over_at, self._quiet_at):
            for key in kept.keys() - live:
                del kept[key]

    def forget(self, attempt_folder: AttemptFolder) -> None:
        """Search again from the beginning: the attempt is about to be submitted."""
        key = attempt_folder.run_id, attempt_folder.attempt
        self._absent.discard(key)
        self._over_at.pop(key, None)
        self._quiet_at.pop(key, None)
        self.reasons.pop(attempt_folder.run_id, None)

    def _find(self, attempt_folder: AttemptFolder) -> JobSearch:
        view, key = self.view, (attempt_folder.run_id, attempt_folder.attempt)
        known = claimed_by(attempt_folder, view.engine.name) or view.handles.get(key)
        if known is not None:
            return JobSearch(is_certain=True, handle=known)
        name, record = view.engine.name, SubmissionRecord.read(attempt_folder)
        if record is not None and view.engine.is_submitting(*key, record.start):
            self.reasons[key[0]] = f"the command that submits it to {name} has not ended; its scheduler was killed"
            return JobSearch(is_certain=False)
        self.reasons[key[0]] = f"{name} must report whether it has a job of this run: a scheduler may have submitted it"
        over_at = self._over_at.setdefault(key, time.monotonic()) if record is not None else float("-inf")
        if not self._is_answered_since(over_at):
            return JobSearch(is_certain=False)
        if record is not None:
            # An engine that did not respond may accept what it had received after it has answered later questions.
            late_s = 0.0 if view.engine.makes_room else LATE_S
            settled_at = self._quiet_at.setdefault(key, view.answered_at) + late_s
            if time.monotonic() < settled_at or not self._is_answered_since(settled_at):
                return JobSearch(is_certain=False)
        if (known := view.handles.get(key)) is not None or record is None:
            return JobSearch(is_certain=True, handle=known)
        found = view.search(key[0])
        if found is None:
            return JobSearch(is_certain=False)
        return JobSearch(
            is_certain=True, handle=next((handle for handle, seen in found.items() if seen.attempt == key[1]), None)
        )

    def _is_answered_since(self, moment: float) -> bool:
        """Whether the engine has answered a question that was asked after this moment; asks it if not."""
        if self.view.asked_at <= moment:
            self.view.ask()
        return self.view.asked_at > moment


def _after(found: Any) -> tuple[JobDependency, ...] | None:
    try:
        return tuple(JobDependency(str(handle), bool(must_succeed)) for handle, must_succeed in found)
    except (TypeError, ValueError):
        return None


def _file(attempt_folder: AttemptFolder) -> Path:
    return attempt_folder.run_folder / run_paths.handle_file(attempt_folder.attempt)


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
