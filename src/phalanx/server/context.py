"""What every route needs: the home, a store for the thread it runs in, the writers, and who asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Request

from phalanx.errors import CallError
from phalanx.scheduler.home import Home
from phalanx.server.answers import Refusal
from phalanx.server.charts import Charts
from phalanx.server.guarding import identity_of
from phalanx.server.mlflow.experiments_table import Experiments
from phalanx.server.tokens import Identity, Scope, Tokens
from phalanx.server.turns import Turns
from phalanx.server.writing import Desks
from phalanx.store import Run, Store


class Context:
    """`wake` makes whoever schedules look at once, when that is us; `turns` keep it and the requests apart."""

    def __init__(
        self,
        home: Home,
        database: str | None = None,
        wake: Callable[[], None] = lambda: None,
        turns: Turns | None = None,
    ) -> None:
        self.home = home
        self.database = database
        self.wake = wake
        self.tokens = Tokens(home.path)
        self.desks = Desks(home, turns)
        self.charts = Charts()
        self.experiments = Experiments(home.path)
        self._mine = threading.local()

    @property
    def store(self) -> Store:
        """This thread's own: a store is one connection for one thread."""
        held: _HeldStore | None = getattr(self._mine, "held", None)
        if held is None:
            held = self._mine.held = _HeldStore(Store.open(self.home.path, self.database))
        return held.store

    def find(self, run_id: str) -> Run:
        """The run of exactly this id. Raises Refusal."""
        with suppress(CallError):
            run = self.store.find(run_id)
            if run.id == run_id:
                return run
        raise Refusal(404, f"there is no run `{run_id[:100]}`", "GET /api/v1/runs lists those there are")

    def close(self) -> None:
        self.desks.close()


class _HeldStore:
    """Closes its store when the thread that holds it ends, in that thread: no other may."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __del__(self) -> None:
        with suppress(Exception):  # at the end of a thread, or of the process: there is nobody to tell
            self.store.close()


async def context_of(request: Request) -> Context:
    found: Context = request.app.state.context
    return found


async def may_read(request: Request) -> Identity:
    """Whoever has a token; the token of a run reads that run alone."""
    identity = identity_of(request.scope)
    if identity.run_id is not None and request.path_params.get("run_id") != identity.run_id:
        raise Refusal(403, f"this token reads nothing but run {identity.run_id}")
    return identity


async def may_write(request: Request) -> Identity:
    """Whoever has a token to write; the token of a run writes to that run alone."""
    identity = identity_of(request.scope)
    if identity.run_id is not None:
        if request.path_params.get("run_id") != identity.run_id:
            raise Refusal(403, f"this token writes to nothing but run {identity.run_id}")
    elif identity.scope < Scope.WRITE:
        raise Refusal(403, f"the token `{identity.name}` may only read", "ask for one with the scope `write`")
    return identity


Here = Annotated[Context, Depends(context_of)]
Writer = Annotated[Identity, Depends(may_write)]
READING = [Depends(may_read)]
WRITING = [Depends(may_write)]
