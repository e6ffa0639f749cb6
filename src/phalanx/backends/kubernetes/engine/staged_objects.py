"""Creation of an attempt's objects from the files of its run. It is idempotent.

An interrupted submission leaves some of the objects; the same call creates the rest. Objects that create pods come
last: a run that has them is complete.
"""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.agent.interactive.hold import read_hold
from phalanx.backends import agent_zip, code_archive
from phalanx.backends.contract import EngineUnavailable, JobRejected
from phalanx.backends.kubernetes.cluster.api import CONFIG_MAPS, Api, ApiFault, ApiUnreachable, kind_of
from phalanx.backends.kubernetes.observe.attempt_objects import (
    BUILD,
    ENGINE,
    STAGE,
    WORKS,
    is_build,
    labels_of,
    meta_of,
    short,
)
from phalanx.backends.kubernetes.render import code_pieces, image_builds, names, payload
from phalanx.backends.kubernetes.render.addresses import AddressTables
from phalanx.backends.kubernetes.render.gang_scheduling import GROUP_LABEL
from phalanx.backends.kubernetes.target import ATTEMPT, RUN
from phalanx.placeholders import Value, fill
from phalanx.stored_plan import StoredPlan, read_plan

SKELETON = "manifests.json"
TOKEN = "PHALANX_RUN_TOKEN"  # noqa: S105 - the name of a variable
MOST_PACKED = 8 * code_pieces.LARGEST_CODE  # packing stops here: it is too large for any transport
BEING_REMOVED = "the objects of the previous attempt are being removed"

Document = dict[str, Any]


class StagedObjects(NamedTuple):
    """The objects of an attempt, by order of creation. `works` create pods and have to wait for `builds`."""

    owner: Document
    others: Sequence[Document]
    builds: Sequence[Document]
    works: Sequence[Document]

    @property
    def run_id(self) -> str:
        return str(labels_of(self.owner)[RUN])


# making them ready -----------------------------------------------------------------------------------------------


def load(
    folder: Path, environment: Mapping[str, str], *, attempt: int, engine: str, server: str | None
) -> StagedObjects:
    """Load all objects from a run's folder, complete except for the owner's uid. Raises JobRejected, OSError,
    ValueError."""
    owner, *others = json.loads((folder / SKELETON).read_bytes())
    is_carried = image_builds.carries_code([owner, *others])
    code = packed(folder / run_paths.CODE) if is_carried else b""
    if is_carried and len(code) <= MOST_PACKED:
        owner, *others = image_builds.shared([owner, *others], code)
    place = json.loads(owner["data"][payload.PLACE])
    found = [*others, *_agent(folder, owner, others)]
    if is_carried:
        if len(code) <= code_pieces.LARGEST_CODE:
            found += [_bytes_map(owner, piece.what, {piece.file: piece.data}) for piece in code_pieces.split(code)]
        elif server is not None and place["code"]["kind"] == "bundle":
            place["code"]["kind"] = "server"
            owner["data"][payload.PLACE] = json.dumps(place, indent=1) + "\n"
        else:
            raise JobRejected(_too_large(len(code), has_inputs=(folder / run_paths.CODE / run_paths.INPUTS).exists()))
    hold_s = read_hold(str(folder), attempt)
    if hold_s is not None:
        owner["data"][payload.PLACE] = json.dumps({**place, "hold_s": hold_s}, indent=1) + "\n"
    for one in found:
        if one["kind"] == "Secret":
            _fill(one, read_plan(folder), place, environment)
    return _stages(stamped([owner, *found], attempt, engine=engine))


def _stages(objects: Sequence[Document]) -> StagedObjects:
    owner, *rest = objects
    works = [one for one in rest if is_work(one) and not is_build(one)]
    for one in works:
        meta_of(one).setdefault("annotations", {})[WORKS] = str(len(works))  # type: ignore[attr-defined]
    return StagedObjects(
        owner,
        others=[one for one in rest if not is_work(one)],
        builds=[one for one in rest if is_work(one) and is_build(one)],
        works=works,
    )


def is_work(found: Mapping[str, Any]) -> bool:
    """Return whether it creates pods: a Job, or an operator's job."""
    return str(found["kind"]).endswith(("Job", "JobSet"))


def stamped(
    objects: Sequence[Document], attempt: int, owner_uid: str | None = None, *, engine: str = ""
) -> list[Document]:
    """Add the attempt to the labels and selectors of the objects. Owner references need the owner's uid, and are added
    once it is known."""
    owner, *others = objects
    own = {ATTEMPT: str(attempt), **({ENGINE: engine} if engine else {})}
    found = [_marked(one, own) for one in (owner, *others)]
    for one in found:
        if is_work(one) and is_build(one):
            inner = one["spec"]["template"].setdefault("metadata", {})
            inner["labels"] = {**inner.get("labels", {}), **labels_of(one), STAGE: BUILD}
    return found if owner_uid is None else [found[0], *(_owned(one, owner, owner_uid) for one in found[1:])]


def _marked(value: Any, own: Mapping[str, str], key: str = "") -> Any:
    if isinstance(value, list):
        return [_marked(item, own) for item in value]
    if not isinstance(value, dict):
        return value
    if RUN in value and isinstance(value[RUN], str):
        is_label = key == "labels"  # selectors must also match objects of older agents
        if is_label and GROUP_LABEL in value:  # pods of the previous attempt may still exist: they must not count
            value = {**value, GROUP_LABEL: f"{value[GROUP_LABEL]}-{own[ATTEMPT]}"}
        return {**value, **(own if is_label else {ATTEMPT: own[ATTEMPT]})}
    return {name: _marked(inner, own, name) for name, inner in value.items()}


def _owned(one: Document, owner: Mapping[str, Any], uid: str) -> Document:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": uid}
    return {**one, "metadata": {**one["metadata"], "ownerReferences": [reference]}}


def _agent(folder: Path, owner: Document, others: Sequence[Document]) -> list[Document]:
    """Agent and client, each in its own object. Jobs that were rendered by version 0.2 mount only the first."""
    try:
        agent, client = ((folder / run_paths.JOB / name).read_bytes() for name in (payload.AGENT, payload.CLIENT))
    except FileNotFoundError:
        agent, client = agent_zip.carried()
    if f'"{names.object_name(owner["metadata"]["name"], "tracking")}"' not in json.dumps(others):
        return [_bytes_map(owner, "agent", {payload.AGENT: agent, payload.CLIENT: client})]
    content = {"agent": {payload.AGENT: agent}, "tracking": {payload.CLIENT: client}}
    return [_bytes_map(owner, what, files) for what, files in content.items()]


def _bytes_map(owner: Document, what: str, content: Mapping[str, bytes]) -> Document:
    meta = owner["metadata"]
    own = {"name": names.object_name(meta["name"], what), "labels": dict(meta["labels"])}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**own, "annotations": dict(meta.get("annotations", {}))},
        "binaryData": {name: b64encode(data).decode() for name, data in content.items()},
    }


def _fill(secret: Document, plan: StoredPlan, place: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Fill in the values that are in no manifest."""
    run_folder = str(place.get("run_folder", ""))
    data = {f"data/{name}": str(at) for name, at in (place.get("data") or {}).items()}
    paths = {"outputs": str(place.get("outputs", "")), **data, "*": run_folder}
    hosts, first_port = {"*": "", **place["host"]}, int(place["port"].get("*", 0))
    hosts |= {one.name: hosts[one.first_process] for one in plan.replicas if one.first_process in hosts}
    ports = {"*": first_port, **{one.name: first_port + one.local for one in plan.replicas}, **place["port"]}
    tables = AddressTables(hosts, ports, paths)
    wanted = secret.get("stringData") or {}
    known: dict[str, Value] = {}
    for replica in reversed(plan.replicas):  # among replicas that differ, the first has the plain name
        for name in replica.environment:
            for key in (name, f"{replica.name}.{name}"):
                if key in wanted:
                    known[key] = replica.environment[name]
    known |= plan.environment
    secret["stringData"] = {
        name: fill(known[name], plan.members, tables.answer) if name in known else value
        for name, value in wanted.items()
    }
    secret["metadata"]["annotations"] = {
        name: text for name, text in (secret["metadata"].get("annotations") or {}).items() if name != payload.EMPTIED
    }
    if TOKEN in environment:
        secret["stringData"][TOKEN] = environment[TOKEN]


def _too_large(size: int, *, has_inputs: bool) -> str:
    about = f"{size >> 10} KiB" if size < MOST_PACKED else f"more than {MOST_PACKED >> 10} KiB"
    return payload.too_large(about, has_inputs=has_inputs)


class _Bounded(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() > MOST_PACKED:
            raise OverflowError
        return super().write(data)


def packed(code: Path) -> bytes:
    """The code of a run as an archive; empty if there is none. If it is far too large, packing stops early."""
    buffer = _Bounded()
    files = sorted(path.relative_to(code) for path in code.rglob("*") if path.is_file())
    with suppress(OverflowError):
        code_archive.pack(code, files, buffer)
    return buffer.getvalue()


# creating them ---------------------------------------------------------------------------------------------------


def apply(api: Api, pool: Executor, staged: StagedObjects) -> None:
    """Create everything that can exist already; if an image is built first, `apply_works` creates the rest. Raises
    JobRejected, or EngineUnavailable: then it may be called again."""
    uid = _own(api, staged)
    try:
        _create(api, pool, staged, staged.others, uid)
        _create(api, pool, staged, staged.builds or staged.works, uid)
    except JobRejected:
        remove(api, staged.owner["metadata"]["name"], uid)
        raise


def apply_works(api: Api, pool: Executor, staged: StagedObjects, owner_uid: str) -> None:
    """Create the objects that create pods, once their image exists. Raises as `apply`."""
    _create(api, pool, staged, staged.works, owner_uid)


def _own(api: Api, staged: StagedObjects) -> str:
    """The uid of the owner, created or found. Raises JobRejected, EngineUnavailable."""
    name = staged.owner["metadata"]["name"]
    try:
        return str(api.create(CONFIG_MAPS, staged.owner)["metadata"]["uid"])
    except ApiFault as fault:
        if fault.code != 409:
            raise _failed(fault, staged.owner) from None
    except ApiUnreachable as fault:
        raise EngineUnavailable(str(fault)) from None
    found = _found(api, staged.owner)
    _check_ours(found, staged)
    attempt, wanted = int(labels_of(found).get(ATTEMPT, 0)), int(labels_of(staged.owner)[ATTEMPT])
    if meta_of(found).get("deletionTimestamp"):
        raise EngineUnavailable(BEING_REMOVED)
    if attempt > wanted:
        raise JobRejected(f"attempt {attempt} of this run already exists, and this is attempt {wanted}")
    if attempt < wanted:
        remove(api, name, str(meta_of(found)["uid"]))
        raise EngineUnavailable(BEING_REMOVED)
    return str(meta_of(found)["uid"])


def _create(api: Api, pool: Executor, staged: StagedObjects, objects: Iterable[Document], uid: str) -> None:
    """Create several concurrently. All are tried before the worst fault is raised."""
    faults = [fault for fault in pool.map(lambda one: _try_one(api, staged, one, uid), objects) if fault is not None]
    for kind in (JobRejected, EngineUnavailable):
        for fault in faults:
            if isinstance(fault, kind):
                raise fault


def _try_one(api: Api, staged: StagedObjects, one: Document, uid: str) -> JobRejected | EngineUnavailable | None:
    try:
        _create_one(api, staged, one, uid)
    except (JobRejected, EngineUnavailable) as fault:
        return fault
    return None


def _create_one(api: Api, staged: StagedObjects, one: Document, uid: str) -> None:
    try:
        api.create(kind_of(one), _owned(one, staged.owner, uid))
        return
    except ApiFault as fault:
        if fault.code != 409 or fault.reason == "Conflict":
            raise _failed(fault, one) from None
    except ApiUnreachable as fault:
        raise EngineUnavailable(str(fault)) from None
    found = _found(api, one)
    _check_ours(found, staged)
    owners = [reference.get("uid") for reference in meta_of(found).get("ownerReferences") or ()]
    if uid in owners and not meta_of(found).get("deletionTimestamp"):
        return
    with suppress(ApiFault, ApiUnreachable):  # the garbage collector may be slow
        if uid not in owners:
            api.delete(kind_of(one), one["metadata"]["name"], uid=str(meta_of(found)["uid"]))
    raise EngineUnavailable(BEING_REMOVED)


def _found(api: Api, one: Document) -> Document:
    try:
        return api.get(kind_of(one), one["metadata"]["name"])
    except ApiFault as fault:
        if fault.code == 404:
            raise EngineUnavailable(BEING_REMOVED) from None
        raise _failed(fault, one) from None
    except ApiUnreachable as fault:
        raise EngineUnavailable(str(fault)) from None


def _check_ours(found: Mapping[str, Any], staged: StagedObjects) -> None:
    if labels_of(found).get(RUN) != staged.run_id:
        raise JobRejected(f"{_called(found)} already exists and belongs to another run: use another namespace")


def _failed(fault: ApiFault, one: Mapping[str, Any]) -> JobRejected | EngineUnavailable:
    """Sort by whether it is transient. A quota is free again once other runs have ended."""
    said = short(fault.message or fault.reason)
    if fault.transient or fault.code in (401, 408, 409) or "exceeded quota" in fault.message:
        return EngineUnavailable(f"{_called(one)}: {said}")
    if fault.code == 404:
        return JobRejected(f"the cluster has no {one['kind']} of {one['apiVersion']}, or no such namespace: {said}")
    if fault.code == 403:
        return JobRejected(f"{_called(one)}: {said}: `phalanx doctor --on kubernetes` reports the missing permissions")
    return JobRejected(f"{_called(one)}: {said}")


def _called(one: Mapping[str, Any]) -> str:
    return f"{one.get('kind')} {meta_of(one).get('name')}"


def remove(api: Api, name: str, uid: str | None = None) -> bool:
    """Delete the owner, and with it its dependents. Return whether it is or will be gone; False if that is unknown."""
    try:
        api.delete(CONFIG_MAPS, name, uid=uid)
    except ApiFault as fault:
        return fault.code in (404, 409)  # another object has its name now
    except ApiUnreachable:
        return False
    return True


def delete_all(pool: Executor, deletions: Iterable[Callable[[], object]]) -> None:
    """Run all deletions. Objects that are already gone are fine. Raises EngineUnavailable."""

    def attempt(act: Callable[[], object]) -> str:
        try:
            act()
        except ApiFault as fault:
            return "" if fault.code in (404, 409) else short(fault.message or fault.reason)
        except ApiUnreachable as fault:
            return str(fault)
        return ""

    faults = [said for said in pool.map(attempt, deletions) if said]
    if faults:
        raise EngineUnavailable(faults[0])
