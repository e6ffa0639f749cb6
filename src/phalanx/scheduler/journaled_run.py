"""A run that consists of other runs, in the scheduler's loop: a group, a pipeline, a schedule. Its journal is written
before anything follows from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from phalanx.errors import CallError, SpecErrors
from phalanx.home.home import Home
from phalanx.home.journal import JournaledFolder, RunJournal
from phalanx.ingest.adoption import adopt_all, index
from phalanx.scheduler.ledger import Ledger
from phalanx.scheduler.unfinished import UNFINISHED
from phalanx.store import Run, Store
from phalanx.store.statuses import Status

AGAIN_S = 5.0  # pause after an error of one of them


class JournaledRun:
    """Unfinished. Raises CallError and SpecErrors if its folder is damaged."""

    limit = 0  # how many of its runs may be tasks of arrays at the same time

    def __init__(self, ledger: Ledger, run: Run) -> None:
        self.ledger = ledger
        self.home: Home = ledger.home
        self.store: Store = ledger.store
        self.id = run.id
        self.folder = JournaledFolder(self.home.run(run.id).path)
        self.journal = RunJournal(self.folder.journal_file)
        self.beside: Mapping[str, JournaledRun] = {}  # all that are unfinished, by id
        self.is_over = False

    def step(self, run: Run) -> None:
        """Take the next step. Raises OSError, SystemFault: it is then read again and tried later."""
        raise NotImplementedError

    def close(self) -> None:
        self.journal.close()

    @classmethod
    def has_ended(cls, ledger: Ledger, run: Run) -> bool:
        """Whether its history has its end, which may not be in the store yet."""
        return ledger.apply_history(run, ledger.home.run(run.id).history()).is_done

    def is_carried_out(self, run_id: str, after: int) -> bool:
        """Whether one of its runs has more statuses than `after`. The store may lag behind: it would take the end of
        the attempt before for that of this one."""
        history = self.home.run(run_id).history()
        if not history:
            return False
        self.ledger.apply_history(self.row(run_id), history)
        return len(history) > after

    def row(self, run_id: str) -> Run:
        """The row of one of its runs, made from its folder if it is missing. Raises CallError if both are."""
        if self.store.status_of(run_id) is None:
            adopt_all(self.home, self.store, [run_id])
            run = self.store.find(run_id)
            if run.is_done:
                index(self.home, self.store, run)
        return self.store.find(run_id)


class JournaledRuns:
    """All unfinished groups, pipelines and schedules of a home. What it keeps in memory can be read again from their
    folders."""

    def __init__(self, ledger: Ledger, kind_of: Callable[[Run], type[JournaledRun]]) -> None:
        self.ledger = ledger
        self.kind_of = kind_of
        self.active: dict[str, JournaledRun] = {}
        self.again_at: dict[str, float] = {}

    def reconcile(self, whole: Run) -> None:
        """Take the next step of one of them. Raises OSError, SystemFault; it is then tried again later."""
        if time.monotonic() < self.again_at.get(whole.id, 0.0):
            return
        try:
            active = self.active.get(whole.id)
            if active is None:
                kind = self.kind_of(whole)
                if kind.has_ended(self.ledger, whole):
                    return
                active = self.active[whole.id] = kind(self.ledger, whole)
                active.beside = self.active
            active.step(whole)
        except (CallError, SpecErrors) as fault:
            self._fail(whole, str(fault))
        except BaseException:
            self.forget(whole.id)
            self.again_at[whole.id] = time.monotonic() + AGAIN_S
            raise
        else:
            if active.is_over:
                self.forget(whole.id)

    def forget(self, whole_id: str) -> None:
        active = self.active.pop(whole_id, None)
        if active is not None:
            active.close()

    def close(self) -> None:
        for whole_id in list(self.active):
            self.forget(whole_id)

    def _fail(self, whole: Run, why: str) -> None:
        """Its folder cannot be used: stop its runs, then end it."""
        self.forget(whole.id)
        left = self.ledger.store.runs(f"group:{whole.id}, {UNFINISHED}", limit=None)
        for run in left:
            self.ledger.home.run(run.id).ask_to_stop(f"its {whole.kind} failed")
        if not left:
            self.ledger.finish(whole, Status.FAILED, why)
