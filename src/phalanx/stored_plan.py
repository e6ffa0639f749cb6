"""`plan.json` of a run, decoded: the one reader of the file that `plan.document` writes.

The agent, the scheduler, the server and the commands all work with the values of this module. Only role, index and
rank of a replica are required: older versions and runs that are only tracked wrote fewer fields. Standard library only,
Python 3.8+.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.naming import SERVING, member_name
from phalanx.placeholders import OwnNumbers, OwnValues, Value, decode

_SHARED = ("resources", "environment", "defaults", "argv")  # fields that a replica may have from a template
_NO_VALUE = (LookupError, TypeError, ValueError, AttributeError)  # raised by `decode`


class PlanDamaged(ValueError):
    """A `plan.json` that Phalanx did not write. The message is for the user."""


class ResourceAmount(NamedTuple):
    """The request and the limit of one resource: CPUs, MiB of memory, GPUs or TPUs."""

    requests: float | None = None
    limits: float | None = None

    @property
    def reserved(self) -> float | None:
        """The request, or the limit if there is no request."""
        return self.limits if self.requests is None else self.requests


NO_AMOUNT = ResourceAmount()


class PlannedReplica(NamedTuple):
    """One process of a run. Without `argv` it is a host on which a launcher starts ranks."""

    role: str
    number: int  # within its role
    rank: int
    local: int = 0
    resources: Mapping[str, ResourceAmount] = {}  # only those that the file sets
    environment: Mapping[str, Value] = {}
    defaults: Mapping[str, Value] = {}
    argv: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        return member_name(self.role, self.number, self.local)

    @property
    def first_process(self) -> str:
        """The name of its replica, which is that of the replica's first process."""
        return member_name(self.role, self.number)

    def amount(self, resource: str) -> ResourceAmount:
        return self.resources.get(resource, NO_AMOUNT)


class CheckpointSettings(NamedTuple):
    """When, before the end of a job, training code gets a signal to save, and which (without `SIG`)."""

    before_s: float | None = None
    signal: str | None = None


class CollectSettings(NamedTuple):
    """Which files of the working folder are copied into the outputs. Without patterns: those that look like results."""

    patterns: tuple[str, ...] | None = None
    max_bytes: int = 0
    max_files: int = 0


class ModelRule(NamedTuple):
    """A file of the outputs that becomes a version of a model: of those that match, the one saved when the metric was
    best, or the last one."""

    name: str
    path: str
    metric: str | None = None
    is_largest_best: bool = True


class StoredPlan(NamedTuple):
    """The plan of a run, as `plan.model` describes it. `order`, `interface` and `scratch` are set for Slurm: the
    replicas in the order of Slurm's ranks, the network interface of the site, and the variable with the node's
    folder."""

    replicas: tuple[PlannedReplica, ...] = ()
    run_id: str = ""
    launch: str = "each"
    roles: Mapping[str, int] = {}
    timeout_s: float | None = None
    stall_timeout_s: float | None = None
    max_restarts: int = 0
    hold_s: float | None = None
    notebook: str | None = None
    meets: tuple[str, ...] = ()
    service: Mapping[str, int] | None = None
    wiring: str | None = None
    launcher: tuple[Value, ...] = ()
    serving: tuple[str, ...] = SERVING
    segment_s: float | None = None
    checkpoint: CheckpointSettings = CheckpointSettings()
    python: Mapping[str, Any] = {}  # what to prepare on a node: `agent.virtualenv` reads it
    environment: Mapping[str, Value] = {}
    order: tuple[str, ...] = ()
    interface: str | None = None
    scratch: str | None = None
    collect: CollectSettings | None = None  # None: its working folder is not watched
    models: tuple[ModelRule, ...] = ()

    @property
    def members(self) -> dict[str, list[str]]:
        """The names of the replicas, by role."""
        return {role: [member_name(role, index) for index in range(count)] for role, count in self.roles.items()}

    @property
    def with_command(self) -> tuple[PlannedReplica, ...]:
        """The replicas that run a command."""
        return tuple(replica for replica in self.replicas if replica.argv)

    @property
    def deciding(self) -> tuple[str, ...]:
        """The replicas whose success is that of the run: all that do not only serve."""
        running = self.with_command
        deciding = [replica for replica in running if replica.role not in self.serving]
        return tuple(replica.name for replica in deciding or running)

    @property
    def by_name(self) -> dict[str, PlannedReplica]:
        return {replica.name: replica for replica in self.replicas}


def read_plan(run_folder: str | os.PathLike[str]) -> StoredPlan:
    """The plan of a run. Raises OSError and PlanDamaged."""
    return read_plan_file(os.path.join(run_folder, run_paths.PLAN))


def read_plan_file(path: str) -> StoredPlan:
    """Raises OSError and PlanDamaged."""
    with open(path, "rb") as stream:
        data = stream.read()
    try:
        return parse_plan(data)
    except PlanDamaged as fault:
        raise PlanDamaged(f"{path}: {fault}") from None


def parse_plan(data: bytes) -> StoredPlan:
    """The plan in the bytes of a `plan.json`. Raises PlanDamaged."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise PlanDamaged("the plan is damaged: it is not JSON") from None
    return decode_plan(content)


def decode_plan(content: Any) -> StoredPlan:
    """The plan in a decoded `plan.json`, which is what `plan.document` returns. Raises PlanDamaged."""
    try:
        return _plan(_Fields(content, "the plan"))
    except RecursionError:
        raise PlanDamaged("the plan is damaged: a value is nested too deeply") from None


def _plan(fields: _Fields) -> StoredPlan:
    checkpoint = fields.section("checkpoint")
    return StoredPlan(
        replicas=_replicas(fields),
        run_id=fields.optional("run_id", str) or "",
        launch=fields.optional("launch", str) or "each",
        roles=fields.table("roles", int),
        timeout_s=fields.number("timeout_s"),
        stall_timeout_s=fields.number("stall_timeout_s"),
        max_restarts=fields.optional("max_restarts", int) or 0,
        hold_s=fields.number("hold_s"),
        notebook=fields.optional("notebook", str),
        meets=fields.texts("meets"),
        service=fields.table("service", int) if fields.optional("service", dict) else None,
        wiring=fields.optional("wiring", str),
        launcher=fields.words("launcher"),
        serving=fields.texts("serving") or SERVING,
        segment_s=fields.number("segment_s"),
        checkpoint=CheckpointSettings(checkpoint.number("before_s"), checkpoint.optional("signal", str)),
        python=fields.optional("python", dict) or {},
        environment=fields.values("environment"),
        order=fields.texts("order"),
        interface=fields.optional("interface", str),
        scratch=fields.optional("scratch", str),
        collect=_collect(fields.section("collect")) if fields.optional("collect", dict) else None,
        models=tuple(_model_rule(row, number) for number, row in enumerate(fields.optional("models", list) or ())),
    )


def _collect(fields: _Fields) -> CollectSettings:
    patterns = fields.texts("patterns") if fields.optional("patterns", list) is not None else None
    return CollectSettings(patterns, fields.required("max_bytes", int), fields.required("max_files", int))


def _model_rule(row: Any, place: int) -> ModelRule:
    fields = _Fields(row, f"model {place} of the plan")
    name, path, metric = fields.required("name", str), fields.required("path", str), fields.optional("metric", str)
    return ModelRule(name, path, metric, fields.content.get("is_largest_best") is not False)


def _replicas(fields: _Fields) -> tuple[PlannedReplica, ...]:
    rows = fields.optional("templates", list) or ()
    templates = [_settings(_Fields(row, f"template {number} of the plan")) for number, row in enumerate(rows)]
    return tuple(
        [_replica(row, number, templates) for number, row in enumerate(fields.required("replicas", list))]
    )  # fmt: skip


def _settings(fields: _Fields) -> PlannedReplica:
    """What replicas may share."""
    return PlannedReplica(
        "",
        0,
        0,
        resources=_resources(fields.section("resources")),
        environment=fields.values("environment"),
        defaults=fields.values("defaults"),
        argv=fields.words("argv"),
    )


def _replica(row: Any, place: int, templates: Sequence[PlannedReplica]) -> PlannedReplica:
    fields = _Fields(row, f"replica {place} of the plan")
    role, index, rank = fields.required("role", str), fields.required("index", int), fields.required("rank", int)
    if "/" in role:
        raise fields.damage("role")
    local, number = fields.optional("local", int) or 0, fields.optional("template", int)
    if number is None:
        settings = _settings(fields)
    elif 0 <= number < len(templates):
        settings = templates[number]
        own = {key: getattr(_settings(fields), key) for key in _SHARED if key in row}
        settings = settings._replace(**own) if own else settings
    else:
        raise fields.damage("template")
    node, cross = fields.optional("node", int) or 0, fields.optional("cross", int) or 0
    numbers = OwnNumbers(member_name(role, index, local), index, rank, node, cross)
    variables = OwnValues(settings.environment, numbers)
    return PlannedReplica(
        role, index, rank, local, settings.resources, variables, settings.defaults, settings.argv
    )  # fmt: skip


def _resources(fields: _Fields) -> dict[str, ResourceAmount]:
    amounts = {name: fields.section(name) for name, amount in fields.content.items() if amount is not None}
    return {
        name: ResourceAmount(amount.number("requests"), amount.number("limits"))
        for name, amount in amounts.items()
        if amount.content
    }


class _Fields:
    """An object of the file. Every method checks the type of what it returns. Raises PlanDamaged."""

    def __init__(self, content: Any, where: str) -> None:
        if not isinstance(content, dict):
            raise PlanDamaged(f"the plan is damaged: {where} is not an object")
        self.content: dict[str, Any] = content
        self.where = where

    def damage(self, name: str) -> PlanDamaged:
        return PlanDamaged(f"the plan is damaged: {self.where} has no valid `{name}`")

    def optional(self, name: str, kind: Any) -> Any:
        found = self.content.get(name)
        if found is not None and not _is(found, kind):
            raise self.damage(name)
        return found

    def required(self, name: str, kind: Any) -> Any:
        if self.content.get(name) is None:
            raise self.damage(name)
        return self.optional(name, kind)

    def number(self, name: str) -> float | None:
        found: float | None = self.optional(name, (int, float))
        return found

    def section(self, name: str) -> _Fields:
        return _Fields(self.optional(name, dict) or {}, f"`{name}` of {self.where}")

    def table(self, name: str, kind: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.optional(name, dict) or {}
        if not all(_is(value, kind) for value in found.values()):
            raise self.damage(name)
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        found: list[str] = self.optional(name, list) or []
        if not all(isinstance(text, str) for text in found):
            raise self.damage(name)
        return tuple(found)

    def words(self, name: str) -> tuple[Value, ...]:
        found = self.optional(name, list) or ()
        try:
            return tuple([word if isinstance(word, str) else decode(word) for word in found])
        except _NO_VALUE:
            raise self.damage(name) from None

    def values(self, name: str) -> dict[str, Value]:
        found = self.optional(name, dict) or {}
        try:
            return {key: value if isinstance(value, str) else decode(value) for key, value in found.items()}
        except _NO_VALUE:
            raise self.damage(name) from None


def _is(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
