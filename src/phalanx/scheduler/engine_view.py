"""What an engine has reported about its jobs, and which it is asked to cancel. Engines are asked in threads: one may
not respond for a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import TypeVar

from phalanx.backends.contract import ENDED, Engine, EngineUnavailable, JobDependency, Observation

ANSWER_S = 0.3  # how long a pass waits for an answer; a later pass reads a later answer
CANCEL_S = 10.0  # after so long, a job that goes on is cancelled again
RETRY_S = 5.0  # after an engine did not respond
Answer = TypeVar("Answer")


class EngineView:
    """The jobs of an engine, as it last reported them. Times are those of a monotonic clock."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.known: dict[str, Observation] = {}
        self.handles: dict[tuple[str | None, int], str] = {}  # by the run and attempt that a job carries
        self.wanted: frozenset[str] = frozenset()  # jobs that are always asked for
        self.unseen_since: dict[str, float] = {}  # ended or unknown jobs: when that was first seen
        self.asked_at = float("-inf")  # when the last question began that was answered
        self.answered_at = float("-inf")
        self.trouble = ""  # why the engine does not answer
        self._question: tuple[float, frozenset[str], Future[dict[str, Observation]]] | None = None
        self._retry_at = float("-inf")
        self._compared: dict[str, Observation] = {}  # the jobs as `news` last saw them
        self._searches: dict[str, Future[dict[str, Observation]]] = {}  # by run
        self._reasons: dict[str, Future[str]] = {}  # of restarts, by handle

    def ask(self, handles: Collection[str] = ()) -> None:
        """Ask for all jobs, and for these if they have ended. Returns after ANSWER_S also without an answer."""
        if self._question is None:
            if time.monotonic() < self._retry_at:
                return
            wanted = self.wanted | frozenset(handles)
            self._question = (time.monotonic(), wanted, _in_background(lambda: self.engine.observe(wanted)))
            with suppress(TimeoutError, EngineUnavailable):
                self._question[2].result(ANSWER_S)
        self.read_answer()

    def read_answer(self) -> None:
        """Read the answer to the last question, if it has come."""
        if self._question is None or not self._question[2].done():
            return
        (began, wanted, answer), self._question = self._question, None
        try:
            self.known = answer.result()
        except EngineUnavailable as fault:
            self.fail(fault)
            return
        self.asked_at, self.answered_at, self.trouble = began, time.monotonic(), ""
        self.handles = {(seen.run_id, seen.attempt): handle for handle, seen in self.known.items()}
        missing = {handle for handle in wanted if self.state(handle) in (None, ENDED)}
        self.unseen_since = {handle: self.unseen_since.get(handle, began) for handle in missing}

    def news(self) -> set[str]:
        """The jobs that are always asked for and have changed since the last call."""
        before, self._compared = self._compared, self.known
        return {handle for handle in self.wanted if before.get(handle) != self.known.get(handle)}

    @property
    def is_asking(self) -> bool:
        return self._question is not None

    def fail(self, fault: EngineUnavailable) -> None:
        self.trouble = str(fault)
        self._retry_at = time.monotonic() + RETRY_S

    def state(self, handle: str) -> str | None:
        seen = self.known.get(handle)
        return seen.state if seen is not None else None

    def unseen_s(self, handle: str) -> float:
        """For how long a job has been seen as ended, or not at all."""
        began = self.unseen_since.get(handle)
        return 0.0 if began is None else time.monotonic() - began

    def search(self, run_id: str) -> dict[str, Observation] | None:
        """All jobs of a run in the engine's records; None until the engine has answered."""
        if run_id not in self._searches:
            self._searches[run_id] = _in_background(lambda: self.engine.history(run_id))
        found: dict[str, Observation] | None
        try:
            found = self._searches[run_id].result(ANSWER_S)
        except TimeoutError:
            return None
        except EngineUnavailable as fault:
            self.fail(fault)
            found = None
        del self._searches[run_id]
        return found

    def why_restarted(self, handle: str) -> str | None:
        """Why the engine restarted a job; None until the engine has answered."""
        if handle not in self._reasons:
            self._reasons[handle] = _in_background(lambda: self.engine.why_restarted(handle))
        try:
            found = self._reasons[handle].result(ANSWER_S)
        except TimeoutError:
            return None
        del self._reasons[handle]
        return found

    def cancel(self, handles: Collection[str]) -> bool:
        """End these jobs. False if the engine has not accepted it within ANSWER_S."""
        return self._is_accepted(lambda: self.engine.cancel(handles))

    def limit_array(self, array: str, at_once: int) -> bool:
        """Limit how many tasks of an array run. False if the engine has not accepted it within ANSWER_S."""
        return self._is_accepted(lambda: self.engine.limit_array(array, at_once))

    def change_dependencies(self, handle: str, after: Sequence[JobDependency]) -> bool:
        """Let a waiting job wait for these. False if the engine has not accepted it within ANSWER_S."""
        return self._is_accepted(lambda: self.engine.change_dependencies(handle, after))

    def _is_accepted(self, change: Callable[[], None]) -> bool:
        try:
            _in_background(change).result(ANSWER_S)
        except TimeoutError:
            return False
        except EngineUnavailable as fault:
            self.fail(fault)
            return False
        return True


class Cancellations:
    """Those of a pass are made in one call."""

    def __init__(self, view: EngineView) -> None:
        self.view = view
        self.accepted: set[str] = set()
        self._due: list[str] = []  # in this pass
        self._asked_at: dict[str, float] = {}

    def add(self, handle: str) -> None:
        """Cancel a job at the end of this pass, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._asked_at.get(handle, float("-inf")) >= CANCEL_S:
            self._asked_at[handle] = now
            self._due.append(handle)

    def make(self) -> list[str]:
        """Cancel the jobs of this pass, and return them."""
        handles, self._due = self._due, []
        if handles and self.view.cancel(handles):
            self.accepted.update(handles)
        return handles

    def keep(self, handles: Collection[str]) -> None:
        """Forget all other jobs."""
        self.accepted.intersection_update(handles)
        self._asked_at = {handle: at for handle, at in self._asked_at.items() if handle in handles}


def _in_background(call: Callable[[], Answer]) -> Future[Answer]:
    """Call in a thread that the end of this process does not wait for."""
    answer: Future[Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as fault:  # noqa: BLE001 - raised where the answer is read
            answer.set_exception(fault)

    Thread(target=run, daemon=True).start()
    return answer
