"""Directives that repeat other fields of the file."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.sites.directive_checks import directive_findings
from phalanx.sites.findings import ADVICE, ERROR
from tests.sites.making import resources, run


def said(directives: dict[str, Any], **environment: Any) -> list[tuple[str, str, str]]:
    slurm = {**environment.pop("slurm", {}), "directives": directives}
    found = directive_findings(run(slurm=slurm, **environment), None)
    return [(one.severity, one.path, f"{one.message}; {one.suggestion}") for one in found]


@pytest.mark.parametrize("name", ["mem", "mem-per-cpu", "mem-per-gpu"])
def test_memory_is_requested_once(name: str) -> None:
    ((severity, path, text),) = said({name: "4G"}, **resources(cpu=1, memory="1Gi"))
    assert (severity, path) == (ERROR, f"environment.slurm.directives.{name}")
    assert "requested twice" in text
    assert "keep `environment.resources.memory`" in text
    assert said({name: "4G"}, **resources(cpu=1)) == []


def test_memory_of_different_replicas_is_requested_for_each() -> None:
    asked = run(1, worker=resources(cpu=4), slurm={"directives": {"mem": "4G"}}, **resources(cpu=1))
    (found,) = directive_findings(asked, None)
    assert (found.severity, found.path) == (ERROR, "environment.slurm.directives.mem")
    assert "each of the 2 kinds of replicas" in found.message


@pytest.mark.parametrize(("name", "value"), [("gres", "gpu:a100:2"), ("gpus-per-node", "a100:2"), ("gpus", "a100:2")])
def test_gpus_are_requested_once(name: str, value: str) -> None:
    ((severity, path, text),) = said({name: value}, **resources(gpu=2))
    assert (severity, path) == (ERROR, f"environment.slurm.directives.{name}")
    assert "keep `environment.resources.gpu`, and name the type with `environment.slurm.gpu_type: a100`" in text
    ((severity, _, text),) = said({name: value})
    assert severity == ADVICE
    assert "`environment.resources: {gpu: {requests: 1}}`" in text


def test_other_resources_than_gpus_are_fine() -> None:
    assert said({"gres": "lustre:1", "mail-type": "END", "exclusive": True}, **resources(gpu=1, memory="1Gi")) == []


@pytest.mark.parametrize(
    ("directives", "environment", "path"),
    [
        ({"time": "30"}, {"timeout": "1h"}, "environment.timeout"),
        ({"time": "30"}, {"slurm": {"segment": "1h"}}, "environment.slurm.segment"),
        ({"qos": "a"}, {"slurm": {"qos": "b"}}, "environment.slurm.qos"),
    ],
)
def test_a_directive_that_overrides_a_field_is_reported(
    directives: dict[str, Any], environment: dict[str, Any], path: str
) -> None:
    ((severity, _, text),) = said(directives, **environment)
    assert severity == ADVICE
    assert f"overrides `{path}`; keep `{path}` only" in text
    assert said(directives) == []
