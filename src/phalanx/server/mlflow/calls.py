"""A call of MLflow's API: what was asked, and by whom. The groups of calls add themselves to CALLS."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from phalanx.server.auth.identities import ALL, Identity, Role
from phalanx.server.context import Context
from phalanx.server.http.responses import RequestError
from phalanx.server.labels import PARENT
from phalanx.server.mlflow.errors import MlflowError, not_found, truncated
from phalanx.store import Run


class ReplicaAddress(NamedTuple):
    """The replica that speaks through a prefix which names it."""

    run_id: str
    attempt: int
    replica: str


class Call:
    """What was asked. The getters refuse what has another type than it must have, with a sentence."""

    def __init__(
        self,
        here: Context,
        identity: Identity,
        fields: Mapping[str, Any],
        seat: ReplicaAddress | None,
        steps: tuple[str, ...] = (),
    ) -> None:
        self.here = here
        self.identity = identity
        self.fields = fields
        self.seat = seat
        self.steps = steps  # what stood in the path where the call's pattern has a `*`

    # what was given ---------------------------------------------------------------------------------------------

    def text(self, name: str, longest: int = 20_000, *, needed: bool = True) -> str:
        found = self.fields.get(name)
        if found is None or found == "":
            if needed:
                raise MlflowError(f"Missing value for required parameter '{name}'.")
            return ""
        if isinstance(found, int | float) and not isinstance(found, bool):
            found = str(found)  # ids that look like numbers
        if not isinstance(found, str):
            raise MlflowError(f"Invalid value {truncated(found)} for parameter '{name}' supplied: a string is needed")
        if len(found) > longest:
            raise MlflowError(f"'{name}' exceeds the maximum length of {longest} characters")
        return found

    def texts(self, name: str, most: int = 10_000) -> list[str]:
        found = self.fields.get(name)
        listed = [] if found is None else found if isinstance(found, list) else [found]
        if len(listed) > most or not all(isinstance(one, str | int) and not isinstance(one, bool) for one in listed):
            raise MlflowError(f"Invalid value for parameter '{name}' supplied: a list of strings is needed")
        return [str(one) for one in listed]

    def integer(self, name: str, otherwise: int | None = None) -> int:
        found = self.fields.get(name)
        if found is None or found == "":
            if otherwise is None:
                raise MlflowError(f"Missing value for required parameter '{name}'.")
            return otherwise
        return integer(found, name)

    def objects(self, name: str, most: int = 100_000) -> list[dict[str, Any]]:
        found = self.fields.get(name) or []
        if not isinstance(found, list) or len(found) > most or not all(isinstance(one, dict) for one in found):
            raise MlflowError(f"Invalid value for parameter '{name}' supplied: a list of objects is needed")
        return found

    def inner(self, name: str) -> dict[str, Any]:
        found = self.fields.get(name) or {}
        if not isinstance(found, dict):
            raise MlflowError(f"Invalid value for parameter '{name}' supplied: an object is needed")
        return found

    def flag(self, name: str) -> bool:
        return self.fields.get(name) in (True, "true", "True", "1")

    def of(self, fields: Mapping[str, Any]) -> Call:
        """The same asker with one of several things asked at once."""
        return Call(self.here, self.identity, fields, self.seat, self.steps)

    # what may be done -------------------------------------------------------------------------------------------

    def sees(self) -> frozenset[str] | None:
        """The projects that whoever asks may look at; None: all. A run looks at its own, once anybody here is limited
        to some: else whoever has a run would see everything through it."""
        own = self.identity.run_id
        if own is None:
            return self.identity.projects(Role.VIEWER)
        if not self.here.credentials.is_anybody_limited():
            return None
        project = self.here.project_of(own)
        return frozenset([project] if project is not None else [])

    def may_see(self, project: str | None) -> bool:
        sees = self.sees()
        return sees is None or project in sees

    def run_id(self) -> str:
        return self.text("run_id", 300, needed=False) or self.text("run_uuid", 300)

    def run(self, run_id: str | None = None) -> Run:
        """A run that whoever asks may look at. Every call finds its runs by this."""
        run_id = self.run_id() if run_id is None else run_id
        try:
            run = self.here.find(run_id)
        except RequestError:
            run = None
        if run is None or not (run.id == self.identity.run_id or self.may_see(run.project)):
            raise not_found(f"Run with id={truncated(run_id)} not found")
        return run

    def own_run(self, run_id: str | None = None) -> Run:
        """A run that whoever asks may write to."""
        run = self.run(run_id)
        self.check_writes(run)
        return run

    def check_writes(self, run: Run) -> None:
        """Raises Fault when whoever asks may not write to the run."""
        own = self.identity.run_id
        if own is None:
            self.check_edits(run.project)
        elif run.id != own and self.here.store.labels(run.id).get(PARENT) != own:
            raise self._of_run_alone()

    def check_edits(self, *projects: str | None) -> None:
        """Raises Fault unless whoever asks may change what is of all these projects; None: what is of no project. A run
        may not: it writes to itself alone."""
        if self.identity.run_id is not None:
            raise self._of_run_alone()
        for project in projects:
            if not self.identity.has(Role.EDITOR, ALL if project is None else project):
                where = "" if project is None else f" in project {truncated(project)}"
                raise MlflowError(f"`{self.identity.name}` may not change this{where}", "PERMISSION_DENIED")

    def check_edits_one(self, projects: Collection[str | None]) -> None:
        """Raises Fault unless whoever asks may change one of these projects, or is a run: it adds to what it sees."""
        mine = [self.identity.has(Role.EDITOR, ALL if project is None else project) for project in projects]
        if self.identity.run_id is None and not any(mine):
            raise MlflowError(f"`{self.identity.name}` may not add to this", "PERMISSION_DENIED")

    def check_edits_some(self) -> None:
        """Raises Fault for those who may change nothing at all."""
        if self.identity.run_id is None and self.identity.projects(Role.EDITOR) == frozenset():
            raise MlflowError(f"`{self.identity.name}` may only look", "PERMISSION_DENIED")

    def _of_run_alone(self) -> MlflowError:
        return MlflowError(f"the token of run {self.identity.run_id} writes to nothing else", "PERMISSION_DENIED")


Handler = Callable[[Call], dict[str, Any]]


class CallHandler(NamedTuple):
    handler: Handler
    reads: bool


CALLS: dict[tuple[str, str], CallHandler] = {}


def call(method: str, path: str, *, reads: bool = False) -> Callable[[Handler], Handler]:
    """Answer a call. A `*` in the path stands for one step. Those that only read are open to every token; all others
    check for themselves what is written to, by `own_run`, `check_writes` or `check_edits`."""

    def add(handler: Handler) -> Handler:
        CALLS[method, path] = CallHandler(handler, reads)
        return handler

    return add


def integer(found: Any, name: str) -> int:
    """Numbers come as such or as text: JSON has none of 64 bits."""
    try:
        number = int(found) if isinstance(found, int | str) and not isinstance(found, bool) else int(_whole(found))
    except (ValueError, TypeError, OverflowError):
        raise MlflowError(
            f"Invalid value {truncated(found)} for parameter '{name}' supplied: an integer is needed"
        ) from None
    if not -(2**63) <= number < 2**63:
        raise MlflowError(f"Invalid value {truncated(found)} for parameter '{name}' supplied: it has more than 64 bits")
    return number


def _whole(found: Any) -> float:
    if not isinstance(found, float) or not found.is_integer():
        raise ValueError
    return found


def number(found: Any, name: str) -> float:
    """A float as JSON or text; `NaN`, `Infinity` and `-Infinity` are some."""
    try:
        if isinstance(found, bool) or not isinstance(found, int | float | str) or "_" in str(found):
            raise ValueError
        return float(found)
    except (ValueError, OverflowError):
        raise MlflowError(f"Got invalid value {truncated(found)} for '{name}': a number is needed") from None


def milliseconds(seconds: float | None) -> int:
    return 0 if seconds is None or not math.isfinite(seconds) else round(seconds * 1000)


def page(call: Call, largest: int, usual: int) -> tuple[int, int]:
    """How many are wanted, and how many to pass over."""
    most = call.integer("max_results", usual)
    if not 0 < most <= largest:
        raise MlflowError(f"Invalid value {most} for parameter 'max_results' supplied: it must be at most {largest}")
    token = call.text("page_token", needed=False)
    if not token:
        return most, 0
    try:
        offset = int(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, binascii.Error):
        offset = -1
    if not 0 <= offset < 2**53:
        raise MlflowError("Invalid page token")
    return most, offset


def next_token(offset: int) -> str:
    return base64.urlsafe_b64encode(str(offset).encode()).decode()
