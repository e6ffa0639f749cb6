"""/api/v1/live and /runs/{run_id}/live: changes as server-sent events.

Events are hints to fetch again, not the data itself, so a missed event loses nothing. One thread polls for all
listeners; a listener that is too slow is disconnected and reconnects.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from starlette.responses import StreamingResponse

from phalanx.errors import CallError, SystemFault, is_transient
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.context import Context
from phalanx.server.http.responses import RequestError, encoded
from phalanx.server.live.changes import FolderChanges, RefreshHints, RunChanges
from phalanx.server.rows import waiting_row
from phalanx.store import Run, Store
from phalanx.store.run_lists import RunStamp

LOOK_S = 0.5
TROUBLE_S = 1.0
QUIET_S = 15.0  # between two keep-alive comments
LONGEST_S = 600.0  # then the listener must reconnect, which checks its permissions again
MOST_WAITING = 256  # queued events per listener
MOST_LISTENERS = 1000
AGAIN_MS = 1500
HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


class Subscriber:
    """One open response. Everything but `offer` runs in its event loop."""

    def __init__(self, identity: Identity, run_id: str | None = None) -> None:
        self.identity = identity
        self.run_id = run_id
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: asyncio.Queue[bytes | None] | None = None

    def begin(self) -> asyncio.Queue[bytes | None]:
        self._loop = asyncio.get_running_loop()
        self._waiting = asyncio.Queue(MOST_WAITING)
        return self._waiting

    def may_see(self, project: str) -> bool:
        return self.identity.run_id is not None or self.identity.has(Role.VIEWER, project)

    def offer(self, event: bytes) -> None:
        """Called from another thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # its loop is closed: the listener is gone
                self._loop.call_soon_threadsafe(self._put, event)

    def _put(self, event: bytes) -> None:
        """A listener that is too slow is disconnected: its stream ends after the last event."""
        assert self._waiting is not None
        if not self._waiting.full():
            self._waiting.put_nowait(event)
            return
        while not self._waiting.empty():
            self._waiting.get_nowait()
        self._waiting.put_nowait(None)


class EventBroker:
    """All listeners, and the thread that polls while there are any. At shutdown their responses are cancelled like all
    endless ones."""

    def __init__(self, here: Context) -> None:
        self.here = here
        self._lock = threading.Lock()
        self._listeners: set[Subscriber] = set()
        self._thread: threading.Thread | None = None

    def answer(self, listener: Subscriber) -> StreamingResponse:
        """Raises RequestError when there are too many listeners."""
        if len(self._listeners) >= MOST_LISTENERS:
            raise RequestError(
                503, f"{MOST_LISTENERS:,} live streams are open, the maximum", "poll the list of runs instead"
            )
        return StreamingResponse(self._events(listener), headers=HEADERS, media_type="text/event-stream")

    async def _events(self, listener: Subscriber) -> AsyncIterator[bytes]:
        waiting = listener.begin()
        deadline = time.monotonic() + LONGEST_S
        self._add(listener)
        try:
            yield f"retry: {AGAIN_MS}\n\n".encode()
            while time.monotonic() < deadline:
                try:
                    event = await asyncio.wait_for(waiting.get(), QUIET_S)
                except TimeoutError:
                    event = b": still here\n\n"
                if event is None:
                    return
                yield event
        finally:
            with self._lock:
                self._listeners.discard(listener)

    def _add(self, listener: Subscriber) -> None:
        with self._lock:
            self._listeners.add(listener)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="phalanx-live", daemon=True)
                self._thread.start()

    # polling, in a separate thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            try:
                with Store.open(self.here.home.path, self.here.database) as store:
                    self._watch(ChangeWatcher(self.here, store))
                return
            except (OSError, SystemFault) as fault:  # a database that restarts
                time.sleep(TROUBLE_S if is_transient(fault) else 10 * TROUBLE_S)
            except Exception as fault:  # noqa: BLE001 - the edge: no other code would report it
                print(f"internal error in live updates: {type(fault).__name__}: {fault}", file=sys.stderr)
                time.sleep(10 * TROUBLE_S)
            if self._is_over():
                return

    def _watch(self, looking: ChangeWatcher) -> None:
        while not self._is_over():
            began = time.monotonic()
            with self._lock:
                listeners = list(self._listeners)
            looking.turn(listeners)
            # Limit polling to a small part of a core, however much there is to check.
            time.sleep(max(LOOK_S, 10 * (time.monotonic() - began)))

    def _is_over(self) -> bool:
        """No listeners are left: the next one starts another thread."""
        with self._lock:
            if self._listeners:
                return False
            self._thread = None
            return True


class ChangeWatcher:
    """The state of the polling thread."""

    def __init__(self, here: Context, store: Store) -> None:
        self.here = here
        self.store = store
        self.runs = RunChanges(store)
        self.folders: dict[str, FolderChanges] = {}
        self.greeted: set[Subscriber] = set()  # those that got `ready`: they miss no later event

    def turn(self, listeners: list[Subscriber]) -> None:
        changes = self.runs.look()
        self._notify_all([one for one in listeners if one.run_id is None], changes.runs, changes.gone)
        changed, gone = {one.id for one in changes.runs}, {one.id for one in changes.gone}
        watched: dict[str, list[Subscriber]] = {}
        for listener in listeners:
            if listener.run_id is not None:
                watched.setdefault(listener.run_id, []).append(listener)
        self.folders = {run_id: watch for run_id, watch in self.folders.items() if run_id in watched}
        for run_id, those in watched.items():
            if run_id in gone:
                _offer(those, "gone", {"id": run_id})
            else:
                self._notify_of_run(run_id, those, is_changed=run_id in changed)
        _offer([listener for listener in listeners if listener not in self.greeted], "ready", {})
        self.greeted = set(listeners)

    def _notify_all(self, listeners: list[Subscriber], changed: list[RunStamp], gone: list[RunStamp]) -> None:
        for one in changed if listeners else ():
            row = {
                "id": one.id,
                "status": one.status,
                "updated_at": one.updated_at.isoformat(),
                "project": one.project,
            }
            self.here.shared.note_event(one.id)
            self.here.shared.note_event("")
            _offer([listener for listener in listeners if listener.may_see(one.project)], "run", row)
        for one in gone if listeners else ():
            self.here.shared.note_event("")
            _offer([listener for listener in listeners if listener.may_see(one.project)], "gone", {"id": one.id})

    def _notify_of_run(self, run_id: str, listeners: list[Subscriber], *, is_changed: bool) -> None:
        try:
            run = self.store.find(run_id)
        except CallError:
            return
        hints = self._hints(run)
        if is_changed or any(hints):
            self.here.shared.note_event(run_id)
        if is_changed:
            _offer(listeners, "run", waiting_row(self.store, run))
        if hints.points:
            _offer(listeners, "points", {})
        if hints.logs:
            _offer(listeners, "log", {"replica": hints.logs[0] if len(hints.logs) == 1 else None})
        if hints.replicas or is_changed:
            _offer(listeners, "replicas", {})

    def _hints(self, run: Run) -> RefreshHints:
        """No events on the first poll: a new listener has just fetched everything."""
        watch = self.folders.get(run.id)
        if watch is None:
            watch = self.folders[run.id] = FolderChanges(self.here.home.run(run.id).path)
            watch.look(run)
            return RefreshHints()
        return watch.look(run)


def _offer(listeners: list[Subscriber], event: str, data: Mapping[str, Any]) -> None:
    if listeners:
        data_bytes = event_bytes(event, data)
        for listener in listeners:
            listener.offer(data_bytes)


def event_bytes(event: str, data: Mapping[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event.encode(), encoded(data))
