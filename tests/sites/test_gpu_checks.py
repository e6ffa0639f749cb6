"""GPUs that a run cannot use."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx import plan, spec
from phalanx.plan import Plan
from phalanx.sites.findings import ADVICE
from phalanx.sites.gpu_checks import idle_gpus
from tests.sites.making import resources, run


@pytest.mark.parametrize("package", ["tensorflow-cpu", "tensorflow_cpu>=2", "torch==2.4.0+cpu", "jax[cpu]"])
def test_a_package_without_gpu_support_is_named(package: str) -> None:
    (found,) = idle_gpus(run(python={"requirements": ["numpy", package]}, **resources(gpu=1)), None)
    assert (found.severity, found.path) == (ADVICE, "environment.python.requirements")
    assert found.message == f"GPUs are requested, but `{package}` cannot use one"
    assert "phalanx size --try gpu=0,1" in (found.suggestion or "")
    assert list(idle_gpus(run(python={"requirements": [package]}, **resources(cpu=1)), None)) == []


@pytest.mark.parametrize(
    "package", ["torch", "cpuinfo", "py-cpuinfo", "faiss-cpu-tools", "torch==2.4.0+cu121", "jax[cuda12]"]
)
def test_other_packages_are_fine(package: str) -> None:
    assert list(idle_gpus(run(python={"requirements": [package]}, **resources(gpu=1)), None)) == []


def test_a_parameter_server_needs_no_gpu() -> None:
    replicas = {"n_workers": 1, "n_ps": 1, "processes": 1, "default_worker": resources(gpu=1)}
    assert list(idle_gpus(tensorflow(replicas), None)) == []
    (found,) = idle_gpus(tensorflow({**replicas, "default_ps": resources(gpu=2)}), None)
    assert (found.severity, found.path) == (ADVICE, "environment.replicas.default_ps.resources.gpu")
    assert "GPUs are requested for a ps" in found.message


def tensorflow(replicas: dict[str, Any]) -> Plan:
    environment = {"replicas": replicas, **resources(gpu=1)}
    file = {"version": 1, "kind": "experiment", "framework": "tensorflow", "run": {"cmd": "true"}}
    return plan.make(spec.load_document("f.yml", {**file, "environment": environment}), "run")
