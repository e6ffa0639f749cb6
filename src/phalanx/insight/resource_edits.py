"""Edits the resources in a file's `environment`; everything else stays as written. Plain data in and out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from phalanx.errors import CallError
from phalanx.stored_plan import ResourceAmount

Document = dict[str, Any]


class Change(NamedTuple):
    """A new amount of a resource for replicas of a role. `asked` is their current request, `value` and `text` the new
    amount as a number and in file notation. 0 means none. Where requests and limits differ, only the request is changed
    (and a limit below it raised), unless it `is_for_both`."""

    role: str
    indices: frozenset[int]
    resource: str
    asked: ResourceAmount
    value: float
    text: int | float | str
    is_for_both: bool = False


def changed(
    document: Mapping[str, Any], roles: Mapping[str, int], changes: Iterable[Change], timeout: str | None = None
) -> Document:
    """The document with a changed environment. `roles`: the number of replicas per role. Raises CallError when the file
    selects replicas with a template."""
    result: Document = deepcopy(dict(document))
    environment = _section(result, "environment")
    by_role: dict[str, list[Change]] = {}
    for change in changes:
        by_role.setdefault(change.role, []).append(change)
    for role, found in by_role.items():
        if role == "master":
            resources = _applied(environment.get("resources"), found, 0)
            _put(environment, "resources", resources)
        else:
            _change_role(_section(environment, "replicas"), role, roles.get(role, 0), found)
    if timeout is not None:
        environment["timeout"] = timeout
    if not environment:
        del result["environment"]
    return result


def with_workers(document: Mapping[str, Any], count: int) -> Document:
    """The document with another number of workers. Settings of removed workers are dropped."""
    result: Document = deepcopy(dict(document))
    replicas = _section(_section(result, "environment"), "replicas")
    replicas["n_workers"] = count
    if isinstance(replicas.get("worker"), list):
        kept = [entry for entry in replicas["worker"] if _index(entry) < count]
        _put(replicas, "worker", kept)
    return result


def _section(holder: Document, key: str) -> Document:
    if not isinstance(holder.get(key), dict):
        holder[key] = {}
    section: Document = holder[key]
    return section


def _put(holder: Document, key: str, value: Any) -> None:
    """Drop empty entries."""
    if value:
        holder[key] = value
    else:
        holder.pop(key, None)


def _change_role(replicas: Document, role: str, count: int, changes: Sequence[Change]) -> None:
    """A whole role with `default_…`; exceptions by index."""
    key = "worker" if role == "worker" else "ps"
    default = replicas.get(f"default_{key}")
    default = default if isinstance(default, dict) else {}
    entries = [entry for entry in replicas.get(key) or () if isinstance(entry, dict)]
    own = {_index(entry): entry for entry in entries if entry.get("resources") is not None}
    common = default.get("resources")
    wanted = {index: _applied(entry["resources"], changes, index) for index, entry in own.items()}
    free = next((index for index in range(count) if index not in own), None)
    if free is not None:
        common = _applied(common, changes, free)
    elif wanted and all(resources == next(iter(wanted.values())) for resources in wanted.values()):
        common = next(iter(wanted.values()))
    for index, entry in own.items():
        if wanted[index] == (common or {}):
            del entry["resources"]
        else:
            entry["resources"] = wanted[index]  # even if it is empty: otherwise the default would apply
    _put(default, "resources", common)
    _put(replicas, f"default_{key}", default)
    _put(replicas, key, [entry for entry in entries if entry.keys() - {"index"}])


def _index(entry: Mapping[str, Any]) -> int:
    try:
        return int(entry["index"])
    except (KeyError, TypeError, ValueError):
        said = f"{entry.get('index')!r}"[:60]
        raise CallError(f"the file selects replicas with `index: {said}`: change it by hand") from None


def _applied(resources: Any, changes: Sequence[Change], index: int) -> Document:
    """Resources in file notation, changed for one replica."""
    result: Document = dict(resources) if isinstance(resources, Mapping) else {}
    for change in changes:
        if index not in change.indices:
            continue
        if not change.value:
            result.pop(change.resource, None)
        else:
            result[change.resource] = _amount(result.get(change.resource), change)
    return result


def _amount(written: Any, change: Change) -> Document:
    result: Document = dict(written) if isinstance(written, Mapping) else {}
    requests, limits = change.asked
    if requests is not None or limits is None:
        result["requests"] = change.text
    if limits is not None and (requests is None or requests == limits or limits < change.value or change.is_for_both):
        result["limits"] = change.text
    return result
