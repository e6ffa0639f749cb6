"""Requests to change a group: one rule for the command line, the server and Python. The scheduler takes them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from phalanx.errors import CallError
from phalanx.home.group_folder import GroupFolder
from phalanx.home.home import Home
from phalanx.spec import Kind
from phalanx.spec.model import thaw
from phalanx.store import Run
from phalanx.submission.clone import spec_of
from phalanx.submission.resume import queue_resume, request_resume
from phalanx.tune.space import Dimension

MOST_CONCURRENT = 100_000
MOST_TRIALS = 10_000_000
LONGEST_VALUE = 10_000
LARGEST = sys.float_info.max
WITHOUT_N = ("pbt",)  # its population does not grow
OF_ACTIVE = ("pause", "concurrency", "finish")  # a group that has ended cannot do these


class InvalidRequest(CallError):
    """A request that no group could carry out."""


class GroupRequests:
    """What users may ask of a group. `environment`: for trials of a group that had ended; `by`: who asks. Every method
    raises CallError for what cannot be done, and OSError."""

    def __init__(self, home: Home, group: Run, environment: Mapping[str, str], by: str = "its user") -> None:
        require_group(group)
        self.home, self.group, self.environment, self.by = home, group, environment, by
        self.folder = GroupFolder(home.run(group.id).path)

    def pause(self) -> None:
        """Start no more trials. Those that run go on."""
        self._ask("pause")

    def resume(self) -> None:
        """Continue after a pause. A group that has ended runs what failed or was stopped again, and goes on."""
        if self.group.is_done:
            request_resume(self.home, self.group, self.environment, self.by)
        else:
            self._ask("continue")

    def finish(self) -> None:
        """Start no more trials, and end when those that run have ended."""
        self._ask("finish")

    def set_concurrency(self, n: Any) -> None:
        """How many trials run at a time."""
        self._ask("concurrency", n=_whole("concurrency", n, MOST_CONCURRENT))

    def extend(self, n: Any) -> None:
        """The number of trials in total, also of a group that has ended."""
        total = _whole("n", n, MOST_TRIALS)
        search = spec_of(self.home, self.group).search
        if search is not None and search.algorithm in WITHOUT_N:
            raise CallError(f"the population of {search.algorithm} does not grow: start another group")
        self._ask("extend", n=total)

    def add(self, params: Any) -> None:
        """Try a point in addition to those of the search. Params that it leaves out are drawn at random."""
        if not isinstance(params, Mapping) or not params:
            raise InvalidRequest("`params` must name at least one param of the matrix and its value")
        search = spec_of(self.home, self.group).search
        dimensions = {dimension.name: dimension for dimension in search.matrix} if search is not None else {}
        for name, value in params.items():
            if name not in dimensions:
                known = ", ".join(dimensions)
                raise InvalidRequest(f"`{str(name)[:100]}` is not in the matrix of the group: write {known}")
            _check_value(dimensions[name], value)
        self._ask("add", params=dict(params))

    def are_taken(self) -> bool:
        """Whether a scheduler has taken all requests."""
        return not self.folder.requests() and self.group.id not in self.home.asked_to_resume()

    def _ask(self, what: str, **fields: Any) -> None:
        group = self.group
        if not group.is_done:
            self.folder.ask(what, by=self.by, **fields)
            return
        if what in OF_ACTIVE:
            raise CallError(f"group {group.id} has ended: {group.status}: {group.reason}")
        name = self.folder.ask(what, by=self.by, **fields)
        try:
            queue_resume(self.home, group, self.environment, self.by)
        except CallError:
            self.folder.forget_request(name)
            raise


def require_group(run: Run) -> None:
    """Raises CallError for a run that is no group."""
    if run.kind != Kind.GROUP:
        raise CallError(f"run {run.id} is not a group: its kind is {run.kind}")


def _whole(name: str, found: Any, most: int) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= most:
        raise InvalidRequest(f"`{name}` must be a whole number from 1 to {most:,}")
    return found


def _check_value(dimension: Dimension, value: Any) -> None:
    """A value may lie outside of the matrix, but has to be of its kind. Raises CallError."""
    is_text, is_number = isinstance(value, str), isinstance(value, int | float) and abs(value) <= LARGEST
    if dimension.values is None:
        if not is_number or isinstance(value, bool):
            raise InvalidRequest(f"`{dimension.name}` must be a number: the matrix draws it from {dimension.kind}")
    elif not (is_number or (is_text and len(value) <= LONGEST_VALUE) or value in thaw(dimension.values)):
        most = f"a text of up to {LONGEST_VALUE:,} characters"
        raise InvalidRequest(f"`{dimension.name}` must be a value of the matrix, a number, true, false, or {most}")
