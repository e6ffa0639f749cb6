"""The payload of a run's pods: plan, facts, agent, code and secrets.

All of it is in objects of the run, so it needs no image build and no shared filesystem. Values that look secret are
only in the Secret.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from phalanx import run_paths
from phalanx.backends.kubernetes.render import code_pieces, names, pods, volumes
from phalanx.backends.kubernetes.render.addresses import AddressTables
from phalanx.backends.kubernetes.target import DOMAIN, RUN_AT, ClusterTarget
from phalanx.errors import CallError
from phalanx.placeholders import Value
from phalanx.plan.document import document
from phalanx.plan.model import Plan, Replica, one_of_each

PLACE, PLAN, START = "place.json", "plan.json.gz", "start.sh"
AGENT, CLIENT = run_paths.AGENT_ARCHIVE, run_paths.CLIENT_ARCHIVE
LARGEST_APPLIED = 256 << 10  # of an object as JSON, so that `kubectl apply` can keep its copy in an annotation
LARGEST_MAP = 1 << 20  # all values of a ConfigMap
_LEAST_ADDRESS = 24  # characters of `"worker-0": "BASE-worker-0",` without BASE
PEERS_S = 900.0
FAREWELL_S = 10.0  # the part of a pod's grace period in which its agent reports the end
EMPTIED = f"{DOMAIN}/values"


def owner(made: Plan, target: ClusterTarget, tables: AddressTables, *, yields: Collection[str] = ()) -> dict[str, Any]:
    """The first object of a run: the agents read it, and it owns all other objects. Raises CallError."""
    data, plan = {PLACE: place_json(made, target, tables, yields=yields), START: start_script()}, plan_gz(made)
    if sum(map(len, data.values())) + len(plan) > LARGEST_MAP:
        raise CallError(_too_many(made))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(made, names.base(made)),
        "data": data,
        "binaryData": {PLAN: b64encode(plan).decode()},
    }


def refuse_too_many(made: Plan) -> None:
    """Refuse a run whose addresses cannot fit, before anything is rendered. Raises CallError."""
    count = sum(not replica.local for replica in made.replicas)
    if count * (len(names.base(made)) + _LEAST_ADDRESS) > LARGEST_MAP:
        raise CallError(_too_many(made))


def _too_many(made: Plan) -> str:
    return (
        f"the addresses of {len(made.replicas)} replicas do not fit into a Kubernetes object, which holds 1 MiB: "
        "use fewer replicas (about 10,000 fit), each with more GPUs or processes"
    )


def metadata(made: Plan, name: str, role: str | None = None, members: Collection[str] = ()) -> dict[str, Any]:
    return {
        "name": name,
        "labels": names.labels(made, role),
        "annotations": names.annotations(made, members),
    }


def place_json(made: Plan, target: ClusterTarget, tables: AddressTables, *, yields: Collection[str] = ()) -> str:
    """The addresses and paths that agents need. `yields`: variables that an operator sets; its values override the
    plan's."""
    firsts = {replica.name for replica in made.replicas if not replica.local}
    content = {
        "version": 1,
        "host": {name: host for name, host in tables.host.items() if name == "*" or name in firsts},
        "port": {"*": tables.port["*"]},  # of the first process of each replica; the others count on from it
        "courier": courier(target),
        "server": target.settings.server,
        "run_folder": RUN_AT,
        "code": volumes.code(made, target)._asdict(),  # a bundle too large for an object comes from the server instead
        "outputs": tables.path["outputs"],
        "data": {of.partition("/")[2]: at for of, at in tables.path.items() if of.startswith("data/")},
        "yields": sorted(yields),
        "peers_s": peers_s(made),
        "grace_s": grace_s(made, target),
        "steps": list(steps_of(made, target)),
    }
    patience_s = target.settings.give_up if made.kubernetes.give_up_s is None else made.kubernetes.give_up_s
    content |= {"give_up_s": patience_s} if patience_s is not None else {}
    return json.dumps(content, indent=1) + "\n"


def peers_s(made: Plan) -> float:
    """How long agents wait for each other."""
    return made.kubernetes.peers_s if made.kubernetes.peers_s is not None else PEERS_S


def grace_s(made: Plan, target: ClusterTarget) -> float:
    """The grace period of the program: that of its pod, minus the agent's part."""
    whole_s = float(pods.grace_s(made, target))
    return max(whole_s - FAREWELL_S, whole_s / 2)


def courier(target: ClusterTarget) -> str:
    """The transport of logs, metrics and ends."""
    if target.settings.home_claim is not None:
        return "volume"
    return "server" if target.settings.server is not None else "frames"


def without_courier(content: str) -> str:
    """The same without a receiver: then logs are written for people."""
    return json.dumps({**json.loads(content), "courier": "none"}, indent=1) + "\n"


def steps_of(made: Plan, target: ClusterTarget) -> tuple[str, ...]:
    """The steps that an init container runs; none if an image is built from them."""
    return () if target.settings.registry is not None else made.setup_steps


def plan_gz(made: Plan) -> bytes:
    """The plan for agents, without secrets; the same bytes for the same plan."""
    content, secret_names = document(made), pods.hidden(made)
    content["environment"] = _without(content["environment"], secret_names)
    for template in content["templates"]:
        template["environment"] = _without(template["environment"], secret_names)
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0)


def _without(variables: Mapping[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in variables.items() if name not in left_out}


def secrets_of(made: Plan) -> dict[str, str]:
    """The values of variables that look secret, by the keys of the run's Secret: the variable's name or, for replicas
    that differ, `<replica>.<name>` of the first with that value."""
    secret_names = pods.hidden(made)
    found = {name: _text(made.shared[name]) for name in made.shared if name in secret_names}
    seen: set[tuple[str, str]] = set()
    firsts = (replica for replica in made.replicas if not replica.local)  # further processes have the same variables
    for replica in one_of_each(firsts):
        for name in secret_names.intersection(replica.environment):
            text = _text(replica.environment[name])
            if found.setdefault(name, text) != text and (name, text) not in seen:
                seen.add((name, text))
                found[f"{replica.name}.{name}"] = text
    return found


def own_secrets(made: Plan, replica: Replica, secrets: Mapping[str, str]) -> list[dict[str, Any]]:
    """Variables of a container whose replica has secrets that differ from the run's."""
    own = []
    for name, value in replica.environment.items():
        if name not in secrets or secrets[name] == (text := _text(value)):
            continue
        key = next(key for key in secrets if secrets[key] == text and key.endswith(f".{name}"))
        reference = {"name": names.base(made), "key": key, "optional": True}
        own.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
    return own


def _text(value: Value) -> str:
    return value if isinstance(value, str) else ""


def secret(made: Plan, keys: Collection[str]) -> dict[str, Any]:
    """The Secret without values: they are filled in at submission and are in no manifest file."""
    described = metadata(made, names.base(made))
    described["annotations"][EMPTIED] = (
        "left empty here: `phalanx run` fills them in; by hand, write them before applying"
    )
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": described,
        "type": "Opaque",
        "stringData": dict.fromkeys(sorted(keys), ""),
    }


def agent_maps(made: Plan, agent: bytes, client: bytes) -> list[dict[str, Any]]:
    return [_bytes_map(made, "agent", {AGENT: agent}), _bytes_map(made, "tracking", {CLIENT: client})]


def code_maps(made: Plan, packed: bytes) -> list[dict[str, Any]]:
    """Raises CallError if the code is too large for Kubernetes objects."""
    if len(packed) > code_pieces.LARGEST_CODE:
        raise CallError(too_large(f"{len(packed) >> 10} KiB"))
    return [_bytes_map(made, piece.what, {piece.file: piece.data}) for piece in code_pieces.split(packed)]


def too_large(size: str, *, has_inputs: bool = False) -> str:
    """The advice for code that is too large for objects. `has_inputs`: files of other ops are sent with it."""
    what = "the code, with the files of other ops that are sent with it, takes" if has_inputs else "the code takes"
    return (
        f"{what} {size} when packed, and ConfigMaps carry at most {code_pieces.LARGEST_CODE >> 10} KiB of it: "
        "list what is not code in .polyaxonignore, one pattern per line; or let pods fetch it: "
        "`environment.kubernetes.repository` names a git repository, `environment.kubernetes.code_claim` a volume "
        "that contains it, and `server:` in the home's kubernetes.yml a Phalanx server that serves it"
    )


def _bytes_map(made: Plan, what: str, content: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(made, names.object_name(names.base(made), what)),
        "binaryData": {name: b64encode(data).decode() for name, data in content.items()},
    }


@cache
def start_script() -> str:
    """The start script of a container: the same for every run, without user input."""
    return files("phalanx.backends.kubernetes.render").joinpath(START).read_text(encoding="utf-8")
