"""A call of MLflow's API: its parameters and its caller. The modules with calls register them in CALLS."""

from __future__ import annotations

import base64
import binascii
import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from phalanx.naming import PARENT
from phalanx.server.auth.identities import ALL, Identity, Role
from phalanx.server.context import Context
from phalanx.server.http.responses import RequestError
from phalanx.server.mlflow.errors import MlflowError, check_name, invalid, not_found, truncated
from phalanx.store import Run


class ReplicaAddress(NamedTuple):
    """The replica named in the address prefix of a call."""

    run_id: str
    attempt: int
    replica: str


class Call:
    """The parameters of a call. The getters raise MlflowError for values of the wrong type."""

    def __init__(
        self,
        here: Context,
        identity: Identity,
        fields: Mapping[str, Any],
        address: ReplicaAddress | None,
        steps: tuple[str, ...] = (),
    ) -> None:
        self.here = here
        self.identity = identity
        self.fields = fields
        self.address = address
        self.steps = steps  # the parts of the path that match a `*` in the call's pattern

    # parameters -------------------------------------------------------------------------------------------------

    def text(self, name: str, longest: int = 20_000, *, needed: bool = True) -> str:
        found = self.fields.get(name)
        if found is None or found == "":
            if needed:
                raise MlflowError(f"Missing value for required parameter '{name}'.")
            return ""
        if not isinstance(found, str):
            raise invalid(name, found, "expected a string")
        if len(found) > longest:
            raise MlflowError(f"'{name}' exceeds the maximum length of {longest} characters")
        return found

    def name(self, name: str, longest: int = 20_000, *, needed: bool = True) -> str:
        """The name of something: a run, a tag, a param."""
        return check_name(self.text(name, longest, needed=needed), name)

    def texts(self, name: str, most: int = 10_000) -> list[str]:
        found = self.fields.get(name)
        listed = [] if found is None else found if isinstance(found, list) else [found]
        if len(listed) > most or not all(isinstance(one, str | int) and not isinstance(one, bool) for one in listed):
            raise invalid(name, found, "expected a list of strings")
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
            raise invalid(name, found, "expected a list of objects")
        return found

    def inner(self, name: str) -> dict[str, Any]:
        found = self.fields.get(name) or {}
        if not isinstance(found, dict):
            raise invalid(name, found, "expected an object")
        return found

    def flag(self, name: str) -> bool:
        return self.fields.get(name) in (True, "true", "True", "1")

    def of(self, fields: Mapping[str, Any]) -> Call:
        """The same caller with one item of a batch."""
        return Call(self.here, self.identity, fields, self.address, self.steps)

    # permissions ------------------------------------------------------------------------------------------------

    def sees(self) -> frozenset[str] | None:
        """The projects that the caller may read; None means all. A run sees only its own project once any identity of
        this home is limited to some: otherwise a run's token would reveal everything."""
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
        return self.text("run_uuid", 300, needed=False) or self.text("run_id", 300)

    def run(self, run_id: str | None = None) -> Run:
        """A run that the caller may read. Every call looks up its runs here."""
        run_id = self.run_id() if run_id is None else run_id
        try:
            run = self.here.find(run_id)
        except RequestError:
            run = None
        if run is None or not (run.id == self.identity.run_id or self.may_see(run.project)):
            raise not_found(f"Run with id={truncated(run_id)} not found")
        return run

    def known_run(self, run_id: str) -> str:
        """The id of a run, if it is one of this home that the caller may read: models may name runs of other
        servers."""
        try:
            return self.run(run_id).id if run_id else ""
        except MlflowError:
            return ""

    def own_run(self, run_id: str | None = None) -> Run:
        """A run that the caller may write to."""
        run = self.run(run_id)
        self.check_writes(run)
        return run

    def check_writes(self, run: Run) -> None:
        """Raises MlflowError when the caller may not write to the run."""
        own = self.identity.run_id
        if own is None:
            self.check_edits(run.project)
        elif run.id != own and self.here.store.labels(run.id).get(PARENT) != own:
            raise self._of_run_alone()

    def check_edits(self, *projects: str | None) -> None:
        """Raises MlflowError unless the caller may edit all these projects; None means something without a project. A
        run may not: it writes only to itself."""
        if self.identity.run_id is not None:
            raise self._of_run_alone()
        for project in projects:
            if not self.identity.has(Role.EDITOR, ALL if project is None else project):
                where = "" if project is None else f" in project {truncated(project)}"
                raise MlflowError(f"`{self.identity.name}` may not change this{where}", "PERMISSION_DENIED")

    def check_edits_one(self, projects: Collection[str | None]) -> None:
        """Raises MlflowError unless the caller may edit one of these projects, or is a run, which may add to what it
        sees."""
        mine = [self.identity.has(Role.EDITOR, ALL if project is None else project) for project in projects]
        if self.identity.run_id is None and not any(mine):
            raise MlflowError(f"`{self.identity.name}` may not add to this", "PERMISSION_DENIED")

    def check_edits_some(self) -> None:
        """Raises MlflowError for callers with read-only access."""
        if self.identity.run_id is None and self.identity.projects(Role.EDITOR) == frozenset():
            raise MlflowError(f"`{self.identity.name}` has read-only access", "PERMISSION_DENIED")

    def _of_run_alone(self) -> MlflowError:
        return MlflowError(f"the token of run {self.identity.run_id} may only write to that run", "PERMISSION_DENIED")


Handler = Callable[[Call], dict[str, Any]]


class CallHandler(NamedTuple):
    handler: Handler
    reads: bool


CALLS: dict[tuple[str, str], CallHandler] = {}


def call(method: str, path: str, *, reads: bool = False) -> Callable[[Handler], Handler]:
    """Register a call's handler. A `*` in the path matches one part. Calls that only read accept every token; all
    others check write access themselves with `own_run`, `check_writes` or `check_edits`."""

    def add(handler: Handler) -> Handler:
        CALLS[method, path] = CallHandler(handler, reads)
        return handler

    return add


def integer(found: Any, name: str) -> int:
    """Integers come as numbers or as strings: JSON numbers do not hold 64 bits."""
    try:
        is_whole = found.is_integer() if isinstance(found, float) else isinstance(found, int | str)
        if not is_whole or isinstance(found, bool):
            raise ValueError
        number = int(found)
    except (ValueError, TypeError, OverflowError):
        raise invalid(name, found, "expected an integer") from None
    if not -(2**63) <= number < 2**63:
        raise invalid(name, found, "it has more than 64 bits")
    return number


def number(found: Any, name: str) -> float:
    """A float as a JSON number or string, including `NaN`, `Infinity` and `-Infinity`."""
    try:
        if isinstance(found, bool) or not isinstance(found, int | float | str) or "_" in str(found):
            raise ValueError
        return float(found)
    except (ValueError, OverflowError):
        raise MlflowError(f"Got invalid value {truncated(found)} for '{name}': expected a number") from None


def milliseconds(seconds: float | None) -> int:
    return 0 if seconds is None or not math.isfinite(seconds) else round(seconds * 1000)


def now_ms() -> int:
    return round(time.time() * 1000)


def page(call: Call, largest: int, usual: int) -> tuple[int, int]:
    """The page size, and how many results to skip."""
    most = call.integer("max_results", usual)
    if not 0 < most <= largest:
        raise invalid("max_results", most, f"expected 1 to {largest}")
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
