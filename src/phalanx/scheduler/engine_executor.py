"""Executor for attempts that an engine (Slurm, Kubernetes) runs as jobs."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import atomic_files, run_paths
from phalanx.backends.contract import (
    ENDED,
    RUNNING,
    WAITING,
    Engine,
    EngineUnavailable,
    JobRejected,
    Observation,
)
from phalanx.ends import Cause, End, read_end
from phalanx.home import attempts
from phalanx.home.attempts import AttemptFolder, ReplicaPhase, ReplicaState
from phalanx.home.run_tokens import run_token
from phalanx.store import Run

SEGMENT_OVER = "its segment reached its time limit"
AT_ONCE = 4  # submissions
POLL_S = 2.0  # shortest poll interval of an engine; it grows while nothing changes
LOOK_S = 0.5  # how often the files of a remote run are read: they are on a shared filesystem
WAITING_LOOK_S = 5.0
SETTLES_S = 10.0  # for an agent's last writes to become visible here, after its job has ended
FORGOTTEN_S = 60.0  # after so long, a job that its engine does not know counts as ended
CANCEL_S = 10.0
COMPLAINT = "phalanx: "  # prefix of the errors that a job's script prints
RETRY_S = 5.0
SUBMITTING_S = 20.0  # for a submission to reach the engine


class StartRequest(NamedTuple):
    """An attempt to be started."""

    attempt_folder: AttemptFolder
    working: Path
    environment: Mapping[str, str]


class EngineExecutor:
    """Runs attempts on the machines of an engine. Their state comes from the engine and from the agents' files."""

    is_here = False

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.known: dict[str, Observation] = {}
        self.handles: dict[tuple[str, int], str] = {}  # by attempt: they do not change, and reading files is slow
        self.unseen_since: dict[str, float] = {}  # ended or unknown jobs: when that was first seen
        self.cancelled_at: dict[str, float] = {}
        self.retry_at: dict[str, float] = {}
        self.orders: dict[str, tuple[StartRequest, Future[str | JobRejected | None]]] = {}
        self.pool: ThreadPoolExecutor | None = None
        self.next_order_at = float("-inf")
        self.noticed: dict[tuple[str, int], float] = {}  # when a job was first seen to have started an attempt
        self.asked_at = float("-inf")
        self.poll_at = float("-inf")
        self.poll_s = min(POLL_S, engine.slowest_poll_s)
        self.trouble = ""  # why the engine does not answer

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=True)
            self.pool = None

    def handle(self, attempt_folder: AttemptFolder) -> str | None:
        """The engine's handle of an attempt; None if it was not submitted, or the handle is unknown."""
        known = self.handles.get((attempt_folder.run_id, attempt_folder.attempt))
        if known is None and attempt_folder.attempt > 0:
            known = handle_of(attempt_folder)
            if known is not None:
                self.handles[attempt_folder.run_id, attempt_folder.attempt] = known
        return known

    # state of the engine -----------------------------------------------------------------------------------------

    def poll(self, runs: Mapping[str, AttemptFolder], is_over: Callable[[str], bool]) -> None:
        now = time.monotonic()
        if now < self.poll_at or not runs:
            return
        live = {(folder.run_id, folder.attempt - earlier) for folder in runs.values() for earlier in (0, 1)}
        self.handles = {key: handle for key, handle in self.handles.items() if key in live}
        self.noticed = {key: at for key, at in self.noticed.items() if key[0] in self.handles.values()}
        handles = {handle for folder in runs.values() if (handle := self.handle(folder)) is not None}
        before = {handle: self.known.get(handle) for handle in handles}
        self._ask(handles)
        self._cancel_strays(runs, is_over)
        took_s = time.monotonic() - now
        is_news = any(before[handle] != self.known.get(handle) for handle in handles)
        slowest_s = self.engine.slowest_poll_s
        self.poll_s = min(slowest_s, POLL_S if is_news else self.poll_s * 1.3)
        self.poll_at = time.monotonic() + max(self.poll_s, min(20 * took_s, 4 * slowest_s))

    def _ask(self, handles: Collection[str]) -> None:
        now = time.monotonic()
        try:
            self.known = self.engine.observe(handles)
        except EngineUnavailable as fault:
            self.trouble = str(fault)
            return
        self.asked_at, self.trouble = now, ""
        missing = {handle for handle in handles if self._state(handle) in (None, ENDED)}
        self.unseen_since = {handle: self.unseen_since.get(handle, now) for handle in missing}

    def _cancel_strays(self, runs: Mapping[str, AttemptFolder], is_over: Callable[[str], bool]) -> None:
        """Cancel jobs of finished runs. A job may be requeued if it finishes just as a node is lost, or may continue if
        a scheduler was killed before it could cancel it."""
        states = (WAITING, RUNNING) if self.engine.makes_room else (WAITING,)
        going = {seen.run_id: handle for handle, seen in self.known.items() if seen.state in states}
        strays = [handle for run_id, handle in going.items() if run_id and run_id not in runs and is_over(run_id)]
        with suppress(EngineUnavailable):
            if strays:
                self.engine.cancel(strays)

    def _state(self, handle: str) -> str | None:
        seen = self.known.get(handle)
        return seen.state if seen is not None else None

    def hurry(self) -> None:
        """Poll again soon: a change is expected."""
        self.poll_at = min(self.poll_at, time.monotonic() + 0.2)
        self.poll_s = min(POLL_S, self.engine.slowest_poll_s)

    def observation(self, attempt_folder: AttemptFolder) -> Observation | None:
        """The job of an attempt; None if its engine has not reported it yet. A job that the engine has forgotten, and
        whose end is not recorded, counts as ended."""
        handle = self.handle(attempt_folder)
        seen = self.known.get(handle) if handle is not None else None
        if seen is not None and seen.run_id not in (None, attempt_folder.run_id):
            seen = None  # job numbers are reused, after some years or a reset
        if seen is None and handle is not None and self._since(handle) > FORGOTTEN_S:
            return Observation(ENDED, f"{self.engine.name} no longer knows job {handle}")
        return seen

    def _since(self, handle: str) -> float:
        began = self.unseen_since.get(handle)
        return 0.0 if began is None else time.monotonic() - began

    def waits_for(self, attempt_folder: AttemptFolder) -> str:
        """Why an attempt waits, in words; empty if it does not wait."""
        if self.trouble:
            return f"{self.engine.name} does not respond: {self.trouble}"
        seen = self.observation(attempt_folder)
        if seen is not None and seen.state == RUNNING:
            step = _progress(attempt_folder)
            return f"{self.handle(attempt_folder)} prepares its nodes: {step}" if step else ""
        if seen is None or seen.state != WAITING:
            return ""
        expected = f"; expected to start at {seen.starts_at}" if seen.starts_at else ""
        return f"{self.handle(attempt_folder)} waits: {seen.why}{expected}"

    def token_for(self, home: Path, run: Run) -> dict[str, str]:
        """The token with which an attempt reports to a server, if its engine needs one."""
        return {"PHALANX_RUN_TOKEN": run_token(home, run.id, run.attempt)} if self.engine.needs_token else {}

    # starting ----------------------------------------------------------------------------------------------------

    def order(self, order: StartRequest) -> None:
        """Submit an attempt in a thread; several are submitted at the same time. Raises OSError."""
        run_id, now = order.attempt_folder.run_id, time.monotonic()
        if now < max(self.retry_at.get(run_id, 0.0), self.next_order_at):
            return
        self.next_order_at = now + self.engine.submit_interval_s
        try:
            if not self.orders and not self.engine.makes_room:
                self._look_for_orders(order.attempt_folder)
            known = self._known(order.attempt_folder)
        except EngineUnavailable as fault:
            self.trouble = str(fault)
            self.retry_at[run_id] = now + RETRY_S
            return
        answer: Future[str | JobRejected | None] = Future()
        if known is None:
            _write_handle(order.attempt_folder, None)
            self.pool = self.pool or ThreadPoolExecutor(max_workers=AT_ONCE)
            answer = self.pool.submit(self._submit, order)
        else:
            answer.set_result(known)
        self.orders[run_id] = (order, answer)

    def _look_for_orders(self, attempt_folder: AttemptFolder) -> None:
        """Read the engine's jobs: a scheduler may have been killed after it submitted a job and before it wrote the
        handle. Raises EngineUnavailable."""
        handle = self.handle(_before(attempt_folder))
        self.known |= self.engine.observe([handle] if handle is not None else [])

    def answers(self) -> dict[str, str | JobRejected | None]:
        """The results of all submissions, by run: the handle; JobRejected; or None to retry later. Raises OSError."""
        ordered, self.orders = self.orders, {}
        answers = {}
        for run_id, (order, future) in ordered.items():
            answer = answers[run_id] = future.result()
            if isinstance(answer, str):
                _write_handle(order.attempt_folder, answer)
                self.hurry()
            elif answer is None:
                self.retry_at[run_id] = time.monotonic() + RETRY_S
            else:
                _handle_file(order.attempt_folder).unlink(missing_ok=True)
        return answers

    def _submit(self, order: StartRequest) -> str | JobRejected | None:
        attempt_folder = order.attempt_folder
        try:
            return self.engine.submit(
                attempt_folder.run_folder,
                attempt_folder.run_id,
                attempt_folder.attempt,
                first_of(attempt_folder),
                working=order.working,
                environment=order.environment,
            )
        except JobRejected as fault:
            return fault
        except EngineUnavailable as fault:
            self.trouble = str(fault)
            return None

    def _known(self, attempt_folder: AttemptFolder) -> str | None:
        """The handle of an attempt that was submitted already."""
        for handle, seen in self.known.items():
            if (seen.run_id, seen.attempt) == (attempt_folder.run_id, attempt_folder.attempt):
                return handle
        return self._inherited(attempt_folder) or self._recalled(attempt_folder)

    def _inherited(self, attempt_folder: AttemptFolder) -> str | None:
        """The job of the previous attempt, if its engine has restarted it, or will."""
        handle = self.handle(_before(attempt_folder))
        return handle if handle is not None and self._goes_on(handle, _before(attempt_folder)) else None

    def _recalled(self, attempt_folder: AttemptFolder) -> str | None:
        """A job that has ended, and whose handle was not written because the scheduler was killed. Raises
        EngineUnavailable while the submission may still be in progress: its command outlives the scheduler briefly."""
        if self.engine.makes_room:
            return None  # its `submit` is idempotent
        try:
            age_s = time.time() - _handle_file(attempt_folder).stat().st_mtime
        except OSError:
            return None
        if age_s < SUBMITTING_S:
            raise EngineUnavailable("a scheduler that was killed may have just submitted it")
        found = self.engine.history(attempt_folder.run_id)
        return next((handle for handle, seen in found.items() if seen.attempt == attempt_folder.attempt), None)

    def _goes_on(self, handle: str, attempt_folder: AttemptFolder) -> bool:
        """Whether the job of an attempt waits to run the next attempt, or runs it already."""
        if _job_of(attempt_folder._replace(attempt=attempt_folder.attempt + 1)) == handle:
            return True
        if self._state(handle) != WAITING or _job_of(attempt_folder) != handle:
            return False
        # The state WAITING may be older than the start of the attempt.
        noticed = self.noticed.setdefault((handle, attempt_folder.attempt), time.monotonic())
        if self.asked_at <= noticed:
            self._ask([handle])
        return self._state(handle) == WAITING and self.asked_at > noticed

    def is_free(self, attempt_folder: AttemptFolder) -> bool:
        before = _before(attempt_folder)
        handle = self.handle(before)
        if handle is None or self.engine.makes_room or self._goes_on(handle, before):
            return True
        if self.known.get(handle) is None or self._state(handle) == RUNNING:
            self._ask([handle])
        return self._state(handle) == ENDED or self._since(handle) > FORGOTTEN_S or self._goes_on(handle, before)

    def has_begun(self, run: Run, attempt_folder: AttemptFolder) -> bool:  # noqa: ARG002
        return self.handle(attempt_folder) is not None

    # watching ----------------------------------------------------------------------------------------------------

    def pause_s(self, attempt_folder: AttemptFolder) -> float:
        seen = self.observation(attempt_folder)
        is_waiting = seen is not None and seen.state == WAITING
        return min(WAITING_LOOK_S, self.engine.slowest_poll_s) if is_waiting else LOOK_S

    def restart_reason(self, attempt_folder: AttemptFolder) -> str | None:
        """Why the engine has requeued the job of an attempt; None if it has not."""
        handle = self.handle(attempt_folder)
        if handle is None or not self._goes_on(handle, attempt_folder):
            return None
        ends = [read_end(attempt_folder.folder(name)) for name in attempt_folder.replicas]
        if any(end is not None and end.cause == Cause.SEGMENT for end in ends):
            return SEGMENT_OVER
        return self.engine.why_restarted(handle)

    def verdict(self, attempt_folder: AttemptFolder) -> Observation | None:
        seen = self.observation(attempt_folder)
        if seen is None or seen.state != ENDED:
            return None
        return self.engine.refine(seen, self._said(attempt_folder))

    def _said(self, attempt_folder: AttemptFolder) -> tuple[str, ...]:
        """The last output lines of the script of an ended job."""
        log = self.engine.log_of(attempt_folder.run_folder, self.handle(attempt_folder) or "")
        if log.exists() or attempt_folder.facts_file.exists():
            return attempts.tail_of(log)
        fault = f"it could not write to {attempt_folder.run_folder}"
        return (f"{COMPLAINT}{fault}: set PHALANX_HOME to a path that the nodes can write",)

    def observe(self, attempt_folder: AttemptFolder) -> dict[str, ReplicaState]:
        handle = self.handle(attempt_folder)
        if handle is not None:
            with suppress(EngineUnavailable):  # fetched later
                self.engine.fetch(attempt_folder, handle)
        verdict = self.verdict(attempt_folder)
        # An attempt that never started has no writes to wait for.
        if (
            verdict is not None
            and self._since(self.handle(attempt_folder) or "") <= SETTLES_S
            and attempt_folder.facts_file.exists()
        ):
            verdict = None
        said = self._said(attempt_folder) if verdict is not None and verdict.cause != Cause.STOPPED else ()
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
        if all_of_it or handle is None:
            self._cancel(attempt_folder)
            return
        try:
            self.engine.signal(
                attempt_folder,
                handle,
                [name for name, observed in seen.items() if observed.state == ReplicaPhase.RUNNING],
                number,
            )
        except EngineUnavailable as fault:
            self.trouble = str(fault)
        self.hurry()

    def _cancel(self, attempt_folder: AttemptFolder) -> None:
        handle = self.handle(attempt_folder)
        if handle is None or time.monotonic() - self.cancelled_at.get(handle, float("-inf")) < CANCEL_S:
            return
        self.cancelled_at[handle] = time.monotonic()
        try:
            self.engine.cancel([handle])
        except EngineUnavailable as fault:
            self.trouble = str(fault)
        self.hurry()

    def sweep(self, run: Run) -> None:
        """Nothing to do: the engine ends the processes of a job."""


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


def first_of(attempt_folder: AttemptFolder) -> int:
    """The attempt from which a run's time is counted: the first in the chain of segments that ends in this one."""
    if attempt_folder.attempt == 1:
        return 1
    ends = [read_end(_before(attempt_folder).folder(name)) for name in attempt_folder.replicas]
    if any(end is not None and end.cause == Cause.SEGMENT for end in ends):
        return int(attempts.read_facts(_before(attempt_folder)).get("first", attempt_folder.attempt))
    return attempt_folder.attempt


def _before(attempt_folder: AttemptFolder) -> AttemptFolder:
    return attempt_folder._replace(attempt=attempt_folder.attempt - 1)


def _handle_file(attempt_folder: AttemptFolder) -> Path:
    return attempt_folder.run_folder / run_paths.handle_file(attempt_folder.attempt)


def _write_handle(attempt_folder: AttemptFolder, handle: str | None) -> None:
    """Written before the submission (None) and after it. If the file is lost, the handle is found in the engine."""
    atomic_files.make_private(_handle_file(attempt_folder).parent, attempt_folder.run_folder)
    atomic_files.write_atomic(_handle_file(attempt_folder), json.dumps({"handle": handle}).encode(), sync=False)


def handle_of(attempt_folder: AttemptFolder) -> str | None:
    """The engine's handle of an attempt; None if it was not submitted."""
    found: Any = atomic_files.read_json(_handle_file(attempt_folder))
    return found.get("handle") if isinstance(found, dict) else None


def _job_of(attempt_folder: AttemptFolder) -> str | None:
    """The job that runs an attempt, as the job itself has recorded."""
    job = attempts.read_facts(attempt_folder).get("job")
    return str(job) if job is not None else None
