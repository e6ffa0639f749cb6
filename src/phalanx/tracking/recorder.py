"""One process's part of a run: appends what it logs to its own files beside the replica's log.

`log` is one `write`. Nothing here raises into the training, blocks, or needs the network: values that cannot be kept
are counted, and reported once. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import _thread
import os
import struct
import sys
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from zlib import crc32

from phalanx.spool import HEAD, MARK, MOMENT, NAMES, NO_STEP, POINTS, VALUE, Writer, frame, name_payload
from phalanx.tracking import values as conversion
from phalanx.tracking.notices import warn, warn_once
from phalanx.tracking.values import NotANumber, error_text, guarded

if TYPE_CHECKING:
    from phalanx.tracking.heartbeat import Heartbeat, Waiting

CLOSED = -1  # a descriptor on which every write fails
MOST_NAMES = 100_000  # in one call
AWAY_S, MOST_AWAY = 10.0, 16  # how long the descriptor of a closed file is kept from reuse, and how many of them

_now = time.time
_write = os.write
_moment = MOMENT.pack
_value = VALUE.pack
_head = HEAD.pack
_HEAD_SIZE = HEAD.size
_SINGLE = struct.Struct(MOMENT.format + VALUE.format[1:])  # most calls log one value
_single = _SINGLE.pack
_SINGLE_SIZE = _SINGLE.size
_SINGLE_RECORD_SIZE = _HEAD_SIZE + _SINGLE_SIZE
HALF = "a record was only partly written to disk"
GONE = "the files of the run were removed while it ran"
SENDING = ("commit", "sync")  # of wandb.log: when a value is sent; here, each call is one record
_away: deque[tuple[float, int]] = deque()  # since when, and which descriptors; they belong to the process, not to a run


class Recorder:
    """Points and events of one process. `TrackedRun` defines what can be recorded."""

    def __init__(  # noqa: PLR0913 - what a process knows about its run
        self,
        run_id: str,
        project: str,
        folder: str,
        outputs: str,
        rank: int,
        *,
        is_managed: bool,
        has_agent: bool = True,
    ) -> None:
        self.id = run_id
        self.project = project
        self.folder = folder  # of this replica's attempt
        self.outputs = outputs
        self.rank = rank
        self.is_managed = is_managed  # its end is recorded elsewhere
        self.has_agent = has_agent  # the agent syncs the files to disk
        self.is_child = False
        self.is_finished = False
        self.is_nowhere = False  # nothing is recorded
        self.dropped: dict[str, int] = {}
        self._started_at = _now()
        self._points = CLOSED
        self._numbers: dict[str, int] = {}
        self._free_numbers = count()
        self._events: Writer | None = None
        self._owner = os.getpid()
        self._lock = _thread.RLock()  # for what is done once, such as opening a file; never around a `write`
        self._copies = count(1)
        self._progress_at = 0.0
        self._is_sending_said = False
        self._heartbeat: Heartbeat | None = None

    @property
    def run_folder(self) -> str:
        return os.path.dirname(os.path.dirname(os.path.dirname(self.folder)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled to another process, it becomes that one's part of the same run."""
        about = (self.id, self.project, self.folder, self.outputs, self.rank)
        return sys.modules["phalanx.tracking"].joined, (about, self.has_agent, self.is_nowhere)

    def __copy__(self) -> Recorder:
        return self

    def __deepcopy__(self, _: Any) -> Recorder:
        return self

    def start_heartbeat(self) -> Heartbeat | None:
        """Start the background thread where it is needed. `threading` is slow to import. None when there can be no
        more threads."""
        from phalanx.tracking.heartbeat import Heartbeat

        with self._lock:
            if self._heartbeat is None:
                is_watched = not (self.is_managed or self.is_child) and self.folder
                beat = os.path.join(self.folder, "beat") if is_watched else None
                heartbeat = Heartbeat(self._settle, self._open_files, beat)
                try:
                    heartbeat.start()
                except RuntimeError:
                    return None
                self._heartbeat = heartbeat
            return self._heartbeat

    def mark_environment(self) -> None:
        """Let child processes find the run. Those of a managed run already do."""

    # points --------------------------------------------------------------------------------------------------------

    def log(self, metrics: Mapping[str, Any] | None = None, /, step: int | None = None, **values: Any) -> None:
        """Record the values of metrics at a step: `log(loss=0.5, step=10)`, `log({"loss": 0.5})`."""
        given: Any = values if metrics is None else metrics if not values else None  # None: the slow path handles it
        try:
            when = NO_STEP if step is None else step
            if len(given) == 1:
                ((name, value),) = given.items()
                if type(value) is float:
                    payload = _single(when, _now(), self._numbers[name], value)
                    record = _head(MARK, POINTS, _SINGLE_SIZE, crc32(payload, POINTS)) + payload
                    if _write(self._points, record) == _SINGLE_RECORD_SIZE:
                        return
                    self._drop(HALF)
                    return
            else:
                numbers = self._numbers
                parts = [_moment(when, _now())]
                for name, value in given.items():
                    if type(value) is not float:
                        break
                    parts.append(_value(numbers[name], value))
                else:
                    payload = b"".join(parts)
                    length = len(payload)
                    record = _head(MARK, POINTS, length, crc32(payload, POINTS)) + payload
                    if _write(self._points, record) == length + _HEAD_SIZE:
                        return
                    self._drop(HALF, len(parts) - 1)
                    return
        except Exception:  # noqa: BLE001,S110 - the fast way for most; the careful way below knows what is wrong
            pass
        self._log_carefully(metrics, step, values)

    def _log_carefully(self, metrics: Any, step: Any, values: Mapping[str, Any]) -> None:
        if self.is_nowhere:
            return
        given: Mapping[str, Any] = values
        with guarded(lambda fault: self._drop(error_text(fault), max(1, len(given)))):
            named = values if metrics is None else {**metrics, **self._without_sending(values)}
            is_flat = all(map(conversion.is_plain, named.values()))
            given = named if is_flat else dict(conversion.some_of(conversion.flat(named, "/"), MOST_NAMES))
            when, at = self._step(step), _now()
            ready = {}
            for name, value in given.items():
                drop = partial(self._drop_value, name)  # only this one is dropped
                with guarded(drop):
                    reader = None if conversion.is_plain(value) else conversion.later(value)
                    if reader is None:
                        ready[conversion.short_name(name)] = conversion.number(value)
                    else:
                        self._wait_for((when, at, conversion.short_name(name), reader))
            given = ready
            if ready:
                self._add(when, at, ready)

    def _without_sending(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """`log({"loss": 0.5}, commit=False)` is a call of another library: its keywords are no metrics."""
        others = [name for name in SENDING if name in values and (values[name] is None or type(values[name]) is bool)]
        if others and not self._is_sending_said:
            self._is_sending_said = True
            warn(f"log() ignores `{others[0]}`: every call is recorded at once")
        return {name: value for name, value in values.items() if name not in others} if others else values

    def _drop_value(self, name: Any, fault: BaseException) -> None:
        self._drop(f"{conversion.short_text(str(name))[:100]}: {error_text(fault)}")

    @staticmethod
    def _step(step: Any) -> int | None:
        if step is None:
            return None
        try:
            number = int(step)
        except (TypeError, ValueError, OverflowError):
            raise NotANumber(f"the step {str(step)[:50]!r} is not a whole number") from None
        if not NO_STEP < number < 2**63:
            raise NotANumber(f"the step {number} is too large")
        return number

    def _add(self, step: int | None, at: float, values: Mapping[str, float]) -> None:
        """Raises OSError."""
        descriptor = self._open_points()
        parts = [_moment(NO_STEP if step is None else step, at)]
        for name, value in values.items():
            number = self._numbers.get(name)
            if number is None:
                number = next(self._free_numbers)
                self._put(descriptor, frame(NAMES, name_payload(number, name)))
                self._numbers[name] = number  # after the file has it: another thread may use it at once
            parts.append(_value(number, value))
        self._put(descriptor, frame(POINTS, b"".join(parts)))

    @staticmethod
    def _put(descriptor: int, record: bytes) -> None:
        if _write(descriptor, record) != len(record):
            raise OSError(HALF)

    def _open_points(self) -> int:
        with self._lock:
            self._check_open()
            if self._points == CLOSED:
                self._points = self._own_file("points").descriptor
                if not self.has_agent:
                    self.start_heartbeat()
            return self._points

    def _check_open(self) -> None:
        if self.is_finished:
            raise OSError("the run is finished")
        if self._owner != os.getpid():
            self.after_fork()

    def _own_file(self, kind: str) -> Writer:
        """A file that only this process writes: a pid may have been used before, or elsewhere, in this folder."""
        for again in range(1000):
            name = f"client-{os.getpid()}{f'-{again}' if again else ''}.{kind}"
            path = os.path.join(self.folder, name)
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except FileExistsError:
                continue
            self._finish_with_process()
            return Writer(path)
        raise OSError("too many files in the run's folder")

    def _finish_with_process(self) -> None:
        """Register the exit hook of a process forked by `multiprocessing`, which skips `atexit`."""
        process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
        if process is not None and util is not None and process.parent_process() is not None:
            util.Finalize(None, lambda: self.finish_after(sys.exc_info()[1]), exitpriority=0)

    def finish_after(self, fault: BaseException | None) -> None:
        raise NotImplementedError

    def after_fork(self) -> None:
        """Reset a forked child: it writes its own files and lacks its parent's thread."""
        self.is_child = True
        self._owner = os.getpid()
        self._lock = _thread.RLock()
        self._points = CLOSED
        self._numbers = {}
        self._free_numbers = count()
        self._events = None
        self._heartbeat = None
        self.dropped = {}

    # values that an accelerator still computes ---------------------------------------------------------------------

    def _wait_for(self, waiting: Waiting) -> None:
        self._check_open()
        heartbeat = self.start_heartbeat()
        if heartbeat is None:
            self._settle(waiting)
        elif not heartbeat.put(waiting):
            self._drop("too many values waiting to be computed")

    def _settle(self, waiting: Waiting) -> None:
        step, at, name, reader = waiting
        with guarded(
            partial(self._drop_value, name), BaseException
        ):  # raised by the library's code; this is the top of the thread
            self._add(step, at, {name: float(reader())})

    def _open_files(self) -> list[int]:
        events = [] if self._events is None else [self._events.descriptor]
        return events if self._points == CLOSED else [self._points, *events]

    # events ----------------------------------------------------------------------------------------------------

    def note(self, kind: str, content: Any) -> None:
        """Write one record of the events file; `content` is called here, so that its errors stay here."""
        if self.is_nowhere:
            return
        with guarded(lambda fault: self._drop(f"{kind}: {error_text(fault)}")):
            data = {"at": round(_now(), 3), "kind": kind, **content()}
            self._open_events().append_json(data)

    def write_header(self) -> None:
        """Write the identity of the writer."""
        with guarded(lambda fault: self._drop(error_text(fault))):
            self._open_events()

    def _open_events(self) -> Writer:
        with self._lock:
            self._check_open()
            if self._events is None:
                events = self._own_file("events")
                about = {"pid": os.getpid(), "host": os.uname().nodename, "rank": self.rank}
                events.append_json({"at": round(_now(), 3), "kind": "open", **about})
                self._events = events
            return self._events

    def _ignore(self, call: str, others: Mapping[str, Any], known: tuple[str, ...]) -> None:
        """Note arguments that a call does not have: they must not end the training."""
        for word in others:
            note_keyword(call, word, known)

    def lost(self, what: str, fault: BaseException) -> None:
        """Count something that could not be recorded."""
        self._drop(f"{what}: {error_text(fault)}")

    def has_logged(self, name: str) -> bool:
        return name in self._numbers

    def point_files(self) -> list[str]:
        """The files that this process has written."""
        own = f"client-{os.getpid()}"
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        return [
            os.path.join(self.folder, name)
            for name in sorted(names)
            if name.endswith(".points") and name.startswith((f"{own}.", f"{own}-"))
        ]

    def _drop(self, why: str, points: int = 1) -> None:
        """Count a lost value; report the first of each kind, up to a limit."""
        if self.is_nowhere:
            return
        with self._lock:
            is_new = why not in self.dropped and len(self.dropped) < 20
            key = why if is_new or why in self.dropped else "other reasons"
            self.dropped[key] = self.dropped.get(key, 0) + points
            is_to_be_said = is_new and len(self.dropped) <= 5
        if is_to_be_said:
            warn(f"something could not be recorded: {why}; training continues")

    def _look_for_files(self) -> None:
        """Check that the files still exist: writing to a removed file does not fail."""
        for descriptor in self._open_files():
            try:
                if os.fstat(descriptor).st_nlink == 0:
                    self._drop(GONE)
            except OSError as fault:
                self._drop(error_text(fault))

    def _close(self) -> None:
        descriptors = self._open_files()
        # Forgotten before they are closed: the next opened file may reuse their descriptors.
        self._points, self._numbers, self._events = CLOSED, {}, None
        for descriptor in descriptors:
            try:
                os.fsync(descriptor)
                _put_away(descriptor)
            except OSError as fault:
                self._drop(error_text(fault))


def _put_away(descriptor: int) -> None:
    """Close a file, but keep its descriptor for a while, connected to nothing: another thread may be about to write to
    it, possibly into a file that the training opens next. Raises OSError."""
    now = time.monotonic()
    while _away and (len(_away) >= MOST_AWAY or _away[0][0] < now - AWAY_S):
        os.close(_away.popleft()[1])
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, descriptor, inheritable=False)
    os.close(nowhere)
    _away.append((now, descriptor))


def note_keyword(call: str, word: str, known: tuple[str, ...]) -> None:
    """Report an unknown argument, once: it must not end a training, as a TypeError would."""
    text = f"{call}() ignores the argument `{conversion.clean(word)[:100]}`; it has {', '.join(known)}"
    warn_once(call, word, text)
