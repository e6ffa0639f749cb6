"""Accessors for the objects of an attempt in the cluster. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from phalanx.backends.kubernetes.target import ATTEMPT, DOMAIN, LOST_NODE_TAINTS, MEMBERS, ROLE, RUN
from phalanx.naming import SERVING

STAGE, BUILD = f"{DOMAIN}/stage", "build"
ENGINE = f"{DOMAIN}/engine"
WORKS = f"{DOMAIN}/works"  # an annotation: the number of objects that create the pods of this attempt
_OF_TRAIN_JOBS = ("-node-0", "-launcher-0")  # suffixes of the Jobs that JobSets create for TrainJobs
JOB_SET = "jobset.sigs.k8s.io/jobset-name"  # a label of pods
MOST_TEXT = 300  # characters of a component's message
QUEUED_GROUP = "kueue.x-k8s.io/pod-group-name"
_QUEUED_NAME, _QUEUED_HASH = 57, 6  # how much of a name Kueue keeps, and the length of its hash

Object = Mapping[str, Any]
_INDICES = (
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "jobset.sigs.k8s.io/job-index",
)
_TYPED = ("tfReplicaSpecs", "pytorchReplicaSpecs", "xgbReplicaSpecs", "jaxReplicaSpecs", "mxReplicaSpecs")


class AttemptObjects(NamedTuple):
    """All objects of one attempt. `works` create pods: Jobs and operators' jobs; `builds` create its image."""

    run_id: str
    attempt: int
    works: Sequence[Object] = ()
    builds: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    gangs: Sequence[Object] = ()
    events: Sequence[Object] = ()

    @property
    def is_whole(self) -> bool:
        """Return whether all objects that create its pods exist: the submission may have been interrupted."""
        counts = {annotations_of(one).get(WORKS, "") for one in self.works}
        return bool(self.builds) or (len(counts) == 1 and counts.pop() == str(len(self.works)))


def owner_of(found: Object) -> tuple[str, int] | None:
    """The run and attempt that an object belongs to."""
    labels = labels_of(found)
    run_id, attempt = labels.get(RUN, ""), str(labels.get(ATTEMPT, ""))
    return (run_id, int(attempt)) if run_id and attempt.isdigit() else None


def is_build(found: Object) -> bool:
    return labels_of(found).get(STAGE) == BUILD


def members_of(pod: Object) -> tuple[str, ...]:
    """The replicas that a pod may run: one of those whose template it was made from. Empty if it has no such data."""
    listed = annotations_of(pod).get(MEMBERS) or next(
        (one.get("value", "") for box in containers_of(pod) for one in box.get("env", ()) if _is_members(one)), ""
    )
    names = [name for name in str(listed).split(",") if name]
    indices = (annotations_of(pod).get(key, labels_of(pod).get(key)) for key in _INDICES)
    index = next((str(text) for text in indices if text is not None), "0")
    if not index.isdigit() or int(index) >= len(names):
        return tuple(names) if len(names) == 1 else ()
    return (names[int(index)],)


def replicas_of(group: AttemptObjects) -> dict[str, Object | None]:
    """The first pod of each replica; None for replicas without one. In MPIJobs v1, hosts count instead of ranks."""
    listed = (str(annotations_of(work).get(MEMBERS, "")).split(",") for work in group.works)
    absent: dict[str, Object | None] = {name: None for names in listed for name in names if name}
    found: dict[str, Object | None] = {}
    for pod in sorted(group.pods, key=lambda pod: str(meta_of(pod).get("creationTimestamp")), reverse=True):
        found |= dict.fromkeys(members_of(pod)[:1], pod) if not is_build(pod) else {}
    return {**absent, **found} if found.keys() <= absent.keys() else found


def _is_members(variable: Object) -> bool:
    return variable.get("name") == "PHALANX_MEMBERS"


def container_of(pod: Object) -> str:
    """The container that runs the replica, as opposed to sidecars."""
    boxes = containers_of(pod)
    ours = [box["name"] for box in boxes if any(map(_is_members, box.get("env", ())))]
    return str(ours[0] if ours else boxes[0]["name"] if boxes else "")


def is_helper_pod(pod: Object) -> bool:
    role = labels_of(pod).get(ROLE)
    if role is not None:
        return role in SERVING
    names = members_of(pod)
    return bool(names) and all(name.rpartition("-")[0] in SERVING for name in names)


def has_run(pod: Object) -> bool:
    """Return whether its replica has been started, so a log exists."""
    state = main_state(pod)
    return state.get("running") is not None or state.get("terminated") is not None


def starts_again(work: Object) -> bool:
    """Return whether its file lets kubelets restart failed containers of its pods."""
    types: Mapping[str, Any] = next((each for key, each in (work.get("spec") or {}).items() if key in _TYPED), {})
    return any(each.get("restartPolicy") == "OnFailure" for each in types.values())


def is_suspended(work: Object) -> bool:
    """Return whether it is suspended: by Kueue until admission, and again on preemption."""
    spec = work.get("spec") or {}
    return bool(spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"))


def has_begun(pod: Object) -> bool:
    """Return whether it no longer waits for anything."""
    if has_run(pod) or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    return (main_state(pod).get("waiting") or {}).get("reason") == "CrashLoopBackOff"


def seconds(text: Any) -> float | None:
    """Parse a Kubernetes timestamp."""
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC).timestamp() if text else None
    except ValueError:
        return None


def condition_of(found: Object, kind: str) -> Object | None:
    return next((one for one in conditions_of(found) if one.get("type") == kind), None)


def conditions_of(found: Object) -> Sequence[Object]:
    conditions: Sequence[Object] = (found.get("status") or {}).get("conditions") or ()
    return conditions


def main_state(pod: Object) -> Object:
    name = container_of(pod)
    statuses: Iterator[Object] = iter((pod.get("status") or {}).get("containerStatuses") or ())
    found: Object = next((one for one in statuses if one.get("name") == name), {})
    state: Object = found.get("state") or {}
    last: Object = found.get("lastState") or {}
    return last if runs_once(pod) and "terminated" in last else state


def is_node_away(pod: Object) -> bool:
    """Return whether the cluster has lost contact with its node: it then marks the pod as not ready, and leaves the
    last word of the kubelet, by which all containers are."""
    ready, containers = (condition_of(pod, kind) or {} for kind in ("Ready", "ContainersReady"))
    has_gates = bool((pod.get("spec") or {}).get("readinessGates"))
    is_stale = ready.get("status") == "False" and containers.get("status") == "True" and not has_gates
    return is_stale and main_state(pod).get("running") is not None


def node_of(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def toleration_s(pod: Object) -> float | None:
    """How long it may stay on a node that does not respond; None for ever."""
    listed = (pod.get("spec") or {}).get("tolerations") or ()
    found: Object = next((one for one in listed if one.get("key") in LOST_NODE_TAINTS), {})
    allowed = found.get("tolerationSeconds")
    return float(allowed) if isinstance(allowed, int | float) else None


def runs_once(pod: Object) -> bool:
    """Return whether an end is final although the kubelet restarts the container: a TrainJob cannot disable restarts,
    and its JobSet enables them."""
    return JOB_SET in labels_of(pod)


def containers_of(pod: Object) -> Sequence[Object]:
    boxes: Sequence[Object] = (pod.get("spec") or {}).get("containers") or ()
    return boxes


def deleted_at(pod: Object) -> float | None:
    return seconds(meta_of(pod).get("deletionTimestamp"))


def grace_s(pods: Iterable[Object]) -> float:
    """The longest grace period of these pods; 30 s by default."""
    asked = ((pod.get("spec") or {}).get("terminationGracePeriodSeconds") for pod in pods)
    return max((float(seconds) for seconds in asked if seconds is not None), default=30.0)


def changed_at(pod: Object) -> float | None:
    times = [at for one in conditions_of(pod) if (at := seconds(one.get("lastTransitionTime"))) is not None]
    return max(times, default=None)


def queued_as(found: Object) -> str:
    """The name of Kueue's workload for a pod group or job, without the hash at its end."""
    group = labels_of(found).get(QUEUED_GROUP)
    return str(group) if group else f"{found.get('kind') or 'Job'}-{meta_of(found).get('name')}".lower()[:_QUEUED_NAME]


def is_of_queue(event: Object) -> bool:
    return (event.get("involvedObject") or {}).get("kind") == "Workload"


def topics_of(event: Object) -> tuple[str, ...]:
    """The keys of the object that an event is about: its uid, or its name in a Kueue queue."""
    about = event.get("involvedObject") or {}
    name = str(about.get("name") or "")
    more: tuple[str, ...] = (name, name[:-_QUEUED_HASH][:_QUEUED_NAME]) if is_of_queue(event) else ()
    if train_job := train_job_of(event):
        more = (f"trainjob-{train_job}"[:_QUEUED_NAME],)
    return (str(about.get("uid")), *more)


def train_job_of(event: Object) -> str:
    """The name of the TrainJob whose Job emitted the event; empty for other events."""
    about = event.get("involvedObject") or {}
    name = str(about.get("name") or "")
    is_its = about.get("kind") == "Job" and name.endswith(_OF_TRAIN_JOBS)
    return name.removesuffix("-0").rpartition("-")[0] if is_its else ""


def event_time(event: Object) -> str:
    """When the event last occurred: newer components, such as the scheduler, use other fields for it."""
    series = (event.get("series") or {}).get("lastObservedTime")
    times = (series, *(event.get(name) for name in ("lastTimestamp", "eventTime", "firstTimestamp")))
    return str(next((one for one in times if one), "") or meta_of(event).get("creationTimestamp") or "")


def meta_of(found: Object) -> Object:
    meta: Object = found.get("metadata") or {}
    return meta


def labels_of(found: Object) -> Object:
    labels: Object = meta_of(found).get("labels") or {}
    return labels


def annotations_of(found: Object) -> Object:
    annotations: Object = meta_of(found).get("annotations") or {}
    return annotations


def short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= MOST_TEXT else f"{words[:MOST_TEXT]}…"
