"""What a file says for clusters: how Slurm shall place it, and which Python it runs in.

These texts end up in scripts and command lines. They are quoted there as well, but a name that no scheduler, module or
package has is a fault of the file, and told as one.
"""

from __future__ import annotations

from typing import Any

from phalanx.spec import quantities
from phalanx.spec.model import Python, Slurm
from phalanx.spec.shapes import Boolean, Field, ListOf, MapOf, Number, Quantity, Record, Text
from phalanx.spec.tree import Findings, Node

_TIME = Quantity(quantities.seconds, 'a time (seconds, or "24h", "5m")')
_WORD = Text(pattern=r"[\w.@+:/-]+\Z", what="a name without spaces or quotes", numbers=True)
_CHOICE = Text(pattern=r"[\w.,@+:/&|*()\[\]!-]+\Z", what="a name, or names joined by `,`, `&` or `|`", numbers=True)
_VALUE = Text(pattern=r"[\w.,@%+:=/&|*()\[\]-]*\Z", what="a value without spaces, quotes or `$`", numbers=True)
_MODULE = Text(pattern=r"[\w.+][\w.+/-]*\Z", what="the name of a module", numbers=True)
_PATH = Text(pattern=r"[^\x00-\x1f\x7f'\"`\\]+\Z", what="a path without quotes")
_REQUIREMENT = Text(
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
_OPTION = Text(pattern=r"[a-z][a-z0-9-]*\Z", what="a long option of sbatch without its dashes")
SHORTEST_SEGMENT_S = 120.0


def _directives_are_free(values: dict[str, Any], node: Node, findings: Findings) -> None:
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
    import re

    return re.match(_OPTION.pattern or "", name) is None


def _slurm(**values: Any) -> Slurm:
    directives = tuple(values.pop("directives", {}).items())
    times = {f"{key}_s": values.pop(key) for key in ("segment", "checkpoint") if key in values}
    return Slurm(**values, **times, directives=directives)


SLURM = Record(
    "slurm",
    {
        "site": Field(Text(), "The profile of the site: a name or a file. Default: the one `phalanx site init` wrote."),
        "account": Field(_WORD, "The account that pays."),
        "partition": Field(_CHOICE, "The partition, or several with `,`."),
        "qos": Field(_WORD, "The quality of service."),
        "constraint": Field(_CHOICE, "Features that nodes must have."),
        "reservation": Field(_WORD, "A reservation to run in."),
        "gpu_type": Field(_WORD, "The type of GPU, as the site names it: `h100`."),
        "layout": Field(
            Text(choices=("heterogeneous", "homogeneous")),
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
            Text(choices=("USR1", "USR2", "TERM", "HUP")), "The signal that tells them so. Default: USR1."
        ),
        "mpi": Field(
            Text(pattern=r"[a-z][a-z0-9_]*\Z", what="`mpirun`, or a type that `srun --mpi=list` names"),
            "Who starts the ranks of MPI and of Horovod over it: `srun` with this type (default `pmix`), or `mpirun`.",
        ),
        "directives": Field(MapOf(_VALUE), "Further options of sbatch, as `mail-type: END`."),
    },
    _slurm,
    _directives_are_free,
)


def _one_python(values: dict[str, Any], node: Node, findings: Findings) -> None:
    named = [key for key in ("venv", "conda", "image") if key in values]
    if len(named) > 1:
        said = " and ".join(f"`{key}`" for key in named)
        findings.error(node.get(named[1]) or node, f"{said} exclude each other", "keep one", at_key=True)
    elif named and "requirements" in values:
        where = node.get("requirements") or node
        findings.error(where, f"nothing is installed into an existing `{named[0]}`", "keep one of them", at_key=True)


PYTHON = Record(
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
            Text(choices=("node", "login")),
            "Where the virtual environment is made: on each `node`, in its own storage (the default), or once where "
            "the run is submitted, and unpacked on each node.",
        ),
        "venv": Field(_PATH, "An existing virtual environment."),
        "conda": Field(_PATH, "An existing conda environment, by its folder."),
        "image": Field(_PATH, "An Apptainer image in which the command runs."),
    },
    Python,
    _one_python,
)
