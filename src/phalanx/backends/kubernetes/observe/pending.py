"""Why an attempt is pending on Kubernetes, as a message for users. Pure functions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from phalanx.backends.kubernetes.observe.attempt_objects import (
    AttemptObjects,
    Object,
    condition_of,
    conditions_of,
    event_time,
    has_begun,
    is_build,
    is_of_queue,
    is_suspended,
    labels_of,
    meta_of,
    queued_as,
    replicas_of,
    short,
    topics_of,
    train_job_of,
)

_NO_OBJECT: Object = {}
NAMES_LISTED, REASONS_LISTED = 4, 2


class PendingReason(NamedTuple):
    """Why something is pending, as a message. `is_lasting`: it does not resolve without a fix."""

    words: str
    is_lasting: bool = False


NOT_REFUSED = PendingReason("")


def waiting_for(group: AttemptObjects) -> str:
    """The reason that keeps the most pods pending."""
    pods = [pod for pod in group.pods if not is_build(pod)]
    waits = Counter(pod_waits(pod, group).words for pod in pods if not has_begun(pod))
    held = next(filter(None, (held_back(work, group) for work in group.works)), "")
    complaint = "" if held else _refused(group).words
    gang = next(filter(None, map(_gang_waits, group.gangs)), "")
    if not waits:
        return held or complaint or gang or "its pods are being created"
    words, count = max(waits.items(), key=lambda item: (item[0] not in _PATIENT, item[1]))
    words = gang or words if words == _TOGETHER else words
    reason = words if count == len(pods) else f"{count} of {len(pods)} pods: {words}"
    return "; ".join(filter(None, (complaint, reason)))


def partly_waiting(group: AttemptObjects) -> str:
    """What the other replicas of a running attempt wait for; empty if all have begun, or nothing is known of the
    others: an elastic job may never have all of its pods, and a deleted pod does not come back."""
    replicas = replicas_of(group)
    absent = next(filter(None, (held_back(work, group) for work in group.works)), "") or _refused(group).words
    waits: dict[str, list[str]] = {}
    for name, pod in replicas.items():
        words = absent if pod is None else "" if has_begun(pod) else pod_waits(pod, group).words
        if words:
            waits.setdefault(words, []).append(name)
    if not waits:
        return ""
    count = sum(pod is not None and has_begun(pod) for pod in replicas.values())
    most = sorted(waits.items(), key=lambda item: (item[0] in _PATIENT, -len(item[1])))[:REASONS_LISTED]
    reasons = (f"{listed(names)} {'waits' if len(names) == 1 else 'wait'}: {words}" for words, names in most)
    return f"{count} of {len(replicas)} replicas run; {'; '.join(reasons)}"


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_LISTED} more" if len(names) > NAMES_LISTED else ""
    return ", ".join(names[:NAMES_LISTED]) + more


def obstacles(group: AttemptObjects) -> dict[str, str]:
    """Reasons that do not resolve by themselves and keep pods from starting, by uid; under "", those that prevent the
    creation of pods. Lack of capacity is never one, however long it lasts."""
    waits = {str(meta_of(pod).get("uid")): pod_waits(pod, group) for pod in group.pods if not has_begun(pod)}
    waits[""] = NOT_REFUSED if any(map(is_suspended, group.works)) else _refused(group)
    return {uid: wait.words for uid, wait in waits.items() if wait.is_lasting}


def held_back(work: Object, group: AttemptObjects) -> str:
    """Why a job may not create pods yet; empty if it may."""
    if not is_suspended(work):
        return ""
    queue = labels_of(work).get("kueue.x-k8s.io/queue-name")
    if queue:
        return _unadmitted(work, group) or (
            f"Kueue has not admitted it yet: its queue `{queue}` is full or stopped, or other jobs come first"
        )
    return (
        "it is suspended until `suspend: false` is set; if Kueue suspended it, name the queue "
        "(`environment.kubernetes.queue`)"
    )


def _unadmitted(found: Object, group: AttemptObjects) -> str:
    """Kueue's latest reason for not admitting it."""
    name = queued_as(found)
    pending = [one for one in group.events if is_of_queue(one) and one.get("reason") == "Pending"]
    last = max((one for one in pending if name in topics_of(one)), key=event_time, default=_NO_OBJECT)
    said = short(str(last.get("message") or ""))
    return f"Kueue has not admitted it yet: {said}" if said else ""


def _refused(group: AttemptObjects) -> PendingReason:
    """Why pods cannot be created, from events of their controllers, unless some were created since. Not every operator
    emits an event for a creation."""
    makers = {str(meta_of(work).get("name")) for work in (*group.works, *group.builds)}
    about = ((one, (one.get("involvedObject") or {}).get("name")) for one in group.events)
    mine = [one for one, name in about if name in makers or train_job_of(one) in makers]
    last = max(filter(_is_refusal, mine), key=event_time, default=None)
    made = max(
        *(event_time(one) for one in mine if str(one.get("reason")).startswith("SuccessfulCreate")),
        *(str(meta_of(pod).get("creationTimestamp") or "") for pod in group.pods),
        "",
        "",
    )
    return refusal(str(last.get("message") or "")) if last is not None and event_time(last) >= made else NOT_REFUSED


def _is_refusal(event: Object) -> bool:
    """Matches events of Jobs, of training-operator's jobs, and of MPIJobs, which use the same reason for other
    messages."""
    reason = event.get("reason")
    is_mpi = reason == "MPIJobFailed" and "created failed" in str(event.get("message") or "")
    return is_mpi or reason in ("FailedCreate", "FailedCreatePod")


def refusal(message: str) -> PendingReason:
    """Why the cluster rejects a pod."""
    quota = re.search(r"exceeded quota: ([^,]+), requested: (.+?), used: (.+?), limited: (.+?)\.?\Z", message.strip())
    if quota is not None:
        return PendingReason(f"the quota `{quota[1]}` is used up: requested {quota[2]}, used {quota[3]} of {quota[4]}")
    for pattern, words in _REFUSALS:
        found = re.search(pattern, message, re.DOTALL)
        if found is not None:
            return PendingReason(words.format(*(short(text) for text in found.groups(""))), is_lasting=True)
    said = re.search(r"(?:is forbidden|is invalid): (.+)", message, re.DOTALL)
    if said is not None:
        return PendingReason(
            f"the cluster rejects its pods: {short(said[1])}", is_lasting="exceeded quota" not in message
        )
    return PendingReason(f"its pods cannot be created: {short(message.removeprefix('Error creating: '))}")


_RANGE = r"(?:maximum|minimum) \S+ usage per (?:Container|Pod) |\S+ max limit to request ratio per (?:Container|Pod) "
_REFUSALS = (
    (
        r"failed quota: ([^:]+): must specify (.+)",
        "the quota `{}` requires every pod to set {}: otherwise it never starts",
    ),
    (
        r'violates PodSecurity "([^"]+)": (.+)',
        "the pod security of the namespace ({}) rejects it: {}: it never starts",
    ),
    (r'serviceaccounts? "([^"]+)" not found', "service account `{}` does not exist in the namespace"),
    (r"no PriorityClass with name (\S+) was found", "priority class `{}` does not exist in the cluster"),
    (rf"((?:{_RANGE}).+)", "a LimitRange of the namespace rejects it: {}"),
    (r'admission webhook "([^"]+)" denied the request:? ?(.*)', "the webhook `{}` of the cluster rejects its pods: {}"),
    (
        r"ValidatingAdmissionPolicy '([^']+)' .*?denied request:? ?(.*)",
        "the policy `{}` of the cluster rejects its pods: {}",
    ),
)


def _gang_waits(gang: Object) -> str:
    status = gang.get("status") or {}
    if status.get("phase") not in (None, "", "Pending", "Inqueue", "PreScheduling", "Scheduling"):
        return ""
    unfit = next((one for one in reversed(conditions_of(gang)) if one.get("type") == "Unschedulable"), _NO_OBJECT)
    said = short(str(unfit.get("message") or ""))
    return f"{_TOGETHER}{': ' + said if said else ''}"


_CREATING = "its container is being created"
_PULLING = "its image is being pulled"
_UNSEEN = "no scheduler has looked at it yet"
_TOGETHER = "its pods start together, and there is not enough capacity for all of them yet"
_PATIENT = (_CREATING, _PULLING, _UNSEEN, _TOGETHER)
_OF_GANG = re.compile(  # a pod that only waits for its gang: messages of Volcano and scheduler-plugins
    r"pod group is not ready|tasks in gang|can possibly be assigned to|enough sibling pods|PodGroup .+ gets rejected"
)
_REASONS = {
    "ErrImagePull": "its image cannot be pulled",
    "ImagePullBackOff": "its image cannot be pulled",
    "RegistryUnavailable": "the registry of its image does not respond",
    "SignatureValidationFailed": "its node rejects the signature of its image",
    "ErrImageNeverPull": "its image is not on the node, and may not be pulled",
    "ImageInspectError": "its image cannot be read",
    "InvalidImageName": "its image name is invalid",
    "CreateContainerConfigError": "its container configuration is incomplete",
    "CreateContainerError": "its container cannot be created",
    "RunContainerError": "its container cannot be started",
    "CrashLoopBackOff": "it keeps failing and will be restarted later",
}
_SILENT = ("ContainerCreating", "PodInitializing", "")
_PASSING = re.compile(  # transient errors of registries and the network
    r"time.?out|deadline exceeded|connection re(?:fused|set)|unreachable|no route to host|try again|temporary failure|"
    r"misbehaving|EOF|too ?many ?requests|QPS exceeded|\b(?:429|50\d)\b|no space left|registry is unavailable",
    re.IGNORECASE,
)


def steps_of(pod: Object) -> Iterator[Object]:
    """The statuses of its init containers, without sidecars."""
    boxes = (pod.get("spec") or {}).get("initContainers") or ()
    stay = {box.get("name") for box in boxes if box.get("restartPolicy") == "Always"}
    for one in (pod.get("status") or {}).get("initContainerStatuses") or ():
        if one.get("name") not in stay:
            yield one


def pod_waits(pod: Object, group: AttemptObjects) -> PendingReason:
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        if scheduled.get("reason") == "SchedulingGated":
            gates = ", ".join(str(gate.get("name")) for gate in spec.get("schedulingGates") or ())
            if "kueue" in gates:
                return PendingReason(_unadmitted(pod, group) or "Kueue has not admitted it yet")
            return PendingReason(f"a scheduling gate holds it back: {gates}")
        if _OF_GANG.search(str(scheduled.get("message"))):
            return PendingReason(_TOGETHER)
        wait, chosen = unschedulable(str(scheduled.get("message") or "")), status.get("nominatedNodeName")
        room = f"; pods are being preempted for it on {chosen}" if chosen else _autoscaler_message(_about(pod, group))
        return wait._replace(words=f"{wait.words}{room}")
    for one in steps_of(pod):
        wait = _container_waits(one)
        if (one.get("state") or {}).get("running") is not None:
            return PendingReason(f"step `{one.get('name')}` is running")
        if wait.words:
            return wait._replace(words=f"step `{one.get('name')}`: {wait.words}")
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        wait = _container_waits(one)
        if wait.words:
            return wait
    if scheduled is None and not spec.get("nodeName"):
        name = spec.get("schedulerName", "default-scheduler")
        return PendingReason(_UNSEEN if name == "default-scheduler" else f"{_UNSEEN}: check that `{name}` is running")
    return _reason_from_events(_about(pod, group))


def _container_waits(status: Object) -> PendingReason:
    """Why one container waits; an empty message if unknown."""
    waiting = (status.get("state") or {}).get("waiting") or {}
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if reason in _SILENT:
        return PendingReason("")
    lacking = _missing(message)
    if lacking:
        return PendingReason(lacking, is_lasting=True)
    if "non-root" in message or "runAsNonRoot" in message:
        advice = "`runAsUser` in the `securityContext` of `environment.kubernetes.pod` sets another user"
        return PendingReason(f"its image runs as root, which is not allowed here: {advice}", is_lasting=True)
    words = _REASONS.get(reason, reason)
    if "mage" in reason:
        words, message = f"{words}: {status.get('image') or 'no image is set'}", _of_registry(message)
    is_lasting = reason in _REASONS and reason != "CrashLoopBackOff" and not _PASSING.search(f"{reason} {message}")
    return PendingReason(f"{words} ({short(message)})" if message else words, is_lasting=is_lasting)


def _missing(message: str) -> str:
    """The missing object that a pod refers to."""
    found = re.search(r'(secret|configmap|persistentvolumeclaim)s? "([^"]+)" not found', message, re.IGNORECASE)
    if found is not None:
        return f"{_KINDS[found[1].lower()]} `{found[2]}` does not exist in the namespace"
    key = re.search(r"couldn't find key (\S+) in (Secret|ConfigMap) (?:[^\s/]+/)?([^\s,:]+)", message)
    if key is not None:
        return f"the {key[2]} `{key[3]}` has no key `{key[1]}`"
    key = re.search(r"references non-existent (secret|config) key: (\S+)", message)
    return f"the {_KINDS[key[1]]} that it mounts has no key `{key[2]}`" if key is not None else ""


def _of_registry(message: str) -> str:
    """The registry's message without the prefixes of other components; empty if the kubelet only reports a retry."""
    said = re.sub(r'^Back-off pulling image "[^"]*"(?:: \w+: )?', "", message)
    said = re.sub(r"rpc error: code = \w+ desc = ", "", said)
    said = re.sub(r'failed to (?:pull and unpack image|resolve (?:reference|image)) "[^"]*": ', "", said)
    if re.search(r"insufficient_scope|pull access denied|unauthorized|authentication required|denied:", said):
        return f"{short(said)}: it does not exist, or needs a Secret of `environment.image_pull_secrets`"
    return said


_KINDS = {"secret": "Secret", "configmap": "ConfigMap", "config": "ConfigMap", "persistentvolumeclaim": "volume claim"}


def _about(pod: Object, group: AttemptObjects) -> list[Object]:
    """The events of a pod, the newest first."""
    uid = meta_of(pod).get("uid")
    mine = [one for one in group.events if (one.get("involvedObject") or {}).get("uid") == uid]
    return sorted(mine, key=event_time, reverse=True)


def _autoscaler_message(events: Iterable[Object]) -> str:
    """The latest decision of the cluster autoscaler or Karpenter."""
    for event in events:
        if event.get("reason") in ("TriggeredScaleUp", "Nominated"):
            return "; nodes are being added for it"
        if event.get("reason") == "NotTriggerScaleUp":
            why = short(str(event.get("message") or "").partition("scale-up: ")[2])
            return f"; no nodes are added for it{': ' + why if why else ''}"
    return ""


def _reason_from_events(events: Iterable[Object]) -> PendingReason:
    """The kubelet's progress with a pod that has a node."""
    for event in events:
        reason, message = str(event.get("reason")), str(event.get("message") or "")
        if reason in ("FailedMount", "FailedAttachVolume"):
            lacking = _missing(message)
            return PendingReason(lacking or f"a volume cannot be mounted: {short(message)}", is_lasting=bool(lacking))
        if reason == "FailedCreatePodSandBox":
            is_lasting = "no runtime for" in message  # as set by `runtimeClassName`
            return PendingReason(f"its node cannot create its container: {short(message)}", is_lasting=is_lasting)
        if reason.startswith("FailedPrepare"):  # claimed devices
            return PendingReason(f"its node cannot prepare it: {short(message)}")
        if reason == "Pulling":
            return PendingReason(_PULLING)
        if reason in ("Pulled", "Created", "Started"):
            break
    return PendingReason(_CREATING)


def unschedulable(message: str) -> PendingReason:
    """Parse a scheduler's message about why no node fits: `0/3 nodes are available: 2 Insufficient cpu, …`."""
    claim = re.search(r'persistentvolumeclaim "([^"]+)" (not found|is being deleted)', message)
    if claim is not None:
        is_absent = claim[2] == "not found"
        return PendingReason(
            f"its volume claim `{claim[1]}` {'does not exist' if is_absent else claim[2]}", is_lasting=is_absent
        )
    if "unbound immediate PersistentVolumeClaims" in message:
        return PendingReason("its volume claim has no volume yet")
    if message.startswith("no nodes available"):
        return PendingReason("the cluster has no nodes")
    head = re.match(r"\d+/(\d+) nodes are (?:un)?available: ?(.*)", message, re.DOTALL)  # as written by Volcano
    if head is None:
        return PendingReason(f"no node fits: {short(message) or 'the scheduler gives no reason'}")
    # The sentences after the first are about preemption.
    total, rest = int(head[1]), re.split(r"\.(?:\s|\Z)|\bpreemption: ", head[2])[0].strip()
    wants: list[str] = []
    shortages: list[str] = []
    for count, reason in re.findall(r"(\d+) (.+?)(?=, \d+ |\Z)", rest, re.DOTALL):
        want, has, have = _node_words(reason)
        wants += [want] if want and want not in wants else []
        shortages.append(f"{count} of {total} {'nodes ' if not shortages else ''}{has if count == '1' else have}")
    if not shortages:
        return PendingReason(f"no node fits: {short(rest) or 'the scheduler gives no reason'}")
    return PendingReason(f"it needs a node {' and '.join(wants) or 'that fits'}: {', '.join(shortages)}")


def _node_words(reason: str) -> tuple[str, str, str]:
    """(the requirement on a node, the state of one node, the state of several)."""
    scarce = re.match(r"Insufficient (\S+)", reason)
    if scarce is not None:
        many, few = _resource(scarce[1])
        return f"with enough free {many}", f"has {few}", f"have {few}"
    taint = re.search(r"taint\(?s?\)? ?(\{[^}]*\})?", reason)
    if taint is not None:
        what = f" {re.sub(r':? ?}', '}', taint[1])}" if taint[1] else ""
        return "", f"has a taint{what} that it does not tolerate", f"have a taint{what} that it does not tolerate"
    for text, want, rest in _NODE_REASONS:
        if text in reason:
            return want, rest, _plural(rest)
    return "", f"does not fit: {short(reason)}", f"do not fit: {short(reason)}"


_NODE_REASONS = (
    ("volume node affinity", "", "is not where its volume is"),
    ("PersistentVolume's node affinity", "", "is not where its volume is"),
    ("available persistent volumes to bind", "", "has no volume for its claim"),
    ("no available volume zone", "", "is not where its volume is"),
    ("node affinity", "that matches its selector", "does not match its node selector or affinity"),
    ("node selector", "that matches its selector", "does not match its node selector or affinity"),
    ("unschedulable", "", "is closed to new pods"),
    ("anti-affinity", "", "has pods that its anti-affinity excludes"),
    ("pod affinity", "", "has no pods that its affinity requires"),
    ("topology spread", "", "has too many of its pods already"),
    ("Too many pods", "with room for another pod", "has the maximum number of pods"),
    ("free ports", "", "has its port taken"),
    ("max volume count", "", "has the maximum number of volumes"),
    ("cannot allocate all claims", "with the devices that it claims", "has too few of the devices that it claims"),
    ("not ready", "", "is not ready"),
)


def _plural(words: str) -> str:
    for one, many in (("does not", "do not"), ("has its port", "have its port"), ("has ", "have "), ("is ", "are ")):
        if words.startswith(one):
            return many + words[len(one) :]
    return words


def _resource(name: str) -> tuple[str, str]:
    if name in ("cpu", "memory"):
        text = {"cpu": "CPU"}.get(name, name)
        return text, f"too little {text}"
    if name == "ephemeral-storage":
        return "disk", "too little disk"
    kind = "GPUs" if name.endswith("/gpu") else "TPUs" if name.endswith("/tpu") else name
    return kind, f"too few {kind} ({name})" if kind != name else f"too few of {name}"
