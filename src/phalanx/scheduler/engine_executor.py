"""Executor for attempts that an engine (Slurm, Kubernetes) runs as jobs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from phalanx import run_paths
from phalanx.backends.contract import (
    ENDED,
    RUNNING,
    WAITING,
    Engine,
    EngineUnavailable,
    Observation,
)
from phalanx.ends import Cause, End, read_end
from phalanx.home import attempts
from phalanx.home.attempts import AttemptFolder, ReplicaPhase, ReplicaState
from phalanx.home.run_tokens import run_token
from phalanx.scheduler import submission_records
from phalanx.scheduler.arrays import ArraySubmissions, AttemptJob
from phalanx.scheduler.engine_view import Cancellations, EngineView
from phalanx.scheduler.submission_records import JobFinder, SubmissionRecord
from phalanx.scheduler.submissions import Result, StartRequest, Submissions
from phalanx.store import Run
from phalanx.store.statuses import Status

SEGMENT_OVER = "its segment reached its time limit"
SLOW_S = 2.0  # a submission that takes longer is reported
POLL_S = 2.0  # shortest poll interval of an engine; it grows while nothing changes
LOOK_S = 0.5  # how often the files of a remote run are read: they are on a shared filesystem
WAITING_LOOK_S = 5.0
SETTLES_S = 10.0  # for an agent's last writes to become visible here, after its job has ended
FORGOTTEN_S = 60.0  # after so long, a job that its engine does not know counts as ended
COMPLAINT = "phalanx: "  # prefix of the errors that a job's script prints
STRAY_S = 60.0  # for a job to end after its run has


class EngineExecutor:
    """Runs attempts on the machines of an engine. Their state comes from the engine and from the agents' files."""

    is_here = False

    def __init__(self, engine: Engine, arrays: Path | None = None) -> None:
        self.engine = engine
        self.view = EngineView(engine)
        self.finder = JobFinder(self.view)
        self.submissions = Submissions(self.view)
        self.arrays = ArraySubmissions(self.view, self.submissions, arrays)
        self.handles: dict[tuple[str, int], str] = {}  # by attempt: they do not change, and reading files is slow
        self.cancellations = Cancellations(self.view)
        self.strays_since: dict[str, float] = {}  # running jobs of finished runs: when they were first seen
        self.noticed: dict[tuple[str, int], float] = {}  # when a job was first seen to have started an attempt
        self.poll_at = float("-inf")
        self.poll_s = min(POLL_S, engine.slowest_poll_s)

    def close(self) -> None:
        self.submissions.close()

    @property
    def trouble(self) -> str:
        """Why the engine does not answer; empty if it does."""
        return self.view.trouble

    def handle(self, attempt_folder: AttemptFolder) -> str | None:
        """The engine's handle of an attempt; None if it was not submitted, or the handle is unknown."""
        known = self.handles.get((attempt_folder.run_id, attempt_folder.attempt))
        if known is None and attempt_folder.attempt > 0:
            record = SubmissionRecord.read(attempt_folder)
            known = record.handle if record is not None else None
            if known is not None:
                self.handles[attempt_folder.run_id, attempt_folder.attempt] = known
        return known

    # state of the engine -----------------------------------------------------------------------------------------

    @property
    def is_poll_due(self) -> bool:
        return time.monotonic() >= self.poll_at

    def poll(self, runs: Mapping[str, AttemptFolder], is_over: Callable[[str], bool]) -> Collection[str]:
        if not self.is_poll_due or not runs:
            return ()
        live = {(folder.run_id, folder.attempt - earlier) for folder in runs.values() for earlier in (0, 1)}
        self.handles = {key: handle for key, handle in self.handles.items() if key in live}
        self.noticed = {key: at for key, at in self.noticed.items() if key[0] in self.handles.values()}
        self.cancellations.keep(set(self.handles.values()))
        self.finder.keep(live)
        self.view.wanted = frozenset(handle for folder in runs.values() if (handle := self.handle(folder)) is not None)
        self.view.ask()
        if self.view.is_asking:
            return ()  # a later pass reads the answer
        news = self.view.news()
        self._cancel_strays(runs, is_over)
        took_s = self.view.answered_at - self.view.asked_at if not self.trouble else 0.0
        slowest_s = self.engine.slowest_poll_s
        self.poll_s = min(slowest_s, POLL_S if news else self.poll_s * 1.3)
        self.poll_at = time.monotonic() + max(self.poll_s, min(20 * took_s, 4 * slowest_s))
        return [run_id for run_id, folder in runs.items() if self.handle(folder) in news] if news else ()

    def _cancel_strays(self, runs: Mapping[str, AttemptFolder], is_over: Callable[[str], bool]) -> None:
        """Cancel jobs of finished runs. A job may be requeued if it finishes just as a node is lost, or may continue if
        a scheduler was killed before it could cancel it. A running one gets some time to end by itself."""
        going = {
            handle: seen.state
            for handle, seen in self.view.known.items()
            if seen.state in (WAITING, RUNNING) and seen.run_id and seen.run_id not in runs and is_over(seen.run_id)
        }
        now = time.monotonic()
        self.strays_since = {handle: self.strays_since.get(handle, now) for handle in going}
        patience_s = 0.0 if self.engine.makes_room else STRAY_S
        strays = [
            handle
            for handle, state in going.items()
            if state == WAITING or now - self.strays_since[handle] >= patience_s
        ]
        if strays:
            self.view.cancel(strays)

    def hurry(self, after_s: float = 0.2) -> None:
        """Poll again soon: a change is expected."""
        self.poll_at = min(self.poll_at, time.monotonic() + after_s)
        self.poll_s = min(POLL_S, self.engine.slowest_poll_s)

    def observation(self, attempt_folder: AttemptFolder) -> Observation | None:
        """The job of an attempt; None if its engine has not reported it yet. A job that the engine has forgotten, and
        whose end is not recorded, counts as ended."""
        handle = self.handle(attempt_folder)
        seen = self.view.known.get(handle) if handle is not None else None
        if seen is not None and seen.run_id not in (None, attempt_folder.run_id):
            seen = None  # job numbers are reused, after some years or a reset
        if seen is None and handle is not None and self.view.unseen_s(handle) > FORGOTTEN_S:
            return Observation(ENDED, f"{self.engine.name} no longer knows job {handle}")
        return self._cancelled_task(attempt_folder, handle) if seen is None and handle is not None else seen

    def _cancelled_task(self, attempt_folder: AttemptFolder, handle: str) -> Observation | None:
        """Of a task of an array that is cancelled while it waits, nothing is left. Others stay known for minutes."""
        if self.engine.array_of(handle) is None or handle not in self.view.unseen_since:
            return None
        is_certain = handle in self.cancellations.accepted or self.view.unseen_s(handle) > SETTLES_S
        if not is_certain or submission_records.claimed_by(attempt_folder, self.engine.name) == handle:
            return None
        return Observation(ENDED, "its task was cancelled before it started", Cause.STOPPED)

    def waits_for(self, attempt_folder: AttemptFolder) -> str:
        """Why an attempt waits, or a part of it, in words; empty if all of it runs."""
        if self.trouble:
            return f"{self.engine.name} does not respond: {self.trouble}"
        order = self.submissions.orders.get(attempt_folder.run_id)
        if order is not None and time.monotonic() - order.began > SLOW_S:
            return f"{self.engine.name} has not accepted the job yet"
        if attempt_folder.run_id in self.arrays.members:
            return "it is submitted in an array, with others of its group"
        searched = self.finder.reasons.get(attempt_folder.run_id)
        if searched is not None:
            return searched
        seen = self.observation(attempt_folder)
        if seen is None or seen.state == ENDED:
            return ""
        if seen.state == RUNNING:
            step = _progress(attempt_folder)
            return f"{self.handle(attempt_folder)} prepares its nodes: {step}" if step else seen.why
        expected = f"; expected to start at {seen.starts_at}" if seen.starts_at else ""
        return f"{self.handle(attempt_folder)} waits: {seen.why}{expected}"

    def token_for(self, home: Path, run: Run) -> dict[str, str]:
        """The token with which an attempt reports to a server, if its engine needs one."""
        return {"PHALANX_RUN_TOKEN": run_token(home, run.id, run.attempt)} if self.engine.needs_token else {}

    # starting ----------------------------------------------------------------------------------------------------

    def is_resolved(self, attempt_folder: AttemptFolder, *, is_stopping: bool = False) -> bool:
        """A scheduler may have been killed before it wrote the handle: then the job is looked for. Raises OSError."""
        if is_stopping:
            self.arrays.withdraw(attempt_folder.run_id)
        if self.arrays.is_submitting(attempt_folder.run_id):
            return False
        known = self.handle(attempt_folder)
        if known is not None:
            if self.view.state(known) == ENDED:  # two jobs were submitted: the one that claimed the attempt counts
                owner = submission_records.claimed_by(attempt_folder, self.engine.name)
                if owner not in (None, known):
                    self._record(attempt_folder, owner)
            return True
        if self.engine.makes_room and not is_stopping:
            return True  # submitted again, it is the same job; an engine that rejects it need not be able to find it
        found = self._inherited(attempt_folder)
        result = self.finder.find(attempt_folder) if found is None else None
        if result is not None and not result.is_certain:
            return False
        self._record(attempt_folder, found if result is None else result.handle)
        return True

    def _record(self, attempt_folder: AttemptFolder, handle: str | None) -> None:
        """Raises OSError."""
        if handle is not None:
            replace(SubmissionRecord.now(), handle=handle, after=None).write(attempt_folder)
            self.handles[attempt_folder.run_id, attempt_folder.attempt] = handle
            self.hurry()

    def order(self, request: StartRequest) -> None:
        """Submit an attempt in a thread; several are submitted at the same time. Raises OSError."""
        attempt_folder = request.attempt_folder
        is_due = self.submissions.may_begin(attempt_folder.run_id)
        if is_due and self.is_resolved(attempt_folder) and self.handle(attempt_folder) is None:
            self.finder.forget(attempt_folder)
            if not self.arrays.add(request):
                self.submissions.begin(request)

    def run_arrays(self, limits: Mapping[str, int], started: Mapping[str, Iterable[AttemptFolder]]) -> bool:
        """Submit the arrays that are due. `limits`: how many runs of a group may run at the same time. `started`: the
        attempts of each of these groups. True if the next pass will submit more."""
        found = ((group, one) for group, folders in started.items() for one in folders)
        jobs: dict[str, list[AttemptJob]] = {group: [] for group in started}
        for group, one in found:
            jobs[group].append(AttemptJob(one.run_id, one.attempt, self.handle(one)))
        return self.arrays.run_pass(limits, jobs)

    def refusals(self) -> dict[str, Future[Result]]:
        """The submissions that are over without a job, by run: the engine rejected them, or they raised an OSError."""
        over = self.submissions.results()
        handles = {
            run_id for run_id, result in over.items() if result.exception() is None and isinstance(result.result(), str)
        }
        if handles and not self.submissions.orders:  # a poll for each of many would delay the others
            self.hurry()
        return {run_id: result for run_id, result in over.items() if run_id not in handles}

    def _inherited(self, attempt_folder: AttemptFolder) -> str | None:
        """The job of the previous attempt, if its engine has restarted it, or will."""
        handle = self.handle(attempt_folder.before)
        return handle if handle is not None and self._goes_on(handle, attempt_folder.before) else None

    def _goes_on(self, handle: str, attempt_folder: AttemptFolder) -> bool:
        """Whether the job of an attempt waits to run the next attempt, or runs it already."""
        if _job_of(attempt_folder._replace(attempt=attempt_folder.attempt + 1)) == handle:
            return True
        if self.view.state(handle) != WAITING or _job_of(attempt_folder) != handle:
            return False
        # The state WAITING may be older than the start of the attempt.
        noticed = self.noticed.setdefault((handle, attempt_folder.attempt), time.monotonic())
        if self.view.asked_at <= noticed:
            self.view.ask([handle])
        return self.view.state(handle) == WAITING and self.view.asked_at > noticed

    @property
    def is_full(self) -> bool:
        return self.submissions.is_full

    def is_free(self, attempt_folder: AttemptFolder) -> bool:
        before = attempt_folder.before
        handle = self.handle(before)
        if handle is None or self.engine.makes_room or self._goes_on(handle, before):
            return True
        if self.view.known.get(handle) is None or self.view.state(handle) == RUNNING:
            self.view.ask([handle])
        return (
            self.view.state(handle) == ENDED
            or self.view.unseen_s(handle) > FORGOTTEN_S
            or self._goes_on(handle, before)
        )

    def has_begun(self, run: Run, attempt_folder: AttemptFolder) -> bool:  # noqa: ARG002
        return self.handle(attempt_folder) is not None

    # watching ----------------------------------------------------------------------------------------------------

    def pause_s(self, attempt_folder: AttemptFolder) -> float:
        seen = self.observation(attempt_folder)
        is_waiting = seen is not None and seen.state == WAITING
        return min(WAITING_LOOK_S, self.engine.slowest_poll_s) if is_waiting else LOOK_S

    def is_restarted(self, attempt_folder: AttemptFolder) -> bool:
        handle = self.handle(attempt_folder)
        return handle is not None and self._goes_on(handle, attempt_folder)

    def restart_reason(self, attempt_folder: AttemptFolder) -> str | None:
        ends = [read_end(attempt_folder.folder(name)) for name in attempt_folder.replicas]
        if any(end is not None and end.cause == Cause.SEGMENT for end in ends):
            return SEGMENT_OVER
        return self.view.why_restarted(self.handle(attempt_folder) or "")

    def verdict(self, attempt_folder: AttemptFolder) -> Observation | None:
        seen = self.observation(attempt_folder)
        if seen is None or seen.state != ENDED:
            return None
        return self.engine.refine(seen, _said(self, attempt_folder))

    def observe(self, attempt_folder: AttemptFolder) -> dict[str, ReplicaState]:
        handle = self.handle(attempt_folder)
        if handle is not None:
            with suppress(EngineUnavailable):  # fetched later
                self.engine.fetch(attempt_folder, handle)
        verdict = self.verdict(attempt_folder)
        # An attempt that never started has no writes to wait for.
        if (
            verdict is not None
            and self.view.unseen_s(self.handle(attempt_folder) or "") <= SETTLES_S
            and attempt_folder.facts_file.exists()
        ):
            verdict = None
        said = _said(self, attempt_folder) if verdict is not None and verdict.cause != Cause.STOPPED else ()
        ends = {name: read_end(attempt_folder.folder(name)) for name in attempt_folder.replicas}
        if verdict is not None and not any(ends.values()):  # the script's output only explains a job without any end
            verdict = _with_complaint(verdict, said)
        return {name: _replica_state(attempt_folder.folder(name), end, verdict, said) for name, end in ends.items()}

    def may_appear(self, run: Run, seen: Mapping[str, ReplicaState], since: float) -> bool:  # noqa: ARG002
        return True  # while the job exists; when it has ended they are lost

    def signal(
        self,
        attempt_folder: AttemptFolder,
        seen: Mapping[str, ReplicaState],
        number: signal.Signals,
        *,
        all_of_it: bool,
    ) -> None:
        handle = self.handle(attempt_folder)
        if handle is None:
            return
        if all_of_it:
            self.cancellations.add(handle)
            return
        try:
            self.engine.signal(
                attempt_folder,
                handle,
                [name for name, observed in seen.items() if observed.state == ReplicaPhase.RUNNING],
                number,
            )
        except EngineUnavailable as fault:
            self.view.fail(fault)
        self.hurry()

    def cancel_jobs(self) -> None:
        """Cancel the jobs that this pass has found to be cancelled, in one call."""
        handles = self.cancellations.make()
        if handles:  # a job that waits ends at once
            self.hurry(0.0 if any(self.view.state(handle) == WAITING for handle in handles) else 0.2)

    def release(self, attempt_folder: AttemptFolder) -> bool:
        """Cancel the job of the last attempt of a run that waits for its next one: the engine may be about to restart
        the job. True if no job is left, or the engine has accepted it."""
        handle = self.handle(attempt_folder)
        if handle is None or self.view.state(handle) == ENDED:
            return True
        self.cancellations.add(handle)
        self.cancel_jobs()
        return handle in self.cancellations.accepted

    def sweep(self, run: Run) -> None:
        """Nothing to do: the engine ends the processes of a job."""


def early_status(executor: EngineExecutor, attempt_folder: AttemptFolder) -> tuple[Status, str] | None:
    """The status of an attempt whose job has no replicas yet, and its reason: something is built for it, it starts, or
    it waits. None if its engine has not reported it."""
    seen = executor.observation(attempt_folder)
    if seen is None or seen.state == ENDED:
        return None
    if seen.state == WAITING:
        return (Status.BUILDING, seen.why) if seen.is_building else (Status.SCHEDULED, "what it needs is built")
    step = _progress(attempt_folder)
    if step:
        return Status.BUILDING, f"virtual environment on {seen.nodes}: {step}"
    return Status.STARTING, f"{executor.handle(attempt_folder)} on {seen.nodes}"


def _said(executor: EngineExecutor, attempt_folder: AttemptFolder) -> tuple[str, ...]:
    """The last output lines of the script of an ended job."""
    log = executor.engine.log_of(attempt_folder.run_folder, executor.handle(attempt_folder) or "")
    if log.exists() or attempt_folder.facts_file.exists():
        return attempts.tail_of(log)
    fault = f"it could not write to {attempt_folder.run_folder}"
    return (f"{COMPLAINT}{fault}: set PHALANX_HOME to a path that the nodes can write",)


def _progress(attempt_folder: AttemptFolder) -> str:
    """What the nodes of an attempt do before it starts; empty if it has started, or they do nothing."""
    if attempt_folder.facts_file.exists():
        return ""
    try:
        path = attempt_folder.run_folder / run_paths.progress_file(attempt_folder.attempt)
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _with_complaint(seen: Observation, said: tuple[str, ...]) -> Observation:
    """Add the error that the script of the job printed, if any."""
    complaint = next((line.removeprefix(COMPLAINT) for line in said if line.startswith(COMPLAINT)), None)
    return seen._replace(why=f"{seen.why}: {complaint}") if complaint else seen


def _replica_state(folder: Path, end: End | None, verdict: Observation | None, said: tuple[str, ...]) -> ReplicaState:
    """`verdict`: the observation of an ended job; `said`: the last lines of its script."""
    if end is not None:
        return ReplicaState(ReplicaPhase.ENDED, end=end)
    if verdict is None:
        return ReplicaState(ReplicaPhase.RUNNING if (folder / run_paths.AGENT).exists() else ReplicaPhase.ABSENT)
    return ReplicaState(ReplicaPhase.LOST, message=verdict.why, cause=verdict.cause, lines=said)


def _job_of(attempt_folder: AttemptFolder) -> str | None:
    """The job that runs an attempt, as the job itself has recorded."""
    job = attempts.read_facts(attempt_folder).get("job")
    return str(job) if job is not None else None
