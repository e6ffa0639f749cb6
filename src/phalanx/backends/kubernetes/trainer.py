"""TrainJobs of Kubeflow Trainer: pods as a runtime of the cluster has them, with our command and what we lay over.

A TrainJob can lay over less than a template can say: no containers, no steps before the start, no variables from
whole Secrets. So the container itself unpacks the code, secret variables are named one by one, and the rest is an error
that says what.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from phalanx.backends.kubernetes import names, operators, pods
from phalanx.backends.kubernetes.mpijobs import is_mpi
from phalanx.backends.kubernetes.operators import NATIVELY, Order
from phalanx.backends.kubernetes.place import DOMAIN, JOB_AT
from phalanx.errors import CallError
from phalanx.plan.model import Replica

RUNTIMES: Mapping[str, str | None] = MappingProxyType(  # what Trainer itself ships; for plain MPI there is none
    {
        "pytorch": "torch-distributed", "deepspeed": "torch-distributed", "jax": "jax-distributed",
        "xgboost": "xgboost-distributed", "mpi": None, "horovod": None,
    }
)  # fmt: skip
MANAGER = f"{DOMAIN}/phalanx"
NODE, LAUNCHER = "node", "launcher"  # Trainer's names of the jobs in a runtime
TOKEN = "PHALANX_RUN_TOKEN"  # noqa: S105 - the name of a variable
_LAID_OVER = (
    "affinity", "imagePullSecrets", "nodeSelector", "schedulingGates", "securityContext", "serviceAccountName",
    "terminationGracePeriodSeconds", "tolerations", "volumes",
)  # fmt: skip
_COUNTED = ("pytorch", "deepspeed", "mpi", "horovod")  # runtimes of others count devices themselves
_OF_CONTAINER = ("name", "securityContext", "volumeMounts")
_ELSEWHERE = ("command", "args", "env", "envFrom", "image", "resources", "ports")
_OURS: Mapping[str, Any] = MappingProxyType({"automountServiceAccountToken": False, "enableServiceLinks": False})
_BOTH = f'/bin/sh {JOB_AT}/start.sh prepare && exec /bin/sh {JOB_AT}/start.sh run "$@"'


def job(order: Order) -> dict[str, Any]:
    """Raises CallError for what a TrainJob cannot express."""
    made, known = order.made, order.known
    replicas = [replica for replica in made.replicas if not replica.local]
    operators.alike(known, NODE, replicas)
    by_launcher = is_mpi(made)  # the first replica is both launcher and node, where the runtime says so
    template = operators.template(order, replicas[:1] if by_launcher else replicas, is_counted=False)
    main = operators.main_of(template, known)
    faults = [*_faults(order, template, main)]
    if faults:
        raise CallError(f"a TrainJob cannot express this ({'; '.join(faults)}): leave it out; or {NATIVELY}")
    spec: dict[str, Any] = {
        "runtimeRef": {"apiGroup": known.group, "kind": "ClusterTrainingRuntime", "name": _runtime(order)},
        "trainer": {
            "numNodes": len(replicas),
            "image": main["image"],
            "command": _command(template, main),
            "args": main["args"],
            "env": [*main["env"], *_secrets(order)],
        },
        "runtimePatches": [_patch(order, {LAUNCHER if by_launcher else NODE: template, **_hosts(order, replicas)})],
    }
    if made.wiring in _COUNTED:
        spec["trainer"]["numProcPerNode"] = operators.processes(made)
    if main.get("resources"):
        spec["trainer"]["resourcesPerNode"] = main["resources"]
    if made.timeout_s is not None:
        spec["activeDeadlineSeconds"] = operators.deadline_s(made)
    return {
        "apiVersion": known.api_version,
        "kind": known.kind,
        "metadata": operators.metadata(order),
        "spec": spec,
    }


def _runtime(order: Order) -> str:
    made, there = order.made, order.place.cluster.runtimes
    name = made.kubernetes.runtime or RUNTIMES.get(made.wiring or "")
    listed = ", ".join(there) or "none that we know of"
    if name is None:
        what = "for MPI" if is_mpi(made) else f"for `framework: {made.wiring}`"
        raise CallError(
            f"Trainer has no runtime of its own {what}: name one of the cluster's in `environment.kubernetes.runtime` "
            f"({listed}); or {NATIVELY}"
        )
    if there and name not in there:
        raise CallError(f"there is no runtime `{name[:60]}` on this cluster, but: {listed}; or {NATIVELY}")
    return name


def _faults(order: Order, template: Mapping[str, Any], main: Mapping[str, Any]) -> Iterator[str]:
    spec = template["spec"]
    if any(step["name"] == pods.FETCH for step in spec.get("initContainers", ())):
        yield "code from git: `code: bundle`, `volume` or `image` can be"
    for key in ("containers", "initContainers"):
        known = (main["name"], pods.FETCH, pods.PREPARE)
        yield from (f"the container `{each['name']}`" for each in spec.get(key, ()) if each["name"] not in known)
    for source in main["envFrom"]:
        (kind, ref), *_ = source.items()
        if ref["name"] != names.base(order.made):
            yield f"`{'config_map_refs' if kind == 'configMapRef' else 'secret_refs'}: [{ref['name']}]`"
    told = {**_OURS, "activeDeadlineSeconds": spec.get("activeDeadlineSeconds")}
    if spec.get("serviceAccountName"):
        told["automountServiceAccountToken"] = True
    for key, value in spec.items():
        if key not in (*_LAID_OVER, "containers", "initContainers") and told.get(key) != value:
            yield f"`{key}` of pods"
    for key in main:
        if key not in (*_OF_CONTAINER, *_ELSEWHERE):
            yield f"`{key}` of containers"


def _command(template: Mapping[str, Any], main: Mapping[str, Any]) -> list[str]:
    """Nothing of the user's is in the text that the shell reads: their command comes as arguments."""
    if any(step["name"] == pods.PREPARE for step in template["spec"].get("initContainers", ())):
        return ["/bin/sh", "-c", _BOTH, "phalanx"]
    return list(main["command"])


def _secrets(order: Order) -> Iterator[dict[str, Any]]:
    wanted = set(order.secrets)
    if order.place.settings.server is not None:
        wanted.add(TOKEN)
    for name in sorted(name for name in wanted if names.is_variable(name)):
        source = {"name": names.base(order.made), "key": name, "optional": True}
        yield {"name": name, "valueFrom": {"secretKeyRef": source}}


def _hosts(order: Order, replicas: Sequence[Replica]) -> dict[str, Any]:
    """The pods that a launcher comes to."""
    if not is_mpi(order.made) or len(replicas) < 2:
        return {}
    return {NODE: operators.template(order, replicas[1:], is_counted=False, is_launched=True)}


def _patch(order: Order, templates: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    jobs = [
        {"name": name, "template": {"spec": {"template": _laid_over(order, template)}}}
        for name, template in templates.items()
    ]
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def _laid_over(order: Order, template: Mapping[str, Any]) -> dict[str, Any]:
    spec, main = template["spec"], operators.main_of(template, order.known)
    ours = {key: main[key] for key in _OF_CONTAINER if key in main}
    return {
        "metadata": template["metadata"],
        "spec": {**{key: spec[key] for key in _LAID_OVER if key in spec}, "containers": [ours]},
    }
