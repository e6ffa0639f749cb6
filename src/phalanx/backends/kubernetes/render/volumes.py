"""The volumes of pods: payload, run folder, code, shared memory, and the stores that the file names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from phalanx.backends.kubernetes.render import names
from phalanx.backends.kubernetes.render.code_pieces import PIECES
from phalanx.backends.kubernetes.target import (
    AGENT_AT,
    BUNDLE_AT,
    CODE_AT,
    HOME_AT,
    JOB_AT,
    RUN_AT,
    ClusterTarget,
    DataVolume,
)
from phalanx.plan.model import Plan, Replica

DATA_AT, STORES_AT = "/data", "/artifacts"
SHM_AT = "/dev/shm"  # noqa: S108 - shared memory of processes
CHECKED_OUT = f"{CODE_AT}/source"  # below the mount: Git trusts only folders of its own user
_MIB = 1024
_FILE = re.compile(r"[A-Za-z0-9_.-]+\Z")


class Code(NamedTuple):
    """The source of the code in a pod: `none` (it is in the image), `bundle`, `git` or `volume`. A bundle that is too
    large for a ConfigMap is fetched from the server. `working` None: the image's working directory."""

    kind: str
    path: str | None
    working: str | None


class VolumeMount(NamedTuple):
    volume: dict[str, Any]
    mount: dict[str, Any]


def code(made: Plan, target: ClusterTarget) -> Code:
    asked = made.kubernetes
    kind = asked.code or "auto"
    if kind == "auto":
        if asked.code_claim is not None:
            kind = "volume"
        elif asked.repository is not None:
            kind = "git"
        elif target.settings.home_claim is not None:
            return Code("volume", f"{RUN_AT}/code", f"{RUN_AT}/code")  # the snapshot is in the run's folder
        else:
            kind = "bundle"
    if kind == "image":
        return Code("none", None, None)
    path = CHECKED_OUT if kind == "git" else CODE_AT
    return Code(kind, path, path)


def home_at(target: ClusterTarget) -> str:
    """The user's home in every pod. Caches of programs are local to the pod and not kept."""
    return RUN_AT if target.settings.home_claim is None else HOME_AT


def data_at(name: str) -> str:
    """The folder of a data store in every pod."""
    return f"{DATA_AT}/{_folder(name)}"


def outputs_at(made: Plan, target: ClusterTarget) -> str:
    """The folder of the run's outputs in every pod: in the first store that the file names, or in the run's folder."""
    name = _store_of(made)
    if name is None or name not in target.settings.stores:
        return f"{RUN_AT}/outputs"
    return f"{STORES_AT}/{_folder(name)}/{_folder(made.run_id)}"


def _store_of(made: Plan) -> str | None:
    """All replicas write to one store: the first that any of them names."""
    return next(
        (replica.settings.artifact_refs[0] for replica in made.replicas if replica.settings.artifact_refs), None
    )


def mounted(made: Plan, member: Replica, target: ClusterTarget, faults: list[str]) -> list[VolumeMount]:
    """All mounts of a pod, each volume with its path. Volumes that cannot be mounted are added to the faults."""
    found = [
        *_carried(made, target),
        *_run_and_code(made, target, faults),
        _shared_memory(made),
        *_stores(made, member, target, faults),
    ]
    return _each_claim_once(found)


def listed(found: Iterable[VolumeMount]) -> list[dict[str, Any]]:
    """The volumes of a pod. A volume that is mounted at several paths is listed once."""
    return list({item.volume["name"]: item.volume for item in found}.values())


def _each_claim_once(found: Sequence[VolumeMount]) -> list[VolumeMount]:
    """Most kubelets mount a claim for one volume of a pod and wait forever for a second volume of the same claim. The
    one volume is writable if any of them is."""
    sources = [item.volume.get("persistentVolumeClaim") for item in found]
    claims = [source if isinstance(source, Mapping) else None for source in sources]
    written = {_claim_name(claim) for claim in claims if claim is not None and not claim.get("readOnly")}
    volumes: dict[str, dict[str, Any]] = {}
    kept = []
    for item, claim in zip(found, claims, strict=True):
        if claim is None:
            kept.append(item)
            continue
        name = _claim_name(claim)
        source = {key: value for key, value in claim.items() if key != "readOnly" or name not in written}
        volume = volumes.setdefault(name, {**item.volume, "persistentVolumeClaim": source})
        kept.append(VolumeMount(volume, {**item.mount, "name": volume["name"]}))
    return kept


def _claim_name(claim: Mapping[str, Any]) -> str:
    return str(claim.get("claimName"))


def for_init(found: Sequence[VolumeMount]) -> list[dict[str, Any]]:
    """The mounts of init containers: all but the program's shared memory."""
    return [dict(item.mount) for item in found if item.mount["mountPath"] != SHM_AT]


def _carried(made: Plan, target: ClusterTarget) -> Iterator[VolumeMount]:
    base = names.base(made)
    yield _config_map("job", base, JOB_AT)
    yield _projected("agent", [{"name": names.object_name(base, what)} for what in ("agent", "tracking")], AGENT_AT)
    if code(made, target).kind == "bundle":
        pieces = [{"name": names.object_name(base, piece.what), "optional": True} for piece in PIECES]
        yield _projected("bundle", pieces, BUNDLE_AT)


def _projected(name: str, config_maps: Sequence[Mapping[str, Any]], at: str) -> VolumeMount:
    """The files of several ConfigMaps in one folder: an object that `kubectl apply` accepts is small."""
    sources = [{"configMap": dict(one)} for one in config_maps]
    return VolumeMount(
        {"name": name, "projected": {"sources": sources}}, {"name": name, "mountPath": at, "readOnly": True}
    )


def _config_map(name: str, of: str, at: str) -> VolumeMount:
    return VolumeMount({"name": name, "configMap": {"name": of}}, {"name": name, "mountPath": at, "readOnly": True})


def _run_and_code(made: Plan, target: ClusterTarget, faults: list[str]) -> Iterator[VolumeMount]:
    settings, asked = target.settings, made.kubernetes
    if settings.home_claim is not None:
        inside = posixpath.join(settings.home_path.strip("/"), "runs", made.run_id)
        yield _claim("run", settings.home_claim, RUN_AT, inside, faults)
        yield VolumeMount({"name": "home", "emptyDir": {}}, {"name": "home", "mountPath": HOME_AT})
    else:
        yield VolumeMount({"name": "run", "emptyDir": {}}, {"name": "run", "mountPath": RUN_AT})
    found = code(made, target)
    if found.kind == "volume" and asked.code_claim is not None:
        yield _claim("code", asked.code_claim, CODE_AT, asked.code_path or "", faults)
    elif found.kind in ("bundle", "git"):
        yield VolumeMount({"name": "code", "emptyDir": {}}, {"name": "code", "mountPath": CODE_AT})
    elif found.kind == "volume" and found.path == CODE_AT:
        faults.append("`environment.kubernetes.code: volume` needs `code_claim`: the claim that contains the code")


def _claim(name: str, claim: str, at: str, inside: str, faults: list[str]) -> VolumeMount:
    if not names.is_subdomain(claim):
        faults.append(f"`{claim[:60]}` is not a valid PersistentVolumeClaim name")
    volume = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
    return VolumeMount(volume, {"name": name, "mountPath": at, **_below(inside, faults)})


def _below(inside: str, faults: list[str]) -> dict[str, str]:
    """The mounted part of a volume; Kubernetes rejects paths that leave it."""
    path = inside.strip("/")
    if ".." in path.split("/"):
        faults.append(f"`{inside[:60]}` leaves its volume: write a path below its root")
    return {"subPath": path} if path else {}


def _shared_memory(made: Plan) -> VolumeMount:
    """It counts toward the container's memory, whose limit applies unless the file sets another."""
    medium: dict[str, Any] = {"medium": "Memory"}
    if made.kubernetes.shm_mib is not None:
        medium["sizeLimit"] = memory(made.kubernetes.shm_mib)
    return VolumeMount({"name": "shm", "emptyDir": medium}, {"name": "shm", "mountPath": SHM_AT})


def memory(mib: float) -> str:
    if mib == int(mib):
        return f"{int(mib)}Mi"
    return f"{max(1, -(-int(mib * _MIB * _MIB) // _MIB))}Ki"


def _stores(made: Plan, member: Replica, target: ClusterTarget, faults: list[str]) -> Iterator[VolumeMount]:
    outputs = _store_of(made)
    for key, kind, wanted in (
        ("data_refs", "data", member.settings.data_refs or ()),
        ("artifact_refs", "store", () if outputs is None else (outputs,)),
    ):
        for name in dict.fromkeys(wanted):
            store = target.settings.stores.get(name)
            if store is None:
                faults.append(_unknown(key, name, target))
                continue
            at = data_at(name) if kind == "data" else f"{STORES_AT}/{_folder(name)}"
            volume = {"name": names.object_name(kind, name), **_source(store)}
            mount = {"name": volume["name"], "mountPath": at, **_below(store.path, faults)}
            if store.is_read_only and kind == "data":
                mount["readOnly"] = True
            elif store.is_read_only:
                faults.append(f"`{key}`: the store `{name}` is read-only in kubernetes.yml: outputs need another")
            yield VolumeMount(volume, mount)


def _source(store: DataVolume) -> dict[str, Any]:
    """Read-only stores set this on the volume itself; otherwise the kubelet would change the group of files of other
    users."""
    if store.claim is not None:
        read_only = {"readOnly": True} if store.is_read_only else {}
        return {"persistentVolumeClaim": {"claimName": store.claim, **read_only}}
    if store.host_path is not None:
        return {"hostPath": {"path": store.host_path}}
    return dict(store.volume or {"emptyDir": {}})


def _unknown(key: str, name: str, target: ClusterTarget) -> str:
    known = ", ".join(f"`{one}`" for one in sorted(target.settings.stores)) or "none at all"
    return (
        f"`{key}`: no store `{name[:60]}`; kubernetes.yml in the home of Phalanx has {known}: "
        f"add `stores: {{{name[:60]}: {{claim: <a PersistentVolumeClaim>}}}}` there"
    )


def _folder(name: str) -> str:
    """A name as one path component."""
    return name if _FILE.match(name) and name.strip(".") else names.object_name(name)
