"""The contract of backends itself: how much of it an implementer must write, and that every backend is one."""

from __future__ import annotations

import inspect

import pytest

from phalanx import backends
from phalanx.backends.contract import Backend, Engine
from phalanx.errors import CallError

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
