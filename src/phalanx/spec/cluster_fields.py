"""Fields of `environment` for clusters: Slurm, Kubernetes and Python.

These strings end up in scripts and command lines. They are quoted there as well, but a name that no scheduler, module
or package can have is an error in the file, and reported as one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from phalanx.deferred_patterns import deferred_pattern
from phalanx.spec import quantities
from phalanx.spec.model import KubernetesOptions, PythonOptions, SlurmOptions, freeze
from phalanx.spec.pod_templates import PodTemplate
from phalanx.spec.shapes import INVALID, Boolean, Field, ListOf, MapOf, Number, Quantity, RecordShape, TextShape
from phalanx.spec.tree import Diagnostics, Node

_TIME = Quantity(quantities.seconds, 'a time (seconds, or "24h", "5m")')
_WORD = TextShape(pattern=r"[\w.@+:/-]+\Z", what="a name without spaces or quotes", numbers=True)
_CHOICE = TextShape(
    pattern=r"[\w.,@+:/&|*()\[\]!-]+\Z", what="a name, or names joined by `,`, `&` or `|`", numbers=True
)
_VALUE = TextShape(pattern=r"[\w.,@%+:=/&|?*()\[\]-]*\Z", what="a value without spaces, quotes or `$`", numbers=True)
_MODULE = TextShape(pattern=r"[\w.+][\w.+/-]*\Z", what="a module name", numbers=True)
_PATH = TextShape(pattern=r"[^\x00-\x1f\x7f'\"`\\]+\Z", what="a path without quotes")
_REQUIREMENT = TextShape(
    pattern=r"[\w.][^\x00-\x1f\x7f]*\Z", what="a package as pip takes it (`torch>=2`), or a file (`requirements.txt`)"
)
_TASKS = "the number of replicas sets it: use `environment.replicas` and `environment.slurm.replicas_per_node`"
_CPUS = "use `environment.resources: {cpu: {requests: 4}}`, or the `resources` of a role"
_OUTPUT = "logs are kept for each replica"
_CALL = "it is an option of the call"
OURS = {  # options that Phalanx sets itself, and what to use instead
    "array": "a run is one job; use `kind: group` for several runs",
    "chdir": "runs start in the folder where `phalanx run` was called",
    "clusters": "run `phalanx` on a login node of that cluster",
    "comment": "Phalanx uses it to find its jobs",
    "cpus-per-gpu": _CPUS,
    "cpus-per-task": _CPUS,
    "error": _OUTPUT,
    "export": "use `environment.env_vars`",
    "export-file": "use `environment.env_vars`",
    "help": _CALL,
    "input": "the command of the run can read a file",
    "job-name": "use `name`",
    "nodes": _TASKS,
    "ntasks": _TASKS,
    "ntasks-per-gpu": _TASKS,
    "ntasks-per-node": _TASKS,
    "open-mode": _OUTPUT,
    "output": _OUTPUT,
    "parsable": _CALL,
    "quiet": _CALL,
    "signal": "it would end the replicas: use `environment.slurm.checkpoint: 5m` and `checkpoint_signal`",
    "tasks-per-node": _TASKS,
    "test-only": "use `phalanx check --on slurm`",
    "usage": _CALL,
    "verbose": _CALL,
    "version": _CALL,
    "wait": _CALL,
    "wrap": "use `run: {cmd: ...}`",
}
_OF_SIZE = ("nodes", "ntasks", "ntasks-per-node", "ntasks-per-gpu", "tasks-per-node", "cpus-per-task", "cpus-per-gpu")
_OURS_OF_SCRIPTS = {name: why for name, why in OURS.items() if name not in (*_OF_SIZE, "signal", "export")}
_ANSWERS = {
    "kill-on-invalid-dep": ("no", "yes"),
    "wait-all-nodes": ("0", "1"),
}  # options with a value for false and true
_OPTION = TextShape(pattern=r"[a-z][a-z0-9-]*\Z", what="a long option of sbatch without its dashes")
SHORTEST_SEGMENT_S = 120.0


class SbatchOptions(NamedTuple):
    """Options of sbatch by name. A value is text, a list (joined by `,`), `true` for an option without a value, or
    `false` for none. Read into texts; an option without a value has the empty text. `ours`: options that Phalanx
    sets."""

    ours: Mapping[str, str]

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if node.entries is None:
            return MapOf(_VALUE).read(node, findings)
        faults = len(findings.errors)
        result: dict[str, str] = {}
        for name, child in node.entries.items():
            if name in self.ours:
                findings.error(child, f"`{name}` cannot be set in the file: {self.ours[name]}", at_key=True)
            elif re.match(_OPTION.pattern or "", name) is None:
                hint = "write `mail-type`, not `--mail-type` or `-m`"
                findings.error(child, f"`{name[:60]}` is not {_OPTION.what}", hint, at_key=True)
            else:
                values = ListOf(_VALUE, lone=True).read(child, findings)
                if values is not INVALID:
                    result |= _option(name, ",".join(values))
        return INVALID if len(findings.errors) > faults or node.poisoned else freeze(result)

    def schema(self) -> dict[str, Any]:
        return MapOf(ListOf(_VALUE, lone=True)).schema()

    def words(self) -> str:
        return "a map of options of sbatch"


def _option(name: str, value: str) -> dict[str, str]:
    """An option as sbatch takes it; empty if it is switched off."""
    if value.casefold() not in ("true", "false"):
        return {name: value}
    is_on = value.casefold() == "true"
    if name in _ANSWERS:
        return {name: _ANSWERS[name][is_on]}
    if name == "requeue" and not is_on:
        return {"no-requeue": ""}
    return {name: ""} if is_on else {}


def _times_fit(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    segment, before = values.get("segment"), values.get("checkpoint")
    if segment is not None and segment < SHORTEST_SEGMENT_S:
        where = node.get("segment") or node
        findings.error(where, f"a segment of {segment:g} s is too short", f"at least {SHORTEST_SEGMENT_S:g} s")
    elif segment is not None and before is not None and before >= segment:
        where = node.get("checkpoint") or node
        findings.error(where, "the checkpoint signal would come before the segment begins", "write a shorter time")
    if segment is not None and "no-requeue" in values.get("directives", ()):
        hint = "remove `requeue: false` or `no-requeue`"
        findings.error(node.get("directives") or node, "the jobs of `segment` must be requeued", hint)


def _slurm(**values: Any) -> SlurmOptions:
    directives = tuple(values.pop("directives", {}).items())
    if "batch" in values:
        values["batch"] = tuple(values["batch"].items())
    times = {f"{key}_s": values.pop(key) for key in ("segment", "checkpoint") if key in values}
    return SlurmOptions(**values, **times, directives=directives)


SLURM = RecordShape(
    "slurm",
    {
        "site": Field(
            TextShape(), "The site profile: a name or a file. Default: the one that `phalanx site init` wrote."
        ),
        "account": Field(_WORD, "The account to charge."),
        "partition": Field(_CHOICE, "The partition, or several separated by `,`."),
        "qos": Field(_WORD, "The quality of service."),
        "constraint": Field(_CHOICE, "Features that nodes must have."),
        "reservation": Field(_WORD, "The reservation to run in."),
        "gpu_type": Field(_WORD, "The GPU type, as the site names it: `h100`."),
        "layout": Field(
            TextShape(choices=("heterogeneous", "homogeneous")),
            "How to place replicas with different resources: as a heterogeneous job (the default), or as a "
            "`homogeneous` job in which each gets the resources of the largest.",
        ),
        "replicas_per_node": Field(
            Number(low=1, high=4096, whole=True),
            "Number of replicas per node. Default: as many as fit, if the site profile describes the nodes.",
        ),
        "segment": Field(
            _TIME, "The longest job the site allows. Longer runs are split into segments that resume one another."
        ),
        "checkpoint": Field(
            _TIME, "How long before the end of a segment or the time limit ranks are signalled to save."
        ),
        "checkpoint_signal": Field(
            TextShape(choices=("USR1", "USR2", "TERM", "HUP")), "The checkpoint signal. Default: USR1."
        ),
        "mpi": Field(
            TextShape(pattern=r"[a-z][a-z0-9_]*\Z", what="`mpirun`, or a type that `srun --mpi=list` names"),
            "What starts the ranks of MPI and Horovod over MPI: `srun` with this type (default `pmix`), or `mpirun`.",
        ),
        "directives": Field(
            SbatchOptions(OURS),
            "Further options of sbatch: `mail-type: [END, FAIL]`, `exclusive: true`, `requeue: false`.",
        ),
        "batch": Field(
            SbatchOptions(_OURS_OF_SCRIPTS),
            "The command is a script for sbatch: it runs once, on the first node of a job with exactly these options, "
            "and starts its own steps. `nodes`, `ntasks` and the like are allowed here. Has no effect elsewhere.",
        ),
    },
    _slurm,
    _times_fit,
)

_MEMORY = Quantity(quantities.memory_mib, 'an amount of memory (a bare number is MiB; "2Gi", "512Mi")')
_OBJECT = TextShape(
    pattern=r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*\Z",
    what="a name of small letters, digits, `-` and `.`",
)
_INSIDE = TextShape(pattern=r"(?!.*(?:^|/)\.\.(?:/|$))[^\x00-\x1f\x7f]+\Z", what="a path inside a volume, without `..`")
_REPOSITORY = TextShape(pattern=r"(?!-)[^\s\x00-\x1f\x7f]+\Z", what="the address of a Git repository")
_REVISION = TextShape(pattern=r"(?!-)[^\s\x00-\x1f\x7f~^:?*\[\\]+\Z", what="a branch, a tag or a commit", numbers=True)
_PASSWORD = deferred_pattern(r"://[^/@]*:[^/@]*@")


def _code_is_found(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    how, repository = values.get("code", "auto"), values.get("repository")
    if how == "git" and repository is None and node.get("repository") is None:
        findings.missing(node, "repository", "`code: git` requires `repository`: the address of a Git repository")
    if how == "volume" and node.get("code_claim") is None:
        findings.missing(node, "code_claim", "`code: volume` requires `code_claim`: the claim that holds the code")
    for key, goes_with in (
        ("repository", "git"),
        ("revision", "git"),
        ("code_claim", "volume"),
        ("code_path", "volume"),
    ):
        where = node.get(key)
        if where is not None and how not in ("auto", goes_with):
            findings.error(where, f"`{key}` requires `code: {goes_with}`, not `code: {how}`", at_key=True)
    if repository is not None and _PASSWORD.search(repository):
        hint = "put it in a Secret and reference that in `pod` for the container `code`"
        findings.error(node.get("repository") or node, "a password in the address is visible in the pods", hint)
    if repository is not None and values.get("code_claim") is not None and how == "auto":
        where = node.get("repository") or node
        findings.error(where, "`repository` and `code_claim` exclude each other", "keep one", at_key=True)
    least, most = values.get("min_workers"), values.get("max_workers")
    if least is not None and most is not None and least > most:
        findings.error(node.get("min_workers") or node, f"`min_workers` ({least}) is above `max_workers` ({most})")


def _kubernetes(**values: Any) -> KubernetesOptions:
    times = {f"{key}_s": values.pop(key) for key in ("ttl", "peers", "give_up", "node_timeout") if key in values}
    shm = {"shm_mib": values.pop("shm")} if "shm" in values else {}
    return KubernetesOptions(**values, **times, **shm)


KUBERNETES = RecordShape(
    "kubernetes",
    {
        "queue": Field(_OBJECT, "The Kueue LocalQueue that admits the run."),
        "gang": Field(
            TextShape(choices=("kueue", "volcano", "scheduler-plugins", "none")),
            "The gang scheduler: it starts all replicas together or none. Default: the one the cluster has.",
        ),
        "priority_class": Field(_OBJECT, "The priority class of the pods."),
        "scheduler": Field(_OBJECT, "The scheduler that places the pods, if not the cluster's default."),
        "code": Field(
            TextShape(choices=("auto", "bundle", "git", "volume", "image")),
            "Where pods get the code: a `bundle` of the folder that is sent with the run, a `git` repository, a "
            "`volume`, or the `image` itself. Default: the one that the other fields configure, else a bundle.",
        ),
        "code_claim": Field(_OBJECT, "`code: volume`: the PersistentVolumeClaim that holds the code."),
        "code_path": Field(_INSIDE, "`code: volume`: the folder inside that claim."),
        "repository": Field(_REPOSITORY, "`code: git`: the address of the repository."),
        "revision": Field(
            _REVISION, "`code: git`: a branch, tag or commit. Default: that of `build`, else the repository's default."
        ),
        "shm": Field(_MEMORY, "Maximum size of /dev/shm. Default: as much as the memory limit allows."),
        "ttl": Field(_TIME, "How long the created objects stay after the end. Default: until the logs are collected."),
        "peers": Field(_TIME, "How long replicas wait for each other at startup. Default: 15 minutes."),
        "give_up": Field(
            _TIME,
            "How long a replica may fail to start for a permanent reason, such as a missing image, before it counts "
            "as failed. Waiting for free resources never counts. Default: 10 minutes.",
        ),
        "node_timeout": Field(
            _TIME,
            "How long replicas stay on a node that does not respond before they count as lost. Default: that of the "
            "cluster, usually 5 minutes.",
        ),
        "restart_policy": Field(
            TextShape(choices=("Never", "OnFailure", "Always", "ExitCode")),
            "What Kubeflow's operator does with a failed pod. `OnFailure` restarts it in place; the other two are "
            "rejected. Default: Never; `max_restarts` restarts the whole run.",
        ),
        "min_workers": Field(Number(low=1, high=100_000, whole=True), "Elastic PyTorchJob: minimum number of workers."),
        "max_workers": Field(Number(low=1, high=100_000, whole=True), "Elastic PyTorchJob: maximum number of workers."),
        "runtime": Field(_OBJECT, "TrainJob: the runtime to use. Default: the one for the framework."),
        "pod": Field(
            PodTemplate(),
            "A patch for the template of every pod, merged as `kubectl patch` does: `metadata` and `spec`, or the spec "
            "alone. The container is named `phalanx`.",
        ),
    },
    _kubernetes,
    _code_is_found,
)


def _one_python(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    named = [key for key in ("venv", "conda", "image") if key in values]
    if len(named) > 1:
        said = " and ".join(f"`{key}`" for key in named)
        findings.error(node.get(named[1]) or node, f"{said} exclude each other", "keep one", at_key=True)
    elif named and "requirements" in values:
        where = node.get("requirements") or node
        findings.error(where, f"nothing can be installed into an existing `{named[0]}`", "keep one", at_key=True)


PYTHON = RecordShape(
    "python",
    {
        "modules": Field(ListOf(_MODULE, lone=True), "Modules to load on the nodes, in this order: `python/3.11`."),
        "requirements": Field(
            ListOf(_REQUIREMENT, lone=True), "What to install into a new virtual environment: packages, or a file."
        ),
        "wheelhouse": Field(
            ListOf(_PATH, lone=True), "Folders of wheels; packages are installed only from these (`--no-index`)."
        ),
        "no_index": Field(Boolean(), "Install from the wheelhouse that pip is configured with, not from an index."),
        "build_on": Field(
            TextShape(choices=("node", "login")),
            "Where to create the virtual environment: on each `node`, in local storage (the default), or once where "
            "the run is submitted; it is then unpacked on each node.",
        ),
        "venv": Field(_PATH, "An existing virtual environment."),
        "conda": Field(_PATH, "An existing conda environment, by its folder."),
        "image": Field(_PATH, "An Apptainer image in which the command runs."),
    },
    PythonOptions,
    _one_python,
)
