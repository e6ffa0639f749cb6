"""What a cluster would say of objects, asked without one: strict schemas of Kubernetes and Kubeflow, the *restricted*
pod security standard, and the rules between objects that no schema has."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from phalanx.backends.kubernetes.target import RUN
from phalanx.plan.document import is_secret
from tests.backends.kubernetes.operator_objects import templates_of

OLDEST, NEWEST = "1.25", "1.37"
VERSIONS = tuple(f"1.{minor}" for minor in range(25, 38))
CORE = ("v1", "batch/v1")
MOST_BYTES = 256 << 10  # of an object that a client-side `kubectl apply` takes
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?\Z")
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?\Z")
_VARIABLE = re.compile(r"[-._A-Za-z][-._A-Za-z0-9]*\Z")
_PRIMITIVES = {"str": str, "int": int, "bool": bool, "float": (int, float), "datetime": str, "object": object}
_OPERATED = {  # of kinds whose models are on PyPI
    "TFJob": "KubeflowOrgV1TFJob",
    "PyTorchJob": "KubeflowOrgV1PyTorchJob",
    "XGBoostJob": "KubeflowOrgV1XGBoostJob",
    "JAXJob": "KubeflowOrgV1JAXJob",
    "MPIJob": "KubeflowOrgV1MPIJob",
}
# Kinds that no package has a model of, as far as we use them: the fields of their specs.
_RUN_POLICY = {
    "cleanPodPolicy",
    "ttlSecondsAfterFinished",
    "activeDeadlineSeconds",
    "backoffLimit",
    "schedulingPolicy",
    "suspend",
    "managedBy",
}
_BY_HAND: dict[tuple[str, str], dict[str, Any]] = {
    ("kubeflow.org/v2beta1", "MPIJob"): {
        "fields": {
            "slotsPerWorker",
            "runLauncherAsWorker",
            "sshAuthMountPath",
            "launcherCreationPolicy",
            "mpiImplementation",
        },
        "replicas": ("mpiReplicaSpecs", {"Launcher", "Worker"}),
    },
    ("kubeflow.org/v1", "MXJob"): {
        "fields": {"jobMode"},
        "replicas": ("mxReplicaSpecs", {"Scheduler", "Server", "Worker"}),
    },
}
_POD_GROUPS = {
    "scheduling.volcano.sh/v1beta1": {"minMember", "minResources", "queue", "priorityClassName", "minTaskMember"},
    "scheduling.x-k8s.io/v1alpha1": {"minMember", "minResources", "scheduleTimeoutSeconds"},
}


def faults_of(objects: Sequence[Mapping[str, Any]], version: str = NEWEST) -> list[str]:
    """Everything that is wrong with the objects of a run."""
    found: list[str] = []
    for one in objects:
        where = f"{one.get('kind')} {one.get('metadata', {}).get('name')}"
        found += [f"{where}: {fault}" for fault in (*_schema(one, version), *_metadata(one), *_size(one))]
        for template in templates_of(one):
            found += [f"{where}: {fault}" for fault in (*_pod(template), *restricted(template))]
    found += _between(objects)
    return found


def validate(one: Mapping[str, Any], version: str) -> None:
    """An object of Kubernetes' own, as `kubernetes_validate.validate` does it strictly, many times as fast."""
    faults = list(_validated(one, version))
    assert not faults, f"{one['kind']} {one['metadata'].get('name')}: {faults}"


# schemas -------------------------------------------------------------------------------------------------------------


def _schema(one: Mapping[str, Any], version: str) -> Iterator[str]:
    api, kind = one["apiVersion"], one["kind"]
    if api in CORE:
        yield from _validated(one, version)
    elif api == "trainer.kubeflow.org/v1alpha1":
        yield from _train_job(one)
    elif (api, kind) in _BY_HAND:
        yield from _operated_by_hand(one, version, **_BY_HAND[api, kind])
    elif api == "kubeflow.org/v1" and kind in _OPERATED:
        yield from _modelled(one, _OPERATED[kind], "")
        yield from _templates(one, version)
    elif kind == "PodGroup" and api in _POD_GROUPS:
        yield from _unknown(one["spec"], _POD_GROUPS[api], "spec")
    else:
        yield f"nobody knows {api} {kind}"


def _validated(one: Mapping[str, Any], version: str) -> Iterator[str]:
    for fault in _validator(version, one["apiVersion"], one["kind"]).iter_errors(one):
        path = ".".join(map(str, fault.path))
        yield f"{path}: {fault.message[:300]}"


@cache
def _validator(version: str, api: str, kind: str) -> Draft202012Validator:
    """As `kubernetes_validate.validate` makes it, which reads all definitions of a release each time."""
    folder = f"kubernetes-json-schema/v{version}.0-local-strict"
    group, _, release = api.rpartition("/")
    name = "-".join(filter(None, (kind.lower(), group.partition(".")[0], release)))
    schema = schema_contents(f"{folder}/{name}.json", version)
    registry = Resource.from_contents(schema) @ (_definitions(folder, version) @ Registry())
    return Draft202012Validator(schema, registry=registry)


@cache
def _definitions(folder: str, version: str) -> Resource[Any]:
    return Resource.from_contents(schema_contents(f"{folder}/_definitions.json", version))


def _templates(one: Mapping[str, Any], version: str) -> Iterator[str]:
    """The pod templates of a kind that Kubernetes does not know, by its own schema: inside a Job."""
    for template in templates_of(one):
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"template": template}}
        yield from _validated(job, version)


def _operated_by_hand(
    one: Mapping[str, Any], version: str, fields: set[str], replicas: tuple[str, set[str]]
) -> Iterator[str]:
    where, roles = replicas
    yield from _unknown(one["spec"], {*fields, "runPolicy", where}, "spec")
    yield from _unknown(one["spec"].get("runPolicy", {}), _RUN_POLICY, "spec.runPolicy")
    yield from _unknown(one["spec"][where], roles, f"spec.{where}")
    for role, entry in one["spec"][where].items():
        yield from _unknown(entry, {"replicas", "restartPolicy", "template"}, f"spec.{where}.{role}")
    yield from _templates(one, version)


def _unknown(value: Mapping[str, Any], known: Iterable[str], where: str) -> Iterator[str]:
    yield from (f"{where}: there is no `{name}`" for name in value if name not in set(known))


@cache
def _model(name: str) -> Any:
    for module in ("kubeflow.training.models", "kubernetes.client.models"):
        found = getattr(importlib.import_module(module), name, None)
        if found is not None:
            return found
    return None


def _modelled(value: Any, type_name: str, where: str) -> Iterator[str]:
    """A value by the type that a generated client gives it, all the way down."""
    inner = type_name[5:-1].split(",", 1)[-1].strip()
    if type_name.startswith("dict("):
        if not isinstance(value, dict):
            yield f"{where}: not an object"
            return
        for key, item in value.items():
            yield from _modelled(item, inner, f"{where}.{key}")
    elif type_name.startswith("list["):
        if not isinstance(value, list):
            yield f"{where}: not a list"
            return
        for number, item in enumerate(value):
            yield from _modelled(item, inner, f"{where}.{number}")
    elif type_name in _PRIMITIVES:
        if not isinstance(value, _PRIMITIVES[type_name]):  # type: ignore[arg-type]
            yield f"{where}: not of type {type_name}"
    elif (model := _model(type_name)) is not None:
        yield from _fields(value, model, where)


def _fields(value: Any, model: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: not an object"
        return
    types = {model.attribute_map[name]: kind for name, kind in model.openapi_types.items()}
    for name, item in value.items():
        if name not in types:
            yield f"{where}: there is no `{name}`"
        else:
            yield from _modelled(item, types[name], f"{where}.{name}")


def _train_job(one: Mapping[str, Any]) -> Iterator[str]:
    from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob

    try:
        read = TrainerV1alpha1TrainJob.from_dict(dict(one))
    except ValueError as fault:
        yield str(fault)[:500]
        return
    assert read is not None
    kept = json.loads(read.to_json())
    yield from _lost(one, kept, "")


def _lost(given: Any, kept: Any, where: str) -> Iterator[str]:
    """Fields that a model dropped in silence."""
    if isinstance(given, Mapping) and isinstance(kept, Mapping):
        for name, value in given.items():
            if name not in kept:
                yield f"{where}: there is no `{name}`"
            else:
                yield from _lost(value, kept[name], f"{where}.{name}")
    elif isinstance(given, list) and isinstance(kept, list):
        for number, (one, other) in enumerate(zip(given, kept, strict=False)):
            yield from _lost(one, other, f"{where}.{number}")


# what schemas do not say ---------------------------------------------------------------------------------------------


def _metadata(one: Mapping[str, Any]) -> Iterator[str]:
    metadata = one["metadata"]
    if len(metadata["name"]) > 63 or not _NAME.match(metadata["name"]):
        yield f"its name {metadata['name']!r} is not valid"
    for template in ({"metadata": metadata}, *templates_of(one)):
        labels = template.get("metadata", {}).get("labels", {})
        yield from (
            f"the label {key}={value!r} is not valid" for key, value in labels.items() if not _is_label(key, value)
        )
        annotations = template.get("metadata", {}).get("annotations", {})
        yield from (f"the annotation {key!r} is not valid" for key in annotations if not _is_label(key, ""))
    if RUN not in metadata.get("labels", {}):
        yield f"it has no label {RUN}"


def _is_label(key: str, value: str) -> bool:
    prefix, _, name = key.rpartition("/")
    is_prefix = not prefix or (len(prefix) <= 253 and all(_NAME.match(part) for part in prefix.split(".")))
    return bool(
        is_prefix and len(name) <= 63 and _LABEL_NAME.match(name) and len(value) <= 63 and _LABEL_VALUE.match(value)
    )


def _size(one: Mapping[str, Any]) -> Iterator[str]:
    size = len(json.dumps(one))
    if size > MOST_BYTES:
        yield f"it has {size:,} bytes"


def _pod(template: Mapping[str, Any]) -> Iterator[str]:
    spec = template["spec"]
    volumes = [volume["name"] for volume in spec.get("volumes", [])]
    if len(set(volumes)) != len(volumes):
        yield f"volumes twice: {volumes}"
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    if len({one["name"] for one in containers}) != len(containers):
        yield "containers twice"
    for name in (*volumes, *(one["name"] for one in containers)):
        if len(name) > 63 or not _NAME.match(name):
            yield f"the name {name!r} is not valid"
    for one in containers:
        mounts = one.get("volumeMounts", [])
        yield from (
            f"{one['name']} mounts {mount['name']}, which is not there"
            for mount in mounts
            if mount["name"] not in volumes
        )
        paths = [mount["mountPath"] for mount in mounts]
        yield from (f"{one['name']} has two mounts at {path}" for path in paths if paths.count(path) > 1)
        variables = [entry["name"] for entry in one.get("env", [])]
        yield from (f"the variable {name!r} is not valid" for name in variables if not _VARIABLE.match(name))
        yield from (f"the variable {name} is there twice" for name in set(variables) if variables.count(name) > 1)
        yield from (
            f"the value of {entry['name']} is to be seen"
            for entry in one.get("env", [])
            if is_secret(entry["name"]) and entry.get("value")
        )
    for key in ("hostname", "subdomain"):
        if key in spec and (len(spec[key]) > 63 or not _NAME.match(spec[key])):
            yield f"the {key} {spec[key]!r} is not valid"


def restricted(template: Mapping[str, Any]) -> Iterator[str]:
    """What the *restricted* pod security standard forbids."""
    spec = template["spec"]
    pod = spec.get("securityContext", {})
    yield from (f"{name} is not allowed" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name))
    for volume in spec.get("volumes", []):
        kinds = set(volume) - {"name"}
        allowed = {
            "configMap",
            "csi",
            "downwardAPI",
            "emptyDir",
            "ephemeral",
            "persistentVolumeClaim",
            "projected",
            "secret",
        }
        yield from (f"a volume of {kind} is not allowed" for kind in kinds - allowed)
    for one in (*spec.get("initContainers", []), *spec["containers"]):
        own = one.get("securityContext", {})
        name = one["name"]
        if own.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: allowPrivilegeEscalation must be false"
        if own.get("privileged"):
            yield f"{name}: privileged"
        if "ALL" not in own.get("capabilities", {}).get("drop", []):
            yield f"{name}: capabilities must be dropped"
        if set(own.get("capabilities", {}).get("add", [])) - {"NET_BIND_SERVICE"}:
            yield f"{name}: capabilities are added"
        if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
            yield f"{name}: runAsNonRoot must be true"
        if own.get("runAsUser", pod.get("runAsUser")) == 0:
            yield f"{name}: runAsUser is 0"
        if own.get("seccompProfile", pod.get("seccompProfile", {})).get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"{name}: no seccomp profile"


def _between(objects: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    keys = [(one["kind"], one["metadata"]["name"]) for one in objects]
    yield from (f"{kind} {name} is there twice" for kind, name in set(keys) if keys.count((kind, name)) > 1)
    services = [one for one in objects if one["kind"] == "Service"]
    templates = [template for one in objects for template in templates_of(one)]
    for service in services:
        selector = service["spec"]["selector"]
        chosen = [one for one in templates if selector.items() <= one.get("metadata", {}).get("labels", {}).items()]
        if not chosen:
            yield f"the service {service['metadata']['name']} selects no pod"
    for template in templates:
        wanted = template["spec"].get("subdomain")
        if wanted is not None and wanted not in {service["metadata"]["name"] for service in services}:
            yield f"there is no service {wanted}"


def secrets_outside(objects: Iterable[Mapping[str, Any]], values: Iterable[str]) -> Iterator[str]:
    """Values that are to be seen anywhere but in a Secret."""
    for one in objects:
        if one["kind"] != "Secret":
            text = json.dumps(one, ensure_ascii=False)
            yield from (f"{one['kind']} shows {value!r}" for value in values if value in text)
