"""What an attempt waits for on Kubernetes, in plain words. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from phalanx.backends.kubernetes.sighted import (
    Group,
    Object,
    condition_of,
    conditions_of,
    has_begun,
    is_build,
    is_suspended,
    labels_of,
    meta_of,
    short,
    told_at,
)

_NO_OBJECT: Object = {}


def waiting_for(group: Group) -> str:
    """What is in the way, of what keeps the most pods waiting."""
    pods = [pod for pod in group.pods if not is_build(pod)]
    waits = Counter(pod_waits(pod, group) for pod in pods if not has_begun(pod))
    held = next(filter(None, map(_held, group.works)), "")
    complaint = "" if held else _refused(group)
    if not waits:
        gang = next(filter(None, map(_gang_waits, group.gangs)), "")
        return held or complaint or gang or "its pods are being made"
    words, count = max(waits.items(), key=lambda item: (item[0] not in _PATIENT, item[1]))
    told = words if count == len(pods) else f"{count} of {len(pods)} pods: {words}"
    return "; ".join(filter(None, (complaint, told)))


def _held(work: Object) -> str:
    if not is_suspended(work):
        return ""
    queue = labels_of(work).get("kueue.x-k8s.io/queue-name")
    if queue:
        return f"Kueue has not admitted it yet: its queue `{queue}` has no room, or others come first"
    return "it is suspended: somebody must let it go (`suspend: false`)"


def _refused(group: Group) -> str:
    """Why pods cannot be made, as events of what should make them say."""
    makers = {str(meta_of(work).get("name")) for work in (*group.works, *group.builds)}
    for event in sorted(group.events, key=told_at, reverse=True):
        about = event.get("involvedObject") or {}
        if event.get("reason") in ("FailedCreate", "FailedCreatePod") and about.get("name") in makers:
            return refusal(str(event.get("message") or ""))
    return ""


def refusal(message: str) -> str:
    """Why the cluster does not take a pod."""
    quota = re.search(r"exceeded quota: ([^,]+), requested: (.+?), used: (.+?), limited: (.+?)\.?\Z", message.strip())
    if quota is not None:
        return f"the quota `{quota[1]}` is used up: it asks for {quota[2]}, used are {quota[3]} of {quota[4]}"
    unsaid = re.search(r"failed quota: ([^:]+): must specify (.+)", message)
    if unsaid is not None:
        return f"the quota `{unsaid[1]}` wants every pod to say {unsaid[2]}: it will never start without"
    policy = re.search(r'violates PodSecurity "([^"]+)": (.+)', message, re.DOTALL)
    if policy is not None:
        return f"the pod security of the namespace ({policy[1]}) refuses it: {short(policy[2])}: it will never start"
    account = re.search(r'serviceaccounts? "([^"]+)" not found', message)
    if account is not None:
        return f"there is no service account `{account[1]}` in the namespace"
    return f"its pods cannot be made: {short(message)}"


def _gang_waits(gang: Object) -> str:
    status = gang.get("status") or {}
    if status.get("phase") not in (None, "", "Pending", "Inqueue", "PreScheduling", "Scheduling"):
        return ""
    unfit = next((one for one in reversed(conditions_of(gang)) if one.get("type") == "Unschedulable"), _NO_OBJECT)
    said = short(str(unfit.get("message") or ""))
    return f"its pods start together, and there is no room for all of them yet{': ' + said if said else ''}"


_CREATING = "its container is being made"
_PULLING = "its image is being pulled"
_UNSEEN = "no scheduler has looked at it yet"
_PATIENT = (_CREATING, _PULLING, _UNSEEN)
_REASONS = {
    "ErrImagePull": "its image cannot be pulled",
    "ImagePullBackOff": "its image cannot be pulled",
    "RegistryUnavailable": "the registry of its image does not answer",
    "ErrImageNeverPull": "its image is not on the node, and may not be pulled",
    "ImageInspectError": "its image cannot be read",
    "InvalidImageName": "the name of its image is not one",
    "CreateContainerConfigError": "its container lacks something",
    "CreateContainerError": "its container cannot be made",
    "RunContainerError": "its container cannot be started",
    "CrashLoopBackOff": "it fails again and again, and is started again later",
}
_SILENT = ("ContainerCreating", "PodInitializing", "")


def pod_waits(pod: Object, group: Group) -> str:
    status = pod.get("status") or {}
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        if scheduled.get("reason") == "SchedulingGated":
            gates = ", ".join(str(gate.get("name")) for gate in (pod.get("spec") or {}).get("schedulingGates") or ())
            return "Kueue has not admitted it yet" if "kueue" in gates else f"it is held back by a gate: {gates}"
        return unschedulable(str(scheduled.get("message") or ""))
    for one in status.get("initContainerStatuses") or ():
        state = one.get("state") or {}
        if state.get("running") is not None:
            return f"step `{one.get('name')}` is at work"
        words = _container_waits(one)
        if words:
            return f"step `{one.get('name')}`: {words}"
    for one in status.get("containerStatuses") or ():
        words = _container_waits(one)
        if words:
            return words
    if scheduled is None and not (pod.get("spec") or {}).get("nodeName"):
        name = (pod.get("spec") or {}).get("schedulerName", "default-scheduler")
        return _UNSEEN if name == "default-scheduler" else f"{_UNSEEN}: is `{name}` at work?"
    return _told_by_events(pod, group.events)


def _container_waits(status: Object) -> str:
    """Why one container waits; empty when it does not say."""
    waiting = (status.get("state") or {}).get("waiting") or {}
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if reason in _SILENT:
        return ""
    missing = re.search(r'(secret|configmap) "([^"]+)" not found', message, re.IGNORECASE)
    if missing is not None:
        return f"there is no {_KINDS[missing[1].lower()]} `{missing[2]}` in the namespace"
    key = re.search(r"couldn't find key (\S+) in (Secret|ConfigMap) (?:\S+/)?(\S+)", message)
    if key is not None:
        return f"the {key[2]} `{key[3]}` has no key `{key[1]}`"
    if "non-root" in message or "runAsNonRoot" in message:
        return "its image runs as root, which pods here may not: `environment.security_context` can name a user"
    words = _REASONS.get(reason, reason)
    if "mage" in reason:
        words = f"{words}: {status.get('image') or 'none is named'}"
    said = "" if reason == "ImagePullBackOff" and message.startswith("Back-off") else short(message)
    return f"{words} ({said})" if said else words


_KINDS = {"secret": "Secret", "configmap": "ConfigMap"}


def _told_by_events(pod: Object, events: Iterable[Object]) -> str:
    """Of a pod that has its node: what its kubelet is at."""
    uid = meta_of(pod).get("uid")
    mine = [one for one in events if (one.get("involvedObject") or {}).get("uid") == uid]
    for event in sorted(mine, key=told_at, reverse=True):
        reason, message = event.get("reason"), str(event.get("message") or "")
        if reason in ("FailedMount", "FailedAttachVolume"):
            missing = re.search(r'(secret|configmap|persistentvolumeclaim)s? "([^"]+)" not found', message)
            if missing is not None:
                kind = _KINDS.get(missing[1], "volume claim")
                return f"there is no {kind} `{missing[2]}` in the namespace"
            return f"a volume cannot be mounted: {short(message)}"
        if reason == "FailedCreatePodSandBox":
            return f"its node cannot make its container: {short(message)}"
        if reason == "Pulling":
            return _PULLING
        if reason in ("Pulled", "Created", "Started"):
            break
    return _CREATING


def unschedulable(message: str) -> str:
    """What a scheduler says of why no node takes a pod: `0/3 nodes are available: 2 Insufficient cpu, …`."""
    claim = re.search(r'persistentvolumeclaim "([^"]+)" (not found|is being deleted)', message)
    if claim is not None:
        return f"its volume claim `{claim[1]}` {'is not there' if claim[2] == 'not found' else claim[2]}"
    if "unbound immediate PersistentVolumeClaims" in message:
        return "its volume claim has no volume yet"
    if message.startswith("no nodes available"):
        return "the cluster has no nodes"
    head = re.match(r"\d+/(\d+) nodes are available: ?(.*)", message, re.DOTALL)
    if head is None:
        return f"no node takes it: {short(message) or 'the scheduler does not say why'}"
    total, rest = int(head[1]), re.split(r"\.? ?preemption: ", head[2])[0].strip().rstrip(".")
    wants: list[str] = []
    told: list[str] = []
    for count, reason in re.findall(r"(\d+) (.+?)(?=, \d+ |\Z)", rest, re.DOTALL):
        want, has, have = _node_words(reason)
        wants += [want] if want and want not in wants else []
        told.append(f"{count} of {total} {'nodes ' if not told else ''}{has if count == '1' else have}")
    if not told:
        return f"no node takes it: {short(rest) or 'the scheduler does not say why'}"
    return f"it needs a node {' and '.join(wants) or 'that takes it'}: {', '.join(told)}"


def _node_words(reason: str) -> tuple[str, str, str]:
    """(what is wanted of a node, what one node has instead, what several have)."""
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
    return "", f"refuses: {short(reason)}", f"refuse: {short(reason)}"


_NODE_REASONS = (
    ("volume node affinity", "", "is not where its volume is"),
    ("node affinity", "of the kind it asks for", "does not match its node selector or affinity"),
    ("node selector", "of the kind it asks for", "does not match its node selector or affinity"),
    ("unschedulable", "", "is closed to new pods"),
    ("anti-affinity", "", "has pods that it may not be beside"),
    ("pod affinity", "", "has no pods that it must be beside"),
    ("topology spread", "", "has too many of its pods already"),
    ("Too many pods", "with room for another pod", "has as many pods as it may"),
    ("free ports", "", "has its port taken"),
    ("max volume count", "", "has as many volumes as it may"),
    ("not ready", "", "is not ready"),
)


def _plural(words: str) -> str:
    for one, many in (("does not", "do not"), ("has its port", "have its port"), ("has ", "have "), ("is ", "are ")):
        if words.startswith(one):
            text = many + words[len(one) :]
            return text.replace("as it may", "as they may")
    return words


def _resource(name: str) -> tuple[str, str]:
    if name in ("cpu", "memory"):
        text = {"cpu": "CPU"}.get(name, name)
        return text, f"too little {text}"
    if name == "ephemeral-storage":
        return "disk", "too little disk"
    kind = "GPUs" if name.endswith("/gpu") else "TPUs" if name.endswith("/tpu") else name
    return kind, f"too few {kind} ({name})" if kind != name else f"too few of {name}"
