"""What every route needs: the home, a store for the thread it runs in, the writers, and who asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Request

from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.server.auth.audit import Audit
from phalanx.server.auth.credentials import Credentials, claim_of
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.chart_cache import SeriesCache
from phalanx.server.http.response_cache import ResponseCache
from phalanx.server.http.responses import RequestError
from phalanx.server.mlflow.experiment_table import ExperimentTable
from phalanx.server.run_writers import RunWriters
from phalanx.server.write_gate import WriteGate
from phalanx.store import DONE, Run, Store


class Context:
    """`wake` makes whoever schedules look at once, when that is us; `turns` keep it and the requests apart."""

    def __init__(
        self,
        home: Home,
        database: str | None = None,
        wake: Callable[[], None] = lambda: None,
        turns: WriteGate | None = None,
    ) -> None:
        self.home = home
        self.database = database
        self.wake = wake
        self.credentials = Credentials(home.path)
        self.tokens = self.credentials.tokens
        self.accounts = self.credentials.accounts
        self.sessions = self.credentials.sessions
        self.audit = Audit(home.path)
        self.desks = RunWriters(home, turns)
        self.charts = SeriesCache()
        self.recent = ResponseCache()
        self.experiments = ExperimentTable(home.path)
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
        raise run_not_found(run_id)

    def is_done(self, run_id: str) -> bool:
        """Whether the run of exactly this id is over. Raises Refusal when there is none."""
        status = self.store.status_of(run_id)
        if status is None:
            raise run_not_found(run_id)
        return status in DONE

    def project_of(self, run_id: str) -> str | None:
        return self.store.project_of(run_id)

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


async def caller_of(request: Request) -> Identity:
    """Who asks. `authorise` has seen to it that somebody does, unless the address is open to everybody."""
    return claim_of(request.scope).granted()


def require_role(identity: Identity, project: str, role: Role) -> None:
    """Raises Refusal unless whoever asks has this role on the project."""
    if not identity.has(role, project):
        who, where = f"`{identity.name}`", f"project `{project[:100]}`"
        may = "may only look at" if role is Role.EDITOR and identity.has(Role.VIEWER, project) else "may not do this in"
        raise RequestError(403, f"{who} {may} {where}", f"ask for the role `{role.word}` on it")


def visible_projects(identity: Identity, project: str | None = None) -> str | frozenset[str] | None:
    """Of which projects a list shows runs to whoever asks, for `Store.runs` and the like: of the one that is asked for,
    when they may see it; else of all that they may see."""
    if project is None:
        return identity.projects(Role.VIEWER)
    return project if identity.has(Role.VIEWER, project) else frozenset()


def run_not_found(run_id: str) -> RequestError:
    return RequestError(404, f"there is no run `{run_id[:100]}`", "GET /api/v1/runs lists those there are")


Here = Annotated[Context, Depends(context_of)]
Caller = Annotated[Identity, Depends(caller_of)]
