"""What a pod sees of the cluster's objects: its volumes as folders of this machine, and its environment."""

from __future__ import annotations

import os
import re
import shutil
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kubernetes.rest import Rest

UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
FIELD_OF_MAP = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Missing(Exception):
    """An object that the pod asks for is not there; a kubelet tries again until it is."""


def field(pod: Mapping[str, Any], path: str) -> str:
    """What the downward API says: `metadata.name`, `spec.nodeName`, `metadata.labels['a']`, …"""
    if found := FIELD_OF_MAP.fullmatch(path):
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = (pod["metadata"].get(path.rpartition(".")[2]) or {}).items()
        return "".join(f'{name}="{value}"\n' for name, value in sorted(pairs))
    value: Any = pod
    for step in path.split("."):
        value = value.get(step, "") if isinstance(value, Mapping) else ""
    return str(value)


def quantity(text: str) -> int:
    """Bytes, or whole units."""
    for unit, factor in UNITS.items():
        if str(text).endswith(unit):
            return int(float(str(text).removesuffix(unit)) * factor)
    return int(float(text))


def expanded(text: str, known: Mapping[str, str]) -> str:
    """`$(NAME)` as a kubelet replaces it: `$$` is a dollar, and names that nobody knows stay as they are."""

    def one(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return known.get(found[1], found[0])

    return REFERENCE.sub(one, text)


class Resolver:
    """Reads what one pod refers to, in its namespace."""

    def __init__(self, api: Rest, pod: Mapping[str, Any], folder: Path, claims: Path) -> None:
        self.api = api
        self.pod = pod
        self.folder = folder
        self.claims = claims
        self.namespace = pod["metadata"]["namespace"]

    # environment

    def environment(self, container: Mapping[str, Any]) -> dict[str, str]:
        known: dict[str, str] = {
            "PATH": DEFAULT_PATH,
            "HOSTNAME": self.pod["spec"].get("hostname") or self.pod["metadata"]["name"],
            "KUBERNETES_SERVICE_HOST": "10.96.0.1",
            "KUBERNETES_SERVICE_PORT": "443",
        }
        for source in container.get("envFrom") or ():
            for name, content in self._all_of(source).items():
                known[source.get("prefix", "") + name] = content.decode()
        for variable in container.get("env") or ():
            value = self._value(variable, container, known)
            if value is not None:
                known[variable["name"]] = value
        return known

    def _all_of(self, source: Mapping[str, Any]) -> dict[str, bytes]:
        for key, plural in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
            if wanted := source.get(key):
                return self._data(plural, wanted["name"], is_optional=wanted.get("optional", False)) or {}
        return {}

    def _value(self, variable: Mapping[str, Any], container: Mapping[str, Any], known: dict[str, str]) -> str | None:
        source = variable.get("valueFrom")
        if not source:
            return expanded(variable.get("value") or "", known)
        if wanted := source.get("fieldRef"):
            return field(self.pod, wanted["fieldPath"])
        if wanted := source.get("resourceFieldRef"):
            kind, _, name = wanted["resource"].partition(".")
            return str(quantity(((container.get("resources") or {}).get(kind) or {}).get(name, "0")))
        for key, plural in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
            if wanted := source.get(key):
                is_optional = wanted.get("optional", False)
                data = self._data(plural, wanted["name"], is_optional=is_optional)
                if data is None or wanted["key"] not in data:
                    if is_optional:
                        return None
                    raise Missing(f"couldn't find key {wanted['key']} in {plural} {self.namespace}/{wanted['name']}")
                return data[wanted["key"]].decode()
        return None

    # volumes

    def volumes(self) -> dict[str, Path]:
        """A folder for each volume; those of memory and of the node's disk are made only once."""
        return {volume["name"]: self._volume(volume) for volume in self.pod["spec"].get("volumes") or ()}

    def _volume(self, volume: Mapping[str, Any]) -> Path:
        folder = self.folder / "volumes" / volume["name"]
        if "emptyDir" in volume:
            return self._empty(folder)
        if "hostPath" in volume:
            return _host_path(volume["hostPath"])
        if claim := volume.get("persistentVolumeClaim"):
            return self._claimed(claim["claimName"])
        files: dict[str, bytes] = {}
        sources = volume["projected"].get("sources") or () if "projected" in volume else [_as_source(volume)]
        for source in sources:
            files.update(self._projected(source))
        return self._written(folder, files, _mode(volume))

    def _empty(self, folder: Path) -> Path:
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(0o777)
            group = (self.pod["spec"].get("securityContext") or {}).get("fsGroup")
            if group is not None:
                os.chown(folder, 0, group)
                folder.chmod(0o2777)
        return folder

    def _claimed(self, name: str) -> Path:
        claim = self.api.find(f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims/{name}")
        if claim is None:
            raise Missing(f'persistentvolumeclaim "{name}" not found')
        volume = self.api.find(f"/api/v1/persistentvolumes/{(claim.get('spec') or {}).get('volumeName')}")
        if volume is None:
            raise Missing(f'persistentvolumeclaim "{name}" is not bound')
        return _host_path({"type": "DirectoryOrCreate", **volume["spec"]["hostPath"]})

    def _projected(self, source: Mapping[str, Any]) -> dict[str, bytes]:
        for key, plural in (("configMap", "configmaps"), ("secret", "secrets")):
            if wanted := source.get(key):
                name = wanted.get("name") or wanted.get("secretName")
                data = self._data(plural, name, is_optional=wanted.get("optional", False)) or {}
                items = wanted.get("items")
                return {item["path"]: data[item["key"]] for item in items if item["key"] in data} if items else data
        if wanted := source.get("downwardAPI"):
            return {item["path"]: field(self.pod, item["fieldRef"]["fieldPath"]).encode() for item in wanted["items"]}
        if source.get("serviceAccountToken"):
            return {source["serviceAccountToken"]["path"]: b"no token in tests"}
        return {}

    def _data(self, plural: str, name: str, *, is_optional: bool) -> dict[str, bytes] | None:
        found = self.api.find(f"/api/v1/namespaces/{self.namespace}/{plural}/{name}")
        if found is None:
            if is_optional:
                return None
            raise Missing(f'{plural.removesuffix("s")} "{name}" not found')
        if plural == "secrets":
            return {key: b64decode(value) for key, value in (found.get("data") or {}).items()}
        text = {key: value.encode() for key, value in (found.get("data") or {}).items()}
        return {**text, **{key: b64decode(value) for key, value in (found.get("binaryData") or {}).items()}}

    def _written(self, folder: Path, files: Mapping[str, bytes], mode: int) -> Path:
        """As a kubelet lays them out: names are links into a folder that is exchanged as one."""
        shutil.rmtree(folder, ignore_errors=True)
        inside = folder / "..data-1"
        inside.mkdir(parents=True)
        (folder / "..data").symlink_to(inside.name)
        for name, content in files.items():
            file = inside / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(mode)
            top = name.partition("/")[0]
            if not (folder / top).is_symlink():
                (folder / top).symlink_to(Path("..data") / top)
        return folder


def _host_path(wanted: Mapping[str, Any]) -> Path:
    path = Path(wanted["path"])
    if not path.exists():
        if wanted.get("type") not in ("DirectoryOrCreate", None, ""):
            raise Missing(f"hostPath type check failed: {path} is not there")
        path.mkdir(parents=True)
    return path


def _as_source(volume: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in volume.items() if key != "name"}


def _mode(volume: Mapping[str, Any]) -> int:
    source = next((value for key, value in volume.items() if key != "name" and isinstance(value, Mapping)), {})
    return int(source.get("defaultMode") or 0o644)
