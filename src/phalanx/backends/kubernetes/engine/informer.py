"""A cache of a namespace's objects, kept up to date by one list and one watch per kind for any number of runs."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable

from phalanx.backends.kubernetes.cluster.api import (
    EVENTS,
    Api,
    ApiFault,
    ApiUnreachable,
    Document,
    ResourceKind,
    Stream,
    named,
)
from phalanx.backends.kubernetes.observe.attempt_objects import event_time, topics_of
from phalanx.backends.kubernetes.target import RUN
from phalanx.errors import CallError, SystemFault

WATCH_S = 300
LONGEST_PAUSE_S = 30.0
SHORTEST_WATCH_S = 1.0  # a watch that ends sooner without events is retried after a pause
OFTEN_S = 5.0  # versions that expire again within this time are no accident
CLOSE_S = 5.0  # for threads to end; one that waits for a dead server ends with the process
KEPT_EVENTS = 5000
OURS = "phalanx-"  # in the name of every object with relevant events


class Informer:
    """The current objects of one kind in a namespace. A thread lists them and watches from there.

    `is_synced`: the first list has arrived. `trouble`: why updates are missing; empty if all is well. Objects are
    replaced, never changed: readers may keep them but must not modify them.
    """

    def __init__(  # noqa: PLR0913 - what is watched
        self,
        api: Api,
        kind: ResourceKind,
        *,
        selector: str = RUN,
        keeps: Callable[[Document], bool] = lambda _: True,
        most: int | None = None,
        changed: threading.Condition | None = None,
        watch_s: int = WATCH_S,
    ) -> None:
        self.kind = kind
        self.changed = changed or threading.Condition()
        self.changes = 0
        self.version = ""
        self.trouble = ""
        self.is_synced = False
        self._api, self._selector, self._keeps, self._most = api, selector, keeps, most
        self._watch_s = watch_s
        self._items: dict[str, Document] = {}
        self._stopped = threading.Event()
        self._stream: Stream | None = None
        self._faults = 0
        self._expired_at = -OFTEN_S
        self._thread = threading.Thread(target=self._run, name=f"watch of {kind.plural}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def halt(self) -> None:
        """Request the end of the thread; `stop` waits for it."""
        self._stopped.set()
        stream = self._stream
        if stream is not None:
            stream.close()

    def stop(self, patience_s: float = CLOSE_S) -> None:
        self.halt()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def snapshot(self) -> list[Document]:
        with self.changed:
            return list(self._items.values())

    # the thread

    def _run(self) -> None:
        while not self._stopped.is_set():
            begun, before = time.monotonic(), self.changes
            pause_s = 0.0
            try:
                if not self.version:
                    self._list()
                self._watch()
                if time.monotonic() - begun < SHORTEST_WATCH_S and self.changes == before:
                    pause_s = random.uniform(0.5, 1.5) * SHORTEST_WATCH_S  # noqa: S311 - no secret
            except ApiFault as fault:
                pause_s = self._after(fault)
            except (CallError, SystemFault) as fault:
                pause_s = self._pause(str(fault))
            if pause_s:
                self._stopped.wait(pause_s)

    def _after(self, fault: ApiFault) -> float:
        if fault.code == 410:
            self.version = ""  # the server has dropped the history since then: list again
            last, self._expired_at = self._expired_at, time.monotonic()
            return 0.0 if self._expired_at - last > OFTEN_S else self._pause(str(fault))
        if not fault.transient:
            self.version = ""
        if fault.code == 404:
            return self._is_not_served()
        return max(self._pause(str(fault)), min(fault.retry_after_s or 0.0, LONGEST_PAUSE_S))

    def _is_not_served(self) -> float:
        """A kind that the server does not serve has no objects. It may come back."""
        with self.changed:
            self._items.clear()
            self.is_synced = True
            self._is_well()
            self._notify()
        return LONGEST_PAUSE_S

    def _pause(self, why: str) -> float:
        """The pause before the next try. Jitter keeps clients that were disconnected together from returning
        together."""
        self._faults += 1
        if self._faults > 2:
            self.version = ""  # that version may be the cause
        with self.changed:
            self.trouble = why or "no answer"
            self._notify()
        return float(min(LONGEST_PAUSE_S, 0.25 * 2**self._faults) * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    def _list(self) -> None:
        listed = self._api.list(self.kind, selector=self._selector, tries=1)
        fresh = [one for one in listed.items if self._keeps(one)]
        with self.changed:
            self._items.clear()
            for one in fresh:
                self._take(one)
            self.version = listed.version
            self.is_synced = True
            self._is_well()
            self._notify()

    def _watch(self) -> None:
        with self._api.watch(
            self.kind,
            self.version,
            selector=self._selector,
            timeout_s=int(self._watch_s * random.uniform(0.8, 1.0)) or 1,  # noqa: S311 - no secret
        ) as stream:
            self._stream = stream
            if self._stopped.is_set():
                return
            if self.trouble:
                with self.changed:
                    self._is_well()
                    self._notify()
            for line in stream:
                try:
                    event = json.loads(line)
                    self._heard(event["type"], event["object"])
                except (ValueError, KeyError, TypeError):
                    raise ApiUnreachable("the response is not a valid watch stream") from None

    def _heard(self, what: str, said: Document) -> None:
        if what == "ERROR":
            code = int(said.get("code") or 500)
            raise ApiFault(code, said.get("reason") or "", said.get("message") or "", said.get("details") or {})
        with self.changed:
            self._faults = 0
            if version := said["metadata"].get("resourceVersion"):
                self.version = version
            if what == "BOOKMARK":
                return
            document = named(self.kind, said)
            if what == "DELETED":
                self._items.pop(document["metadata"]["uid"], None)
            elif self._keeps(document):
                self._take(document)
            else:
                return
            self._notify()

    # inside; with the lock

    def _is_well(self) -> None:
        self.trouble = ""
        self._faults = 0

    def _notify(self) -> None:
        self.changes += 1
        self.changed.notify_all()

    def _take(self, document: Document) -> None:
        meta = document["metadata"]
        meta.pop("managedFields", None)
        self._items[meta["uid"]] = document
        if self._most is not None and len(self._items) > self._most:
            del self._items[next(iter(self._items))]


class NamespaceCache:
    """All Phalanx objects in a namespace. Reading sends no requests.

    Events are optional: a server that does not show them causes no trouble.
    """

    def __init__(self, api: Api, kinds: Iterable[ResourceKind]) -> None:
        self.api = api
        self.changed = threading.Condition()
        self._reflectors: dict[ResourceKind, Informer] = {}
        self._events = Informer(api, EVENTS, selector="", keeps=_is_about_ours, most=KEPT_EVENTS, changed=self.changed)
        self._events.start()
        for kind in kinds:
            self.add(kind)

    def add(self, kind: ResourceKind) -> None:
        """Watch one more kind; does nothing if it is already watched."""
        with self.changed:
            if kind in self._reflectors:
                return
            made = Informer(self.api, kind, changed=self.changed)
            self._reflectors[kind] = made
        made.start()

    def close(self) -> None:
        """End all watches."""
        until = time.monotonic() + CLOSE_S
        for one in (self._events, *self._all()):
            one.halt()
        for one in (self._events, *self._all()):
            one.stop(max(0.0, until - time.monotonic()))

    @property
    def is_synced(self) -> bool:
        return all(one.is_synced for one in self._all())

    @property
    def trouble(self) -> str:
        """Why it may be out of date; empty if all is well."""
        return next((one.trouble for one in self._all() if one.trouble), "")

    @property
    def changes(self) -> int:
        return sum(one.changes for one in (self._events, *self._all()))

    def wait(self, seen: int, timeout_s: float) -> int:
        """Wait until `changes` differs from `seen`, or for the timeout; return the current number."""
        with self.changed:
            self.changed.wait_for(lambda: self.changes != seen, timeout_s)
            return self.changes

    def all_of(self, kind: ResourceKind) -> list[Document]:
        reflector = self._reflectors.get(kind)
        return reflector.snapshot() if reflector is not None else []

    def events(self, uids: Iterable[str]) -> list[Document]:
        """The events about these objects, the oldest first. For objects in a Kueue queue, `queued_as` works like a
        uid."""
        wanted = set(uids)
        found = [one for one in self._events.snapshot() if not wanted.isdisjoint(topics_of(one))]
        return sorted(found, key=event_time)

    def _all(self) -> list[Informer]:
        return list(self._reflectors.values())


def _is_about_ours(event: Document) -> bool:
    return OURS in str(event.get("involvedObject", {}).get("name", ""))
