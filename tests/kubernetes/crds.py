"""Definitions of Kubeflow's kinds for an API server, made from the models of the packages that PyPI has."""

from __future__ import annotations

from functools import cache
from typing import Any

ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
PRIMITIVES = {"str": "string", "int": "integer", "bool": "boolean", "float": "number", "datetime": "string"}
QUANTITIES = {"limits", "requests", "overhead", "capacity"}
KINDS = ("TFJob", "PyTorchJob", "XGBoostJob", "JAXJob", "PaddleJob")
GROUP = "kubeflow.org"


def definitions(mpi_version: str) -> list[dict[str, Any]]:
    """Of all kinds: those of training-operator 1.9, MPIJob of the version asked for, and MXJob as 1.8 still had it."""
    found = [_definition(kind, "v1", _of_model(f"KubeflowOrgV1{kind}")) for kind in KINDS]
    mpi = _of_model("KubeflowOrgV1MPIJob") if mpi_version == "v1" else _by_hand("mpiReplicaSpecs", MPI_FIELDS)
    return [
        *found,
        _definition("MPIJob", mpi_version, mpi),
        _definition("MXJob", "v1", _by_hand("mxReplicaSpecs", MX_FIELDS)),
    ]


MPI_FIELDS: dict[str, Any] = {
    "slotsPerWorker": {"type": "integer"},
    "sshAuthMountPath": {"type": "string"},
    "mpiImplementation": {"type": "string", "enum": ["OpenMPI", "Intel", "MPICH"]},
    "launcherCreationPolicy": {"type": "string", "enum": ["AtStartup", "WaitForWorkersReady"]},
    "runLauncherAsWorker": {"type": "boolean"},
}
MX_FIELDS: dict[str, Any] = {"jobMode": {"type": "string"}}


def _definition(kind: str, version: str, schema: dict[str, Any]) -> dict[str, Any]:
    plural = kind.lower() + "s"
    schema["properties"]["metadata"] = {"type": "object"}
    schema["properties"]["status"] = ANYTHING
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [served]},
    }


def _by_hand(replicas: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Of a kind that no package has a model of; what is in a replica and in its policy they have."""
    spec = {
        **fields,
        "runPolicy": _of_type("KubeflowOrgV1RunPolicy"),
        replicas: {"type": "object", "additionalProperties": _of_type("KubeflowOrgV1ReplicaSpec")},
    }
    top = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    return {
        "type": "object",
        "properties": {**top, "spec": {"type": "object", "properties": spec, "required": [replicas]}},
    }


def _of_model(name: str) -> dict[str, Any]:
    found = _of_type(name)
    return {**found, "properties": dict(found["properties"])}


@cache
def _of_type(name: str, field: str = "") -> dict[str, Any]:
    """The schema of a type as the models name it: `str`, `list[V1Container]`, `dict(str, str)`, …"""
    import kubeflow.training.models as kubeflow
    import kubernetes.client.models as core

    if name.startswith("dict("):
        inner = name[5:-1].split(",", 1)[1].strip()
        values = {"x-kubernetes-int-or-string": True} if field in QUANTITIES else _of_type(inner)
        return {"type": "object", "additionalProperties": values}
    if name.startswith("list["):
        return {"type": "array", "items": _of_type(name[5:-1])}
    if name in PRIMITIVES:
        return {"type": PRIMITIVES[name]}
    if name == "object":
        return {"x-kubernetes-preserve-unknown-fields": True}
    model = getattr(kubeflow, name, None) or getattr(core, name, None)
    if model is None or name in ("V1ObjectMeta", "V1ListMeta"):
        return ANYTHING
    fields = {json: _of_type(model.openapi_types[attribute], json) for attribute, json in model.attribute_map.items()}
    required = sorted(json for attribute, json in model.attribute_map.items() if _is_required(model, attribute))
    return {"type": "object", "properties": fields, **({"required": required} if required else {})}


def _is_required(model: Any, attribute: str) -> bool:
    """The models refuse to have nothing there."""
    from kubernetes.client import Configuration

    bare = model.__new__(model)
    bare.local_vars_configuration = Configuration()
    try:
        setattr(bare, attribute, None)
    except ValueError:
        return True
    return False
