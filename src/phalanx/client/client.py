"""`phalanx.Client`: reads the runs of a server, like `phalanx.open()` those of a home, and submits and controls runs.

import phalanx

with phalanx.Client("https://host:8000") as server:
    made = server.submit("polyaxonfile.yml", folder=".")
    for line in server.follow(made.run):
        print(line.replica, line.text)
    print(server.run(made.run.id).status, server.series(made.run, "loss").values[-1])
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from phalanx.client.actions import ActionMethods
from phalanx.client.config import choose_server
from phalanx.client.files import FileMethods
from phalanx.client.live_events import LiveEvent, listen
from phalanx.client.projects import ProjectMethods
from phalanx.client.queries import QueryMethods
from phalanx.client.reports import ReportMethods
from phalanx.client.transport import TIMEOUT_S, Transport, joined
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.store.records import Run


class Client(QueryMethods, FileMethods, ActionMethods, ProjectMethods, ReportMethods):
    """A connection to a server. Not thread-safe; `close` it, or use it in a `with`. An argument `run` is a record, an
    id, a name (the newest run of that name), or the first characters of an id.

    Every method may raise CallError (a retry is useless; RequestRefused has the server's status and hint) and
    SystemFault (ServerUnreachable may pass). What only reads is asked again by itself when the connection fails.
    """

    def __init__(self, url: str | None = None, token: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """Connect to `url`, else to PHALANX_SERVER, else to the server of `phalanx login`; the same order holds for the
        token and PHALANX_TOKEN. Raises CallError if no server is named."""
        found = choose_server(os.environ, url, token)
        if found is None:
            raise CallError("no server is named: use Client(url), set PHALANX_SERVER, or run `phalanx login URL` once")
        super().__init__(Transport(found.url, found.token, timeout_s))

    @property
    def url(self) -> str:
        return self._wire.url

    @property
    def token(self) -> str:
        return self._wire.token

    def is_there(self) -> bool:
        """Whether Phalanx answers at the address; needs no token. Raises CallError and ServerUnreachable if not."""
        return bool(dict(self._wire.get("/healthz")).get("ok"))

    def whoami(self) -> dict[str, Any]:
        """The name and roles of the caller, and the name and expiry of the token."""
        return dict(self._wire.get(joined("session")))

    def live(self, run: str | Run | None = None) -> Iterator[LiveEvent]:
        """Changes of a run, or of all runs, as they happen. Endless: stop iterating to end it."""
        steps = ("live",) if run is None else ("runs", self._id(run), "live")
        return listen(self._wire, joined(*steps))

    def close(self) -> None:
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<phalanx.Client {self.url}>"
