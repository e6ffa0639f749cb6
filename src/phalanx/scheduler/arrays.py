"""Arrays: attempts that an engine takes as the tasks of one job, and how many tasks of a group may run at once.

Attempts that could be tasks of one array are collected: those of a group over several passes, until no more of them
come; others within a pass, and only if there are many. An array is submitted, recorded and found again like a job.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from phalanx.backends.contract import RUNNING
from phalanx.scheduler.engine_view import EngineView
from phalanx.scheduler.submissions import MOST_TASKS, Result, StartRequest, Submissions
from phalanx.tracking.external_folder import new_id

LEAST_ALIKE = 10  # so many alike runs that belong to no group are submitted as one array


class ArrayLoad(NamedTuple):
    """An array of a group; attempts that are to be one, or a single job. `allowed`: how many tasks may run now."""

    array: str | None  # only of an array
    unfinished: int
    running: int = 0
    allowed: int = 0
    is_later: bool = False  # later attempts (promotions, retries) come before first ones

    @property
    def held(self) -> int:
        """How many tasks run, or may start at any moment."""
        return max(self.running, min(self.allowed, self.unfinished))


def allot(limit: int, loads: Sequence[ArrayLoad]) -> list[int]:
    """How many tasks of each array may run, so that there are never more than `limit` in total. Earlier ones in the
    list come first; what others run meanwhile is given to them as it ends."""
    left, held = limit, sum(load.held for load in loads)
    granted = []
    for load in loads:
        wanted = min(load.unfinished, left)
        left -= wanted
        grant = min(wanted, max(0, limit - (held - load.held)))
        held += max(0, grant - load.held)
        granted.append(grant)
    return granted


class AttemptJob(NamedTuple):
    """The job of an attempt; without a handle while it is not certain that there is one, or which one."""

    run_id: str
    attempt: int
    handle: str | None


class _Key(NamedTuple):
    group: str | None
    job: str | None  # what the engine wants to be alike; None: not an array, but limited as one
    environment: str


@dataclass
class _Bundle:
    """Attempts that could be tasks of one array, by run."""

    requests: dict[str, StartRequest] = field(default_factory=dict)
    is_growing: bool = True


class ArraySubmissions:
    """`folder`: where the folders of arrays are; None submits every attempt as a job."""

    def __init__(self, view: EngineView, submissions: Submissions, folder: Path | None) -> None:
        self.view = view
        self.submissions = submissions
        self.folder = folder
        self.bundles: dict[_Key, _Bundle] = {}
        self.members: dict[str, _Key] = {}  # by run
        self.submitting: dict[str, tuple[Future[list[Result]], int]] = {}  # by group: an array, and its limit
        self.allowed: dict[str, int] = {}  # by array: how many of its tasks may run
        self.lowered: dict[str, tuple[int, float]] = {}  # by array: the limit before that, and when it was changed

    # collecting --------------------------------------------------------------------------------------------------

    def add(self, request: StartRequest) -> bool:
        """Collect an attempt. False if it is to be submitted as a job. Raises OSError."""
        if self.folder is None or request.is_single:
            return False
        run_id = request.attempt_folder.run_id
        if run_id in self.members:
            return True
        job = self.view.engine.array_key(request.attempt_folder.run_folder, request.working)
        if job is None and request.group is None:
            return False
        key = _Key(request.group, job, _digest(request.environment) if job is not None else run_id)
        bundle = self.bundles.setdefault(key, _Bundle())
        bundle.requests[run_id] = request
        bundle.is_growing = True
        self.members[run_id] = key
        return True

    def is_submitting(self, run_id: str) -> bool:
        """Whether an attempt of a run is collected, or being submitted."""
        return run_id in self.members or run_id in self.submissions.orders

    def withdraw(self, run_id: str) -> None:
        """Do not submit an attempt, unless that has begun."""
        self.submissions.withdraw(run_id)
        self._remove(run_id)

    def _remove(self, run_id: str) -> None:
        key = self.members.pop(run_id, None)
        if key is not None:
            del self.bundles[key].requests[run_id]
            if not self.bundles[key].requests:
                del self.bundles[key]

    def _take(self, key: _Key, most: int) -> list[StartRequest]:
        taken = list(self.bundles[key].requests.values())[:most]
        for request in taken:
            self._remove(request.attempt_folder.run_id)
        return taken

    # submitting --------------------------------------------------------------------------------------------------

    def run_pass(self, limits: Mapping[str, int], jobs: Mapping[str, Sequence[AttemptJob]]) -> bool:
        """Submit what is due, and keep the limits. `limits`: how many runs of a group may run at the same time. `jobs`:
        those of all started runs of each group. True if the next pass will submit more."""
        is_collecting = any(bundle.is_growing for key, bundle in self.bundles.items() if key.group is not None)
        for key in [key for key in self.bundles if key.group is None]:
            self._submit_loose(key)
        self._take_in()
        for group, limit in limits.items():
            found = [job for job in jobs.get(group, ()) if job.run_id not in self.members]
            if group not in self.submitting and all(job.handle is not None for job in found) and not self.view.trouble:
                self._share(limit, self._loads(found), self._due(group))
        handles = [job.handle for found in jobs.values() for job in found]
        if None not in handles:
            arrays = {self.view.engine.array_of(handle or "") for handle in handles}
            self.allowed = {array: limit for array, limit in self.allowed.items() if array in arrays}
            self.lowered = {array: before for array, before in self.lowered.items() if array in arrays}
        return is_collecting

    def _take_in(self) -> None:
        """Note the limits of arrays that were submitted."""
        for group, (result, at_once) in list(self.submitting.items()):
            if result.done():
                del self.submitting[group]
                handle = result.result()[0] if result.exception() is None else None
                array = self.view.engine.array_of(handle) if isinstance(handle, str) else None
                if array is not None:
                    self.allowed[array] = at_once

    def _submit_loose(self, key: _Key) -> None:
        requests = self._take(key, self.submissions.most_tasks)
        if len(requests) < LEAST_ALIKE:
            for request in requests:
                if self.submissions.may_begin(request.attempt_folder.run_id):
                    self.submissions.begin(request)
        elif self.submissions.may_begin(requests[0].attempt_folder.run_id):
            self._submit(requests, None)

    def _submit(self, requests: list[StartRequest], at_once: int | None) -> Future[list[Result]]:
        assert self.folder is not None
        return self.submissions.begin_array(self.folder / new_id(), requests, at_once)

    def _due(self, group: str) -> list[_Key]:
        """The bundles of a group that no more attempts were added to in the last pass, or that are full."""
        due = []
        for key, bundle in self.bundles.items():
            if key.group == group:
                if not bundle.is_growing or len(bundle.requests) >= self.submissions.most_tasks:
                    due.append(key)
                bundle.is_growing = False
        return due

    def _loads(self, jobs: Sequence[AttemptJob]) -> list[ArrayLoad]:
        """The arrays of these jobs, the oldest first. A single job counts, but cannot be limited."""
        found: dict[tuple[str | None, str], list[AttemptJob]] = {}
        for job in jobs:
            handle = job.handle or ""
            array = self.view.engine.array_of(handle)
            found.setdefault((array, array or handle), []).append(job)
        return [
            ArrayLoad(
                array,
                len(tasks),
                sum(self.view.state(task.handle or "") == RUNNING for task in tasks),
                self._allowed(name),
                is_later=all(task.attempt > 1 for task in tasks),
            )
            for (array, name), tasks in sorted(found.items(), key=lambda one: (len(one[0][1]), one[0][1]))
        ]

    def _allowed(self, array: str) -> int:
        """A limit that was lowered holds for tasks that started since; the engine must have said which run now."""
        before, at = self.lowered.get(array, (0, float("-inf")))
        is_seen = self.view.asked_at > at
        return max(self.allowed.get(array, MOST_TASKS), 0 if is_seen else before)

    def _share(self, limit: int, loads: list[ArrayLoad], due: list[_Key]) -> None:
        planned: list[tuple[ArrayLoad, _Key | None]] = [(load, None) for load in loads]
        planned += [(self._planned(key), key) for key in due]
        planned.sort(key=lambda one: not one[0].is_later)
        for (load, key), grant in zip(planned, allot(limit, [load for load, _ in planned]), strict=True):
            if key is not None:
                first = next(iter(self.bundles[key].requests))
                if grant and key.group not in self.submitting and self.submissions.may_begin(first):
                    requests = self._take(key, self.submissions.most_tasks)
                    if key.job is None:
                        self.submissions.begin(requests[0])
                    else:
                        self.submitting[key.group or ""] = (self._submit(requests, grant), grant)
            elif load.array is not None:
                self._limit(load.array, load.unfinished, grant)

    def _planned(self, key: _Key) -> ArrayLoad:
        requests = self.bundles[key].requests.values()
        is_later = all(request.attempt_folder.attempt > 1 for request in requests)
        return ArrayLoad(None, min(len(requests), self.submissions.most_tasks), is_later=is_later)

    def _limit(self, array: str, unfinished: int, grant: int) -> None:
        """Tell the engine, unless that changes nothing."""
        known = self.allowed.get(array)
        if known is not None and min(known, unfinished) == grant:
            return
        if self.view.limit_array(array, grant):
            self.lowered[array] = (MOST_TASKS if known is None else known, time.monotonic())
            self.allowed[array] = grant


def _digest(environment: Mapping[str, str]) -> str:
    return sha256(json.dumps(sorted(environment.items())).encode()).hexdigest()
