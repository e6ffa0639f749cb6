"""Plan to Job: text that a person can read, edit and submit without us.

A backend is a module of this package named in the entry points `phalanx.backends`, or another package's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from phalanx.backends.engines import Engine
from phalanx.errors import CallError
from phalanx.plan.model import Plan

NO_OPTIONS: Mapping[str, str | None] = MappingProxyType({})


@dataclass(frozen=True)
class Job:
    """A plan rendered for one backend: the files of a folder, by their paths in it.

    `shown` is the file that says it all by itself, if one does; `start` tells the person how to go on. Beside a job
    that carries the agent belong `job/agent.pyz` and `job/tracking.zip`. `completed`, of one that goes where no folder
    of ours is, gives it with all of that inside, and with an archive of the code where it takes one.
    """

    files: Mapping[str, str]
    start: str
    shown: str | None = None
    carries_agent: bool = False
    takes_code: bool = False
    completed: Callable[[bytes | None], Job] | None = None


class Backend(Protocol):
    shares_files: bool  # whether its replicas see the folders of this home

    def place(
        self, home: Path, plan: Plan | None = None, *, options: Mapping[str, str | None] = NO_OPTIONS, ask: bool = False
    ) -> Any:
        """What is known of where its jobs go, for `render` and `engine`: the profile of a site, or a cluster's offer.
        `options`: as the command line names it; `ask`: the place itself may be asked. Raises CallError."""

    def place_of(self, home: Path, run_folder: Path) -> Any:
        """The same for a run that was rendered before."""

    def render(self, plan: Plan, place: Any = None) -> Job:
        """The job of a plan, at a place where one is known. Pure: no file is written and nothing is asked of the
        machine. Raises CallError for what the backend cannot place."""

    def engine(self, place: Any = None) -> Engine | None:
        """Who runs such jobs; None for a backend whose replicas are processes of this machine."""


def names() -> tuple[str, ...]:
    from importlib.metadata import entry_points

    return tuple(sorted(point.name for point in entry_points(group="phalanx.backends")))


def find(name: str) -> Backend:
    """The backend of that name. Raises CallError when none is installed."""
    from importlib.metadata import entry_points

    points = list(entry_points(group="phalanx.backends", name=name))
    if not points:
        raise CallError(f"no backend `{name}` is installed; there is: {', '.join(names())}")
    backend: Backend = points[0].load()
    return backend
