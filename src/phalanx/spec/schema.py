"""Sections and fields of a polyaxonfile in its modern form: the table behind validation, JSON Schema and docs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from phalanx.spec import backend_sections, quantities
from phalanx.spec.cluster_fields import KUBERNETES, PYTHON, SLURM
from phalanx.spec.model import (
    EMPTY,
    MOST_REPLICAS,
    RESOURCE_NAMES,
    Amount,
    Build,
    Environment,
    Kind,
    Logging,
    OutputsRefs,
    Replicas,
    ReplicaSettings,
    Resources,
    Variable,
    freeze,
    thaw,
)
from phalanx.spec.pipelines.fields import OP, SCHEDULE
from phalanx.spec.section_fields import ANY_VALUE, COLLECT, HPTUNING, MODEL, NAME, NOTIFY
from phalanx.spec.shapes import (
    INVALID,
    Boolean,
    EnvVars,
    Field,
    ListOf,
    ListOrMap,
    MapOf,
    Number,
    Quantity,
    RecordShape,
    Shape,
    TextShape,
)
from phalanx.spec.suggestions import AMOUNTS, OTHER_NAMES, hints, places_of
from phalanx.spec.templates import REFERENCE
from phalanx.spec.tree import Diagnostics, Node

RUNS = ListOf(
    TextShape(numbers=True, pattern=r"[\w.:/@+ -]+\Z", what="the id or name of a run: letters, digits and `-_.:/@+`")
)
REFS = ListOf(TextShape(pattern=r"[a-zA-Z0-9_][-.a-zA-Z0-9_]*\Z", what="a name of letters, digits, `-`, `_` and `.`"))
LABELS = MapOf(as_text=True)
INPUT_TYPES = (
    "int", "float", "str", "bool", "dict", "dict_of_dicts", "list", "uri", "auth",
    "path", "gcs_path", "s3_path", "azure_path", "metric", "metadata",
)  # fmt: skip
RUN_BACKENDS = ("native", "local", "slurm", "kubernetes", "kubeflow", "mpi", "other")
DISTRIBUTED_KINDS = (Kind.EXPERIMENT, Kind.GROUP)


def _limits_cover_requests(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    requests, limits = values.get("requests"), values.get("limits")
    if requests is not None and limits is not None and limits < requests:
        where = node.get("limits") or node
        tidy = quantities.tidy
        hint = f"write a limit of at least {tidy(requests)}, or a smaller request"
        findings.error(where, f"the limit ({tidy(limits)}) is below the request ({tidy(requests)})", hint)


def _amount(name: str, unit: Shape, doc: str) -> Field:
    fields = {
        "requests": Field(unit, f"Amount to reserve: {unit.words()}."),
        "limits": Field(unit, f"Upper limit: {unit.words()}."),
    }
    return Field(RecordShape(f"resources.{name}", fields, Amount, _limits_cover_requests), doc)


_DEVICES = Quantity(quantities.count, "a number")
RESOURCES = RecordShape(
    "resources",
    {
        "cpu": _amount("cpu", Quantity(quantities.cpus, 'a number of CPUs (2, 0.5, "500m")'), "CPUs."),
        "memory": _amount(
            "memory",
            Quantity(quantities.memory_mib, 'an amount of memory (a bare number is MiB; "2Gi", "512Mi")'),
            "Memory; a bare number is MiB.",
        ),
        "gpu": _amount("gpu", _DEVICES, "GPUs."),
        "tpu": _amount("tpu", _DEVICES, "TPUs."),
    },
    Resources,
    elsewhere={**AMOUNTS, **hints(OTHER_NAMES, ("environment", "resources"), RESOURCE_NAMES)},
)

REPLICA_FIELDS: dict[str, Field] = {
    "resources": Field(RESOURCES, "CPU, memory, GPU and TPU, each with `requests` and `limits`."),
    "env_vars": Field(EnvVars(), "Environment variables. Those set in `environment` apply to every replica."),
    "node_selector": Field(LABELS, "Labels that a node must have (Kubernetes)."),
    "affinity": Field(MapOf(), "Affinity, in Kubernetes syntax."),
    "tolerations": Field(ListOf(MapOf()), "Tolerations, in Kubernetes syntax."),
    "labels": Field(LABELS, "Labels of the created objects."),
    "annotations": Field(LABELS, "Annotations of the created objects."),
    "service_account": Field(TextShape(), "The service account to run as (Kubernetes)."),
    "image_pull_secrets": Field(REFS, "Secrets used to pull the image (Kubernetes)."),
    "secret_refs": Field(REFS, "Secrets whose keys become environment variables."),
    "config_map_refs": Field(REFS, "Config maps whose keys become environment variables."),
    "data_refs": Field(REFS, "Data stores to make available."),
    "artifact_refs": Field(REFS, "Stores for outputs. The first one is used."),
    "max_restarts": Field(Number(low=0, whole=True), "How many times a failed run is restarted."),
}
REPLICA = RecordShape("the settings of a replica", REPLICA_FIELDS, ReplicaSettings)
INDEXED = RecordShape(
    "the settings of one replica",
    {"index": Field(Number(low=0, whole=True), "index of the replica, starting at 0"), **REPLICA_FIELDS},
    dict,
)


def _replicas_fit(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    trained = values.get("n_workers", 0) + 1
    processes = node.get("processes")
    if processes is not None and trained * values.get("processes", 1) > MOST_REPLICAS:
        findings.error(
            processes, f"{trained} replicas with so many processes each are more than {MOST_REPLICAS} in total"
        )
    for role, count_key in (("worker", "n_workers"), ("ps", "n_ps")):
        count = values.get(count_key, 0)
        seen: set[int] = set()
        written = {
            found.value
            for entry in node.items(role)
            if (found := entry.get("index")) is not None and isinstance(found.value, int)
        }
        for entry in node.items(role):
            if entry.entries is None or entry.poisoned:
                continue
            where = entry.get("index")
            if where is None:
                free = next((index for index in range(count) if index not in written), None)
                hint = f"write `index: {free}`" if free is not None else f"remove it, or write a larger `{count_key}`"
                findings.missing(entry, "index", f"this entry of `{role}` has no `index`", hint)
                continue
            index = Number(low=0, whole=True).read(where, Diagnostics())
            if index is INVALID:
                continue  # reported by the record of the entry
            if index in seen:
                findings.error(where, f"{role} {index} is listed twice", "keep one of the two")
            elif index >= count and (count_key in values or node.get(count_key) is None):
                has = f"{role}s 0 to {count - 1}" if count > 1 else f"{role} 0 only" if count else f"no {role} at all"
                hint = f"write `{count_key}: {index + 1}`" + (f", or an index below {count}" if count else "")
                findings.error(where, f"there is no {role} {index}: `{count_key}: {count}` gives {has}", hint)
            seen.add(index)


def _replicas(**values: Any) -> Replicas:
    for role in ("worker", "ps"):
        entries = values.get(role, ())
        values[role] = MappingProxyType(
            {entry["index"]: ReplicaSettings(**{k: v for k, v in entry.items() if k != "index"}) for entry in entries}
        )
    return Replicas(**values)


REPLICAS = RecordShape(
    "replicas",
    {
        "n_workers": Field(Number(low=0, high=MOST_REPLICAS, whole=True), "Number of workers."),
        "n_ps": Field(Number(low=0, high=MOST_REPLICAS, whole=True), "Number of parameter servers (MXNet: servers)."),
        "default_worker": Field(REPLICA, "Default settings of workers; `worker` overrides them."),
        "default_ps": Field(REPLICA, "Default settings of parameter servers; `ps` overrides them."),
        "worker": Field(
            ListOf(INDEXED),
            "Settings of individual workers, by `index`. Each attribute replaces the default as a whole.",
        ),
        "ps": Field(ListOf(INDEXED), "Settings of individual parameter servers, by `index`."),
        "master_task": Field(
            TextShape(choices=("chief", "master")),
            "TensorFlow: name of the master in TF_CONFIG. TensorFlow 2 strategies need `chief`, older code `master`.",
        ),
        "launcher": Field(
            TextShape(choices=("direct", "mpirun")),
            "Horovod and MPI: `direct` starts each rank separately; `mpirun` starts all ranks from a launcher.",
        ),
        "processes": Field(
            Number(low=1, high=1024, whole=True),
            "Number of processes per replica. Default: one per GPU with PyTorch, DeepSpeed, Horovod "
            "and JAX, otherwise one.",
        ),
        "delay_workers_by_global_step": Field(Boolean(), "Accepted for compatibility with Polyaxon; has no effect."),
    },
    _replicas,
    _replicas_fit,
    elsewhere={
        **hints(OTHER_NAMES, ("environment", "replicas"), ("n_workers", "n_ps", "default_ps", "ps")),
        "resources": "write `default_worker: {resources: ...}`; those of the master are in `environment.resources`",
        "framework": "write `framework` at the top of the file",
    },
)

OUTPUTS_REFS = RecordShape(
    "outputs",
    {
        "jobs": Field(RUNS, "Jobs, by id or name."),
        "experiments": Field(RUNS, "Experiments, by id or name."),
    },
    OutputsRefs,
)


OWN_SECTIONS = ("outputs", "replicas", "slurm", "kubernetes", "python")


def _environment(**values: Any) -> Environment:
    own = {key: values.pop(key) for key in OWN_SECTIONS if key in values}
    names = {"timeout": "timeout_s", "stall_timeout": "stall_timeout_s", "hold": "hold_s", "idle_timeout": "idle_s"}
    times = {field: values.pop(key, None) for key, field in names.items()}
    backends = {key: values.pop(key) for key in list(values) if key not in REPLICA_FIELDS}
    return Environment(ReplicaSettings(**values), **times, **own, backends=freeze(backends))


def environment(kind: Kind, backends: Mapping[str, Field] = EMPTY) -> RecordShape:
    """`backends`: sections of installed backends, by name. They never replace a field of ours."""
    fields = {
        **REPLICA_FIELDS,
        "timeout": Field(Quantity(quantities.seconds, 'a time (seconds, or "90m", "1d12h")'), "Time limit of the run."),
        "stall_timeout": Field(
            Quantity(quantities.seconds, 'a time (seconds, or "10m")'),
            "End the run if no replica writes a log line or a metric for this long. Python then prints a traceback.",
        ),
        "hold": Field(
            Quantity(quantities.seconds, 'a time (seconds, or "30m")'),
            "Keep the allocation for this long after the last attempt has failed, for `phalanx shell` and `exec`.",
        ),
        "outputs": Field(OUTPUTS_REFS, "Earlier runs whose outputs this run reads."),
        "slurm": Field(SLURM, "Slurm options."),
        "kubernetes": Field(KUBERNETES, "Kubernetes options, and additions to the pods."),
        "python": Field(PYTHON, "Modules, packages and virtual environments, for runs without containers."),
    }
    if kind is Kind.NOTEBOOK:
        fields["idle_timeout"] = Field(
            Quantity(quantities.seconds, 'a time (seconds, or "2h")'),
            "End kernels, and then the notebook, after this time without activity.",
        )
    fields = {**backends, **fields}
    if kind in DISTRIBUTED_KINDS:
        fields["replicas"] = Field(REPLICAS, "The workers and parameter servers of a distributed run.")
        return RecordShape("environment", fields, _environment, elsewhere=_misplaced(fields))
    only = "`replicas` is only allowed in `kind: experiment` and `kind: group`"
    return RecordShape("environment", fields, _environment, elsewhere={**_misplaced(fields), "replicas": only})


def _misplaced(fields: Mapping[str, Field]) -> dict[str, str]:
    places = places_of({("environment", "resources"): RESOURCES.fields})
    return {**AMOUNTS, **hints(places, ("environment",), fields)}


def installed_sections() -> Mapping[str, Field]:
    """Sections of `environment` that backends of other packages add. Raises CallError."""
    return backend_sections.fields({*environment(Kind.EXPERIMENT).fields, *RUN_BACKENDS})


def _one_base(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    named = [key for key in ("image", "dockerfile", "ref") if key in values]
    if len(named) > 1:
        said = " and ".join(f"`{key}`" for key in named)
        findings.error(node.get(named[1]) or node, f"{said} exclude each other", "keep one", at_key=True)
    image, where = values.get("image"), node.get("image")
    if image is not None and where is not None and not where.poisoned and not REFERENCE.match(image):
        _image_name(image, where, findings)


def _image_name(image: str, node: Node, findings: Diagnostics) -> None:
    if not image or any(character.isspace() for character in image):
        findings.error(node, f"`{image[:60]}` is not an image name: it is empty or contains white space")
        return
    parts = image.split("@", maxsplit=1)[0].split(":")
    if len(parts) > 3 or (len(parts) == 3 and (not parts[1] or "/" not in parts[1][1:])):
        findings.error(node, f"`{image[:60]}` is not an image name", "write `registry:port/name:tag`")


BUILD_FIELDS: dict[str, Field] = {
    "image": Field(TextShape(), "The image to run in."),
    "dockerfile": Field(TextShape(), "A Dockerfile to build instead of `image`."),
    "ref": Field(TextShape(numbers=True), "An earlier build, by id or name."),
    "context": Field(TextShape(), "The build context folder."),
    "build_steps": Field(ListOf(TextShape(), lone=True), "Commands that prepare the environment, in order."),
    "env_vars": Field(EnvVars(), "Environment variables of the build and of the run."),
    "lang_env": Field(TextShape(), "The locale, such as `C.UTF-8`."),
    "commit": Field(TextShape(numbers=True), "The commit of the code to use."),
    "branch": Field(TextShape(numbers=True), "The branch of the code to use."),
    "nocache": Field(Boolean(), "Build without the cache."),
    "backend": Field(TextShape(choices=("native", "kaniko", "other")), "The image builder."),
}
BUILD_TO = {
    "to": Field(
        TextShape(),
        "What to make: `NAME.sif`, `NAME.tar` or `REGISTRY/NAME:TAG`. Without it, a virtual environment is made.",
    )
}
_OF_BUILD = Field(environment(Kind.BUILD), "Resources and placement of the build, where it runs before the run.")
BUILD = RecordShape("build", {**BUILD_FIELDS, "environment": _OF_BUILD}, Build, _one_base)


def _one_command(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    if "cmd" in values and "script" in values:
        findings.error(node.get("script") or node, "`cmd` and `script` exclude each other", "keep one", at_key=True)


RUN = RecordShape(
    "run",
    {
        "cmd": Field(
            ListOf(TextShape(what="a command"), lone=True),
            "The command of every replica, run by bash. Lines are joined into one. The items of a list run one after "
            "another; the first failure stops the list.",
        ),
        "script": Field(
            TextShape(), "Instead of `cmd`: a script that bash runs as it is. Its lines are kept, and none stops it."
        ),
    },
    dict,
    _one_command,
    hint="write `run: {cmd: ...}`",
    elsewhere=hints(OTHER_NAMES, ("run",), ("cmd",)),
)
LOGGING = RecordShape(
    "logging",
    {
        "level": Field(TextShape(choices=("DEBUG", "INFO", "WARN", "ERROR", "FATAL")), "The log level of the run."),
        "formatter": Field(TextShape(), "The format of log lines."),
    },
    Logging,
)


def _default_fault(values: dict[str, Any], node: Node) -> str | None:
    from phalanx.spec.params import take_declared_texts, type_fault

    take_declared_texts(values, node)
    if values.get("default") is None or "name" not in values:
        return None
    return type_fault(Variable(**values), thaw(values["default"]))


def _variable(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    if node.get("default") is not None and not values.get("is_optional"):
        hint = "add `is_optional: true`"
        findings.error(node.get("default") or node, "only an optional input can have a default", hint, at_key=True)
    fault = _default_fault(values, node)
    if fault:
        findings.error(node.get("default") or node, f"invalid default: {fault}")
    if values.get("is_flag") and values.get("type") != "bool":
        findings.error(node.get("is_flag") or node, "`is_flag` requires `type: bool`", at_key=True)


VARIABLE = RecordShape(
    "an input or output",
    {
        "name": Field(TextShape(), "the name used in templates", required=True),
        "description": Field(TextShape(), "A description for people."),
        "type": Field(TextShape(choices=INPUT_TYPES), "The type of the value."),
        "default": Field(ANY_VALUE, "The value if none is given. Requires `is_optional: true`."),
        "is_optional": Field(Boolean(), "A value is not required."),
        "is_list": Field(Boolean(), "The value is a list of that type."),
        "is_flag": Field(Boolean(), "Requires `type: bool`. Renders as `--name` if true, else as nothing."),
        "options": Field(ListOf(ANY_VALUE), "The allowed values."),
    },
    Variable,
    _variable,
)

_HEADER: dict[str, Field] = {
    "version": Field(Number(), "The format version: 1.", required=True),
    "kind": Field(TextShape(choices=tuple(Kind)), "What the file describes.", required=True),
    "name": Field(NAME, "A name for the run."),
    "description": Field(TextShape(), "A description for people."),
    "tags": Field(ListOf(TextShape(numbers=True), lone=True, unique=True), "Tags to search by."),
    "logging": Field(LOGGING, "Log level and format."),
}
_VARIABLES = {
    "inputs": Field(ListOf(VARIABLE), "The params that the run takes, with their types."),
    "outputs": Field(
        ListOrMap(ListOf(VARIABLE), COLLECT),
        "As a map: which files of the working folder to keep. As a list: the outputs that the run produces.",
    ),
}
_MODELS = {"models": Field(ListOf(MODEL), "Outputs that become versions of models when the run has succeeded.")}
_AFTER = {
    "after": Field(
        ListOf(TextShape(numbers=True), lone=True, unique=True),
        "Runs to wait for: `RUN`, or `RUN:failed`, `RUN:done` for another end than success.",
    )
}
_NOTIFY = {"notify": Field(NOTIFY, "Who is told of the end of the run: by mail, a webhook or a command.")}
_PARAMS = {"params": Field(MapOf(), "Values for templates and for POLYAXON_PARAMS.")}
_RUN_BACKEND = {"backend": Field(TextShape(), f"Where to run: {', '.join(RUN_BACKENDS)}. `native`: as configured.")}
_FRAMEWORK = {"framework": Field(TextShape(), "The training framework. It decides how replicas find each other.")}


def _environment_field(kind: Kind, backends: Mapping[str, Field]) -> dict[str, Field]:
    return {"environment": Field(environment(kind, backends), "Resources, placement and replicas.")}


_RUN = {"run": Field(RUN, "What to run.")}
_BUILD = {"build": Field(BUILD, "What to run in: an image, or steps that prepare an environment.")}


def _sections(kind: Kind, backends: Mapping[str, Field] = EMPTY) -> dict[str, Field]:
    if kind in DISTRIBUTED_KINDS:
        tuning = {"hptuning": Field(HPTUNING, "the matrix and the search algorithm", required=True)}
        return {
            **_HEADER, **_AFTER, **_NOTIFY, **_FRAMEWORK, **_RUN_BACKEND, **_VARIABLES, **_MODELS, **_PARAMS,
            **(tuning if kind is Kind.GROUP else {}),
            **_environment_field(kind, backends), **_BUILD, **_RUN,
        }  # fmt: skip
    if kind is Kind.JOB:
        return {
            **_HEADER, **_AFTER, **_NOTIFY, **_RUN_BACKEND, **_VARIABLES, **_MODELS, **_PARAMS,
            **_environment_field(kind, backends), **_BUILD, **_RUN,
        }  # fmt: skip
    if kind is Kind.BUILD:
        return {**_HEADER, **_AFTER, **_VARIABLES, **_environment_field(kind, backends), **BUILD_FIELDS, **BUILD_TO}
    if kind is Kind.PIPELINE:
        return {
            **_HEADER,
            **_NOTIFY,
            **_RUN_BACKEND,
            "concurrency": Field(Number(low=1, whole=True), "Number of concurrent ops."),
            "schedule": Field(SCHEDULE, "The schedule."),
            "execute_at": Field(TextShape(), "Do not start before this time; UTC if it names no zone."),
            "timeout": Field(Number(low=0, above_low=True), "Time limit in seconds."),
            "reuse": Field(Boolean(), "The default of `reuse` of its ops."),
            "ops": Field(ListOf(OP), "the steps", required=True),
            "templates": Field(ListOf(MapOf()), "What the ops run: named files of any kind."),
        }
    choices = ("notebook", "lab") if kind is Kind.NOTEBOOK else ("native", "other")
    backend = {"backend": Field(TextShape(choices=choices), f"One of {', '.join(choices)}.")}
    return {**_HEADER, **backend, **_VARIABLES, **_environment_field(kind, backends), **_BUILD}


@cache
def _homes() -> dict[str, list[Kind]]:
    homes: dict[str, list[Kind]] = {}
    for kind in Kind:
        for key in _sections(kind):
            homes.setdefault(key, []).append(kind)
    return homes


_PLACES = places_of(
    {
        ("environment",): (*REPLICA_FIELDS, *OWN_SECTIONS[1:]),
        ("environment", "replicas"): REPLICAS.fields,
        ("build",): BUILD_FIELDS,
        ("hptuning",): HPTUNING.fields,
    }
)


def sections(kind: Kind, backends: Mapping[str, Field] = EMPTY) -> RecordShape:
    """The whole file of one kind. `backends`: sections of `environment` that installed backends add."""
    fields = _sections(kind, backends)
    elsewhere = {
        key: f"`{key}` belongs to `kind: {' | '.join(homes)}`" for key, homes in _homes().items() if key not in fields
    }
    elsewhere |= hints(_PLACES, (), fields)
    check = _one_base if kind is Kind.BUILD else None
    return RecordShape(f"a file of kind {kind}", fields, dict, check, elsewhere)


def json_schema() -> dict[str, Any]:
    """JSON Schema of the modern form, for editors, with the sections of installed backends. Raises CallError."""
    kinds = {}
    added = installed_sections()
    for kind in Kind:
        schema = sections(kind, added).schema()
        schema["properties"]["version"] = {"const": 1, "description": _HEADER["version"].doc}
        schema["properties"]["kind"] = {"const": str(kind), "description": _HEADER["kind"].doc}
        kinds[str(kind)] = schema
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "polyaxonfile, version 1",
        "description": "One experiment, group, job, build, notebook, tensorboard or pipeline.",
        "type": "object",
        "required": ["version", "kind"],
        "properties": {"version": {"const": 1}, "kind": {"enum": [str(kind) for kind in Kind]}},
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": name}}, "required": ["kind"]},
                "then": {"$ref": f"#/$defs/{name}"},
            }
            for name in kinds
        ],
        "$defs": kinds,
    }
