"""The pod patch of a site or a file, merged into the template of every pod as `kubectl patch` does.

Maps merge, null deletes, lists whose items have a key merge by it, other lists are replaced. `$patch: delete`, `$patch:
replace` and `$retainKeys` are supported. The fields that Phalanx needs must survive the merge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from phalanx.backends.kubernetes.render import names
from phalanx.backends.kubernetes.target import AGENT_AT, BUNDLE_AT, DOMAIN, JOB_AT, ClusterTarget
from phalanx.errors import CallError
from phalanx.plan.model import Plan

IN_FILE, IN_SETTINGS = "environment.kubernetes.pod", "kubernetes.yml: pod"
CONTAINER = "phalanx"  # the name of Phalanx's container in files, even if an operator requires another
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
}
_WHOLE = frozenset({"volumes", "resourceClaims", "env"})  # an item has one source: a new one replaces it
_PATCH, _RETAIN = "$patch", "$retainKeys"
_IDENTITY = ("PHALANX_MEMBERS", "PHALANX_ATTEMPT", "PHALANX_POD_INDEX", "JOB_COMPLETION_INDEX")
_CARRIED = (JOB_AT, AGENT_AT, BUNDLE_AT)
_FIXED = ("restartPolicy", "hostname", "subdomain")


class _Layer(NamedTuple):
    """A patch and where it was written."""

    where: str
    patch: Mapping[str, Any]


def plain(value: Any) -> Any:
    """A mutable copy of frozen data, as dicts and lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def merged(template: dict[str, Any], made: Plan, target: ClusterTarget, container: str = CONTAINER) -> dict[str, Any]:
    """Merge the site's patch, then the file's, into the template. Raises CallError with every fault."""
    found = template
    for layer in _layers(made, target):
        patch = _as_template(plain(layer.patch))
        _rename(patch, container)
        over = merge(found, patch)
        _keep_secret(over, found, container)
        faults = [f"`{layer.where}{path}`: {said}" for path, said in _faults(over, found, container)]
        if faults:
            raise CallError("\n".join(dict.fromkeys(faults)))
        found = over
    return found


def merge(value: Any, patch: Any, field: str = "") -> Any:
    """A strategic merge. `field`: the name of the field that holds both."""
    if isinstance(patch, dict):
        return _merged_map(value if isinstance(value, dict) else {}, patch, field)
    if isinstance(patch, list) and field in _KEYS:
        return _merged_list(value if isinstance(value, list) else [], patch, field)
    return patch


def _merged_map(value: dict[str, Any], patch: dict[str, Any], field: str) -> dict[str, Any]:
    how, retained = patch.get(_PATCH), patch.get(_RETAIN)
    patch = {key: item for key, item in patch.items() if key not in (_PATCH, _RETAIN)}
    if how == "delete":
        return {}
    if how == "replace":
        value = {}
    elif isinstance(retained, list):
        value = {key: item for key, item in value.items() if key in retained}
    elif field in _WHOLE and patch.keys() - {_KEYS[field]} - value.keys():
        value = {}  # Kubernetes would reject a volume of two kinds, or a variable with two values
    result = dict(value)
    for key, item in patch.items():
        if item is None:
            result.pop(key, None)
        else:
            result[key] = merge(value.get(key), item, key)
    return result


def _merged_list(value: list[Any], patch: list[Any], field: str) -> list[Any]:
    key = _KEYS[field]
    items = [item for item in patch if isinstance(item, dict)]
    if any(item.get(_PATCH) == "replace" for item in items):
        value = []  # replaces the whole list; the directive is not an item
    result = [item for item in value if isinstance(item, dict)]
    for item in items:
        if key not in item or item.get(_PATCH) == "replace":
            continue
        number = next((number for number, old in enumerate(result) if old.get(key) == item[key]), None)
        if item.get(_PATCH) == "delete":
            result = [old for old in result if old.get(key) != item[key]]
        elif number is None:
            result.append(_merged_map({}, item, ""))
        else:
            result[number] = _merged_map(result[number], item, field)
    return result


def override_of(made: Plan, target: ClusterTarget, field: str) -> Any:
    """The patch of a field of the pod spec; None without one."""
    found = (_map(_as_template(plain(layer.patch)), "spec").get(field) for layer in _layers(made, target))
    return next((value for value in reversed([*found]) if value is not None), None)


def _layers(made: Plan, target: ClusterTarget) -> Iterator[_Layer]:
    for where, patch in ((IN_SETTINGS, target.settings.pod), (IN_FILE, made.kubernetes.pod)):
        if patch:
            yield _Layer(where, patch)


def _as_template(patch: dict[str, Any]) -> dict[str, Any]:
    return patch if {"metadata", "spec"} & patch.keys() else {"spec": patch}


def _rename(patch: dict[str, Any], container: str) -> None:
    for item in _items(_map(patch, "spec"), "containers"):
        if item.get("name") == CONTAINER:
            item["name"] = container


def _keep_secret(over: dict[str, Any], before: dict[str, Any], container: str) -> None:
    """A list of sources replaces the template's, as in Kubernetes; but the author of a file cannot know the name of the
    run's Secret, so it is kept."""
    ours, old = _container(over, "containers", container), _container(before, "containers", container)
    if ours is None or old is None:
        return
    secret = old["envFrom"][-1]
    ours["envFrom"] = [*(source for source in _items(ours, "envFrom") if source != secret), secret]


def _container(template: Mapping[str, Any], field: str, name: str) -> dict[str, Any] | None:
    return next((item for item in _items(_map(template, "spec"), field) if item.get("name") == name), None)


def _items(value: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    listed = value.get(field)
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def part_of(value: Mapping[str, Any], *fields: str) -> Mapping[str, Any]:
    """The map at this path; empty if there is none."""
    for field in fields:
        value = _map(value, field)
    return value


def _map(value: Mapping[str, Any], field: str) -> dict[str, Any]:
    """The value if it is a map. Otherwise required fields are missing, which is reported as a fault."""
    found = value.get(field)
    return found if isinstance(found, dict) else {}


def _faults(over: dict[str, Any], before: dict[str, Any], container: str) -> Iterator[tuple[str, str]]:
    yield from _faults_of_metadata(_map(over, "metadata"), before["metadata"])
    spec, old = _map(over, "spec"), before["spec"]
    for field in _FIXED:
        if spec.get(field) != old.get(field):
            said = f"is `{old[field]}`" if field in old else "is not set"
            yield f".spec.{field}", f"this cannot be set: in the pods of a run it {said}"
    volumes = _by(spec, "volumes", "name")
    for volume in old["volumes"]:
        kept = volumes.get(volume["name"])
        if kept is None or (volume["name"] in ("job", "agent", "bundle") and kept != volume):
            yield f".spec.volumes[{volume['name']}]", "this volume of Phalanx cannot be changed"
    main, main_before = _container(over, "containers", container), _container(before, "containers", container)
    at = f".spec.containers[{CONTAINER}]"
    if main is None or main_before is None:
        yield at, "Phalanx's container cannot be removed"
    else:
        yield from _faults_of_ours(main, main_before, at)
    for step in old.get("initContainers", ()):
        at = f".spec.initContainers[{step['name']}]"
        now = _container(over, "initContainers", step["name"])
        if now is None:
            yield at, "this init container of Phalanx cannot be removed"
        elif step["name"] in ("prepare", "code"):
            yield from _faults_of_ours(now, step, at)
    yield from _faults_of_containers(spec, set(volumes))


def _faults_of_metadata(over: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for field in ("labels", "annotations"):
        now, old = _map(over, field), before[field]
        for key in {**old, **now}:
            at = f".metadata.{field}[{key[:80]}]"
            if key.startswith(f"{DOMAIN}/") and now.get(key) != old.get(key):
                yield at, f"`{DOMAIN}/` is reserved: Phalanx finds a run by it"
            elif key not in now:
                continue
            elif not names.is_key(key):
                yield at, "invalid key: write `name` or `domain/name` of letters, digits, `-`, `_` and `.`"
            elif not isinstance(now[key], str):
                yield at, f'must be a string: "{now[key]}"'
            elif field == "labels" and not names.is_label_value(now[key]):
                yield at, "a label has at most 63 letters, digits, `-`, `_` and `.`; keep longer texts as annotations"


def _faults_of_ours(now: dict[str, Any], old: dict[str, Any], at: str) -> Iterator[tuple[str, str]]:
    for field in ("command", "args"):
        if now.get(field) != old.get(field):
            yield f"{at}.{field}", "this cannot be set here: use `run: {cmd: ...}`"
    variables = _by(now, "env", "name")
    olds = _by(old, "env", "name")
    for name in _IDENTITY:
        if variables.get(name) != olds.get(name):
            yield f"{at}.env[{name}]", "this variable identifies the agent and cannot be changed"
    mounts = _by(now, "volumeMounts", "mountPath")
    for path, mount in _by(old, "volumeMounts", "mountPath").items():
        if mounts.get(path) != mount:
            yield f"{at}.volumeMounts[{path}]", "this mount of Phalanx cannot be changed"
    for path in mounts.keys() - _by(old, "volumeMounts", "mountPath").keys():
        target = f"{path.rstrip('/')}/"
        if any(f"{ours}/".startswith(target) or target.startswith(f"{ours}/") for ours in _CARRIED):
            yield f"{at}.volumeMounts[{path}]", "the run uses this path: mount it elsewhere"


def _by(value: Mapping[str, Any], field: str, key: str) -> dict[str, dict[str, Any]]:
    return {str(item.get(key)): item for item in _items(value, field)}


def _faults_of_containers(spec: Mapping[str, Any], volumes: set[str]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for item in _items(spec, field):
            name = str(item.get("name"))
            at = f".spec.{field}[{name[:80]}]"
            if not names.is_dns_label(name):
                yield at, "a container name has lowercase letters, digits and `-`"
            if name in seen:
                yield at, "another container has this name"
            seen.add(name)
            if not item.get("image"):
                yield f"{at}.image", "this container does not exist yet: a new one needs an image"
            for wanted in {str(mount.get("name")) for mount in _items(item, "volumeMounts")} - volumes:
                yield f"{at}.volumeMounts", f"no volume `{wanted[:60]}`: add it to `volumes`"
    for name in volumes:
        if not names.is_dns_label(name):
            yield f".spec.volumes[{name[:80]}]", "a volume name has lowercase letters, digits and `-`"
