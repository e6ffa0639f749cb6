"""Gang scheduling: all pods of a run start at once, or none, if the cluster has a scheduler for that.

Kueue queues a Job by its label. Several Jobs form a pod group: then the pods carry the label and the Jobs do not,
because Kueue ignores the pods of a Job that it queues. If Kueue also manages Jobs without a queue
(`manageJobsWithoutQueueName`, or a queue `default` in the namespace), or manages no pods, there are no pod groups: each
Job waits separately. Volcano and scheduler-plugins are separate schedulers; an object sets how many pods start
together. Without any of these, agents wait for each other, up to the timeout of the file.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from phalanx.backends.kubernetes.observe.attempt_objects import QUEUED_GROUP
from phalanx.backends.kubernetes.render import names, payload
from phalanx.backends.kubernetes.target import Cluster, ClusterTarget
from phalanx.errors import CallError
from phalanx.plan.model import Plan

KUEUE, VOLCANO, SCHEDULER_PLUGINS, NONE = "kueue", "volcano", "scheduler-plugins", "none"
KINDS = (KUEUE, VOLCANO, SCHEDULER_PLUGINS)
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
DEFAULT_QUEUE = "default"  # Kueue's default if none is named
SCHEDULERS = {VOLCANO: "volcano", SCHEDULER_PLUGINS: "scheduler-plugins-scheduler"}
APIS = {VOLCANO: "scheduling.volcano.sh/v1beta1", SCHEDULER_PLUGINS: "scheduling.x-k8s.io/v1alpha1"}
GATES_SINCE = (1, 27)  # Kueue holds single pods back with scheduling gates, which need this version
MOST_SHAPES = 8  # pod sets in one Kueue workload
SCHEDULE_S = 300  # how long scheduler-plugins reserves places for an incomplete gang
GROUP_LABEL, _COUNT = QUEUED_GROUP, "kueue.x-k8s.io/pod-group-total-count"
_RETRIABLE = "kueue.x-k8s.io/retriable-in-group"
_QUANTITY = re.compile(r"([0-9]*\.?[0-9]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)\Z")
_SCALES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "k": Fraction(1000),
    **{name: Fraction(1000**power) for power, name in enumerate("MGTPE", 2)},
    **{f"{name}i": Fraction(1024**power) for power, name in enumerate("KMGTPE", 1)},
}  # fmt: skip


class GangScheduler(NamedTuple):
    """The scheduler of the gang, and the queue in which the run waits. `is_whole`: all Jobs are admitted together."""

    kind: str
    queue: str | None = None
    is_whole: bool = True


def chosen(made: Plan, target: ClusterTarget) -> GangScheduler | None:
    """Return the scheduler that the file or site names, else the cluster's. Raises CallError if the cluster lacks
    it."""
    cluster = target.cluster
    asked = made.kubernetes.gang or target.settings.gang
    queue = made.kubernetes.queue or target.settings.queue
    is_unknown = cluster.is_assumed and not any(has(cluster, kind) for kind in KINDS)
    if asked == NONE:
        return _each_in_kueue(made.kubernetes.queue if made.kubernetes.gang else queue, cluster, is_unknown=is_unknown)
    kind = asked or cluster.gang or (KUEUE if queue is not None and is_unknown else None)
    if kind is None:
        if queue is not None:
            raise CallError(f"no queue `{queue[:60]}`: this cluster has neither Kueue nor Volcano")
        return None
    if kind not in KINDS:
        raise CallError(f"`gang: {kind[:60]}`: choose from {', '.join(KINDS)}, or {NONE} for no gang")
    if not has(cluster, kind) and not is_unknown:
        raise CallError(f"`gang: {kind}`: this cluster has {_offered(cluster)}")
    if kind == KUEUE:
        return _in_kueue(queue, cluster, is_asked=asked is not None)
    if kind == SCHEDULER_PLUGINS and queue is not None:
        raise CallError(f"no queue `{queue[:60]}`: scheduler-plugins has no queues")
    return GangScheduler(kind, queue)


def has(cluster: Cluster, kind: str) -> bool:
    if kind == cluster.gang:
        return True
    if kind == KUEUE:
        return "LocalQueue" in cluster.kinds
    group = APIS.get(kind, "-").partition("/")[0]
    return any(served.startswith(f"{group}/") for served in cluster.kinds.get("PodGroup", ()))


def _offered(cluster: Cluster) -> str:
    found = [kind for kind in KINDS if has(cluster, kind)]
    if not found:
        return "none of Kueue, Volcano and scheduler-plugins: without a gang, agents wait for each other"
    return " and ".join(found)


def _in_kueue(queue: str | None, cluster: Cluster, *, is_asked: bool) -> GangScheduler | None:
    known = cluster.queues
    if queue is not None:
        if known and queue not in known:
            also = "; `gang: volcano` uses a queue of Volcano" if has(cluster, VOLCANO) else ""
            raise CallError(f"no queue `{queue[:60]}` in this namespace; it has: {', '.join(known)}{also}")
        return GangScheduler(KUEUE, queue)
    if len(known) == 1 or DEFAULT_QUEUE in known:
        return GangScheduler(KUEUE, DEFAULT_QUEUE if DEFAULT_QUEUE in known else known[0])
    if known:
        raise CallError(
            f"this namespace has several Kueue queues: {', '.join(known)}. Name one in "
            "`environment.kubernetes.queue`, or in the home's kubernetes.yml; `gang: none` uses no queue"
        )
    _refuse_endless_wait(cluster)
    if is_asked or cluster.is_assumed:
        also = ", or assume one: `--assume kueue=NAME`" if cluster.is_assumed else ""
        raise CallError(f"Kueue needs a queue: name it in `environment.kubernetes.queue`{also}")
    return None


def _each_in_kueue(queue: str | None, cluster: Cluster, *, is_unknown: bool) -> GangScheduler | None:
    """No gang; if a queue is named, each Job waits in it separately."""
    if queue is None:
        _refuse_endless_wait(cluster)
        return None
    if not has(cluster, KUEUE) and not is_unknown:
        raise CallError(f"`queue: {queue[:60]}` without a gang needs Kueue, which this cluster does not have")
    found = _in_kueue(queue, cluster, is_asked=True)
    return found._replace(is_whole=False) if found is not None else None


def _refuse_endless_wait(cluster: Cluster) -> None:
    if cluster.queues_all and DEFAULT_QUEUE not in cluster.queues:
        raise CallError(
            "Kueue holds back every Job of this namespace without a queue: name one in "
            "`environment.kubernetes.queue`, or in the home's kubernetes.yml"
        )


def grouped(made: Plan, target: ClusterTarget, jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the Jobs, changed so that their pods form a gang, preceded by the object that defines it: without that
    object the scheduler would keep the pods waiting. Raises CallError."""
    gang = chosen(made, target)
    count = sum(job["spec"]["parallelism"] for job in jobs)
    if gang is None:
        return list(jobs)
    if gang.kind == KUEUE:
        _queue(made, target, gang, jobs, count)
        return list(jobs)
    is_named = gang.queue is not None or (made.kubernetes.gang or target.settings.gang) is not None
    if count == 1 and not is_named:
        return list(jobs)
    for job in jobs:
        _join(made, gang, job["spec"]["template"])
    return [_pod_group(made, gang, jobs, count), *jobs]


def _queue(made: Plan, target: ClusterTarget, gang: GangScheduler, jobs: Sequence[dict[str, Any]], count: int) -> None:
    cluster = target.cluster
    can_group = cluster.queues_pods and not cluster.queues_all and DEFAULT_QUEUE not in cluster.queues
    is_grouped = gang.is_whole and len(jobs) > 1 and cluster.version >= GATES_SINCE
    if is_grouped and can_group and _is_admissible(made, jobs):
        for job in jobs:
            pod_metadata = job["spec"]["template"]["metadata"]
            pod_metadata["labels"] |= {QUEUE_LABEL: gang.queue, GROUP_LABEL: names.base(made)}
            pod_metadata["annotations"] |= {_COUNT: str(count), _RETRIABLE: "false"}  # attempts are replaced
        return
    for job in jobs:
        job["metadata"]["labels"][QUEUE_LABEL] = gang.queue


def admit_alone(made: Plan, target: ClusterTarget, job: dict[str, Any]) -> None:
    """Queue a Job outside the gang, such as an image build, if Kueue manages every Job."""
    gang = chosen(made, target) if target.cluster.queues_all else None
    if gang is not None and gang.kind == KUEUE:
        job["metadata"]["labels"][QUEUE_LABEL] = gang.queue


def _is_admissible(made: Plan, jobs: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether Kueue can admit these pods as one workload. Raises CallError if the file requires it."""
    if len({_shape(job["spec"]["template"]["spec"]) for job in jobs}) <= MOST_SHAPES:
        return True
    if made.kubernetes.gang == KUEUE:
        raise CallError(
            f"Kueue admits at most {MOST_SHAPES} kinds of pods at once, and the replicas of this run have more "
            "different requests: give them the same resources and nodes, or write `environment.kubernetes.gang: none` "
            "beside `queue` to let each Job wait separately"
        )
    return False


def _shape(spec: Mapping[str, Any]) -> str:
    """The fields by which Kueue distinguishes kinds of pods."""
    asked = [
        ({**limits, **(resources.get("requests") or {})}, container.get("ports"))
        for container in (*spec.get("initContainers", ()), *spec["containers"])
        for resources in [container.get("resources") or {}]
        for limits in [resources.get("limits") or {}]
    ]
    keys = ("nodeSelector", "affinity", "tolerations", "priorityClassName", "runtimeClassName", "overhead")
    return repr((asked, [spec.get(key) for key in (*keys, "topologySpreadConstraints", "resourceClaims")]))


def _join(made: Plan, gang: GangScheduler, template: dict[str, Any]) -> None:
    template["spec"].setdefault("schedulerName", SCHEDULERS[gang.kind])
    if gang.kind == VOLCANO:
        template["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = names.base(made)
    else:
        template["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = names.base(made)


def _pod_group(made: Plan, gang: GangScheduler, jobs: Sequence[dict[str, Any]], count: int) -> dict[str, Any]:
    spec: dict[str, Any] = {"minMember": count}
    if least := asked_for(jobs):
        spec["minResources"] = least
    if gang.kind == SCHEDULER_PLUGINS:
        spec["scheduleTimeoutSeconds"] = SCHEDULE_S
    if gang.kind == VOLCANO and gang.queue is not None:
        spec["queue"] = gang.queue
    if gang.kind == VOLCANO and made.kubernetes.priority_class is not None:
        spec["priorityClassName"] = made.kubernetes.priority_class
    return {
        "apiVersion": APIS[gang.kind],
        "kind": "PodGroup",
        "metadata": payload.metadata(made, names.base(made)),
        "spec": spec,
    }


def asked_for(jobs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Sum up the requests of all pods of the Jobs, as Kubernetes quantities."""
    sums: defaultdict[str, Fraction] = defaultdict(Fraction)
    for job in jobs:
        for container in job["spec"]["template"]["spec"]["containers"]:
            asked = container.get("resources") or {}
            for name, amount in {**asked.get("limits", {}), **asked.get("requests", {})}.items():
                sums[name] += job["spec"]["parallelism"] * quantity(amount)
    return {name: _written(name, total) for name, total in sorted(sums.items()) if total}


def quantity(amount: str | float) -> Fraction:
    """Parse a Kubernetes quantity: `500m`, `2Gi`, `1e3`. Raises CallError if invalid."""
    found = _QUANTITY.match(str(amount))
    if found is None:
        raise CallError(f"`{str(amount)[:60]}` is not a valid resource quantity")
    number, exponent, suffix = found.groups()
    return Fraction(number) * (Fraction(f"1{exponent}") if exponent else _SCALES.get(suffix, Fraction(1)))


def _written(name: str, total: Fraction) -> str:
    if name == "cpu":
        return str(total) if total.denominator == 1 else f"{math.ceil(total * 1000)}m"
    whole = math.ceil(total)
    for suffix in ("Gi", "Mi", "Ki"):
        if name == "memory" and whole % int(_SCALES[suffix]) == 0:
            return f"{whole // int(_SCALES[suffix])}{suffix}"
    return str(whole)
