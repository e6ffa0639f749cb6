"""The native backend: one Kubernetes Job per group of equal replicas, and a Service that names their pods.

Pods of an Indexed Job have its name and their index; clusters without Indexed Jobs get one Job per replica. A Job never
restarts a pod: Phalanx restarts the whole gang as the next attempt.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from phalanx.backends.kubernetes.render import gang_scheduling, image_builds, names, payload, pods, volumes
from phalanx.backends.kubernetes.render.addresses import AddressTables
from phalanx.backends.kubernetes.target import PORT, RUN, RUN_AT, ClusterTarget
from phalanx.errors import CallError
from phalanx.placeholders import Hole
from phalanx.plan.model import Plan, Replica, one_of_each
from phalanx.plan.variable_limit import refuse_too_long

ITSELF = "127.0.0.1"  # the address of a single replica
TTL_S = 86_400.0  # fallback: normally Phalanx deletes finished objects itself
FEW, LONG = 16, 1024  # above FEW Jobs, variables longer than LONG are not repeated in each of them
SLACK_S = 120.0  # agents enforce the timeout; this is for agents that cannot
PER_INDEX_SINCE = (1, 29)  # Jobs with a backoff limit per index


class ReplicaJob(NamedTuple):
    """Equal replicas and the Job that runs them."""

    job: str
    members: tuple[Replica, ...]
    is_indexed: bool

    def hostname(self, number: int) -> str:
        """The hostname that the Job controller gives to a pod with an index."""
        return f"{self.job}-{number}" if self.is_indexed else self.job


class JobDefaults(NamedTuple):
    """What all Jobs of a run share: its tables and secrets, the variables that agents set, the image built for it, and
    the Service that names its pods."""

    tables: AddressTables
    secrets: Mapping[str, str]
    left: Collection[str]
    image: str | None
    service: str | None


def objects(made: Plan, target: ClusterTarget) -> list[dict[str, Any]]:
    """All objects of a run, the owner first, without the code and agent archives and without secret values. Raises
    CallError."""
    _refuse(made)
    payload.refuse_too_many(made)
    grouped = groups(made, target)
    known = _tables(made, target, grouped)
    refuse_too_long(made, known.lengths)
    secrets = payload.secrets_of(made)
    is_built = image_builds.is_wanted(made, target.settings)
    common = JobDefaults(
        known,
        secrets,
        left=_left_to_agents(made, known) if len(grouped) > FEW else (),
        image=image_builds.tag_of(made, target.settings) if is_built else None,
        service=names.base(made) if _is_spread(grouped) else None,
    )
    found = [payload.owner(made, target, known)]
    if secrets or target.settings.server is not None:  # pods that use a server have a token there
        found.append(payload.secret(made, secrets))
    if common.service is not None:
        found.append(_service(made))
    if is_built:
        found += image_builds.build_objects(made, target)
    jobs = [_job(made, target, group, common) for group in grouped]
    return [*found, *gang_scheduling.grouped(made, target, jobs)]


def tables(made: Plan, target: ClusterTarget) -> AddressTables:
    """The addresses of all processes of a run, and the paths of its folders in its pods."""
    return _tables(made, target, groups(made, target))


def groups(made: Plan, target: ClusterTarget) -> list[ReplicaJob]:
    """The Jobs of a run, in the order of its replicas. The largest group of a role has the role's name, others that of
    their first replica, so pod names never collide."""
    base, is_indexed = names.base(made), target.cluster.has_indexed_jobs
    alike = _alike(made) if is_indexed else [[replica] for replica in _firsts(made)]
    largest: dict[str, list[Replica]] = {}
    for members in alike:
        largest[members[0].role] = max(largest.get(members[0].role, []), members, key=len)
    found = []
    for members in alike:
        role, index = members[0].role, members[0].index
        has_name = is_indexed and members is largest[role] and (len(members) > 1 or made.roles.get(role) == 1)
        parts = (base, role) if has_name else (base, role, str(index))
        found.append(ReplicaJob(names.object_name(*parts), tuple(members), is_indexed))
    return found


def _alike(made: Plan) -> list[list[Replica]]:
    """Settings contain maps, which cannot be hashed: candidates are compared with each other."""
    found: list[list[Replica]] = []
    candidates: dict[Any, list[list[Replica]]] = {}
    for replica in _firsts(made):
        asked = replica.settings
        similar = candidates.setdefault((replica.role, asked.resources, asked.env_vars), [])
        members = next((members for members in similar if members[0].settings == asked), None)
        if members is None:
            members = []
            similar.append(members)
            found.append(members)
        members.append(replica)
    return found


def _firsts(made: Plan) -> Iterator[Replica]:
    """The first process of every replica: a pod runs them all."""
    return (replica for replica in made.replicas if not replica.local)


def _is_spread(grouped: list[ReplicaJob]) -> bool:
    return sum(len(group.members) for group in grouped) > 1


def _refuse(made: Plan) -> None:
    if made.launch in ("own", "mpirun"):
        advice = " (Horovod without `launcher: mpirun` runs natively, over Gloo)" if made.framework == "horovod" else ""
        raise CallError(
            "mpirun starts the ranks of this run, and it cannot reach pods of native Jobs: "
            f"`backend: kubeflow` uses an MPIJob{advice}"
        )
    if made.kubernetes.min_workers is not None or made.kubernetes.max_workers is not None:
        raise CallError("native Jobs have a fixed number of workers: `min_workers` needs `backend: kubeflow`")


def _tables(made: Plan, target: ClusterTarget, grouped: list[ReplicaJob]) -> AddressTables:
    base, is_spread = names.base(made), _is_spread(grouped)
    hosts = {
        member.name: f"{group.hostname(number)}.{base}" if is_spread else ITSELF
        for group in grouped
        for number, member in enumerate(group.members)
    }
    host = {replica.name: hosts[f"{replica.role}-{replica.index}"] for replica in made.replicas}
    first = next(iter(host.values()))
    port = {replica.name: PORT + replica.local for replica in made.replicas}
    return AddressTables({**host, "*": first}, {**port, "*": PORT}, paths(made, target))


def paths(made: Plan, target: ClusterTarget) -> dict[str, str]:
    """The folders of a run in its pods, by their names in plans."""
    found = {
        "outputs": volumes.outputs_at(made, target),
        "logs": f"{RUN_AT}/replicas",
        "hostfile": f"{RUN_AT}/hostfile",
        "hosts.sh": f"{RUN_AT}/hosts.sh",
    }
    for value in made.shared.values():
        for part in () if isinstance(value, str) else value:
            if isinstance(part, Hole) and part.kind == "path" and part.of not in found:
                kind, _, name = part.of.partition("/")
                found[part.of] = volumes.data_at(name) if kind == "data" else f"{RUN_AT}/{part.of}"
    return {**found, "*": f"{RUN_AT}/data"}


def _service(made: Plan) -> dict[str, Any]:
    """A headless Service: it gives the pods DNS names as soon as they exist."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": payload.metadata(made, names.base(made)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {RUN: names.label_value(made.run_id).valid},
            "ports": [{"name": "phalanx", "port": PORT}],
        },
    }


def _left_to_agents(made: Plan, known: AddressTables) -> Collection[str]:
    """Variables that would make many Jobs very large in total: agents also read them from the plan."""
    firsts = (replica.environment for replica in one_of_each(made.replicas))
    found = {name: value for variables in (made.shared, *firsts) for name, value in variables.items()}
    return [name for name, value in found.items() if len(known.text(made, value)) > LONG]


def _job(made: Plan, target: ClusterTarget, group: ReplicaJob, common: JobDefaults) -> dict[str, Any]:
    first, count = group.members[0], len(group.members)
    template = pods.template(
        made,
        group.members,
        target,
        tables=common.tables,
        hostname=None if group.is_indexed else group.job,
        subdomain=common.service,
        leave=common.left,
        image=common.image,
    )
    spec = template["spec"]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        if own := payload.own_secrets(made, first, common.secrets):
            container["env"] = [*container.get("env", ()), *own]
    if made.timeout_s is not None:  # counted from the start of a pod: queue time does not count
        spec.setdefault("activeDeadlineSeconds", math.ceil(made.timeout_s + payload.peers_s(made) + SLACK_S))
    ttl_s = made.kubernetes.ttl_s if made.kubernetes.ttl_s is not None else TTL_S
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": payload.metadata(made, group.job, first.role, [member.name for member in group.members]),
        "spec": {
            **({"completionMode": "Indexed"} if group.is_indexed else {}),
            "completions": count,
            "parallelism": count,
            **_failing(target, group),
            "ttlSecondsAfterFinished": math.ceil(ttl_s),
            "template": template,
        },
    }


def _failing(target: ClusterTarget, group: ReplicaJob) -> dict[str, Any]:
    """No pod is restarted. A Job that reaches its own limit removes all of its pods at once, along with their last
    output. So with a limit per index, the whole Job must have none."""
    if group.is_indexed and len(group.members) > 1 and target.cluster.version >= PER_INDEX_SINCE:
        return {"backoffLimitPerIndex": 0}
    return {"backoffLimit": 0}
