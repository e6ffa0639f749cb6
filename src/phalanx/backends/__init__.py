"""Plan to Job: text that a person can read, edit and submit without us.

A backend is a module of this package named in the entry points `phalanx.backends`, or another package's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from phalanx.backends.engines import Engine
from phalanx.errors import CallError
from phalanx.plan.model import Plan
from phalanx.sites.model import Site


@dataclass(frozen=True)
class Job:
    """A plan rendered for one backend: the files of a folder, by their paths in it.

    `shown` is the file that says it all by itself, if one does; `start` tells the person how to go on. Beside a job
    that carries the agent belong `job/agent.pyz` and `job/tracking.zip`.
    """

    files: Mapping[str, str]
    start: str
    shown: str | None = None
    carries_agent: bool = False


class Backend(Protocol):
    def render(self, plan: Plan, site: Site | None = None) -> Job:
        """The job of a plan, at a site where one is known. Pure: no file is written and nothing is asked of the
        machine. Raises CallError for what the backend cannot place."""

    def engine(self, site: Site | None = None) -> Engine | None:
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
