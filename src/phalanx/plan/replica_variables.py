"""The variables of every replica, for any framework: ours (PHALANX_*) and Polyaxon's (POLYAXON_*)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from phalanx.placeholders import Each, Hole, OwnValues, Value, host, path, port
from phalanx.placeholders import own as mine
from phalanx.plan.model import Member, MemberKind
from phalanx.spec.model import Kind, OutputsRefs, Spec, thaw

GROUP_ID = "PHALANX_GROUP_ID"  # of a trial
MOST_ADDRESSES = 2_000  # Linux limits a variable to 128 KiB; a larger run gets no list of all addresses
_NAMESPACE = bytes.fromhex("7d0c4a555f0e5c0b9a0e1b6a6f3f9a11")  # of the ids that Polyaxon would have given


def cluster(roles: Mapping[str, int]) -> Value:
    """`{"master": ["host:port"], "worker": […]}` with placeholders for the addresses."""
    parts: list[str | Hole | Each] = ["{"]
    for number, role in enumerate(roles):
        parts += [
            ", " if number else "",
            f'"{role}": [',
            Each(role, ('"', host(), ":", port(), '"'), ", "),
            "]",
        ]
    return (*parts, "}")


def shared(spec: Spec, run_id: str, project: str, roles: Mapping[str, int], size: int) -> dict[str, Value]:
    """The variables that all replicas of a run share."""
    params = _json(thaw(spec.params))
    addresses = cluster(roles)
    outputs: Value = (path("outputs"),)
    values: dict[str, Value] = {
        "PHALANX_RUN_ID": run_id,
        "PHALANX_RUN_NAME": spec.name or run_id,
        "PHALANX_PROJECT": project,
        "PHALANX_WORLD_SIZE": str(size),
        "PHALANX_PARAMS": params,
        "PHALANX_OUTPUTS": outputs,
        "POLYAXON_IS_MANAGED": "true",
        "POLYAXON_PARAMS": params,
        "POLYAXON_DECLARATIONS": params,
        "POLYAXON_LOG_LEVEL": spec.logging.level,
        "POLYAXON_LOGS_PATH": (path("logs"),),
        "POLYAXON_RUN_OUTPUTS_PATH": outputs,
        "POLYAXON_RUN_DATA_PATHS": data_paths(spec),
        **info(spec, run_id, project),
    }
    if size <= MOST_ADDRESSES:
        values |= {"PHALANX_CLUSTER": addresses, "POLYAXON_CLUSTER": addresses}
    refs = spec.environment.outputs
    if refs is not None:
        values["POLYAXON_REFS_OUTPUTS_PATHS"] = refs_paths(refs)
    return values


def own(kind: MemberKind) -> dict[str, Value]:
    """The variables that identify one process, as a template for all of its kind."""
    return {
        "PHALANX_REPLICA": (mine("name"),),
        "PHALANX_ROLE": kind.role,
        "PHALANX_INDEX": (mine("index"),),
        "PHALANX_RANK": (mine("rank"),),
        "PHALANX_LOCAL_RANK": str(kind.local),
        "POLYAXON_TASK_INFO": (f'{{"type": "{kind.role}", "index": ', mine("index"), "}"),
    }


def environment(member: Member, *others: Mapping[str, Value]) -> OwnValues:
    """The variables of a process outside of the wiring, after `others`."""
    template: dict[str, Value] = {}
    for values in (*others, own(member.kind)):
        template |= values
    return OwnValues(template, member)


def data_paths(spec: Spec) -> Value:
    """`{"name": "folder"}` for the data stores in the file, with placeholders for the folders."""
    parts: list[str | Hole | Each] = ["{"]
    for number, name in enumerate(spec.environment.settings.data_refs or ()):
        parts += [", " if number else "", json.dumps(name), ': "', path(f"data/{name}"), '"']
    return (*parts, "}") if len(parts) > 1 else "{}"


def refs_paths(refs: OutputsRefs) -> Value:
    """`{"jobs": ["folder"], "experiments": [...]}` for earlier runs, with placeholders for the folders."""
    parts: list[str | Hole | Each] = ["{"]
    for number, (kind, names) in enumerate(refs._asdict().items()):
        parts += [", " if number else "", f'"{kind}": [']
        for place, name in enumerate(names):
            parts += [", " if place else "", '"', path(f"refs/{kind}/{name}"), '"']
        parts.append("]")
    return (*parts, "}")


_INFO_NAMES = {
    Kind.EXPERIMENT: "POLYAXON_EXPERIMENT_INFO",
    Kind.NOTEBOOK: "POLYAXON_NOTEBOOK_INFO",
    Kind.TENSORBOARD: "POLYAXON_TENSORBOARD_INFO",
}


def info(spec: Spec, run_id: str, project: str, group: str | None = None) -> dict[str, Value]:
    """The variable that names a run; `group`: the id of the group that it is a trial of."""
    what = str(spec.kind)
    of_group = {
        "experiment_group_name": f"{project}.{group}",
        "experiment_group_uuid": _uuid5(f"run/{group}"),
    }
    found = {
        **(of_group if group is not None else {}),
        "app": f"polyaxon-{what}",
        "role": "polyaxon-workers",
        "type": "polyaxon-runner",
        "project_name": project,
        "project_uuid": _uuid5(f"project/{project}"),
        f"{what}_name": f"{project}.{spec.name or run_id}",
        f"{what}_uuid": _uuid5(f"run/{run_id}"),
    }
    return {_INFO_NAMES.get(spec.kind, "POLYAXON_JOB_INFO"): _json(found)}


def _uuid5(name: str) -> str:
    """The digits of `uuid.uuid5(namespace, name)`, without importing `uuid` and `hashlib`, which takes half as
    long as the start of Python."""
    try:
        from _sha1 import sha1  # type: ignore[import-not-found] # as `random` of the standard library does with `_sha512`
    except ImportError:
        from hashlib import sha1
    digits = bytearray(sha1(_NAMESPACE + name.encode(), usedforsecurity=False).digest()[:16])
    digits[6] = digits[6] & 0x0F | 0x50  # version 5
    digits[8] = digits[8] & 0x3F | 0x80
    return digits.hex()


def _json(value: object) -> str:
    return json.dumps(value, default=str)
