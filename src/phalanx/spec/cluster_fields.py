"""What a file says for clusters: how Slurm and Kubernetes shall place it, and which Python it runs in.

These texts end up in scripts and command lines. They are quoted there as well, but a name that no scheduler, module or
package has is a fault of the file, and told as one.
"""

from __future__ import annotations

import re
from typing import Any

from phalanx.spec import quantities
from phalanx.spec.model import KubernetesOptions, PythonOptions, SlurmOptions
from phalanx.spec.pod_templates import PodTemplate
from phalanx.spec.shapes import Boolean, Field, ListOf, MapOf, Number, Quantity, RecordShape, TextShape
from phalanx.spec.tree import Diagnostics, Node

_TIME = Quantity(quantities.seconds, 'a time (seconds, or "24h", "5m")')
_WORD = TextShape(pattern=r"[\w.@+:/-]+\Z", what="a name without spaces or quotes", numbers=True)
_CHOICE = TextShape(
    pattern=r"[\w.,@+:/&|*()\[\]!-]+\Z", what="a name, or names joined by `,`, `&` or `|`", numbers=True
)
_VALUE = TextShape(pattern=r"[\w.,@%+:=/&|*()\[\]-]*\Z", what="a value without spaces, quotes or `$`", numbers=True)
_MODULE = TextShape(pattern=r"[\w.+][\w.+/-]*\Z", what="the name of a module", numbers=True)
_PATH = TextShape(pattern=r"[^\x00-\x1f\x7f'\"`\\]+\Z", what="a path without quotes")
_REQUIREMENT = TextShape(
    pattern=r"[\w.][^\x00-\x1f\x7f]*\Z", what="a package as pip takes it (`torch>=2`), or a file (`requirements.txt`)"
)
_OURS = {  # what the job depends on, and where to say it instead
    "array": "a run is one job; a group of runs has its own section",
    "chdir": "runs start in the folder where `phalanx run` was called",
    "comment": "Phalanx finds its jobs by it",
    "export": "use `environment.env_vars`",
    "job-name": "use `name`",
    "output": "logs are kept for each replica",
    "error": "logs are kept for each replica",
    "parsable": "it is an option of the call",
    "requeue": "segments and restarts need it",
    "test-only": "it is an option of the call",
    "wait": "it is an option of the call",
    "wrap": "use `run: {cmd: ...}`",
}
_OPTION = TextShape(pattern=r"[a-z][a-z0-9-]*\Z", what="a long option of sbatch without its dashes")
SHORTEST_SEGMENT_S = 120.0


def _directives_are_free(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    directives = node.get("directives")
    for name, child in (directives.entries or {}).items() if directives is not None else ():
        if name in _OURS:
            findings.error(child, f"`{name}` is not for a file to say: {_OURS[name]}", at_key=True)
        elif _option_fault(name):
            hint = "write `mail-type`, not `--mail-type` or `-m`"
            findings.error(child, f"`{name[:60]}` is not {_OPTION.what}", hint, at_key=True)
    segment, before = values.get("segment"), values.get("checkpoint")
    if segment is not None and segment < SHORTEST_SEGMENT_S:
        where = node.get("segment") or node
        findings.error(where, f"a segment of {segment:g} s is too short", f"at least {SHORTEST_SEGMENT_S:g} s")
    elif segment is not None and before is not None and before >= segment:
        where = node.get("checkpoint") or node
        findings.error(where, "the checkpoint signal would come before the segment begins", "write a shorter time")


def _option_fault(name: str) -> bool:
    return re.match(_OPTION.pattern or "", name) is None


def _slurm(**values: Any) -> SlurmOptions:
    directives = tuple(values.pop("directives", {}).items())
    times = {f"{key}_s": values.pop(key) for key in ("segment", "checkpoint") if key in values}
    return SlurmOptions(**values, **times, directives=directives)


SLURM = RecordShape(
    "slurm",
    {
        "site": Field(
            TextShape(), "The profile of the site: a name or a file. Default: the one `phalanx site init` wrote."
        ),
        "account": Field(_WORD, "The account that pays."),
        "partition": Field(_CHOICE, "The partition, or several with `,`."),
        "qos": Field(_WORD, "The quality of service."),
        "constraint": Field(_CHOICE, "Features that nodes must have."),
        "reservation": Field(_WORD, "A reservation to run in."),
        "gpu_type": Field(_WORD, "The type of GPU, as the site names it: `h100`."),
        "layout": Field(
            TextShape(choices=("heterogeneous", "homogeneous")),
            "How replicas that ask for different things are placed: as a heterogeneous job (the default), or as a "
            "`homogeneous` one in which each has what the largest asks for.",
        ),
        "replicas_per_node": Field(
            Number(low=1, high=4096, whole=True),
            "How many replicas share a node. Default: as many as fit, where the site's profile knows its nodes.",
        ),
        "segment": Field(
            _TIME, "The longest job that the site takes: a longer run is split into segments, each resuming the last."
        ),
        "checkpoint": Field(_TIME, "How long before the end of a segment or of the time limit ranks are told to save."),
        "checkpoint_signal": Field(
            TextShape(choices=("USR1", "USR2", "TERM", "HUP")), "The signal that tells them so. Default: USR1."
        ),
        "mpi": Field(
            TextShape(pattern=r"[a-z][a-z0-9_]*\Z", what="`mpirun`, or a type that `srun --mpi=list` names"),
            "Who starts the ranks of MPI and of Horovod over it: `srun` with this type (default `pmix`), or `mpirun`.",
        ),
        "directives": Field(MapOf(_VALUE), "Further options of sbatch, as `mail-type: END`."),
    },
    _slurm,
    _directives_are_free,
)

_MEMORY = Quantity(quantities.memory_mib, 'an amount of memory (a bare number is MiB; "2Gi", "512Mi")')
_OBJECT = TextShape(
    pattern=r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*\Z",
    what="a name of small letters, digits, `-` and `.`",
)
_INSIDE = TextShape(pattern=r"(?!.*(?:^|/)\.\.(?:/|$))[^\x00-\x1f\x7f]+\Z", what="a path inside a volume, without `..`")
_REPOSITORY = TextShape(pattern=r"(?!-)[^\s\x00-\x1f\x7f]+\Z", what="the address of a Git repository")
_REVISION = TextShape(pattern=r"(?!-)[^\s\x00-\x1f\x7f~^:?*\[\\]+\Z", what="a branch, a tag or a commit", numbers=True)
_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")


def _code_is_found(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    how, repository = values.get("code", "auto"), values.get("repository")
    if how == "git" and repository is None and node.get("repository") is None:
        findings.missing(node, "repository", "`code: git` needs `repository`: the address of a Git repository")
    if how == "volume" and node.get("code_claim") is None:
        findings.missing(node, "code_claim", "`code: volume` needs `code_claim`: the claim in which the code lies")
    for key, goes_with in (
        ("repository", "git"),
        ("revision", "git"),
        ("code_claim", "volume"),
        ("code_path", "volume"),
    ):
        where = node.get(key)
        if where is not None and how not in ("auto", goes_with):
            findings.error(where, f"`{key}` goes with `code: {goes_with}`, not with `code: {how}`", at_key=True)
    if repository is not None and _PASSWORD.search(repository):
        hint = "keep it in a Secret, and name that in `pod` for the container `code`"
        findings.error(node.get("repository") or node, "a password in an address is read by all who see pods", hint)
    if repository is not None and values.get("code_claim") is not None and how == "auto":
        where = node.get("repository") or node
        findings.error(where, "`repository` and `code_claim` exclude each other", "keep one", at_key=True)
    least, most = values.get("min_workers"), values.get("max_workers")
    if least is not None and most is not None and least > most:
        findings.error(node.get("min_workers") or node, f"more workers at least ({least}) than at most ({most})")


def _kubernetes(**values: Any) -> KubernetesOptions:
    times = {f"{key}_s": values.pop(key) for key in ("ttl", "peers", "give_up") if key in values}
    shm = {"shm_mib": values.pop("shm")} if "shm" in values else {}
    return KubernetesOptions(**values, **times, **shm)


KUBERNETES = RecordShape(
    "kubernetes",
    {
        "queue": Field(_OBJECT, "The LocalQueue of Kueue that admits the run."),
        "gang": Field(
            TextShape(choices=("kueue", "volcano", "scheduler-plugins", "none")),
            "Who starts all replicas together or none. Default: whichever the cluster has.",
        ),
        "priority_class": Field(_OBJECT, "The priority class of the pods."),
        "scheduler": Field(_OBJECT, "The scheduler that places the pods, where it is not the cluster's own."),
        "code": Field(
            TextShape(choices=("auto", "bundle", "git", "volume", "image")),
            "Where pods find the code: a `bundle` of the folder that comes with the run, a `git` repository, a "
            "`volume`, or the `image` itself. Default: whichever of these the other fields speak of, else a bundle.",
        ),
        "code_claim": Field(_OBJECT, "`code: volume`: the PersistentVolumeClaim in which the code lies."),
        "code_path": Field(_INSIDE, "`code: volume`: the folder inside that claim."),
        "repository": Field(_REPOSITORY, "`code: git`: the address of the repository."),
        "revision": Field(
            _REVISION, "`code: git`: a branch, tag or commit. Default: that of `build`, else the repository's own."
        ),
        "shm": Field(
            _MEMORY, "The most that processes may share in /dev/shm. Default: what the memory's limit allows."
        ),
        "ttl": Field(
            _TIME, "How long what was created stays after the end. Default: it is removed once logs are kept."
        ),
        "peers": Field(_TIME, "How long replicas wait for each other before they give up. Default: 15 minutes."),
        "give_up": Field(
            _TIME,
            "How long a replica may be kept from starting by what does not pass by itself, such as an image that is "
            "not there, before it has failed. Want of room never counts. Default: 10 minutes.",
        ),
        "restart_policy": Field(
            TextShape(choices=("Never", "OnFailure", "Always", "ExitCode")),
            "What Kubeflow's operator does about a pod that failed: `OnFailure` starts it again in its place, the "
            "other two are refused. Default: Never; the whole run is started again by `max_restarts`.",
        ),
        "min_workers": Field(Number(low=1, high=100_000, whole=True), "Elastic PyTorchJob: the fewest workers."),
        "max_workers": Field(Number(low=1, high=100_000, whole=True), "Elastic PyTorchJob: the most workers."),
        "runtime": Field(_OBJECT, "TrainJob: the runtime to use. Default: the one for the framework."),
        "pod": Field(
            PodTemplate(),
            "Laid over the template of every pod, as `kubectl patch` merges it: `metadata` and `spec`, or the spec "
            "alone. The container is called `phalanx`.",
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
        findings.error(where, f"nothing is installed into an existing `{named[0]}`", "keep one of them", at_key=True)


PYTHON = RecordShape(
    "python",
    {
        "modules": Field(ListOf(_MODULE, lone=True), "Modules to load on the nodes, in this order: `python/3.11`."),
        "requirements": Field(
            ListOf(_REQUIREMENT, lone=True), "What is installed into a new virtual environment: packages, or a file."
        ),
        "wheelhouse": Field(
            ListOf(_PATH, lone=True), "Folders of wheels to install from, and from nowhere else (`--no-index`)."
        ),
        "no_index": Field(Boolean(), "Install from the wheelhouse that pip is configured for, not from an index."),
        "build_on": Field(
            TextShape(choices=("node", "login")),
            "Where the virtual environment is made: on each `node`, in its own storage (the default), or once where "
            "the run is submitted, and unpacked on each node.",
        ),
        "venv": Field(_PATH, "An existing virtual environment."),
        "conda": Field(_PATH, "An existing conda environment, by its folder."),
        "image": Field(_PATH, "An Apptainer image in which the command runs."),
    },
    PythonOptions,
    _one_python,
)
