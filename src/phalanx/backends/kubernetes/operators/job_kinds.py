"""The job kinds of Kubeflow's operators: what each requires of a job and provides to its pods.

As of training-operator 1.9 (MXJob: 1.8), mpi-operator 0.8 and Trainer 2.3. No other module contains their terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from phalanx.backends.kubernetes.render import names, native_jobs, payload, pods
from phalanx.backends.kubernetes.render.addresses import AddressTables
from phalanx.backends.kubernetes.target import ROLE, Cluster, ClusterTarget
from phalanx.errors import CallError
from phalanx.plan.model import Plan, Replica

KUBEFLOW, TRAINER = "kubeflow.org", "trainer.kubeflow.org"
REPLICA_INDEX = "training.kubeflow.org/replica-index"  # a label of the pods of training-operator and mpi-operator
WORKER = "worker"
NEVER, ON_FAILURE = "Never", "OnFailure"
NATIVELY = "`backend: native` runs it"
_NAMED = 5  # replicas named in a message
_ROOM = 24  # `-launcher-0-99999-abcde`


class OperatorKind(NamedTuple):
    """A kind of job that an operator runs.

    `specs`: the field of its spec with the replicas by type; None if it has none. `types`: the operator's names for
    roles. `yields`: variables that the operator sets in containers and that override the plan's.
    """

    group: str
    version: str
    plural: str
    kind: str
    specs: str | None
    container: str
    types: Mapping[str, str]
    port: int = 2222
    port_name: str = ""
    yields: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def one(self) -> str:
        """The kind with its article, for messages."""
        return f"{'an' if self.kind[0] in 'MX' else 'a'} {self.kind}"


_PYTORCH = (
    "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NNODES",
    "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID", "PET_RDZV_CONF",
    "PET_MAX_RESTARTS", "PET_STANDALONE",
)  # fmt: skip
_XGBOOST = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "WORKER_PORT", "WORKER_ADDRS")
_JAX = ("COORDINATOR_ADDRESS", "COORDINATOR_PORT", "NUM_PROCESSES", "PROCESS_ID")
_MXNET = (
    "MX_CONFIG", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER", "DMLC_ROLE",
    "DMLC_USE_KUBERNETES", "BYTEPS_FORCE_DISTRIBUTED", "DMLC_WORKER_ID",
)  # fmt: skip
_OPENMPI = ("OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_orte_set_default_slots")
_TRAINER = (  # without its DMLC_NUM_WORKER, which counts devices, while the plan counts processes
    "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT",
    "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT",
    "DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", *_OPENMPI, "OMPI_MCA_plm_rsh_args",
)  # fmt: skip
_MASTERED = {"master": "Master", "worker": "Worker"}
_WORKERS = {"master": "Worker", "worker": "Worker"}
_PER_POD = "PET_NPROC_PER_NODE"
_PROCESS = ("RANK", "WORLD_SIZE", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "PROCESS_ID", "NUM_PROCESSES")

TFJOB = OperatorKind(
    KUBEFLOW, "v1", "tfjobs", "TFJob", "tfReplicaSpecs", "tensorflow",
    {"master": "Chief", "worker": "Worker", "ps": "PS"}, 2222, "tfjob-port", ("TF_CONFIG",),
)  # fmt: skip
PYTORCHJOB = OperatorKind(
    KUBEFLOW, "v1", "pytorchjobs", "PyTorchJob", "pytorchReplicaSpecs", "pytorch",
    _MASTERED, 23456, "pytorchjob-port", _PYTORCH,
)  # fmt: skip
XGBOOSTJOB = OperatorKind(
    KUBEFLOW, "v1", "xgboostjobs", "XGBoostJob", "xgbReplicaSpecs", "xgboost",
    _MASTERED, 9999, "xgboostjob-port", _XGBOOST,
)  # fmt: skip
JAXJOB = OperatorKind(
    KUBEFLOW, "v1", "jaxjobs", "JAXJob", "jaxReplicaSpecs", "jax",
    _WORKERS, 6666, "jaxjob-port", _JAX,
)  # fmt: skip
MXJOB = OperatorKind(
    KUBEFLOW, "v1", "mxjobs", "MXJob", "mxReplicaSpecs", "mxnet",
    {"master": "Scheduler", "worker": "Worker", "server": "Server"}, 9091, "mxjob-port", _MXNET,
)  # fmt: skip
MPIJOB = OperatorKind(
    KUBEFLOW, "v2beta1", "mpijobs", "MPIJob", "mpiReplicaSpecs", "mpi",
    _WORKERS, yields=_OPENMPI,
)  # fmt: skip
MPIJOB_V1 = MPIJOB._replace(version="v1", yields=(*MPIJOB.yields, "OMPI_MCA_plm_rsh_agent"))
TRAINJOB = OperatorKind(
    TRAINER, "v1alpha1", "trainjobs", "TrainJob", None, "node",
    {"master": "node", "worker": "node"}, 29500, yields=_TRAINER,
)  # fmt: skip

OPERATED = (TFJOB, PYTORCHJOB, XGBOOSTJOB, JAXJOB, MXJOB, MPIJOB, MPIJOB_V1, TRAINJOB)
USUAL: Mapping[str, tuple[str, ...]] = MappingProxyType(  # if it is unknown what a cluster serves
    {known.kind: (known.api_version,) for known in (TFJOB, PYTORCHJOB, XGBOOSTJOB, JAXJOB, MPIJOB)}
)
RUNNERS: Mapping[str, OperatorKind] = MappingProxyType(  # by the wiring of a run
    {
        "tensorflow": TFJOB, "pytorch": PYTORCHJOB, "deepspeed": PYTORCHJOB, "xgboost": XGBOOSTJOB, "jax": JAXJOB,
        "mxnet": MXJOB, "horovod": MPIJOB, "mpi": MPIJOB,
    }
)  # fmt: skip


def served(cluster: Cluster) -> Mapping[str, tuple[str, ...]]:
    """The available kinds of jobs, with their API versions."""
    return USUAL if cluster.is_assumed and not cluster.kinds else cluster.kinds


def best(kind: str, cluster: Cluster) -> OperatorKind | None:
    """The kind in the first version that both the cluster and Phalanx support."""
    versions = served(cluster).get(kind, ())
    found = (known for version in versions for known in OPERATED if (known.kind, known.api_version) == (kind, version))
    return next(found, None)


def job_name(made: Plan) -> str:
    """A name that leaves room for the suffixes that operators add to pod names."""
    return names.object_name("phalanx", made.run_id, room=_ROOM)


def replicas_by_type(made: Plan, known: OperatorKind) -> dict[str, list[Replica]]:
    """The replicas of each of the operator's types, in the operator's order."""
    found: dict[str, list[Replica]] = {}
    for replica in made.replicas:
        if not replica.local:
            found.setdefault(known.types[replica.role], []).append(replica)
    return found


def tables(made: Plan, target: ClusterTarget, known: OperatorKind) -> AddressTables:
    """The addresses of the replicas under the operator's services."""
    hosts = {
        (replica.role, replica.index): _host(made, known, kind, number)
        for kind, replicas in replicas_by_type(made, known).items()
        for number, replica in enumerate(replicas)
    }
    host = {replica.name: hosts[replica.role, replica.index] for replica in made.replicas}
    port = {replica.name: known.port + replica.local for replica in made.replicas}
    paths = native_jobs.paths(made, target)
    if known.kind in (MPIJOB.kind, TRAINJOB.kind):
        paths |= {"hostfile": "/etc/mpi/hostfile", "hosts.sh": "/etc/mpi/discover_hosts.sh"}
    first = next(iter(host.values()))
    return AddressTables({**host, "*": first}, {**port, "*": known.port}, paths)


def _host(made: Plan, known: OperatorKind, kind: str, number: int) -> str:
    base, by_launcher = job_name(made), RUNNERS.get(made.wiring or "") == MPIJOB
    if known.kind == TRAINJOB.kind:
        if by_launcher:
            return f"{base}-{kind}-0-{number - 1}.{base}" if number else f"{base}-launcher-0-0.{base}"
        return f"{base}-{kind}-0-{number}.{base}"
    if known.kind != MPIJOB.kind:
        return f"{base}-{kind.lower()}-{number}"
    if known.version == MPIJOB_V1.version:
        return f"{base}-worker-{number}"  # the name of a pod: ranks are started through the API there
    return f"{base}-worker-{number - 1}.{base}" if number else f"{base}-launcher.{base}"


def yields(made: Plan, known: OperatorKind) -> tuple[str, ...]:
    """The variables for which the operator's values are better. It counts pods: with several processes per pod it knows
    less than the plan, and with different numbers of them nothing."""
    left_out: tuple[str, ...] = ()
    if any(replica.local for replica in made.replicas):
        left_out = _PROCESS
    if len({replica.environment.get(_PER_POD) for replica in made.replicas}) > 1:
        left_out += (_PER_POD,)
    return tuple(name for name in known.yields if name not in left_out)


def processes(made: Plan) -> int:
    """The number of processes per pod, started by the agent or by torchrun."""
    first = made.replicas[0]
    asked = first.environment.get(_PER_POD, "")
    if isinstance(asked, str) and asked.isdigit():
        return int(asked)
    return sum((replica.role, replica.index) == (first.role, first.index) for replica in made.replicas)


class OperatorJob(NamedTuple):
    """A run, its target and its operator kind. `image`: one that is built for it."""

    made: Plan
    target: ClusterTarget
    known: OperatorKind
    tables: AddressTables
    secrets: Mapping[str, str]
    image: str | None = None

    @property
    def name(self) -> str:
        """The name of the job."""
        return job_name(self.made)


def template(
    order: OperatorJob, replicas: Sequence[Replica], *, is_counted: bool = True, is_launched: bool = False
) -> Any:
    """The pod template of a type. The job, not the template, sets how often pods are restarted. Raises CallError."""
    made, known = order.made, order.known
    found = pods.template(
        made,
        replicas,
        order.target,
        tables=order.tables,
        container=known.container,
        index_from=REPLICA_INDEX if is_counted else None,
        is_launched=is_launched,
        image=order.image,
        leave=yields(made, known),
    )
    if len({replica.role for replica in replicas}) > 1:  # the operator has one type for them
        found["metadata"]["labels"] |= {ROLE: WORKER, "app.kubernetes.io/component": WORKER}
    spec = found["spec"]
    spec.pop("restartPolicy", None)
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        if own := payload.own_secrets(made, replicas[0], order.secrets):
            container["env"] = [*container.get("env", ()), *own]
    if made.timeout_s is not None:  # of a pod: the job's deadline would include queue time and delete the pods
        spec.setdefault("activeDeadlineSeconds", deadline_s(made))
    return found


def main_of(found: Mapping[str, Any], known: OperatorKind) -> dict[str, Any]:
    """Phalanx's container of a template; files may have added others."""
    box: dict[str, Any] = next(each for each in found["spec"]["containers"] if each["name"] == known.container)
    return box


def deadline_s(made: Plan) -> int:
    return math.ceil((made.timeout_s or 0.0) + payload.peers_s(made) + native_jobs.SLACK_S)


def metadata(order: OperatorJob) -> dict[str, Any]:
    members = [replica.name for replica in order.made.replicas if not replica.local]
    return payload.metadata(order.made, order.name, None, members)


def run_policy(made: Plan, known: OperatorKind) -> dict[str, Any]:
    """Keep pods when the job is over: their logs are fetched first. training-operator counts a failed pod against the
    restart limit even if it is not restarted, and then deletes all pods: so it gets no limit."""
    ttl_s = made.kubernetes.ttl_s if made.kubernetes.ttl_s is not None else native_jobs.TTL_S
    policy: dict[str, Any] = {"cleanPodPolicy": "None", "ttlSecondsAfterFinished": math.ceil(ttl_s)}
    if known == MPIJOB:
        policy["backoffLimit"] = made.max_restarts if restart_policy(made, known) != NEVER else 0
    elif restart_policy(made, known) != NEVER:
        policy["backoffLimit"] = made.max_restarts + 1  # it gives up at this number, before the last restart has run
    return policy


def restart_policy(made: Plan, known: OperatorKind) -> str:
    """Whether the operator restarts single pods. By default Phalanx restarts the whole run. An operator that replaces
    pods would do so without end, and Phalanx does not track the replacements. Raises CallError."""
    asked = made.kubernetes.restart_policy or NEVER
    allowed = [NEVER] if known.kind == TRAINJOB.kind else [NEVER, ON_FAILURE]
    if asked not in allowed:
        raise CallError(
            f"`restart_policy: {asked[:60]}`: {known.one} supports only {', '.join(allowed)}; `max_restarts` alone "
            "restarts the whole run"
        )
    if asked != NEVER and not made.max_restarts:
        raise CallError(f"`restart_policy: {asked}` needs `environment.max_restarts`: the limit for the operator")
    return asked


def alike(known: OperatorKind, kind: str, replicas: Sequence[Replica]) -> None:
    """All pods of a type have one template. Raises CallError that names the replicas with other settings."""
    usual = _usual(replicas)
    others = [replica for replica in replicas if replica.settings != usual]
    if not others:
        return
    fields = [
        field
        for field in usual._fields
        if any(getattr(other.settings, field) != getattr(usual, field) for other in others)
    ]
    listed = ", ".join(other.name for other in others[:_NAMED])
    listed += f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    advice = "use the same settings"
    if len({replica.role for replica in replicas}) > 1 and others[0].role == "master":
        advice = "write the same below `environment` as below `environment.replicas.default_worker`"
    raise CallError(
        f"all pods of type {kind} of {known.one} are equal, and {listed} {'have' if len(others) > 1 else 'has'} "
        f"different settings ({', '.join(fields)}): {advice}; or {NATIVELY}"
    )


def _usual(replicas: Sequence[Replica]) -> Any:
    """The most common settings. They contain maps, which cannot be hashed."""
    counts: list[list[Any]] = []
    for replica in replicas:
        found = next((count for count in counts if count[0] is replica.settings or count[0] == replica.settings), None)
        if found is None:
            counts.append([replica.settings, 1])
        else:
            found[1] += 1
    return max(reversed(counts), key=lambda count: count[1])[0]
