"""Where runs are: on this machine, or with an engine that has machines of its own.

The scheduler asks the same of both. What agents leave in a run's folder counts for both; only whether an agent that
left no word is still alive, and how to tell it to end, each place knows for itself.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from phalanx.agent.supervising import NO_SPACE
from phalanx.backends import attempts, local_running
from phalanx.backends.attempts import Seat, Sighting
from phalanx.backends.engines import ENDED, RUNNING, WAITING, Engine, Observation, Refused, Unavailable
from phalanx.scheduler.home import Home
from phalanx.scheduler.run_tokens import run_token
from phalanx.store import Run
from phalanx.tracking.folders import BACKEND as OUTSIDE

LOCAL = ("native", "local", "mpi", "notebook", "lab", "other", OUTSIDE)  # whose replicas are processes of this machine
STARTING_PATIENCE_S = 60.0  # for an agent to say that it is there, while there still is one that may
LOOK_FOR_AGENTS_S = 0.5  # how often to look whether there is
POLL_S = 2.0  # how often an engine is asked: ever more slowly while nothing changes
FULL_S = 2.0  # between the end of a command that found no disk and the moment that we noticed
LOOK_S = 0.5  # how often the files of a run elsewhere are looked at: they lie on a filesystem that others share
WAITING_LOOK_S = 5.0
SETTLES_S = 10.0  # for what an agent wrote last to be seen here, after its job has ended
FORGOTTEN_S = 60.0  # after so long a job that its engine does not know is gone
CANCEL_S = 10.0
SEGMENT_OVER = "the time of its segment was over"
COMPLAINT = "phalanx: "  # what the script of a job says begins with it
RETRY_S = 5.0
SUBMITTING_S = 20.0  # for a submission to reach the engine
AT_ONCE = 4  # submissions
MOST_REMEMBERED = 100_000  # runs of which it is known where they are


class Place(Protocol):
    is_here: bool

    def poll(self, runs: Mapping[str, Seat], is_over: Callable[[str], bool]) -> None:
        """Learn what there is to know of the runs that were started there."""

    def pause_s(self, seat: Seat) -> float:
        """How long a run need not be looked at again."""

    def is_free(self, seat: Seat) -> bool:
        """Whether the attempt before this one is out of the way."""

    def restarted(self, seat: Seat) -> str | None:
        """Why, when the place itself starts an attempt again."""

    def verdict(self, seat: Seat) -> Observation | None:
        """What the place says of the end of an attempt; None when it may yet start it again."""

    def has_begun(self, run: Run, seat: Seat) -> bool:
        """Of a run whose agents have not come: whether they will, or may have begun already."""

    def look(self, seat: Seat) -> dict[str, Sighting]:
        """What is seen of each replica now."""

    def will_come(self, run: Run, seen: Mapping[str, Sighting], since: float) -> bool:
        """Whether agents that are missing may still come."""

    def ask_to_end(self, seat: Seat, seen: Mapping[str, Sighting], number: signal.Signals, *, all_of_it: bool) -> None:
        """Tell what runs to end; `all_of_it`: nothing of the run is to go on."""

    def sweep(self, run: Run) -> None:
        """End whatever is left of a run."""


class Places:
    """All places, each made when the first run asks for it."""

    def __init__(self, home: Home) -> None:
        self.home = home.path
        self.here = Here(home)
        self.known: list[tuple[str, Any, Elsewhere]] = []  # by backend, and what is known of where its jobs go
        self.of_runs: dict[str, Elsewhere] = {}

    def of(self, run: Run) -> Place:
        """Raises CallError when nobody is installed who knows the place."""
        if run.backend in LOCAL:
            return self.here
        if run.id not in self.of_runs:
            found = self._found(run)
            if found is None:
                return self.here
            if len(self.of_runs) >= MOST_REMEMBERED:
                self.of_runs.clear()
            self.of_runs[run.id] = found
        return self.of_runs[run.id]

    def _found(self, run: Run) -> Elsewhere | None:
        from phalanx import backends

        backend = backends.find(run.backend)
        place = backend.place_of(self.home, self.home / "runs" / run.id)
        for name, other, there in self.known:
            if (name, other) == (run.backend, place):
                return there
        engine = backend.engine(place)
        if engine is None:
            return None
        there = Elsewhere(engine)
        self.known.append((run.backend, place, there))
        return there

    @property
    def elsewhere(self) -> list[Elsewhere]:
        return [there for _, _, there in self.known]

    def poll(self, runs: Iterable[tuple[Run, Seat]], is_over: Callable[[str], bool]) -> None:
        """Each place is asked once for all its runs. `is_over`: whether a run of this home is."""
        seats: dict[Elsewhere | None, dict[str, Seat]] = {there: {} for there in (None, *self.elsewhere)}
        for run, seat in runs:
            seats[self.of_runs.get(run.id)][run.id] = seat
        for there in self.elsewhere:
            there.poll(seats[there], is_over)
        self.here.poll(seats[None], is_over)


class Here:
    """This machine."""

    is_here = True

    def __init__(self, home: Home) -> None:
        self.home = home
        self.looked_for: dict[str, float] = {}

    def poll(self, runs: Mapping[str, Seat], is_over: Callable[[str], bool]) -> None:  # noqa: ARG002
        self.looked_for = {run_id: at for run_id, at in self.looked_for.items() if run_id in runs}

    def pause_s(self, seat: Seat) -> float:  # noqa: ARG002
        return 0.0

    def is_free(self, seat: Seat) -> bool:  # noqa: ARG002
        return True

    def restarted(self, seat: Seat) -> str | None:  # noqa: ARG002
        return None

    def verdict(self, seat: Seat) -> Observation | None:  # noqa: ARG002
        return Observation(ENDED)

    def has_begun(self, run: Run, seat: Seat) -> bool:
        """Whoever started it was killed before it could say that it had: then nothing of it shall go on, unless an
        agent has begun meanwhile."""
        local_running.sweep(run.id)
        return any(sight.state != "absent" for sight in local_running.look(seat).values())

    def look(self, seat: Seat) -> dict[str, Sighting]:
        return {name: self._with_full_disk(sight) for name, sight in local_running.look(seat).items()}

    def _with_full_disk(self, sight: Sighting) -> Sighting:
        """We may have made room on a full disk before the agent looked, so it could not name the cause."""
        end = sight.end
        if end is None or end["cause"] != "error" or end["message"].endswith(NO_SPACE):
            return sight
        full_at = self.home.full_at()
        if full_at is None or not end["started_at"] <= full_at <= end["ended_at"] + FULL_S:
            return sight
        return sight._replace(end={**end, "message": end["message"] + NO_SPACE})

    def will_come(self, run: Run, seen: Mapping[str, Sighting], since: float) -> bool:
        now = time.monotonic()
        if now < self.looked_for.setdefault(run.id, now + LOOK_FOR_AGENTS_S):
            return True
        self.looked_for[run.id] = now + LOOK_FOR_AGENTS_S
        return now - since <= STARTING_PATIENCE_S and local_running.is_starting(run.id, seen.values())

    def ask_to_end(self, seat: Seat, seen: Mapping[str, Sighting], number: signal.Signals, *, all_of_it: bool) -> None:  # noqa: ARG002
        local_running.ask_to_end(seen, number)

    def sweep(self, run: Run) -> None:
        local_running.sweep(run.id)


class Order(NamedTuple):
    """An attempt to be started."""

    seat: Seat
    working: Path
    environment: Mapping[str, str]


class Elsewhere:
    """The machines of an engine: its word, and that of the agents on a shared filesystem."""

    is_here = False

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.known: dict[str, Observation] = {}
        self.handles: dict[
            tuple[str, int], str
        ] = {}  # of attempts: they do not change, and reading files takes a while
        self.unseen_since: dict[str, float] = {}  # ended or unknown jobs, since when we know
        self.cancelled_at: dict[str, float] = {}
        self.retry_at: dict[str, float] = {}
        self.orders: dict[str, tuple[Order, Future[str | Refused | None]]] = {}
        self.pool: ThreadPoolExecutor | None = None
        self.next_order_at = float("-inf")
        self.noticed: dict[tuple[str, int], float] = {}  # when we saw that a job had begun an attempt
        self.asked_at = float("-inf")
        self.poll_at = float("-inf")
        self.poll_s = min(POLL_S, engine.slowest_poll_s)
        self.trouble = ""  # why the engine does not answer

    def handle(self, seat: Seat) -> str | None:
        """How its engine finds an attempt; None when it was not submitted, or we do not know."""
        known = self.handles.get((seat.run_id, seat.attempt))
        if known is None and seat.attempt > 0:
            known = handle_of(seat)
            if known is not None:
                self.handles[seat.run_id, seat.attempt] = known
        return known

    # what the engine says ----------------------------------------------------------------------------------------

    def poll(self, runs: Mapping[str, Seat], is_over: Callable[[str], bool]) -> None:
        now = time.monotonic()
        if now < self.poll_at or not runs:
            return
        live = {(seat.run_id, seat.attempt - earlier) for seat in runs.values() for earlier in (0, 1)}
        self.handles = {key: handle for key, handle in self.handles.items() if key in live}
        self.noticed = {key: at for key, at in self.noticed.items() if key[0] in self.handles.values()}
        handles = {handle for seat in runs.values() if (handle := self.handle(seat)) is not None}
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
        except Unavailable as fault:
            self.trouble = str(fault)
            return
        self.asked_at, self.trouble = now, ""
        missing = {handle for handle in handles if self._state(handle) in (None, ENDED)}
        self.unseen_since = {handle: self.unseen_since.get(handle, now) for handle in missing}

    def _cancel_strays(self, runs: Mapping[str, Seat], is_over: Callable[[str], bool]) -> None:
        """Jobs that wait to start again, of runs that are over: they had just finished when a node was lost. And what
        goes on of a run whose end somebody could not tell any more."""
        states = (WAITING, RUNNING) if self.engine.makes_room else (WAITING,)
        going = {seen.run_id: handle for handle, seen in self.known.items() if seen.state in states}
        strays = [handle for run_id, handle in going.items() if run_id and run_id not in runs and is_over(run_id)]
        with suppress(Unavailable):
            if strays:
                self.engine.cancel(strays)

    def _state(self, handle: str) -> str | None:
        seen = self.known.get(handle)
        return seen.state if seen is not None else None

    def hurry(self) -> None:
        """Something is about to change: look again soon."""
        self.poll_at = min(self.poll_at, time.monotonic() + 0.2)
        self.poll_s = min(POLL_S, self.engine.slowest_poll_s)

    def observation(self, seat: Seat) -> Observation | None:
        """Of the job of an attempt; None when its engine has not said anything of it. One that it has forgotten, and
        whose end is in no record, has ended."""
        handle = self.handle(seat)
        seen = self.known.get(handle) if handle is not None else None
        if seen is not None and seen.run_id not in (None, seat.run_id):
            seen = None  # numbers are used again, after some years or a reset
        if seen is None and handle is not None and self._since(handle) > FORGOTTEN_S:
            return Observation(ENDED, f"{self.engine.name} does not know job {handle} any more")
        return seen

    def _since(self, handle: str) -> float:
        began = self.unseen_since.get(handle)
        return 0.0 if began is None else time.monotonic() - began

    def waits_for(self, seat: Seat) -> str:
        """What an attempt waits for, in words; empty when it does not wait."""
        if self.trouble:
            return f"{self.engine.name} does not answer: {self.trouble}"
        seen = self.observation(seat)
        if seen is None or seen.state != WAITING:
            return ""
        expected = f"; expected to start at {seen.starts_at}" if seen.starts_at else ""
        return f"{self.handle(seat)} waits: {seen.why}{expected}"

    def token_for(self, home: Path, run: Run) -> dict[str, str]:
        """What lets an attempt write to itself through a server, where it may have to."""
        return {"PHALANX_RUN_TOKEN": run_token(home, run.id, run.attempt)} if self.engine.needs_token else {}

    # starting ----------------------------------------------------------------------------------------------------

    def order(self, order: Order) -> None:
        """An attempt to be submitted, several at a time while the next ones are made ready. Raises OSError."""
        run_id, now = order.seat.run_id, time.monotonic()
        if now < max(self.retry_at.get(run_id, 0.0), self.next_order_at):
            return
        self.next_order_at = now + self.engine.submit_interval_s
        try:
            if not self.orders and not self.engine.makes_room:
                self._look_for_orders(order.seat)
            known = self._known(order.seat)
        except Unavailable as fault:
            self.trouble = str(fault)
            self.retry_at[run_id] = now + RETRY_S
            return
        answer: Future[str | Refused | None] = Future()
        if known is None:
            _write_handle(order.seat, None)
            self.pool = self.pool or ThreadPoolExecutor(max_workers=AT_ONCE)
            answer = self.pool.submit(self._submit, order)
        else:
            answer.set_result(known)
        self.orders[run_id] = (order, answer)

    def _look_for_orders(self, seat: Seat) -> None:
        """What the engine has already: whoever submitted these may have been killed before it could say so. Raises
        Unavailable."""
        handle = self.handle(_before(seat))
        self.known |= self.engine.observe([handle] if handle is not None else [])

    def answers(self) -> dict[str, str | Refused | None]:
        """What became of all that was ordered: its handle; or why its engine refuses it; or None when it must be tried
        again later. Raises OSError."""
        ordered, self.orders = self.orders, {}
        answers = {}
        for run_id, (order, future) in ordered.items():
            answer = answers[run_id] = future.result()
            if isinstance(answer, str):
                _write_handle(order.seat, answer)
                self.hurry()
            elif answer is None:
                self.retry_at[run_id] = time.monotonic() + RETRY_S
            else:
                _handle_file(order.seat).unlink(missing_ok=True)
        return answers

    def _submit(self, order: Order) -> str | Refused | None:
        seat = order.seat
        try:
            return self.engine.submit(
                seat.run_folder,
                seat.run_id,
                seat.attempt,
                first_of(seat),
                working=order.working,
                environment=order.environment,
            )
        except Refused as fault:
            return fault
        except Unavailable as fault:
            self.trouble = str(fault)
            return None

    def _known(self, seat: Seat) -> str | None:
        """The job of an attempt that was submitted already."""
        for handle, seen in self.known.items():
            if (seen.run_id, seen.attempt) == (seat.run_id, seat.attempt):
                return handle
        return self._inherited(seat) or self._recalled(seat)

    def _inherited(self, seat: Seat) -> str | None:
        """The job of the attempt before, when its engine has started it again, or will."""
        handle = self.handle(_before(seat))
        return handle if handle is not None and self._goes_on(handle, _before(seat)) else None

    def _recalled(self, seat: Seat) -> str | None:
        """A job that was submitted by someone who could not write down its handle, and that is over already. Raises
        Unavailable while it may be under way: the command of one that was killed goes on for a moment."""
        if self.engine.makes_room:
            return None  # submitting twice is submitting once
        try:
            age_s = time.time() - _handle_file(seat).stat().st_mtime
        except OSError:
            return None
        if age_s < SUBMITTING_S:
            raise Unavailable("it may have been submitted just now, by someone who was killed")
        found = self.engine.recall(seat.run_id)
        return next((handle for handle, seen in found.items() if seen.attempt == seat.attempt), None)

    def _goes_on(self, handle: str, seat: Seat) -> bool:
        """Whether a job that ran an attempt waits to run the next, or does so already."""
        if _job_of(seat._replace(attempt=seat.attempt + 1)) == handle:
            return True
        if self._state(handle) != WAITING or _job_of(seat) != handle:
            return False
        # That it waits may be older than that it began.
        noticed = self.noticed.setdefault((handle, seat.attempt), time.monotonic())
        if self.asked_at <= noticed:
            self._ask([handle])
        return self._state(handle) == WAITING and self.asked_at > noticed

    def is_free(self, seat: Seat) -> bool:
        before = _before(seat)
        handle = self.handle(before)
        if handle is None or self.engine.makes_room or self._goes_on(handle, before):
            return True
        if self.known.get(handle) is None or self._state(handle) == RUNNING:
            self._ask([handle])
        return self._state(handle) == ENDED or self._since(handle) > FORGOTTEN_S or self._goes_on(handle, before)

    def has_begun(self, run: Run, seat: Seat) -> bool:  # noqa: ARG002
        return self.handle(seat) is not None

    # watching ----------------------------------------------------------------------------------------------------

    def pause_s(self, seat: Seat) -> float:
        seen = self.observation(seat)
        is_waiting = seen is not None and seen.state == WAITING
        return min(WAITING_LOOK_S, self.engine.slowest_poll_s) if is_waiting else LOOK_S

    def restarted(self, seat: Seat) -> str | None:
        """Why, when the engine has taken the job of an attempt back into its queue."""
        handle = self.handle(seat)
        if handle is None or not self._goes_on(handle, seat):
            return None
        ends = [attempts.read_end(seat.folder(name)) for name in seat.replicas]
        if any(end is not None and end["cause"] == "segment" for end in ends):
            return SEGMENT_OVER
        return self.engine.why_restarted(handle)

    def verdict(self, seat: Seat) -> Observation | None:
        seen = self.observation(seat)
        return self.engine.heard(seen, self._said(seat)) if seen is not None and seen.state == ENDED else None

    def _said(self, seat: Seat) -> tuple[str, ...]:
        """The last lines of the script of a job that has ended."""
        log = self.engine.log_of(seat.run_folder, self.handle(seat) or "")
        if log.exists() or seat.facts_file.exists():
            return attempts.end_of(log)
        where = f"it could not write to {seat.run_folder}: can the nodes? PHALANX_HOME names another place"
        return (f"{COMPLAINT}{where}",)

    def look(self, seat: Seat) -> dict[str, Sighting]:
        handle = self.handle(seat)
        if handle is not None:
            with suppress(Unavailable):  # then it is brought later
                self.engine.bring(seat, handle)
        verdict = self.verdict(seat)
        # What was never begun leaves nothing to wait for.
        if verdict is not None and self._since(self.handle(seat) or "") <= SETTLES_S and seat.facts_file.exists():
            verdict = None
        said = self._said(seat) if verdict is not None and verdict.cause != "stopped" else ()
        ends = {name: attempts.read_end(seat.folder(name)) for name in seat.replicas}
        if verdict is not None and not any(ends.values()):  # otherwise the script has nothing to add
            verdict = _with_complaint(verdict, said)
        return {name: _sight(seat.folder(name), end, verdict, said) for name, end in ends.items()}

    def will_come(self, run: Run, seen: Mapping[str, Sighting], since: float) -> bool:  # noqa: ARG002
        return True  # as long as their job is there, and when it is not they are lost

    def ask_to_end(self, seat: Seat, seen: Mapping[str, Sighting], number: signal.Signals, *, all_of_it: bool) -> None:
        handle = self.handle(seat)
        if all_of_it or handle is None:
            self._cancel(seat)
            return
        try:
            self.engine.tell(seat, handle, [name for name, sight in seen.items() if sight.state == "running"], number)
        except Unavailable as fault:
            self.trouble = str(fault)
        self.hurry()

    def _cancel(self, seat: Seat) -> None:
        handle = self.handle(seat)
        if handle is None or time.monotonic() - self.cancelled_at.get(handle, float("-inf")) < CANCEL_S:
            return
        self.cancelled_at[handle] = time.monotonic()
        try:
            self.engine.cancel([handle])
        except Unavailable as fault:
            self.trouble = str(fault)
        self.hurry()

    def sweep(self, run: Run) -> None:
        """Its job ends what belongs to it."""


def _with_complaint(seen: Observation, said: tuple[str, ...]) -> Observation:
    """Why its script gave up, where that is known better than the engine does."""
    complaint = next((line.removeprefix(COMPLAINT) for line in said if line.startswith(COMPLAINT)), None)
    return seen._replace(why=f"{seen.why}: {complaint}") if complaint else seen


def _sight(folder: Path, end: Any, verdict: Observation | None, said: tuple[str, ...]) -> Sighting:
    """`verdict`: of a job that is over; `said`: what its script said last."""
    if end is not None:
        return Sighting("ended", end=end)
    if verdict is None:
        return Sighting("running" if (folder / "agent.json").exists() else "absent")
    return Sighting("lost", message=verdict.why, cause=verdict.cause, lines=said)


def first_of(seat: Seat) -> int:
    """The attempt that a run's time is counted from: the first of those that the segments of this one follow."""
    if seat.attempt == 1:
        return 1
    ends = [attempts.read_end(_before(seat).folder(name)) for name in seat.replicas]
    if any(end is not None and end["cause"] == "segment" for end in ends):
        return int(attempts.facts_of(_before(seat)).get("first", seat.attempt))
    return seat.attempt


def _before(seat: Seat) -> Seat:
    return seat._replace(attempt=seat.attempt - 1)


def _handle_file(seat: Seat) -> Path:
    return seat.run_folder / "job" / f"attempt-{seat.attempt}.handle"


def _write_handle(seat: Seat, handle: str | None) -> None:
    """Before it is submitted, that it will be; then under which handle. The engine knows it too, if this is lost."""
    attempts.make_private(_handle_file(seat).parent, seat.run_folder)
    attempts.write_whole(_handle_file(seat), json.dumps({"handle": handle}).encode(), sync=False)


def handle_of(seat: Seat) -> str | None:
    """How its engine finds an attempt; None when it was not submitted."""
    found: Any = attempts.read_json(_handle_file(seat))
    return found.get("handle") if isinstance(found, dict) else None


def _job_of(seat: Seat) -> str | None:
    """The job that says itself that it runs an attempt."""
    job = attempts.facts_of(seat).get("job")
    return str(job) if job is not None else None
