"""Many runs that one call queues: all of them, or none.

Each is checked and written under a hidden name at once, so that memory does not grow with their number. When all have
passed, they are renamed and added to the store, many rows in a transaction. What they have in common is found out once:
the commit, the virtual environment, the review of the backend. If the process is killed, the hidden folders are removed
by a scheduler later, and those that were renamed are adopted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from phalanx import run_paths
from phalanx.atomic_files import share_file, write_plain
from phalanx.home.home import Home, RunDraft
from phalanx.ingest.adoption import add_to_store
from phalanx.spec.model import Kind
from phalanx.store import Run, Store
from phalanx.submission import provenance
from phalanx.submission.dependencies import with_dependencies
from phalanx.submission.git import git_state
from phalanx.submission.model import Notify, PreparedRun, Remark, Submission
from phalanx.submission.submit import after_build, build_underway, draft, prepare, submitted

TOGETHER = 200  # rows of a transaction: other writers of the database wait meanwhile


class SubmissionBatch:
    """To be closed: that removes what was not published."""

    def __init__(self, home: Home, store: Store, notify: Notify, command_line: Sequence[str] = ()) -> None:
        self.home = home
        self.store = store
        self.notify = notify
        self.command_line = command_line
        self.drafts: list[tuple[RunDraft, Run | None]] = []  # and the run as its submitter sees it; no build of others
        self._said: set[str] = set()
        self._alike: dict[Any, tuple[PreparedRun, RunDraft]] = {}
        self._records: dict[Any, Path] = {}  # of drafts, by what they depend on
        self._builds: dict[str | None, Run] = {}  # by what they make
        self._git = cache(git_state)

    def add(self, submission: Submission, times: int = 1) -> None:
        """Check a run, and write it so many times. Raises SpecErrors, CallError."""
        if not submission.waits_for:  # a server resolved them, with the rights of the caller
            submission = with_dependencies(submission, self.store.find)
        key = _key(submission)
        for _ in range(times):
            known, beside = self._alike.get(key, (None, None))
            asked = submission if known is None else _like(submission, known)
            prepared = self._after_build(prepare(self.home, asked, self._notify_once, self.store))
            made = draft(self.home, prepared, beside=beside)
            self.drafts.append((made, submitted(prepared)))
            self._alike.setdefault(key, (prepared, made))
            self._record(prepared, made, key)

    def _after_build(self, prepared: PreparedRun) -> PreparedRun:
        """The same, waiting for its build; that is one of the batch unless another is under way."""
        first = prepared.build_first
        if first is None:
            return prepared
        at = getattr(first.built, "at", None)
        if at not in self._builds:
            underway = build_underway(self.home, self.store, first)
            if underway is None:
                self.drafts.append((draft(self.home, first), None))
            self._builds[at] = underway or first.run
        return after_build(prepared, self._builds[at])

    def _record(self, prepared: PreparedRun, made: RunDraft, key: Any) -> None:
        """Write the provenance of a run, or link that of another: it differs by seeds only."""
        code, variables, params = prepared.submission.code, prepared.environment.variables, prepared.run.params
        of = (key, code.folder, json.dumps(provenance.seeds(params, variables), default=str))
        file = made.path / run_paths.RECORDS
        if of in self._records:
            share_file(self._records[of], file)
            return
        source = {"from": str(code.folder or "."), **({} if code.folder is not None else {"git": code.git})}
        records = provenance.collect_from(source, params, variables, self.command_line, self._git)
        write_plain(file, json.dumps(records, indent=1, default=str).encode())
        self._records[of] = file

    def _notify_once(self, remark: Remark) -> None:
        if str(remark.about) not in self._said:
            self._said.add(str(remark.about))
            self.notify(remark)

    def publish(self) -> Iterator[Run]:
        """Let the runs appear, in their order. Raises CallError, SystemFault."""
        waiting = iter(self.drafts[:])
        while some := list(islice(waiting, TOGETHER)):
            folders = [(one.publish(), one.run) for one, _ in some]
            del self.drafts[: len(some)]
            with self.store.transaction():
                for folder, run in folders:
                    add_to_store(self.store, folder, run)
            yield from (shown for _, shown in some if shown is not None)

    def close(self) -> None:
        for one, _ in self.drafts:
            one.discard()
        self.drafts = []


def _key(submission: Submission) -> Any:
    """Equal for runs of one backend that differ in their names, params and commands at most: a cluster accepts both or
    none, and they have the same virtual environment."""
    spec, code = submission.spec, submission.code
    if spec.kind not in (Kind.EXPERIMENT, Kind.JOB):
        return object()
    return submission.backend, submission.on, spec.framework, repr(spec.environment), repr(spec.build), code.folder


def _like(submission: Submission, known: PreparedRun) -> Submission:
    """The same submission with what is known from one that is alike."""
    code = replace(submission.code, commit=known.run.commit, is_commit_known=True)
    build = tuple(other for other in known.submission.waits_for if other.is_build)
    waits_for = (*submission.waits_for, *build)
    return replace(submission, is_unchecked=True, prepared=known.environment, code=code, waits_for=waits_for)
