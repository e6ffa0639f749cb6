"""A plan as data: complete for machines; readable and without secrets for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from json import JSONEncoder
from typing import Any

from phalanx.deferred_patterns import deferred_pattern
from phalanx.naming import SERVING
from phalanx.placeholders import Hole, OwnValues, Value, encode, fill
from phalanx.plan.model import DEFAULT_PORT, Plan, Replica, template_of
from phalanx.spec.model import RESOURCE_NAMES, CollectOptions, Resources
from phalanx.spec.quantities import tidy

MANY = 256  # more addresses of a role than this are shown as one line
HIDDEN = "***"
VERSION = 2  # of the document; version 1 had no templates
_SECRET = deferred_pattern(
    r"secret|(?:^|_)token(?:$|_)|passw|credential|api_?key|access_?key|private_?key", re.IGNORECASE
)


def is_secret(name: str) -> bool:
    """Whether the name of a variable suggests that its value is secret."""
    return _SECRET.search(name) is not None


def resources_view(resources: Resources) -> dict[str, Any]:
    """`{"cpu": {"requests": 1, "limits": 2}, …}`, with null for what is not requested."""
    view: dict[str, Any] = {}
    for name in RESOURCE_NAMES:
        amount = getattr(resources, name)
        if amount is None:
            if name != "tpu":  # the oldest Polyaxon releases had none, and few files use it
                view[name] = None
            continue
        view[name] = {
            bound: None if (value := getattr(amount, bound)) is None else tidy(value)
            for bound in ("requests", "limits")
        }
    return view


class PlanView:
    """A plan for people: hosts and folders in angle brackets, secrets hidden."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.members = {
            role: names if len(names) <= MANY else [f"{role}-0..{len(names) - 1}"]
            for role, names in plan.members.items()
        }

    def text(self, value: Value) -> str:
        return fill(value, self.members, shown)

    def variables(self, environment: Mapping[str, Value]) -> dict[str, str]:
        return {name: self.hide(name, self.text(value)) for name, value in environment.items()}

    @staticmethod
    def hide(name: str, text: str) -> str:
        return HIDDEN if is_secret(name) and text else text

    def replica(self, replica: Replica, shared: Mapping[str, str]) -> dict[str, Any]:
        defaults = self.variables(replica.defaults)
        return {
            "name": replica.name,
            "role": replica.role,
            "index": replica.index,
            "rank": replica.rank,
            "resources": resources_view(replica.resources),
            "environment": {**defaults, **shared, **self.variables(replica.environment)},
            "defaults": sorted(defaults),
            "command": self.plan.command if replica.argv else None,
            "argv": [self.text(argument) for argument in replica.argv],
        }

    def as_json(self) -> dict[str, Any]:
        plan = self.plan
        shared = self.variables(plan.shared)
        return {
            "run_id": plan.run_id,
            "kind": plan.kind,
            "name": plan.name,
            "framework": plan.framework,
            "backend": plan.backend,
            "launch": plan.launch,
            "command": plan.command,
            "is_distributed": plan.is_distributed,
            "roles": dict(plan.roles),
            "resources": resources_view(plan.totals),
            "timeout_s": plan.timeout_s,
            "stall_timeout_s": plan.stall_timeout_s,
            "max_restarts": plan.max_restarts,
            "replicas": [self.replica(replica, shared) for replica in plan.replicas],
        }


def shown(hole: Hole) -> str:
    if hole.kind == "interface":
        return "<interface>"
    return str(DEFAULT_PORT) if hole.kind == "port" else f"<{hole.of}>"


def document(plan: Plan) -> dict[str, Any]:
    """The plan as the agent reads it from `plan.json`: every value, placeholders included.

    Replicas with the same settings share one of the `templates`, so the document grows with the number of replicas by a
    few numbers each. The fields of a replica override those of its template.
    """
    templates: dict[tuple[int, ...], tuple[int, dict[str, Any]]] = {}
    return {
        "version": VERSION,
        "run_id": plan.run_id,
        "launch": plan.launch,
        "roles": dict(plan.roles),
        "timeout_s": plan.timeout_s,
        "stall_timeout_s": plan.stall_timeout_s,
        "max_restarts": plan.max_restarts,
        **({} if plan.hold_s is None else {"hold_s": plan.hold_s}),
        **({} if plan.notebook is None else {"notebook": plan.notebook}),
        "meets": list(plan.meets),
        "service": None if plan.service is None else dict(plan.service),
        "wiring": plan.wiring,
        "launcher": [encode(word) for word in plan.launcher],
        **({} if set(plan.serving) <= set(SERVING) else {"serving": list(plan.serving)}),
        "segment_s": plan.slurm.segment_s,
        "checkpoint": {"before_s": plan.slurm.checkpoint_s, "signal": plan.slurm.checkpoint_signal},
        "python": _python(plan),
        "environment": _encoded(plan.shared.items()),
        "collect": _collect(plan.collect),
        "models": [model._asdict() for model in plan.models],
        "replicas": [_row(replica, templates) for replica in plan.replicas],
        "templates": [template for _, template in templates.values()],
    }


def _row(replica: Replica, templates: dict[tuple[int, ...], tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    """`templates` gets the replica's template if it is the first with it. The plan keeps one object for what replicas
    share, so identity is enough to find it again."""
    variables, numbers = template_of(replica), None
    if isinstance(replica.environment, OwnValues):
        numbers = replica.environment.numbers
    key = (id(variables), id(replica.settings), id(replica.defaults), id(replica.argv))
    if key not in templates:
        templates[key] = (
            len(templates),
            {
                "resources": resources_view(replica.resources),
                "environment": _encoded(variables.items()),
                "defaults": _encoded(replica.defaults.items()),
                "argv": [encode(argument) for argument in replica.argv],
            },
        )
    row = {
        "role": replica.role,
        "index": replica.index,
        "rank": replica.rank,
        "local": replica.local,
        "template": templates[key][0],
    }
    if numbers is not None:
        row |= {"node": numbers.node, "cross": numbers.cross}
    return row


def document_text(content: Mapping[str, Any]) -> str:
    """A document as the text of `plan.json`, with one line for each field, template and replica."""
    write = JSONEncoder().encode
    fields = []
    for name, value in content.items():
        if name in ("replicas", "templates"):
            fields.append(f"{write(name)}: [\n" + ",\n".join(map(write, value)) + "\n]")
        else:
            fields.append(f"{write(name)}: {write(value)}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _python(plan: Plan) -> dict[str, Any]:
    """What to prepare on a node."""
    asked = plan.python._asdict()
    steps = list(plan.setup_steps)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asked.items()} | {
        "steps": steps
    }


def _collect(asked: CollectOptions | None) -> dict[str, Any] | None:
    if asked is None:
        return None
    patterns = None if asked.collect is None else list(asked.collect)
    return {"patterns": patterns, "max_bytes": int(asked.max_mib * (1 << 20)), "max_files": asked.max_files}


def _encoded(items: Iterable[tuple[str, Value]]) -> dict[str, Any]:
    return {name: encode(value) for name, value in items}
