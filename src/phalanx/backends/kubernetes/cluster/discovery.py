"""Discovery of what a cluster offers and what the user may do there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, NamedTuple

from phalanx.backends.kubernetes.cluster.api import JOBS, NAMESPACES, NODES, PODS, Api, ApiFault, Document, ResourceKind
from phalanx.backends.kubernetes.cluster.assumed_offer import JOB, KUBEFLOW, TRAINER
from phalanx.backends.kubernetes.render.gang_scheduling import QUEUE_LABEL
from phalanx.backends.kubernetes.target import Cluster

KUEUE, VOLCANO, PLUGINS = "kueue.x-k8s.io", "scheduling.volcano.sh", "scheduling.x-k8s.io"
_KINDS = {  # the kinds used of each group
    KUBEFLOW: ("TFJob", "PyTorchJob", "XGBoostJob", "MXJob", "PaddleJob", "JAXJob", "MPIJob"),
    TRAINER: ("TrainJob",),
    "jobset.x-k8s.io": ("JobSet",),
    VOLCANO: ("PodGroup",),
    PLUGINS: ("PodGroup",),
    KUEUE: ("LocalQueue",),
}
GANGS = {"volcano": VOLCANO, "scheduler-plugins": PLUGINS}  # schedulers with an object for a gang
_CONFINED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_PROBED = {  # a pod that is only used in dry runs
    "restartPolicy": "Never",
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [{"name": "probe", "image": "probe", "securityContext": _CONFINED}],
}
POD_SECURITY = "pod-security.kubernetes.io"
AT_ONCE = 8


class Need(NamedTuple):
    """A verb on a resource of a group, as a Role names them."""

    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"


def _needs(verbs: str, group: str, *resources: str) -> Iterator[Need]:
    return (Need(verb, group, resource) for resource in resources for verb in verbs.split())


_MAKE = "create get delete"
_MAKE_AND_WATCH = "create get delete list watch"
NEEDED: tuple[Need, ...] = (  # in the namespace of the runs: the Role of deploy/kubernetes has exactly these
    *_needs(_MAKE, "", "configmaps", "secrets", "services"),
    *_needs("list watch delete", "", "pods"),
    *_needs("get", "", "pods/log"),
    *_needs("list watch", "", "events"),
    *_needs(_MAKE_AND_WATCH, "batch", "jobs"),
    *_needs(_MAKE_AND_WATCH, KUBEFLOW, "tfjobs", "pytorchjobs", "xgboostjobs", "jaxjobs", "mxjobs", "mpijobs"),
    *_needs(_MAKE_AND_WATCH, TRAINER, "trainjobs"),
    *_needs(_MAKE_AND_WATCH, VOLCANO, "podgroups"),
    *_needs(_MAKE_AND_WATCH, PLUGINS, "podgroups"),
    *_needs("list", KUEUE, "localqueues"),
)
HELPFUL: tuple[Need, ...] = (  # for the doctor report; runs do not need them
    *_needs("list", "", "resourcequotas", "limitranges", "nodes"),
    *_needs("get", "", "namespaces"),
    *_needs("list", TRAINER, "clustertrainingruntimes", "trainingruntimes"),
)


_OPTIONAL = (KUEUE, *GANGS.values())  # groups that runs do not need unless a file names one


def rules(needs: Iterable[Need] = NEEDED) -> list[dict[str, list[str]]]:
    """The same in the form of a Role."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for need in needs:
        verbs.setdefault((need.group, need.resource), []).append(need.verb)
    made: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), said in verbs.items():
        made.setdefault((group, tuple(said)), []).append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(said)} for (group, said), resources in made.items()
    ]


def discover(api: Api) -> Cluster:
    """Discover with a few requests. Raises ApiFault, ApiUnreachable; optional resources that are forbidden count as
    absent."""
    version = api.request("GET", "/version")
    groups = {group["name"]: _versions(group) for group in api.request("GET", "/apis").get("groups") or ()}
    kinds: dict[str, tuple[str, ...]] = dict(JOB)
    for group, wanted in _KINDS.items():
        for served in groups.get(group, ()):
            for kind in _kinds_of(api, f"{group}/{served}"):
                if kind in wanted:
                    kinds[kind] = (*kinds.get(kind, ()), f"{group}/{served}")
    if "MPIJob" in kinds:
        kinds["MPIJob"] = tuple(
            sorted(kinds["MPIJob"], reverse=True)
        )  # prefer the MPI operator's version to the training operator's
    queues, queues_all = _queues(api, kinds.get("LocalQueue", ()))
    queues_pods = not queues or queues_all or _has_groups(api, queues[0])
    runtimes = _names(
        api, _first(groups, TRAINER, "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False)
    )
    return Cluster(
        (_number(version.get("major")), _number(version.get("minor"))),
        MappingProxyType(kinds),
        _gang(api, kinds, is_queued=bool(queues) or queues_all),
        queues,
        runtimes,
        is_assumed=False,
        own_runtimes=_names(api, _first(groups, TRAINER, "trainingruntimes", "TrainingRuntime")),
        queues_all=queues_all,
        queues_pods=queues_pods,
        pod_security=_pod_security(_asked(api, NAMESPACES.path(name=api.namespace))),
    )


def _versions(group: Mapping[str, Any]) -> tuple[str, ...]:
    """The served versions, the preferred one first."""
    best = (group.get("preferredVersion") or {}).get("version")
    served = [one["version"] for one in group.get("versions") or ()]
    return tuple(sorted(served, key=lambda one: one != best))


def _kinds_of(api: Api, served: str) -> list[str]:
    answer = _asked(api, f"/apis/{served}") or {}
    return [one["kind"] for one in answer.get("resources") or () if "/" not in one["name"]]


def _asked(api: Api, path: str) -> Document | None:
    """None: absent or forbidden."""
    try:
        answer: Document = api.request("GET", path)
    except ApiFault as fault:
        if fault.code in (403, 404, 503):
            return None
        raise
    return answer


def _first(
    groups: Mapping[str, tuple[str, ...]], group: str, plural: str, kind: str, *, namespaced: bool = True
) -> ResourceKind | None:
    return ResourceKind(group, groups[group][0], plural, kind, namespaced) if groups.get(group) else None


def _listed(api: Api, kind: ResourceKind | None) -> list[Document] | None:
    """None: absent or forbidden."""
    if kind is None:
        return None
    try:
        return list(api.list(kind).items)
    except ApiFault as fault:
        if fault.code in (403, 404):
            return None
        raise


def _names(api: Api, kind: ResourceKind | None) -> tuple[str, ...]:
    return tuple(one["metadata"]["name"] for one in _listed(api, kind) or ())


def _queues(api: Api, served: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """Return the visible Kueue queues, and whether Kueue also manages a Job that names none. A dry-run creation shows
    the latter; a rejected dry run shows nothing."""
    if not served:
        return (), False
    group, _, version = served[0].partition("/")
    queues = _names(api, ResourceKind(group, version, "localqueues", "LocalQueue"))
    made = _rehearsed(api, JOBS, spec={"template": {"spec": _PROBED}})
    if made is None:
        return queues, False
    given = (made["metadata"].get("labels") or {}).get(QUEUE_LABEL)
    return tuple(dict.fromkeys((*queues, *filter(None, [given])))), bool(made["spec"].get("suspend"))


def _has_groups(api: Api, queue: str) -> bool:
    """Return whether Kueue holds back pods that name a queue: not every installation manages plain pods."""
    made = _rehearsed(api, PODS, labels={QUEUE_LABEL: queue}, spec=_PROBED)
    gates = (made or {}).get("spec", {}).get("schedulingGates") or ()
    return made is None or any(str(gate.get("name")).startswith(f"{KUEUE}/") for gate in gates)


def _rehearsed(
    api: Api, kind: ResourceKind, *, spec: Document, labels: Mapping[str, str] = MappingProxyType({})
) -> Any:
    """Return the object that a dry run would create; None if it is rejected."""
    meta = {"name": "phalanx-probe", "labels": dict(labels)}
    version = f"{kind.group}/{kind.version}".lstrip("/")
    try:
        return api.create(kind, {"apiVersion": version, "kind": kind.kind, "metadata": meta, "spec": spec}, dry=True)
    except ApiFault:
        return None


def _gang(api: Api, kinds: Mapping[str, tuple[str, ...]], *, is_queued: bool) -> str | None:
    """Kueue counts if it has a visible queue or manages every Job; others count if the user may create their gang
    object."""
    if is_queued:
        return "kueue"
    groups = {served.partition("/")[0] for served in kinds.get("PodGroup", ())}
    able = (name for name, group in GANGS.items() if group in groups and _may(api, Need("create", group, "podgroups")))
    return next(able, "kueue" if "LocalQueue" in kinds else None)


def _number(text: Any) -> int:
    """Parse a version number; some clouds write 28+."""
    found = re.match(r"\d+", str(text))
    return int(found[0]) if found else 0


# the report for users


class Survey(NamedTuple):
    """`problems` prevent runs; `notes` do not. `missing`: needed permissions that the user lacks."""

    cluster: Cluster
    server: str
    context: str
    namespace: str
    user: str
    version: str
    has_namespace: bool | None  # None: unknown
    pod_security: str | None
    nodes: int | None
    devices: tuple[Document, ...]
    quotas: tuple[Document, ...]
    limits: tuple[Document, ...]
    missing: tuple[Need, ...]
    unhelpful: tuple[Need, ...]

    def as_json(self) -> Document:
        cluster = self.cluster
        return {
            "server": self.server,
            "context": self.context,
            "namespace": self.namespace,
            "user": self.user,
            "version": self.version,
            "kinds": {kind: list(served) for kind, served in cluster.kinds.items()},
            "gang": cluster.gang,
            "queues": list(cluster.queues),
            "runtimes": list(dict.fromkeys((*cluster.runtimes, *cluster.own_runtimes))),
            "pod_security": self.pod_security,
            "nodes": self.nodes,
            "devices": list(self.devices),
            "quotas": list(self.quotas),
            "limits": list(self.limits),
            "missing": [need._asdict() for need in self.missing],
        }


def survey(api: Api, needs: Iterable[Need] = NEEDED, helpful: Iterable[Need] = HELPFUL) -> Survey:
    """Collect everything that `phalanx doctor --on kubernetes` reports. Raises CallError, ApiFault, ApiUnreachable."""
    version = api.greet()
    cluster = discover(api)
    groups = {served.rpartition("/")[0] for many in cluster.kinds.values() for served in many} | {""}
    space = _asked(api, NAMESPACES.path(name=api.namespace))
    denied = _denied(api, [need for need in needs if need.group in groups])
    missing = tuple(need for need in denied if need.group not in _OPTIONAL)
    unhelpful = _denied(api, [need for need in helpful if need.group in groups])
    unhelpful += tuple(need for need in denied if need.group in _OPTIONAL)
    nodes = _listed(api, NODES)
    return Survey(
        cluster,
        api.server,
        api.context,
        api.namespace,
        api.user,
        str(version.get("gitVersion") or f"v{cluster.version[0]}.{cluster.version[1]}").removeprefix("v"),
        True if space is not None else None if Need("get", "", "namespaces") in unhelpful else False,
        _pod_security(space),
        None if nodes is None else len(nodes),
        tuple(_devices(nodes or ())),
        tuple(_quotas(_listed(api, ResourceKind("", "v1", "resourcequotas", "ResourceQuota")) or ())),
        tuple(_limits(_listed(api, ResourceKind("", "v1", "limitranges", "LimitRange")) or ())),
        missing,
        unhelpful,
    )


def _denied(api: Api, needs: list[Need]) -> tuple[Need, ...]:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        allowed = list(threads.map(lambda need: _may(api, need), needs))
    return tuple(need for need, may in zip(needs, allowed, strict=True) if not may)


def _may(api: Api, need: Need) -> bool:
    resource, _, part = need.resource.partition("/")
    is_everywhere = resource in ("nodes", "clustertrainingruntimes")
    asked = {"verb": need.verb, "group": need.group, "resource": resource, "subresource": part}
    asked["namespace"] = "" if is_everywhere else api.namespace
    asked |= {"name": api.namespace} if resource == "namespaces" else {}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = api.request("POST", path, {**kind, "spec": {"resourceAttributes": asked}})
    return bool((answer.get("status") or {}).get("allowed"))


def _pod_security(space: Document | None) -> str | None:
    labels = ((space or {}).get("metadata") or {}).get("labels") or {}
    said = labels.get(f"{POD_SECURITY}/enforce")
    return str(said) if said else None


def _devices(nodes: Iterable[Document]) -> Iterator[Document]:
    """GPUs and similar devices: node resources besides cores and memory."""
    found: dict[tuple[str, str], list[int]] = {}
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        is_closed = bool((node.get("spec") or {}).get("unschedulable"))
        for device, said in ((node.get("status") or {}).get("allocatable") or {}).items():
            count = _number(said) if "/" in device else 0
            if count and not is_closed and not device.startswith(("attachable-volumes-", "hugepages-")):
                model = labels.get(f"{device}.product") or labels.get("cloud.google.com/gke-accelerator") or ""
                found.setdefault((device, model), []).append(count)
    for (device, model), counts in sorted(found.items()):
        row: Document = {"device": device, "model": model or None, "nodes": len(counts)}
        yield {**row, "per_node": max(counts), "total": sum(counts)}


def _quotas(documents: Iterable[Document]) -> Iterator[Document]:
    for one in documents:
        status = one.get("status") or {}
        hard = status.get("hard") or (one.get("spec") or {}).get("hard") or {}
        for resource, most in sorted(hard.items()):
            used = (status.get("used") or {}).get(resource, "0")
            row = {"quota": one["metadata"]["name"], "resource": resource, "used": str(used), "hard": str(most)}
            yield {**row, "is_used_up": amount(used) >= amount(most)}


def _limits(documents: Iterable[Document]) -> Iterator[Document]:
    for one in documents:
        for limit in (one.get("spec") or {}).get("limits") or ():
            for what in ("max", "default", "defaultRequest", "min"):
                for resource, value in sorted((limit.get(what) or {}).items()):
                    row = {"range": one["metadata"]["name"], "of": limit.get("type"), "what": what}
                    yield {**row, "resource": resource, "value": str(value)}


_SUFFIXES = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SUFFIXES |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)}


def amount(text: Any) -> float:
    """Parse a Kubernetes quantity: 500m, 2Gi, 1e3."""
    found = re.fullmatch(r"([+-]?[\d.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)", str(text))
    try:
        return float(found[1]) * _SUFFIXES[found[2]] if found else 0.0
    except (KeyError, ValueError):
        return 0.0
