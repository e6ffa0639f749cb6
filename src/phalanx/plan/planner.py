"""Makes a Plan from a Spec: the command, resources, rank and environment of every process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from phalanx.errors import CallError, Location, Note, SpecError, SpecErrors
from phalanx.naming import LAUNCHER, SERVING
from phalanx.placeholders import OwnValues, Value, host, path, port
from phalanx.plan import frameworks, notebooks, replica_variables, variable_limit
from phalanx.plan.framework_checks import replicas_fault, wired_as
from phalanx.plan.frameworks import Framework, ProcessGroup, Wiring
from phalanx.plan.model import Member, Plan, Replica
from phalanx.plan.replica_variables import GROUP_ID
from phalanx.spec.model import (
    MOST_REPLICAS,
    RESOURCE_NAMES,
    Amount,
    Build,
    CollectOptions,
    Kind,
    NotifyEvent,
    Replicas,
    ReplicaSettings,
    Resources,
    SlurmOptions,
    Spec,
)

# Settings of `environment` that apply to every replica; the others apply to the master only, as in Polyaxon.
RUN_WIDE = (
    "service_account",
    "image_pull_secrets",
    "secret_refs",
    "config_map_refs",
    "data_refs",
    "artifact_refs",
    "max_restarts",
)
THREADS = "OMP_NUM_THREADS"
# Slurm tells of the end of a job, however it ended, with END.
SLURM_MAIL = {NotifyEvent.FAILED: "FAIL", NotifyEvent.SUCCEEDED: "END", NotifyEvent.STOPPED: "END"}
Variables = Mapping[str, Value]


def make(
    spec: Spec, run_id: str, project: str = "default", variables: Mapping[str, str] = MappingProxyType({})
) -> Plan:
    """The plan of one run. Pure: the same spec gives the same plan. `variables` are added to those of every replica.

    Groups and pipelines are many runs: plan their suggestions and operations instead. Raises SpecErrors if the file
    requests replicas that its framework does not support.
    """
    assert spec.kind not in (Kind.GROUP, Kind.PIPELINE), "a plan is for one run"
    replicas = spec.environment.replicas
    framework = _framework(spec, replicas)
    roles = _roles(replicas, framework)
    command, argv = _command(spec)
    members = tuple(_members(spec, roles, framework, command or ""))
    wiring = Wiring()
    if framework is not None and replicas is not None:
        wiring = framework.wire(ProcessGroup(members, roles, run_id, command or "", replicas, spec.build))
    notes = [_note(spec, *note) for note in wiring.notes]
    if len(members) > sum(roles.values()) and replicas is not None and replicas.processes is None:
        said = "replicas with several GPUs have one process per GPU (`processes: 1` for a single process)"
        notes.append(_note(spec, "environment.replicas", said))
    if framework is not None and not framework.has_master and spec.environment.settings.resources is not None:
        notes.append(_note(spec, "environment", "MPI has no master: these resources are not used"))
    if command is None:
        notes.append(_note(spec, "", "nothing to run: `run: {cmd: ...}` is missing"))
    own = replica_variables.shared(spec, run_id, project, roles, len(members))
    if GROUP_ID in variables:
        own |= replica_variables.info(spec, run_id, project, variables[GROUP_ID])
    shared = {**own, **variables, **wiring.shared}
    firsts = {member.role: member for member in reversed(members)}.values()  # roles may have different wiring
    own_names = replica_variables.own(members[0].kind)
    wired = {*shared, *own_names, *(name for first in firsts for name in wiring.own(first))}
    from_build = _own_variables(_variables_of_build(spec), wired, "build.env_vars", spec, notes)
    settings = _Settings(spec, wired, notes, wiring, from_build)
    built = tuple(
        _replica(member, settings, argv if wiring.launch != "own" or member.rank == 0 else ()) for member in members
    )
    if wiring.launch == "mpirun" and argv:
        built = (*built, _launcher(built[0], len(members), wiring.launcher))
    made = Plan(
        run_id=run_id,
        kind=str(spec.kind),
        name=spec.name,
        framework=spec.framework,
        backend=spec.backend or "native",
        command=command,
        launch=wiring.launch,
        roles=MappingProxyType(dict(roles)),
        replicas=built,
        shared=MappingProxyType({**from_build, **shared}),
        totals=total(replica.resources for replica in built if not replica.local and replica.role != LAUNCHER),
        launcher=wiring.launcher,
        serving=SERVING if wiring.serving is None else wiring.serving,
        meets=wiring.meets if len(members) > 1 else (),
        service=wiring.service,
        wiring=wired_as(spec.framework, spec.backend) if framework is not None else None,
        timeout_s=spec.environment.timeout_s,
        stall_timeout_s=spec.environment.stall_timeout_s,
        max_restarts=spec.environment.settings.max_restarts or 0,
        hold_s=spec.environment.hold_s,
        notebook=notebooks.page_of(spec) if spec.kind is Kind.NOTEBOOK else None,
        slurm=_with_mail(spec),
        kubernetes=spec.environment.kubernetes,
        python=spec.environment.python,
        backend_settings=spec.environment.backends,
        build=spec.build,
        collect=notebooks.CHANGES if spec.kind is Kind.NOTEBOOK else _collect(spec),
        models=spec.models,
    )
    if (unable := variable_limit.note(made)) is not None:
        notes.append(_note(spec, "environment.replicas", unable))
    return replace(made, notes=tuple(notes))


def _collect(spec: Spec) -> CollectOptions | None:
    return spec.collect if spec.kind in (Kind.EXPERIMENT, Kind.JOB) else None


def total(resources: Iterable[Resources]) -> Resources:
    """The total of all requests; None where no replica requests anything."""
    sums: dict[str, dict[str, float]] = {name: {} for name in RESOURCE_NAMES}
    for asked in resources:
        for name in RESOURCE_NAMES if any(asked) else ():
            amount: Amount | None = getattr(asked, name)
            for bound in ("requests", "limits") if amount else ():
                value = getattr(amount, bound)
                if value is not None:
                    sums[name][bound] = sums[name].get(bound, 0.0) + value
    return Resources(**{name: Amount(**found) for name, found in sums.items() if found})


def roles_of(spec: Spec) -> Mapping[str, int]:
    """Number of replicas of each role in a spec. Raises SpecErrors."""
    return _roles(spec.environment.replicas, _framework(spec, spec.environment.replicas))


def _framework(spec: Spec, replicas: Replicas | None) -> Framework | None:
    """The framework that wires the replicas; None when there is only one."""
    if replicas is None or not (replicas.n_workers or replicas.n_ps or (replicas.processes or 1) > 1):
        return None
    name = wired_as(spec.framework, spec.backend)
    fault = replicas_fault(name, replicas.n_ps, replicas.processes or 1)
    if fault is not None:
        path_, message, hint = fault
        raise SpecErrors([SpecError(_place(spec, path_), path_, message, hint)])
    return frameworks.find(name) if name is not None else None


def _roles(replicas: Replicas | None, framework: Framework | None) -> dict[str, int]:
    if framework is None or replicas is None:
        return {"master": 1}
    roles = {"master": 1} if framework.has_master else {}
    roles["worker"] = replicas.n_workers
    if framework.ps_role is not None:
        roles[framework.ps_role] = replicas.n_ps
    return roles


def _members(spec: Spec, roles: Mapping[str, int], framework: Framework | None, command: str) -> Iterator[Member]:
    """Every process in rank order; those of a replica are adjacent."""
    replicas = spec.environment.replicas or Replicas()
    launchers = framework.launchers if framework is not None else None
    one_each = launchers is None or launchers.search(command) is not None
    node = rank = 0
    crosses: dict[int, int] = {}
    for role, count in roles.items():
        listed = replicas.worker if role == "worker" else replicas.ps
        usual = _gpus(_asked(spec, replicas, role, None))
        for index in range(count):
            gpus = _gpus(_asked(spec, replicas, role, listed[index])) if index in listed else usual
            size = 1 if one_each or role not in ("master", "worker") else replicas.processes or max(1, gpus)
            if size > 1 and rank + size > MOST_REPLICAS:
                message = f"with one process per GPU these replicas have more than {MOST_REPLICAS} processes"
                where = "environment.replicas"
                raise SpecErrors(
                    [SpecError(_place(spec, where), where, message, "write `processes: 1`, or fewer GPUs")]
                )
            for local in range(size):
                cross = crosses.get(local, 0)
                crosses[local] = cross + 1
                yield Member(role, index, rank, node, local, size, gpus, cross)
                rank += 1
            node += 1


def _gpus(asked: Resources | None) -> int:
    gpu = asked.gpu if asked is not None else None
    if gpu is None:
        return 0
    return int((gpu.limits if gpu.requests is None else gpu.requests) or 0)


def _asked(spec: Spec, replicas: Replicas, role: str, listed: ReplicaSettings | None) -> Resources | None:
    """The resources of a replica, as `_Settings` finds them."""
    if role == "master":
        return spec.environment.settings.resources
    default = replicas.default_worker if role == "worker" else replicas.default_ps
    return next((layer.resources for layer in (listed, default) if layer is not None and layer.resources), None)


def _command(spec: Spec) -> tuple[str | None, tuple[Value, ...]]:
    """The command as shown to the user, and as executed."""
    if spec.kind is Kind.NOTEBOOK:
        return f"jupyter {notebooks.server_of(spec)}", notebooks.argv_of(spec)
    if spec.kind is Kind.TENSORBOARD:
        argv: tuple[Value, ...] = (
            "tensorboard",
            ("--logdir=", path("outputs")), ("--host=", host("master-0")), ("--port=", port("master-0")),
        )  # fmt: skip
        return "tensorboard", argv
    command = spec.command
    if spec.kind is Kind.BUILD:
        return _build_command(spec)
    return command, ("bash", "-c", command) if command else ()


def _build_command(spec: Spec) -> tuple[str | None, tuple[Value, ...]]:
    """Raises SpecErrors."""
    if spec.environment.python.requirements:
        message = "a build installs packages by its steps: write `build_steps: [pip install ...]`"
        where = "environment.python.requirements"
        raise SpecErrors([SpecError(_place(spec, where), where, message, None)])
    try:
        from phalanx.plan import builders

        return builders.command_of(spec.build or Build())
    except CallError as fault:
        raise SpecErrors([SpecError(_place(spec, "to"), "to", str(fault), None)]) from None


class _Kind:
    """Replicas with the same settings: these, the user's variables, the defaults of variables, and the last template of
    each process, with the wiring that it was made from."""

    __slots__ = ("defaults", "settings", "templates", "variables")

    def __init__(self, settings: ReplicaSettings, variables: Variables, defaults: Variables) -> None:
        self.settings, self.variables, self.defaults = settings, variables, defaults
        self.templates: dict[int, tuple[Variables, Variables]] = {}


class _Settings:
    """The settings of each replica: those of its role and index, merged once."""

    def __init__(
        self,
        spec: Spec,
        wired: set[str],
        notes: list[Note],
        wiring: Wiring,
        from_build: Mapping[str, Value],
    ) -> None:
        self.run = spec.environment.settings
        self.replicas = spec.environment.replicas or Replicas()
        self.spec, self.wired, self.notes = spec, wired, notes
        self.wiring, self.from_build = wiring, from_build
        self.made: dict[tuple[str, int | None, int, bool], _Kind] = {}

    def of(self, member: Member) -> _Kind:
        """What all processes with the settings of this one share."""
        listed = self.replicas.worker if member.role == "worker" else self.replicas.ps
        index = member.index if member.role != "master" and member.index in listed else None
        key = (member.role, index, member.local_size, member.local > 0)
        if key not in self.made:
            settings = self._settings(member, listed)
            variables = _own_variables(
                settings.env_vars or (), self.wired, "environment.env_vars", self.spec, self.notes
            )
            defaults = self._defaults(member, settings, variables)
            self.made[key] = _Kind(_of_further_process(settings) if member.local else settings, variables, defaults)
        return self.made[key]

    def template(self, member: Member, kind: _Kind) -> Variables:
        """The variables of a process without its own numbers: one object for all that have the same."""
        wired = self.wiring.own(member)
        found = kind.templates.get(member.local)
        if found is None or (found[0] is not wired and found[0] != wired):
            found = (wired, {**kind.variables, **replica_variables.own(member.kind), **wired})
            kind.templates[member.local] = found
        return found[1]

    def _defaults(self, member: Member, settings: ReplicaSettings, variables: Variables) -> Variables:
        defaults = {name: value for name, value in self.wiring.defaults.items() if name not in variables}
        threads = _threads(settings, variables)
        if threads:
            defaults[THREADS] = str(max(1, threads // member.local_size))
        return {name: value for name, value in defaults.items() if name not in self.from_build}

    def _settings(self, member: Member, listed: Mapping[int, ReplicaSettings]) -> ReplicaSettings:
        if member.role == "master":
            return self.run
        default = self.replicas.default_worker if member.role == "worker" else self.replicas.default_ps
        layers = [layer for layer in (listed.get(member.index), default) if layer is not None]
        values: dict[str, Any] = {}
        for name in ReplicaSettings._fields:
            sources = [*layers, self.run] if name in RUN_WIDE else layers
            values[name] = next((found for layer in sources if (found := getattr(layer, name)) is not None), None)
        variables = dict(self.run.env_vars or ()) | dict(values["env_vars"] or ())
        values["env_vars"] = tuple(variables.items()) or None
        return ReplicaSettings(**values)


def _of_further_process(settings: ReplicaSettings) -> ReplicaSettings:
    """The settings of a process that is not the first of its replica, which holds the other resources."""
    memory = settings.resources.memory if settings.resources else None
    limit = Amount(0.0, memory.limits) if memory is not None else None
    return settings._replace(resources=Resources(cpu=Amount(0.0), memory=limit))


def _replica(member: Member, settings: _Settings, argv: tuple[Value, ...]) -> Replica:
    kind = settings.of(member)
    return Replica(
        role=member.role,
        index=member.index,
        rank=member.rank,
        settings=kind.settings,
        environment=OwnValues(settings.template(member, kind), member),
        defaults=kind.defaults,
        argv=argv,
        local=member.local,
    )


def _launcher(first: Replica, rank: int, launcher: tuple[Value, ...]) -> Replica:
    """The replica that starts the ranks; they inherit its variables. It computes nothing, so it requests nothing."""
    nothing = ReplicaSettings(resources=Resources(cpu=Amount(0.0)))
    environment = replica_variables.environment(Member(LAUNCHER, 0, rank), first.environment)
    return Replica(LAUNCHER, 0, rank, nothing, environment, first.defaults, (*launcher, *first.argv))


def _variables_of_build(spec: Spec) -> Iterable[tuple[str, str]]:
    """The variables that an image built from the file would set: its locale, and those of `build`."""
    if spec.build is None:
        return ()
    locale = ((name, spec.build.lang_env) for name in ("LC_ALL", "LANG", "LANGUAGE")) if spec.build.lang_env else ()
    return (*locale, *spec.build.env_vars)


def _own_variables(
    pairs: Iterable[tuple[str, str]], wired: set[str], path_: str, spec: Spec, notes: list[Note]
) -> dict[str, Value]:
    """The user's variables without those that the wiring sets: conflicting values would break the run."""
    mine: dict[str, Value] = {}
    for name, value in pairs:
        if name in wired:
            note = _note(spec, path_, f"`{name}` is set by the wiring of the run; this value is not used")
            if note not in notes:
                notes.append(note)
        else:
            mine[name] = value
    return mine


def _threads(settings: ReplicaSettings, variables: Mapping[str, Value]) -> int:
    """One thread per CPU of the replica; without it every replica of a machine would start one per core."""
    cpu = settings.resources.cpu if settings.resources else None
    share = (cpu.requests if cpu.requests is not None else cpu.limits) if cpu else None
    return 0 if share is None or THREADS in variables else max(1, int(share))


def _place(spec: Spec, path_: str) -> Location:
    steps = path_.split(".")
    while steps and ".".join(steps) not in spec.places:
        steps.pop()
    return spec.places.get(".".join(steps)) or Location(spec.name or "file")


def _with_mail(spec: Spec) -> SlurmOptions:
    """The options of Slurm, with the mail that it sends itself (`by: slurm`)."""
    slurm = spec.environment.slurm
    rules = [rule for rule in spec.notify if rule.by == "slurm"]
    if not rules or {"mail-user", "mail-type"} & dict(slurm.directives).keys():
        return slurm
    kinds = dict.fromkeys(kind for event, kind in SLURM_MAIL.items() if any(event in rule.on for rule in rules))
    users = dict.fromkeys(address for rule in rules for address in rule.target)
    return slurm._replace(
        directives=(*slurm.directives, ("mail-type", ",".join(kinds) or "NONE"), ("mail-user", ",".join(users)))
    )


def _note(spec: Spec, path_: str, message: str) -> Note:
    return Note(_place(spec, path_), path_, message)
