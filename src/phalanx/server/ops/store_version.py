"""A version of the data in the database, cheap enough to ask for with every request."""

from __future__ import annotations

import time

from starlette.concurrency import run_in_threadpool

from phalanx.server.context import Context, HeldStore
from phalanx.store import Store

FOR_S = 0.01  # a version is used for so long: what other programs change may be seen this much later
REMOTE_FOR_S = 0.05  # the same where asking is a request to a database server


class StoreVersion:
    """Has its own connection, because a connection's own changes do not change its version. Used by the event loop."""

    def __init__(self, here: Context) -> None:
        self.here = here
        self._held: HeldStore | None = None
        self._version = ""
        self._writes = -1.0
        self._until = float("-inf")

    async def read(self) -> str:
        """Two equal versions mean the same data. Raises StoreError."""
        writes = self.here.shared.writes()
        if time.monotonic() >= self._until or writes != self._writes:
            is_here = self.here.database is None
            self._version = self._ask() if is_here else await run_in_threadpool(self._ask)
            self._writes = writes
            self._until = time.monotonic() + (FOR_S if is_here else REMOTE_FOR_S)
        return self._version

    def _ask(self) -> str:
        if self._held is None:
            self._held = HeldStore(Store.open(self.here.home.path, self.here.database))
        return self._held.store.data_version()
