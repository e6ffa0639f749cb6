"""Writes a site as a profile: YAML that reads back as the same site."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from phalanx.sites.model import REQUIRED, GpuKind, NodeKind, Partition, Qos, Site, is_slice
from phalanx.sites.profile_reader import NEEDS, POLICY, POLICY_NAMES, WHEELHOUSE_JOINT
from phalanx.spec import quantities
from phalanx.spec.scalars import resolve_plain

_FLOW = ("nodes", "partitions", "gpu_types", "qos")
_PLAIN = re.compile(r"[A-Za-z_/][\w./+@-]*\Z")


def as_document(site: Site) -> dict[str, Any]:
    """The site as the document of a profile, without unknown values."""
    fresh = Site(site.name)
    policy = {key: REQUIRED for key, known in NEEDS.items() if getattr(site, known)}
    for key in POLICY.fields:
        known = POLICY_NAMES.get(key, key)
        if key not in NEEDS and getattr(site, known) != getattr(fresh, known):
            policy[key] = _policy_value(key, getattr(site, known))
    document: dict[str, Any] = {key: getattr(site, key) for key in ("name", "title", "date", "source")}
    document["nodes"] = [_node_document(kind) for kind in site.nodes]
    document["partitions"] = [_partition_document(part) for part in site.partitions]
    document["gpu_types"] = [_gpu_document(kind) for kind in site.gpus]
    document["qos"] = [_qos_document(one) for one in site.qos]
    document["policy"] = policy
    document |= {key: getattr(site, key) for key in ("internet", "scratch", "writable", "interface")}
    document["wheelhouse"] = site.wheelhouse.split(WHEELHOUSE_JOINT) if site.wheelhouse else None
    document |= {"modules": site.modules, "notes": site.notes}
    return {key: _plain(value) for key, value in document.items() if value is not None and value not in ([], (), {})}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _policy_value(key: str, value: Any) -> Any:
    if key == "time_steps":
        return [time_text(step) for step in value]
    if key.endswith(("_time", "_interval")):
        return time_text(value)
    return memory_text(value) if key == "default_memory" else _plain(value)


def _filled(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) for key, value in document.items() if value not in (None, (), {}, False)}


def _node_document(kind: NodeKind) -> dict[str, Any]:
    values = {**kind._asdict(), "memory": memory_text(kind.memory_mib), "other_gpus": dict(kind.other_gpus)}
    order = ("count", "cpus", "memory", "gpus", "gpu_type", "other_gpus", "features", "partitions")
    return _filled({key: values[key] for key in order if key != "gpus" or kind.gpus})


def _partition_document(part: Partition) -> dict[str, Any]:
    document = {
        "name": part.name,
        "max_time": part.max_time_s and time_text(part.max_time_s),
        "default": part.is_default,
        "default_time": part.default_time_s and time_text(part.default_time_s),
        "max_nodes": part.max_nodes,
        "whole_nodes": part.whole_nodes,
        "accounts": part.accounts,
        "qos": part.qos,
    }
    if part.min_time_s is not None:
        document["min_time"] = time_text(part.min_time_s)
    return _filled(document) | ({} if part.is_up else {"up": False})


def _gpu_document(kind: GpuKind) -> dict[str, Any]:
    document = {
        "name": kind.name,
        "cpus": kind.cpus,
        "memory": kind.memory_mib and memory_text(kind.memory_mib),
        "aliases": kind.aliases,
    }
    return _filled(document) | ({} if kind.is_mig == is_slice(kind.name) else {"mig": kind.is_mig})


def _qos_document(one: Qos) -> dict[str, Any]:
    document = {**one._asdict(), "max_time": one.max_time_s and time_text(one.max_time_s)}
    del document["max_time_s"]
    kept = {"name": document.pop("name"), "max_time": document.pop("max_time"), **document}
    return {key: value for key, value in kept.items() if value is not None}


def time_text(seconds: float) -> str:
    """`1d12h`, `90m`: as a file accepts it."""
    if seconds != int(seconds):
        return f"{seconds:.3f}".rstrip("0") + "s"
    rest, text = int(seconds), ""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        number, rest = divmod(rest, size)
        text += f"{number}{unit}" if number else ""
    return text or "0s"


def memory_text(mib: float) -> str:
    return f"{int(mib // 1024)}Gi" if mib >= 1024 and mib % 1024 == 0 else f"{quantities.tidy(mib)}Mi"


def write(site: Site, comments: Mapping[str, str] | None = None) -> str:
    """A profile that reads back as the same site: one line per kind of nodes. `comments` go above their keys, or
    at the end if their name is not a key."""
    remaining = dict(comments or {})
    lines = [f"# {line}" for line in remaining.pop("", "").splitlines()]
    for key, value in as_document(site).items():
        lines += [f"# {line}" for line in remaining.pop(key, "").splitlines()]
        if key in _FLOW:
            lines += [f"{key}:", *(f"  - {_flow(item)}" for item in value)]
        elif key == "policy":
            lines += [f"{key}:", *(f"  {name}: {_flow(item)}" for name, item in value.items())]
        else:
            lines.append(f"{key}: {_flow(value)}")
    for text in remaining.values():
        lines += [f"# {line}" for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{quantities.tidy(value)}"
    return _quoted(str(value))


def _quoted(text: str) -> str:
    is_plain = _PLAIN.match(text) is not None or re.match(r"[0-9]+[A-Za-z][\w.]*\Z", text) is not None
    if is_plain and isinstance(resolve_plain(text), str):
        return text
    if re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z", text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
