"""A packed group as the scheduler of the home sees it: submits its allocation, and reads what the job writes.

While a job may run, its scheduler is the only writer of the journal, of the group's history and of its trials. The
scheduler of the home follows the journal: it indexes each trial that ended, and shows the others. Without a job it owns
the folder: it takes in requests, ends a group that was stopped, and submits the next job.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from phalanx import run_paths
from phalanx.errors import CallError
from phalanx.home import attempts
from phalanx.home.attempts import AttemptFolder
from phalanx.home.group_folder import allocation_id, trial_id
from phalanx.home.journal import RunJournal
from phalanx.ingest.adoption import adopt_all, index
from phalanx.scheduler.group_state import PAUSED, Leg
from phalanx.scheduler.groups import ActiveGroup
from phalanx.scheduler.ledger import Ledger
from phalanx.scheduler.resumes import queue_next_attempt
from phalanx.store import Run
from phalanx.store.statuses import Status

LOOK_S = 1.0  # how often the files of a job are read
INDEX_S = 5.0  # how often the metrics of running trials are read
MOST_INDEXED = 25  # ended trials in one pass
STOPS_S = 60.0  # for a job to end its group that was stopped
MOST_FAILED_JOBS = 2  # in a row without any progress
FOLLOWED = "followed"  # fact: number of the last record that was indexed
JOBS = "jobs"  # fact: how many jobs failed in a row, and the last record when the last one was submitted
_BEGUN = (Status.STARTING, Status.RUNNING)


class PackedGroup(ActiveGroup):
    def __init__(self, ledger: Ledger, group: Run) -> None:
        super().__init__(ledger, group)
        self.look_at = 0.0
        self.index_at: dict[str, float] = {}  # by run
        self.is_owner = False
        self._read_all()

    @classmethod
    def has_ended(cls, ledger: Ledger, group: Run) -> bool:  # noqa: ARG003
        return False  # its trials are indexed first

    def _is_carried_out(self, leg: Leg) -> bool:  # noqa: ARG002
        return False  # the job knows

    def _read_all(self) -> None:
        """Read the whole journal again."""
        self.close()
        self.journal = RunJournal(self.folder.journal_file)
        records = self.journal.read()
        self.state = self._folded(records)
        followed = int((self.store.facts(self.id).get(FOLLOWED) or {}).get("seq", 0))
        self.unread = [record for record in records if record["seq"] > followed]

    def step(self, group: Run) -> None:
        now = time.monotonic()
        if now < self.look_at:
            return
        allocation = self._allocation()
        if allocation is not None and not allocation.is_done:
            self.is_owner = False
            self._read_news()
            for leg in list(self.state.legs.values()):
                self._show_trial(trial_id(self.id, *leg.key))
            self._stop_job(allocation)
        elif not self.is_owner:  # no job writes any more
            self._read_all()
            self.is_owner = True
        self._show_search()
        if self._follow():
            return  # soon again
        self.look_at = time.monotonic() + max(LOOK_S, 10 * (time.monotonic() - now))
        self.is_over = self.ledger.apply_history(group, self.home.run(group.id).history()).is_done
        if self.is_owner and not self.is_over:
            self._own(self.store.find(group.id), allocation)

    def _allocation(self) -> Run | None:
        with suppress(CallError):
            return self.store.find(allocation_id(self.id))
        return None

    # while a job may run -----------------------------------------------------------------------------------------

    def _read_news(self) -> None:
        for record in self.journal.news():
            self.state.fold(record)
            self.unread.append(record)

    def _follow(self) -> bool:
        """Index the trials that have ended since the last look. True if there are more."""
        ready, self.unread = self.unread[:MOST_INDEXED], self.unread[MOST_INDEXED:]
        for record in ready:
            if "trial" in record and record["what"] in _ENDS and "reused" not in record:
                for repeat in range(self.state.repeats):
                    self._index(trial_id(self.id, record["trial"], repeat))
        if ready:
            self.store.put_fact(self.id, FOLLOWED, {"seq": ready[-1]["seq"]})
        return bool(self.unread)

    def _index(self, run_id: str) -> None:
        run = self.home.run(run_id).read()
        if run is not None:
            index(self.home, self.store, run)
            if run.is_done:
                self.ledger.enqueue_post_run(run)

    def _show_trial(self, run_id: str) -> None:
        """A trial that runs: its status, and now and then its metrics."""
        folder = self.home.run(run_id)
        if self.store.status_of(run_id) is None:
            if not folder.path.exists():
                return
            adopt_all(self.home, self.store, [run_id])
        self.ledger.apply_history(self.store.find(run_id), folder.history())
        now = time.monotonic()
        if now >= self.index_at.setdefault(run_id, now + INDEX_S):
            self._index(run_id)
            self.index_at[run_id] = time.monotonic() + max(INDEX_S, 20 * (time.monotonic() - now))

    def _stop_job(self, allocation: Run) -> None:
        """A job that has begun stops its trials itself, and is cancelled only if it does not."""
        try:
            asked_at = self.folder.stop_file.stat().st_mtime
        except FileNotFoundError:
            return
        if allocation.status not in _BEGUN or time.time() - asked_at > STOPS_S:
            self.home.run(allocation.id).ask_to_stop(self.folder.stop_reason() or "its group was stopped")

    # without a job -----------------------------------------------------------------------------------------------

    def _own(self, group: Run, allocation: Run | None) -> None:
        if not self.state.seq and self.factory.search.warm_start:
            self._record(self._earlier(group))
        stop = self.folder.stop_reason()
        if stop is not None or (self.state.history.finish is not None and not self.state.legs):
            self._end_trials(stop)
            super().step(group)
            return
        for name, asked in self.folder.requests():
            self._take(name, asked)
        if self.state.paused is None and allocation is not None:
            self._pause_after(allocation)
        self._show(group)
        if self.state.paused is None:
            self._submit_job(group, allocation)

    def _end_trials(self, stop: str | None) -> None:
        """Their job is gone: no other process ends their runs."""
        self.started = {leg.key for leg in self.state.legs.values() if super(PackedGroup, self)._is_carried_out(leg)}
        for key in self.started:
            run = self.store.find(trial_id(self.id, *key))
            if not run.is_done and stop is not None:
                place = AttemptFolder(self.home.run(run.id).path, run.id, run.attempt, ())
                for name, folder in self.home.run(run.id).replica_folders(run.attempt):
                    if (folder / run_paths.AGENT).exists():
                        attempts.record_lost(place, name, stop, just_now=False)
                self.ledger.finish(run, Status.STOPPED, stop)

    def _pause_after(self, allocation: Run) -> None:
        """Pause instead of submitting another job, if that would fail again, or if a user cancelled the last one."""
        known: dict[str, Any] = self.store.facts(self.id).get(JOBS) or {}
        if known.get("is_counted", True):
            return
        failed = int(known.get("failed", 0)) + 1 if known.get("seq") == self.state.seq else 0
        self.store.put_fact(self.id, JOBS, {**known, "failed": failed, "is_counted": True})
        why = None
        if allocation.status == Status.STOPPED:
            why = f"its job was stopped: {allocation.reason}"
        elif failed >= MOST_FAILED_JOBS:
            why = f"{failed} jobs of its allocation {allocation.id} ended without a result: {allocation.reason}"
        if why is not None:
            self._record(iter([{"what": PAUSED, "why": why}]))

    def _submit_job(self, group: Run, allocation: Run | None) -> None:
        known: dict[str, Any] = self.store.facts(self.id).get(JOBS) or {}
        self.store.put_fact(self.id, JOBS, {**known, "seq": self.state.seq, "is_counted": False})
        self.is_owner = False
        if allocation is None:
            self.factory.create(self.store, self.factory.allocation())
            return
        self.home.keep_environment(allocation.id, self.home.environment(group.id))
        queue_next_attempt(self.home, self.store, allocation, "the search goes on in the next job")


_ENDS = ("reported", "failed", "stopped", "invalid", "retried", "repeated")
