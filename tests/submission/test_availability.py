"""Engines, also those of other packages, are asked before anything of a run is written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from phalanx import backends
from phalanx.backends.contract import Backend, Engine, Job, Observation
from phalanx.errors import CallError
from phalanx.store import Run
from phalanx.submission.checks import check_runnable
from phalanx.submission.clone import clone
from phalanx.submission.resume import request_resume
from phalanx.submission.submit import submit
from tests.scheduler.working import Works
from tests.submission.samples import submission_of

FAR = submission_of(environment={"CLUSTER": "far"}, on="elsewhere")


class Away(Engine):
    """An engine that takes nothing from here."""

    name = "elsewhere"

    def submit(self, *_: Any, **__: Any) -> str:
        raise AssertionError("nothing is submitted")

    def observe(self, handles: Collection[str]) -> dict[str, Observation]:
        return {}

    def cancel(self, handles: Collection[str]) -> None: ...

    def preflight(self, environment: Mapping[str, str]) -> None:
        raise CallError(f"the gate of {environment['CLUSTER']} is closed")


class Elsewhere(Backend):
    """A backend of another package."""

    name = "elsewhere"

    def render(self, plan: Any, target: Any = None) -> Job:
        return Job({}, start="")

    def engine(self, target: Any, connections: Any) -> Any:
        return Away()


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "find", lambda name: Elsewhere())
    monkeypatch.setattr(backends, "names", lambda: ("elsewhere",))


def files(works: Works) -> set[Path]:
    return {path for path in works.home.path.rglob("*") if not path.name.startswith("phalanx.db")}


def over(works: Works) -> Run:
    """A run that is over, and that was there."""
    run = submit(works.home, works.store, submission_of())
    return run._replace(backend="elsewhere", status="succeeded")


def test_it_is_asked_before_anything_is_built_or_judged(works: Works) -> None:
    before = files(works)
    with pytest.raises(CallError, match="the gate of far is closed"):
        check_runnable(works.home.path, FAR)
    assert files(works) == before


def test_it_is_asked_by_every_submission(works: Works) -> None:
    before = files(works)
    with pytest.raises(CallError, match="the gate of far is closed"):
        submit(works.home, works.store, FAR)
    assert files(works) == before
    assert works.store.ids() == set()


def test_it_is_asked_before_a_run_is_repeated_or_goes_on(works: Works) -> None:
    run = over(works)
    before = files(works)
    for cloning in ("restart", "copy", "rerun"):
        with pytest.raises(CallError, match="the gate of far is closed"):
            clone(works.home, works.store, run, cloning, {"CLUSTER": "far"})
    with pytest.raises(CallError, match="the gate of far is closed"):
        request_resume(works.home, run, {"CLUSTER": "far"})
    assert files(works) == before
    assert works.home.asked_to_resume() == []
