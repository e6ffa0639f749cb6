"""The pod template of replicas with equal settings.

A pod satisfies the *restricted* standard unless the file overrides it. No shell reads user input, and the kubelet,
which replaces `$(NAME)` in values and arguments, expands none of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from phalanx.backends.kubernetes.render import names, pod_patch, volumes
from phalanx.backends.kubernetes.render.addresses import AddressTables
from phalanx.backends.kubernetes.target import (
    ATTEMPT,
    CODE_AT,
    HOME_AT,
    JOB_AT,
    LOST_NODE_TAINTS,
    PORT,
    RUN_AT,
    ClusterTarget,
)
from phalanx.errors import CallError
from phalanx.plan.document import is_secret
from phalanx.plan.model import Plan, Replica, in_common, one_of_each

CONTAINER, PREPARE, FETCH = "phalanx", "prepare", "code"
GRACE_S = 30  # termination grace period, unless a file sets another
USER = 1000
MOST_VARIABLES = 64 << 10  # bytes of variables in a template; the agent reads all of them from plan.json
MOST_MEMBERS = 120 << 10  # the system's limit of a variable
_PARAMS = ("PHALANX_PARAMS", "POLYAXON_PARAMS", "POLYAXON_DECLARATIONS")
_FIELDS = {
    "PHALANX_ATTEMPT": f"metadata.labels['{ATTEMPT}']",
    "PHALANX_NODE": "spec.nodeName",
    "PHALANX_POD": "metadata.name",
}
_GRACE = "terminationGracePeriodSeconds"
_NO_GPU = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}  # GPU images would otherwise expose all GPUs of the node
_INDICES = ("PHALANX_POD_INDEX", "JOB_COMPLETION_INDEX")  # identify the pod
_EXPANDED = re.compile(r"\$(?=[$(])")
START = ("/bin/sh", f"{JOB_AT}/start.sh")
_FETCH = """\
set -e
git init -q "$3"
cd "$3"
git remote add origin "$1" 2>/dev/null || git remote set-url origin "$1"
if git fetch -q --depth 1 origin "$2"; then
  git checkout -q --detach FETCH_HEAD
else
  git fetch -q --tags origin "+refs/heads/*:refs/remotes/origin/*"
  git checkout -q --detach "$2"
fi
"""


def template(  # noqa: PLR0913 - what operators want differently
    made: Plan,
    members: Sequence[Replica],
    target: ClusterTarget,
    *,
    tables: AddressTables,
    container: str = CONTAINER,
    index_from: str | None = None,
    hostname: str | None = None,
    subdomain: str | None = None,
    is_launched: bool = False,
    image: str | None = None,
    leave: Collection[str] = (),
) -> dict[str, Any]:
    """The template of the pods of members that all have the settings of the first.

    `container`: the name that an operator requires. `index_from`: the label in which it numbers its pods.
    `is_launched`: it sets its own command. `image`: one that was built for this run. `leave`: variables that it sets
    itself. Raises CallError with every fault.
    """
    first = members[0]
    faults: list[str] = []
    found = volumes.mounted(made, first, target, faults)
    main: dict[str, Any] = {
        "name": container,
        "image": image or _image(made, target, faults),
        **_resources(first, target, faults),
        "env": [*_variables(_texts(made, members, target, tables, leave), faults), *_fields(index_from)],
        "envFrom": _sources(made, first, faults),
        "volumeMounts": [dict(item.mount) for item in found],
        "securityContext": _restricted(),
    }
    if not is_launched:
        main["command"] = [*START, "run"]
        main["args"] = [unexpanded(tables.text(made, word)) for word in first.argv]
    if made.is_distributed and container == CONTAINER:
        main["ports"] = [{"containerPort": PORT}]
    steps = list(_init_containers(made, target, main, volumes.for_init(found), faults))
    optional = {"initContainers": steps or None, "hostname": hostname, "subdomain": subdomain}
    spec = {
        **_for_all_pods(first),
        "containers": [main],
        "volumes": volumes.listed(found),
        **_placement(made, first, faults),
        **{key: value for key, value in optional.items() if value is not None},
    }
    metadata = _metadata(made, members, faults)
    if faults:
        raise CallError("\n".join(dict.fromkeys(faults)))
    return _with_devices_seen(
        pod_patch.merged({"metadata": metadata, "spec": spec}, made, target, container), container
    )


def grace_s(made: Plan, target: ClusterTarget) -> int:
    """The termination grace period of a pod."""
    said = pod_patch.override_of(made, target, _GRACE)
    return said if type(said) is int and said >= 0 else GRACE_S


def _for_all_pods(member: Replica) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        _GRACE: GRACE_S,
        "automountServiceAccountToken": member.settings.service_account is not None,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",  # avoids a chown of a large volume for every pod
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _restricted() -> dict[str, Any]:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _with_devices_seen(found: dict[str, Any], container: str) -> dict[str, Any]:
    """A file may also request devices in its pod patch: then hiding them would override the node's setting."""
    box = next(box for box in found["spec"]["containers"] if box["name"] == container)
    if any("/" in str(name) for name in pod_patch.part_of(box, "resources", "limits")):
        box["env"] = [variable for variable in box["env"] if variable != _NO_GPU]
    return found


def hidden(made: Plan, members: Iterable[Replica] | None = None) -> frozenset[str]:
    """The variables of a run, or of some of its members, whose values belong in its Secret, because their names or
    those of their params look secret."""
    firsts = one_of_each(made.replicas if members is None else members)
    every = set(made.shared).union(*(member.environment for member in firsts))
    found = {name for name in every if is_secret(name)}
    params = next((made.shared[name] for name in _PARAMS if name in made.shared), "{}")
    if isinstance(params, str) and any(map(is_secret, _keys(json.loads(params)))):
        found |= {name for name in _PARAMS if name in made.shared}
    return frozenset(found)


def unexpanded(text: str) -> str:
    """Escape a text for the kubelet, which replaces `$(NAME)` and reads `$$` as `$`."""
    return _EXPANDED.sub("$$", text)


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


def _image(made: Plan, target: ClusterTarget, faults: list[str]) -> str:
    build = made.build
    if build is None or (build.image is None and build.dockerfile is None and build.ref is None):
        return target.settings.image
    if build.image is None:
        what, hint = "ref", "images of earlier builds are not available here: name one (`build: {image: ...}`)"
        if build.dockerfile is not None:
            what, hint = "dockerfile", "no image was built from it: set `registry` in kubernetes.yml, or name an image"
        faults.append(f"`build.{what}`: {hint}")
        return target.settings.image
    return build.image


def _resources(member: Replica, target: ClusterTarget, faults: list[str]) -> dict[str, Any]:
    asked = member.resources
    found: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for name, written in (("cpu", _cpus), ("memory", volumes.memory)):
        amount = getattr(asked, name)
        for bound, into in found.items() if amount is not None else ():
            value = getattr(amount, bound)
            if value is not None:
                into[name] = written(value)
    for name in ("gpu", "tpu"):
        amount = getattr(asked, name)
        bounds = {value for value in amount or () if value is not None}
        if not any(bounds):
            continue
        count = max(bounds)
        key = target.settings.devices.get(name)
        if len(bounds) > 1:
            faults.append(f"`resources.{name}`: devices cannot be shared: write the same for requests and limits")
        elif count != int(count):
            faults.append(f"`resources.{name}: {count:g}`: devices cannot be split: write a whole number")
        elif key is None:
            hint = f"add `devices: {{{name}: <its name on the nodes>}}`"
            faults.append(f"`resources.{name}`: kubernetes.yml does not define this device: {hint}")
        else:
            found["requests"][key] = found["limits"][key] = str(int(count))
    kept = {bound: amounts for bound, amounts in found.items() if amounts}
    return {"resources": kept} if kept else {}


def _cpus(count: float) -> str:
    return str(int(count)) if count == int(count) else f"{max(1, round(count * 1000))}m"


def _texts(
    made: Plan, members: Sequence[Replica], target: ClusterTarget, tables: AddressTables, leave: Collection[str]
) -> dict[str, str]:
    """The variables of a template. Phalanx's come last, so a file cannot change a pod's identity."""
    left = {*hidden(made, members), *leave, *_FIELDS, *_INDICES}
    values = {**made.shared, **in_common(members)}
    texts = {name: tables.text(made, value) for name, value in values.items() if name not in left}
    texts.setdefault("HOME", volumes.home_at(target))
    if not any(members[0].resources.gpu or ()):
        texts.setdefault(_NO_GPU["name"], _NO_GPU["value"])
    _keep_small(texts)
    return texts | {"PHALANX_MEMBERS": ",".join(member.name for member in members)}


def _variables(texts: Mapping[str, str], faults: list[str]) -> Iterator[dict[str, Any]]:
    for name, text in texts.items():
        if not names.is_variable(name) or "\0" in text:
            faults.append(f"the environment variable `{name[:60]}` cannot be set: it has a NUL or an invalid name")
        yield {"name": name, "value": unexpanded(text)}
    if len(texts["PHALANX_MEMBERS"]) > MOST_MEMBERS:
        faults.append("too many replicas for one Job: give some of them different settings")


def _fields(index_from: str | None) -> Iterator[dict[str, Any]]:
    """Values that only the pod knows."""
    fields = dict(_FIELDS)
    if index_from is not None:
        fields["PHALANX_POD_INDEX"] = f"metadata.labels['{index_from}']"
    for name, path in fields.items():
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _keep_small(texts: dict[str, str]) -> None:
    """Remove the largest variables until the total is small enough."""
    sizes = {name: len(name) + len(text.encode("utf-8", "surrogatepass")) for name, text in texts.items()}
    total = sum(sizes.values())
    for name in sorted(sizes, key=lambda name: sizes[name], reverse=True):
        if total <= MOST_VARIABLES:
            return
        total -= sizes[name]
        del texts[name]


def _sources(made: Plan, member: Replica, faults: list[str]) -> list[dict[str, Any]]:
    """Later sources override earlier ones: the run's Secret is the last."""
    settings = member.settings
    for key, refs in (("config_map_refs", settings.config_map_refs), ("secret_refs", settings.secret_refs)):
        faults.extend(_misnamed(key, refs))
    return [
        *({"configMapRef": {"name": name}} for name in dict.fromkeys(settings.config_map_refs or ())),
        *({"secretRef": {"name": name}} for name in dict.fromkeys(settings.secret_refs or ())),
        {"secretRef": {"name": names.base(made), "optional": True}},
    ]


def _misnamed(key: str, written: Iterable[str] | None) -> Iterator[str]:
    for name in written or ():
        if not names.is_subdomain(name):
            wanted = "lowercase letters, digits, `-` and `.`"
            yield f"`{key}`: `{name[:60]}` is not a valid Kubernetes name: use {wanted}"


def _placement(made: Plan, member: Replica, faults: list[str]) -> dict[str, Any]:
    asked, settings = made.kubernetes, member.settings
    found: dict[str, Any] = {
        "nodeSelector": dict(settings.node_selector or {}),
        "affinity": pod_patch.plain(settings.affinity or {}),
        "tolerations": [*(pod_patch.plain(item) for item in settings.tolerations or ()), *_of_lost_nodes(made)],
        "serviceAccountName": settings.service_account,
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets or ()],
        "priorityClassName": asked.priority_class,
        "schedulerName": asked.scheduler,
    }
    for key, value in found["nodeSelector"].items():
        if not names.is_key(key) or not names.is_label_value(value):
            faults.append(f"`node_selector`: no node can have the label `{key[:60]}: {value[:60]}`")
    faults.extend(_misnamed("image_pull_secrets", settings.image_pull_secrets))
    for name, written in (
        ("service_account", settings.service_account),
        ("kubernetes.priority_class", asked.priority_class),
        ("kubernetes.scheduler", asked.scheduler),
    ):
        faults.extend(_misnamed(name, None if written is None else [written]))
    return {key: value for key, value in found.items() if value}


def _of_lost_nodes(made: Plan) -> list[dict[str, Any]]:
    """How long pods stay on a node that does not respond; the cluster adds its default where a pod has none."""
    if made.kubernetes.node_timeout_s is None:
        return []
    seconds = math.ceil(made.kubernetes.node_timeout_s)
    limit = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
    return [{"key": key, **limit} for key in LOST_NODE_TAINTS]


def _init_containers(
    made: Plan, target: ClusterTarget, main: Mapping[str, Any], mounts: list[dict[str, Any]], faults: list[str]
) -> Iterator[dict[str, Any]]:
    """Fetch and unpack the code, and run the steps of the file, before anything starts. Each init container requests
    what the program requests: this does not raise the pod's total, and a quota rejects containers without requests."""
    source = volumes.code(made, target)
    asked = without_devices(main, target)
    if source.kind == "git":
        build = made.build
        revision = made.kubernetes.revision or (build and (build.commit or build.branch)) or "HEAD"
        if revision.startswith("-"):  # Git would parse it as an option
            faults.append(f"`{revision[:60]}` is not a branch, a tag or a commit")
        arguments = [made.kubernetes.repository or "", revision, str(source.path)]
        yield {
            "name": FETCH,
            "image": target.settings.git_image,
            "command": ["/bin/sh", "-c", _FETCH, "code", *map(unexpanded, arguments)],
            **asked,
            "env": [{"name": "HOME", "value": volumes.home_at(target)}, {"name": "GIT_TERMINAL_PROMPT", "value": "0"}],
            "volumeMounts": [mount for mount in mounts if mount["mountPath"] in (RUN_AT, CODE_AT, HOME_AT)],
            "securityContext": _restricted(),
        }
    steps = bool(made.setup_steps) and target.settings.registry is None
    steps = steps or bool(made.python.requirements)
    if source.kind == "bundle" or steps:
        yield _preparing(main, mounts, asked, is_whole=steps)


def without_devices(main: Mapping[str, Any], target: ClusterTarget) -> dict[str, Any]:
    """The resources of an init container: those of its container without devices."""
    devices = set(target.settings.devices.values())
    kept = {
        bound: left
        for bound, amounts in main.get("resources", {}).items()
        if (left := {name: amount for name, amount in amounts.items() if name not in devices})
    }
    return {"resources": kept} if kept else {}


def _preparing(
    main: Mapping[str, Any], mounts: list[dict[str, Any]], asked: Mapping[str, Any], *, is_whole: bool
) -> dict[str, Any]:
    """Steps of a file get the program's environment without its devices; unpacking needs no variables."""
    own = (*_FIELDS, "HOME", "PHALANX_MEMBERS", "PHALANX_POD_INDEX", _NO_GPU["name"])
    variables = [dict(variable) for variable in main["env"] if is_whole or variable["name"] in own]
    if all(variable["name"] != _NO_GPU["name"] for variable in variables):
        variables.append(dict(_NO_GPU))
    return {
        "name": PREPARE,
        "image": main["image"],
        "command": [*START, "prepare"],
        **asked,
        "env": variables,
        "envFrom": pod_patch.plain(main["envFrom"] if is_whole else main["envFrom"][-1:]),
        "volumeMounts": mounts,
        "securityContext": _restricted(),
    }


def _metadata(made: Plan, members: Sequence[Replica], faults: list[str]) -> dict[str, Any]:
    first = members[0]
    theirs = first.settings
    every = (member.name for member in members)
    annotations = names.annotations(made, every, theirs.annotations, theirs.labels)
    if sum(len(key) + len(value.encode("utf-8", "surrogatepass")) for key, value in annotations.items()) > (
        names.LONGEST_ANNOTATIONS
    ):
        faults.append("`annotations`: Kubernetes accepts at most 256 KiB of them")
    return {"labels": names.labels(made, first.role, theirs.labels), "annotations": annotations}
