"""What every route needs: the home, a store for the current thread, the run writers, and the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Request

from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.home.shared_documents import SharedDocuments
from phalanx.reports.records import Reports
from phalanx.server.auth.audit import Audit
from phalanx.server.auth.credentials import Credentials, claim_of
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.chart_cache import MOST_BYTES, MOST_TEXT_BYTES, SeriesCache
from phalanx.server.http.response_cache import ResponseCache
from phalanx.server.http.responses import RequestError
from phalanx.server.mlflow.experiment_table import ExperimentTable
from phalanx.server.processes.shared_state import SharedState
from phalanx.server.run_writers import RunWriters
from phalanx.server.write_gate import WriteGate
from phalanx.store import DONE, Run, Store, quoted
from phalanx.store.project_scope import ProjectScope, enclosing_projects
from phalanx.store.run_choice import MOST_LISTED, NO_NAME, choose_run


class Context:
    """`wake` makes the scheduler run at once, if it is one of this server; `turns` separates its passes from requests;
    `shared` is what all processes of the server share."""

    def __init__(
        self,
        home: Home,
        database: str | None = None,
        wake: Callable[[], None] = lambda: None,
        turns: WriteGate | None = None,
        shared: SharedState | None = None,
    ) -> None:
        self.home = home
        self.shared = shared or SharedState()
        self.database = database
        self.wake = wake
        self.credentials = Credentials(home.path)
        self.tokens = self.credentials.tokens
        self.accounts = self.credentials.accounts
        self.sessions = self.credentials.sessions
        self.audit = Audit(home.path)
        self.run_writers = RunWriters(home, turns)
        self.charts = SeriesCache(MOST_BYTES // len(self.shared.records), MOST_TEXT_BYTES // len(self.shared.records))
        self.recent = ResponseCache(
            changes=self.shared.changes, shared=self.shared.contents, event_at=self.shared.event_at
        )
        self.experiments = ExperimentTable(home.path)
        self.reports = Reports(home.path)
        self.layouts = SharedDocuments(home.path / "layouts")
        self._mine = threading.local()

    @property
    def store(self) -> Store:
        """The store of this thread: a store is one connection for one thread."""
        held: HeldStore | None = getattr(self._mine, "held", None)
        if held is None:
            held = self._mine.held = HeldStore(Store.open(self.home.path, self.database))
        return held.store

    def find(self, run_id: str) -> Run:
        """The run with exactly this id. Raises RequestError."""
        with suppress(CallError):
            run = self.store.find(run_id)
            if run.id == run_id:
                return run
        raise run_not_found(run_id)

    def find_named(self, text: str, caller: Identity) -> Run:
        """The run that a caller means with an id, a name, or the first characters of an id, of those that the caller
        may see. Raises CallError."""
        if not text:
            raise CallError(NO_NAME)

        def listed(query: str, most: int) -> list[Run]:
            return self.store.runs(query, limit=most, project=visible_projects(caller))

        exact = listed(f"id:{quoted(text)}", 1)
        if exact:
            return exact[0]
        begun = f"id:{text}%" if text.isalnum() else "id:-"
        named = f"name:{quoted(text)}"
        return choose_run(text, "", lambda: listed(named, 1), lambda: listed(begun, MOST_LISTED))

    def is_done(self, run_id: str) -> bool:
        """Whether the run with exactly this id has ended. Raises RequestError when it does not exist."""
        status = self.store.status_of(run_id)
        if status is None:
            raise run_not_found(run_id)
        return status in DONE

    def project_of(self, run_id: str) -> str | None:
        return self.store.project_of(run_id)

    def close(self) -> None:
        self.run_writers.close()


class HeldStore:
    """Closes a store when its holder is gone: that of a thread when the thread ends, in that thread."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __del__(self) -> None:
        with suppress(Exception):  # at the end of a thread or of the process, when no one could handle the error
            self.store.close()


async def context_of(request: Request) -> Context:
    found: Context = request.app.state.context
    return found


async def caller_of(request: Request) -> Identity:
    """The caller. `authorise` guarantees that there is one, unless the path is public."""
    return claim_of(request.scope).granted()


def require_role(identity: Identity, project: str, role: Role) -> None:
    """Raises RequestError unless the caller has this role on the project."""
    if not identity.has(role, project):
        who, where = f"`{identity.name}`", f"project `{project[:100]}`"
        may = (
            "has read-only access to"
            if role is Role.EDITOR and identity.has(Role.VIEWER, project)
            else "may not do this in"
        )
        raise RequestError(403, f"{who} {may} {where}", f"ask an admin for the role `{role.word}` on it")


def visible_projects(identity: Identity, project: str | None = None) -> ProjectScope | None:
    """The projects whose runs a list shows to the caller, for `Store.runs` and similar: the requested one and those
    nested in it, as far as the caller may see them; without one, all that the caller may see."""
    seen = identity.projects(Role.VIEWER)
    if project is None:
        return seen
    if seen is None or project in seen:
        return ProjectScope([project])
    return ProjectScope(one for one in seen if project in enclosing_projects(one))


def run_not_found(run_id: str) -> RequestError:
    return RequestError(404, f"there is no run `{run_id[:100]}`", "GET /api/v1/runs lists all runs")


Here = Annotated[Context, Depends(context_of)]
Caller = Annotated[Identity, Depends(caller_of)]
