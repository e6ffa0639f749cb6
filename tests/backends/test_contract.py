"""The contract of backends itself: how much of it an implementer must write, and that every backend is one."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from phalanx import backends
from phalanx.backends.contract import Backend, Engine, EngineUnavailable, Job, Observation
from phalanx.errors import CallError, PhalanxError, SystemFault

MOST_METHODS = 6


def test_at_most_six_methods_must_be_written() -> None:
    assert len(Backend.__abstractmethods__ | Engine.__abstractmethods__) <= MOST_METHODS


@pytest.mark.parametrize("kind", [Backend, Engine])
def test_every_method_that_must_be_written_says_what_it_raises(kind: type) -> None:
    for name in kind.__abstractmethods__:  # type: ignore[attr-defined]
        assert "Raises" in (inspect.getdoc(getattr(kind, name)) or ""), name


@pytest.mark.parametrize("name", backends.names())
def test_every_installed_backend_is_found_by_its_own_name(name: str) -> None:
    assert backends.find(name).name == name


def test_an_unknown_backend_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(CallError, match=r"no backend `nowhere` is installed; installed: .*slurm"):
        backends.find("nowhere")


class FaultyEngine(Engine):
    name = "faulty"

    def __init__(self, fault: PhalanxError) -> None:
        self.fault = fault

    def preflight(self, environment: Any) -> None:
        raise self.fault

    def submit(self, *_: Any, **__: Any) -> str:
        raise self.fault

    def observe(self, handles: Collection[str]) -> dict[str, Observation]:
        raise self.fault

    def cancel(self, handles: Collection[str]) -> None:
        raise self.fault


class FaultyBackend(Backend):
    """One of another package that writes only what it must."""

    name = "faulty"

    def __init__(self, fault: PhalanxError) -> None:
        self.fault = fault

    def render(self, plan: Any, target: Any = None) -> Job:
        return Job({}, start="")

    def engine(self, target: Any, connections: Any) -> Engine:
        return FaultyEngine(self.fault)


@pytest.mark.parametrize("fault", [CallError("no"), EngineUnavailable("no"), SystemFault("no", transient=False)])
def test_a_diagnosis_reports_every_fault_of_the_engine(fault: PhalanxError, tmp_path: Path) -> None:
    assert FaultyBackend(fault).diagnose(tmp_path, {}, {}).problems == ["no"]


def test_what_a_batch_job_holds_is_known_of_its_backend() -> None:
    assert [name for name in backends.names() if backends.is_batch(name)] == ["slurm"]
    assert not backends.is_batch("native")
    assert not backends.is_batch("no longer installed")
