"""The Kubeflow backend: one operator's job, whose replicas are pods with the usual agent.

The run's wiring selects the operator, in the version that the cluster serves. Everything that an operator cannot
express is an error before submission: nothing is dropped silently. A run of one pod needs no operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx.backends.contract import Job, Requirement
from phalanx.backends.kubernetes.backend import KubernetesJobs
from phalanx.backends.kubernetes.operators import job_kinds, mpi_jobs, train_jobs
from phalanx.backends.kubernetes.operators.job_kinds import (
    MPIJOB,
    MPIJOB_V1,
    MXJOB,
    NATIVELY,
    OPERATED,
    PYTORCHJOB,
    TFJOB,
    TRAINJOB,
    OperatorJob,
    OperatorKind,
)
from phalanx.backends.kubernetes.render import gang_scheduling, image_builds, names, native_jobs, payload
from phalanx.backends.kubernetes.target import ClusterTarget
from phalanx.errors import CallError
from phalanx.placeholders import Value
from phalanx.plan.model import Plan, Replica
from phalanx.plan.variable_limit import refuse_too_long

SINGLE = ("Master", "Chief", "Scheduler")  # types of which a job has one
UNQUEUED = (MXJOB, MPIJOB_V1)  # not supported by Kueue
RESTRICTED = "restricted"  # a pod security standard
GROUPED = ("scheduling.k8s.io/group-name", "scheduling.x-k8s.io/pod-group")  # of a pod: the gang that it belongs to


class KubeflowJobs(KubernetesJobs):
    name = "kubeflow"
    needs_operators = True

    def render(self, plan: Plan, target: ClusterTarget | None = None) -> Job:
        resolved = target or ClusterTarget()
        payload.refuse_too_many(plan)
        return super().render(fitted(plan, resolved), resolved)

    def objects(self, plan: Plan, target: ClusterTarget) -> list[dict[str, Any]]:
        return objects(plan, target)

    def requirements(self, home: Path) -> Iterable[Requirement]:  # noqa: ARG002 - those of Kubernetes
        return ()


def objects(made: Plan, target: ClusterTarget) -> list[dict[str, Any]]:
    """All objects of a run, the owner first, without the code and agent archives and without secret values. Raises
    CallError."""
    known = chosen(made, target)
    if known is None:
        _refuse_elastic(made, "a run of one pod")
        return native_jobs.objects(made, target)
    payload.refuse_too_many(made)
    made = fitted(made, target)
    tables = job_kinds.tables(made, target, known)
    refuse_too_long(made, tables.lengths)
    is_built = image_builds.is_wanted(made, target.settings)
    image = image_builds.tag_of(made, target.settings) if is_built else None
    order = OperatorJob(made, target, known, tables, payload.secrets_of(made), image)
    found = [payload.owner(made, target, tables, yields=job_kinds.yields(made, known))]
    if order.secrets or target.settings.server is not None:  # pods that use a server have a token there
        found.append(payload.secret(made, order.secrets))
    if is_built:
        found += image_builds.build_objects(made, target)
    return [*found, *_gathered(order, _job(order))]


def fitted(made: Plan, target: ClusterTarget) -> Plan:
    """The plan as the operator runs it. Idempotent. Raises CallError."""
    known = chosen(made, target)
    if known is not None and known.kind == PYTORCHJOB.kind and _is_elastic(made):
        return replace(made, meets=())  # it may start with fewer workers
    return made if known is None or not mpi_jobs.is_mpi(made) else mpi_jobs.adapted(made, known)


def chosen(made: Plan, target: ClusterTarget) -> OperatorKind | None:
    """The operator kind for the run on that cluster; None for one pod, which needs no operator. Raises CallError."""
    if made.launch == "each" and sum(not replica.local for replica in made.replicas) == 1:
        return None
    wiring = made.wiring or made.framework or "plain"
    usual = job_kinds.RUNNERS.get(wiring)
    if usual is None:
        raise CallError(f"no Kubeflow operator runs `framework: {wiring[:60]}`: {NATIVELY}")
    known = job_kinds.best(usual.kind, target.cluster)
    trains = job_kinds.best(TRAINJOB.kind, target.cluster)
    if made.kubernetes.runtime is not None:
        if trains is None and target.cluster.is_assumed:
            trains = TRAINJOB  # a runtime implies Trainer
        if trains is None:
            raise CallError(f"`runtime: {made.kubernetes.runtime[:60]}` needs Trainer, which {_served(target)}")
        known = trains
    elif known is None and trains is not None and wiring in train_jobs.RUNTIMES:
        known = trains
    if known is None:
        raise CallError(_missing(usual, wiring, target, has_trainer=trains is not None))
    if lacking := [role for role in made.roles if made.roles[role] and role not in known.types]:
        raise CallError(f"{known.one} has pods of one type, and this run also has a `{lacking[0]}`; {NATIVELY}")
    return _named(made, known, target)


def _named(made: Plan, known: OperatorKind, target: ClusterTarget) -> OperatorKind:
    """The kind with the operator's types for this run. With a Master, the operator adds an init container to workers
    that restricted namespaces reject; and in elastic runs torchrun sets the rendezvous."""
    if known == PYTORCHJOB and (_is_elastic(made) or target.cluster.pod_security == RESTRICTED):
        return known._replace(types={"master": "Worker", "worker": "Worker"})
    if known == TFJOB and '"type": "master"' in _texts(made.replicas[0].environment.get("TF_CONFIG", "")):
        return known._replace(types={**known.types, "master": "Master"})  # TensorFlow 1 has no chief
    return known


def _texts(value: Value) -> str:
    return value if isinstance(value, str) else "".join(part for part in value if isinstance(part, str))


def _served(target: ClusterTarget) -> str:
    kinds = {known.kind for known in OPERATED}
    found = [
        f"{kind} ({', '.join(version.rpartition('/')[2] for version in versions)})"
        for kind, versions in job_kinds.served(target.cluster).items()
        if kind in kinds
    ]
    has = "is assumed to have" if target.cluster.is_assumed else "has"
    return f"is not on this cluster: it {has} {', '.join(found) or 'no Kubeflow jobs'}"


def _missing(usual: OperatorKind, wiring: str, target: ClusterTarget, *, has_trainer: bool) -> str:
    if usual == MXJOB:
        also = ", and Trainer has no runtime for MXNet" if has_trainer else ""
        return f"no MXJob on this cluster: operators after 1.8 dropped it{also}; {NATIVELY}"
    if usual == TFJOB and has_trainer:
        return f"no TFJob on this cluster: it has Trainer, which has no runtime for TensorFlow; {NATIVELY}"
    advice = NATIVELY
    if usual == MPIJOB:
        advice = "Kubeflow's mpi-operator would run it"
        if wiring == "horovod":
            advice += ", and `backend: native` does so over Gloo, without `launcher: mpirun`"
    return f"{usual.kind} {_served(target)}; {advice}"


def _job(order: OperatorJob) -> dict[str, Any]:
    """Raises CallError for anything that a job of that kind does not support."""
    made, known = order.made, order.known
    policy = job_kinds.restart_policy(made, known)
    if policy != job_kinds.NEVER and payload.courier(order.target) != "frames":
        raise CallError(
            f"`restart_policy: {policy}` would restart a replica whose end is already recorded if pods use a server "
            "or a shared volume: leave it out, and `max_restarts` restarts the whole run"
        )
    if known.kind == TRAINJOB.kind:
        _refuse_elastic(made, known.one)
        return train_jobs.job(order)
    assert known.specs is not None
    if known.kind == MPIJOB.kind:
        _refuse_elastic(made, known.one)
        spec, replicas = mpi_jobs.fields(order), mpi_jobs.templates(order)
    else:
        spec, replicas = _fields(order), _templates(order)
    spec["runPolicy"] = job_kinds.run_policy(made, known)
    spec[known.specs] = {
        kind: {"replicas": count, "restartPolicy": policy, "template": template}
        for kind, (count, template) in replicas.items()
    }
    return {
        "apiVersion": known.api_version,
        "kind": known.kind,
        "metadata": job_kinds.metadata(order),
        "spec": spec,
    }


def _templates(order: OperatorJob) -> dict[str, tuple[int, dict[str, Any]]]:
    """The operator's types, each with its number of pods and their template."""
    made, known = order.made, order.known
    by_type = job_kinds.replicas_by_type(made, known)
    _check(order, by_type)
    found = {}
    for kind, replicas in by_type.items():
        job_kinds.alike(known, kind, replicas)
        template = job_kinds.template(order, replicas)
        main = job_kinds.main_of(template, known)
        main["ports"] = _ports(known, main.get("ports", ()))
        found[kind] = (len(replicas), template)
    return found


def _ports(known: OperatorKind, also: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The operator creates a service with all of them, by name: it creates none if a name is missing or repeated."""
    found = {known.port: {"name": known.port_name, "containerPort": known.port}}
    for port in also:
        if port.get("name") != known.port_name:
            number = port.get("containerPort", 0)
            found.setdefault(number, {**port, "name": port.get("name") or f"port-{number}"})
    return list(found.values())


def _check(order: OperatorJob, by_type: Mapping[str, Sequence[Replica]]) -> None:
    """Reject jobs that the operator's own checks accept but that never start."""
    made, known = order.made, order.known
    for kind in SINGLE:
        if len(by_type.get(kind, ())) > 1:
            raise CallError(f"{known.one} has one {kind}, and this run has {len(by_type[kind])}: {NATIVELY}")
    if known.kind == MXJOB.kind:
        for kind, key in (("Server", "n_ps"), ("Worker", "n_workers")):
            if kind not in by_type:
                raise CallError(f"an MXJob needs at least one {kind}: write `{key}: 1`; or {NATIVELY}")
    if known.kind == PYTORCHJOB.kind:
        _check_elastic(made)
    else:
        _refuse_elastic(made, known.one)


def _is_elastic(made: Plan) -> bool:
    return made.kubernetes.min_workers is not None or made.kubernetes.max_workers is not None


def _refuse_elastic(made: Plan, what: str) -> None:
    if _is_elastic(made):
        raise CallError(f"`min_workers` and `max_workers` are for PyTorchJobs: {what} has a fixed size")


def _check_elastic(made: Plan) -> None:
    if not _is_elastic(made):
        return
    least, workers, most = _bounds(made)
    if not 0 <= least <= workers <= most:
        raise CallError(f"`n_workers: {workers}` must be between `min_workers: {least}` and `max_workers: {most}`")
    if "PET_NNODES" not in made.shared:
        raise CallError(
            "`min_workers` and `max_workers` need `torchrun` in `run.cmd`: it allows replicas to join and leave "
            "(`cmd: torchrun train.py`)"
        )


def _bounds(made: Plan) -> tuple[int, int, int]:
    """The minimum, initial and maximum number of workers."""
    asked, workers = made.kubernetes, made.roles.get("worker", 0)
    least = asked.min_workers if asked.min_workers is not None else workers
    return least, workers, asked.max_workers if asked.max_workers is not None else workers


def _fields(order: OperatorJob) -> dict[str, Any]:
    """The fields that only jobs of this kind have."""
    made, known = order.made, order.known
    if known.kind == MXJOB.kind:
        return {"jobMode": "MXTrain"}
    if known.kind != PYTORCHJOB.kind:
        return {}
    spec: dict[str, Any] = {"nprocPerNode": str(job_kinds.processes(made))}
    if _is_elastic(made):
        least, _, most = _bounds(made)
        master = 1  # it counts as a worker there
        spec["elasticPolicy"] = {
            "minReplicas": least + master,
            "maxReplicas": most + master,
            "rdzvBackend": "c10d",
            "rdzvId": order.name,
        }
    return spec


def _gathered(order: OperatorJob, job: dict[str, Any]) -> list[dict[str, Any]]:
    """The job, changed so that its pods form a gang, after the object that defines the gang."""
    made, target, known = order.made, order.target, order.known
    gang = gang_scheduling.chosen(made, target)
    if gang is None:
        return [job]
    asked, site = made.kubernetes, target.settings
    is_asked = (asked.gang or site.gang or asked.queue or site.queue) is not None
    if gang.kind == gang_scheduling.KUEUE:
        if known in UNQUEUED and is_asked:
            raise CallError(f"Kueue does not queue {known.one} of {known.api_version}; {NATIVELY}")
        if known not in UNQUEUED:
            job["metadata"]["labels"][gang_scheduling.QUEUE_LABEL] = gang.queue
        return [job]
    if known.specs is None:
        if is_asked:
            raise CallError(f"`gang: {gang.kind}`: the runtime of a TrainJob decides whether its pods are a gang")
        return [job]
    replicas = job["spec"][known.specs]
    count = sum(each["replicas"] for each in replicas.values())
    if known == MPIJOB and "Worker" in replicas:
        count = replicas["Worker"]["replicas"]  # the launcher starts once they are ready
    elif _is_elastic(made):
        count = _bounds(made)[0] + 1
    policy: dict[str, Any] = {"minAvailable": count}
    if gang.queue is not None:
        policy["queue"] = gang.queue
    if made.kubernetes.priority_class is not None:
        policy["priorityClass"] = made.kubernetes.priority_class
    job["spec"]["runPolicy"]["schedulingPolicy"] = policy
    return [*_pod_group(order, replicas, count), job]


def _pod_group(order: OperatorJob, replicas: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """An operator creates a pod group only if it was started with that option, which is not visible. training-operator
    then uses an existing one. mpi-operator uses only its own: there this one has another name and reserves nothing."""
    shapes = [{"spec": {"template": each["template"], "parallelism": each["replicas"]}} for each in replicas.values()]
    group, *rest = gang_scheduling.grouped(order.made, order.target, shapes)
    if len(rest) != len(shapes):
        return []  # a single pod is no gang
    group["spec"]["minMember"] = count
    if order.known == MPIJOB:
        group["metadata"]["name"] = name = names.object_name(order.name, "gang")
        group["spec"].pop("minResources", None)
        for each in replicas.values():
            pod_metadata = each["template"]["metadata"]
            for listed in (pod_metadata["labels"], pod_metadata["annotations"]):
                listed.update((key, name) for key in GROUPED if key in listed)
    return [group]


BACKEND = KubeflowJobs()
