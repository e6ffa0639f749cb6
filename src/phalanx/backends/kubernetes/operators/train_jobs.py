"""TrainJobs of Kubeflow Trainer: pods from a runtime of the cluster, with Phalanx's command and overrides.

A TrainJob can override less than a template can express: no containers, no init containers, no variables from whole
Secrets. So the container itself unpacks the code, secret variables are listed one by one, and the rest is an error that
names it. It cannot disable restarts either: the JobSets of Trainer's runtimes let kubelets restart containers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from phalanx.backends.kubernetes.operators import job_kinds
from phalanx.backends.kubernetes.operators.job_kinds import NATIVELY, OperatorJob
from phalanx.backends.kubernetes.operators.mpi_jobs import is_mpi
from phalanx.backends.kubernetes.render import names, pods
from phalanx.backends.kubernetes.target import DOMAIN
from phalanx.errors import CallError
from phalanx.plan.model import Replica

RUNTIMES: Mapping[str, str | None] = MappingProxyType(  # shipped with Trainer; none for plain MPI
    {
        "pytorch": "torch-distributed", "deepspeed": "torch-distributed", "jax": "jax-distributed",
        "xgboost": "xgboost-distributed", "mpi": None, "horovod": None,
    }
)  # fmt: skip
MANAGER = f"{DOMAIN}/phalanx"
NODE, LAUNCHER = "node", "launcher"  # Trainer's names of the jobs in a runtime
TOKEN = "PHALANX_RUN_TOKEN"  # noqa: S105 - the name of a variable
MOST = 128  # limit of the TrainJob schema, for variables and for words of a command
RESERVED = (  # variables that Trainer's webhook rejects: it sets them itself
    "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT",
    "DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER",
)  # fmt: skip
_LAID_OVER = (
    "affinity", "imagePullSecrets", "nodeSelector", "schedulingGates", "securityContext", "serviceAccountName",
    "terminationGracePeriodSeconds", "tolerations", "volumes",
)  # fmt: skip
_COUNTED = ("pytorch", "deepspeed", "mpi", "horovod")  # runtimes of other frameworks count devices themselves
_OF_CONTAINER = ("name", "securityContext", "volumeMounts")
_ELSEWHERE = ("command", "args", "env", "envFrom", "image", "resources")
_OURS: Mapping[str, Any] = MappingProxyType({"automountServiceAccountToken": False, "enableServiceLinks": False})


def job(order: OperatorJob) -> dict[str, Any]:
    """Raises CallError for everything that a TrainJob cannot express."""
    made, known = order.made, order.known
    replicas = [replica for replica in made.replicas if not replica.local]
    job_kinds.alike(known, NODE, replicas)
    by_launcher = is_mpi(made)  # the first replica is both launcher and node, if the runtime allows it
    template = job_kinds.template(order, replicas[:1] if by_launcher else replicas, is_counted=False)
    main = job_kinds.main_of(template, known)
    env = [*_variables(order, main), *_secrets(order, main)]
    faults = [*_unknown(order, template, main), *_too_much(template, main, env)]
    if faults:
        raise CallError(f"a TrainJob cannot express this ({'; '.join(faults)}): leave it out; or {NATIVELY}")
    spec: dict[str, Any] = {
        "runtimeRef": _runtime(order),
        "trainer": {
            "numNodes": len(replicas),
            **_image(order, main),
            "command": _command(template),
            "args": main["args"],
            "env": env,
        },
        "runtimePatches": [_patch(order, {LAUNCHER if by_launcher else NODE: template, **_hosts(order, replicas)})],
    }
    if made.wiring in _COUNTED:
        spec["trainer"]["numProcPerNode"] = job_kinds.processes(made)
    if main.get("resources"):
        spec["trainer"]["resourcesPerNode"] = main["resources"]
    # No deadline: Trainer's includes the time that pods wait for a node, and deletes them. Agents enforce the limit.
    return {
        "apiVersion": known.api_version,
        "kind": known.kind,
        "metadata": job_kinds.metadata(order),
        "spec": spec,
    }


def _runtime(order: OperatorJob) -> dict[str, str]:
    """The cluster's runtime, or the namespace's runtime of that name."""
    made, cluster = order.made, order.target.cluster
    there = dict.fromkeys((*cluster.runtimes, *cluster.own_runtimes))
    name = made.kubernetes.runtime or RUNTIMES.get(made.wiring or "")
    listed = ", ".join(there) or "none known"
    if name is None:
        what = "for MPI" if is_mpi(made) else f"for `framework: {made.wiring}`"
        raise CallError(
            f"Trainer ships no runtime {what}: name one of the cluster's in `environment.kubernetes.runtime` "
            f"({listed}); or {NATIVELY}"
        )
    if there and name not in there:
        raise CallError(f"no runtime `{name[:60]}` on this cluster; it has: {listed}; or {NATIVELY}")
    kind = "TrainingRuntime" if name in cluster.own_runtimes else "ClusterTrainingRuntime"
    return {"apiGroup": order.known.group, "kind": kind, "name": name}


def _image(order: OperatorJob, main: Mapping[str, Any]) -> dict[str, str]:
    """For MPI without an image in the file, the runtime's: hosts use it anyway, and it has ssh and mpirun."""
    build = order.made.build
    is_named = order.image is not None or (build is not None and build.image is not None)
    return {"image": main["image"]} if is_named or not is_mpi(order.made) else {}


def _variables(order: OperatorJob, main: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The variables except those that Trainer sets; agents have the plan's values of these."""
    made = order.made
    ours = {*made.shared, *made.replicas[0].environment}
    for variable in main["env"]:
        if variable["name"] not in RESERVED or variable["name"] not in ours:
            yield variable


def _unknown(order: OperatorJob, template: Mapping[str, Any], main: Mapping[str, Any]) -> Iterator[str]:
    """The fields that a TrainJob cannot express."""
    spec = template["spec"]
    if order.made.kubernetes.ttl_s is not None:
        yield "`ttl`: it is removed once its logs are fetched"
    if any(step["name"] == pods.FETCH for step in spec.get("initContainers", ())):
        yield "code from git: use `code: bundle`, `volume` or `image`"
    for key in ("containers", "initContainers"):
        known = (main["name"], pods.FETCH, pods.PREPARE)
        yield from (f"the container `{each['name']}`" for each in spec.get(key, ()) if each["name"] not in known)
    for source in main["envFrom"]:
        (kind, ref), *_ = source.items()
        if ref["name"] != names.base(order.made):
            yield f"`{'config_map_refs' if kind == 'configMapRef' else 'secret_refs'}: [{ref['name']}]`"
    expected = dict(_OURS)
    if spec.get("serviceAccountName"):
        expected["automountServiceAccountToken"] = True
    if order.made.timeout_s is not None:
        expected["activeDeadlineSeconds"] = job_kinds.deadline_s(order.made)
    for key, value in spec.items():
        if key not in (*_LAID_OVER, "containers", "initContainers") and expected.get(key) != value:
            yield f"`{key}` of pods"
    for key in main:
        if key not in (*_OF_CONTAINER, *_ELSEWHERE):
            yield f"`{key}` of containers"


def _too_much(template: Mapping[str, Any], main: Mapping[str, Any], env: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The values that its schema and its webhook reject."""
    for name in _twice(main["volumeMounts"]):
        where = ", ".join(mount["mountPath"] for mount in main["volumeMounts"] if mount["name"] == name)
        yield f"one volume or claim, `{name}`, in several places: {where}"
    yield from (
        f"the image pull secret `{name}` twice" for name in _twice(template["spec"].get("imagePullSecrets", ()))
    )
    yield from (f"the variable {each['name']}, which Trainer sets" for each in env if each["name"] in RESERVED)
    for what, count in (("variables", len(env)), ("words in a command", len(main["args"]))):
        if count > MOST:
            yield f"{count} {what}, at most {MOST} are allowed"


def _twice(listed: Iterable[Mapping[str, Any]]) -> list[str]:
    """The API server rejects duplicate names in such a list of a TrainJob."""
    return [name for name, count in Counter(each["name"] for each in listed).items() if count > 1]


def _command(template: Mapping[str, Any]) -> list[str]:
    """The start script does what an init container does elsewhere, and runs the command once, however often a kubelet
    restarts its container. No shell reads user input: the user's command is passed as arguments."""
    is_prepared = any(step["name"] == pods.PREPARE for step in template["spec"].get("initContainers", ()))
    return [*pods.START, "train-job", "prepare" if is_prepared else "run"]


def _secrets(order: OperatorJob, main: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    wanted = set(order.secrets)
    if order.target.settings.server is not None:
        wanted.add(TOKEN)
    there = {variable["name"] for variable in main["env"]}
    for name in sorted(name for name in wanted - there if names.is_variable(name)):
        source = {"name": names.base(order.made), "key": name, "optional": True}
        yield {"name": name, "valueFrom": {"secretKeyRef": source}}


def _hosts(order: OperatorJob, replicas: Sequence[Replica]) -> dict[str, Any]:
    """The pods in which a launcher starts ranks."""
    if not is_mpi(order.made) or len(replicas) < 2:
        return {}
    return {NODE: job_kinds.template(order, replicas[1:], is_counted=False, is_launched=True)}


def _patch(order: OperatorJob, templates: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    jobs = [
        {"name": name, "template": {"spec": {"template": _laid_over(order, template)}}}
        for name, template in templates.items()
    ]
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def _laid_over(order: OperatorJob, template: Mapping[str, Any]) -> dict[str, Any]:
    spec, main = template["spec"], job_kinds.main_of(template, order.known)
    ours = {key: main[key] for key in _OF_CONTAINER if key in main}
    return {
        "metadata": template["metadata"],
        "spec": {**{key: spec[key] for key in _LAID_OVER if key in spec}, "containers": [ours]},
    }
