"""A script for sbatch as a polyaxonfile: directives become settings, `srun` and `torchrun` lines become replicas."""

from __future__ import annotations

import re
import shlex
from typing import Any

from phalanx.spec.batch_scripts.as_written import LEFT_OUT, document_of_script, plain_name, unrendered
from phalanx.spec.batch_scripts.directives import BatchScript, read_script
from phalanx.spec.cluster_fields import OURS

_OPTIONS = ("account", "partition", "qos", "constraint", "reservation")
_SIZES = frozenset(
    (
        *(
            "nodes",
            "ntasks",
            "ntasks-per-node",
            "tasks-per-node",
            "cpus-per-task",
            "mem",
            "mem-per-cpu",
            "gres",
            "gpus",
        ),
        *("gpus-per-node", "gpus-per-task", "time", "job-name"),
    )
)
_MODULES = re.compile(r"(?:module\s+(?:load|add)|ml)\s+([\w.+/ -]+)\Z")
_VENV = re.compile(r"(?:source|\.)\s+([^\s'\"$`\\]+)/bin/activate\Z")
_EXPORT = re.compile(r"export\s+([A-Za-z_]\w*)=([^\s$`'\"\\;&|]*)\Z")
_ADDRESS = re.compile(r"(?:export\s+)?MASTER_(?:ADDR|PORT)=")
_LAUNCH = re.compile(r"(srun|mpirun|mpiexec)\s+(.*)\Z", re.DOTALL)
_TORCH = re.compile(r"(?:^|\s)(?:torchrun|-m\s+torch\.distributed\.run)\b|(?:^|\s)accelerate\s+launch\b")
_RENDEZVOUS = re.compile(
    r"\s+--(?:nnodes|node[-_]rank|rdzv[-_]\w+|master[-_]addr|master[-_]port)(?:=|\s+)(?:\"[^\"]*\"|'[^']*'|\S+)"
)
_SHELL = re.compile(r"^(?:if|for|while|case|function|until|do|done|fi|esac)\b|[{}]\s*$|<<|^\w+=|\$\(|`|^trap\b|&\s*$")
_SRUN_VALUES = frozenset(
    (*("-n", "-N", "-c", "-p", "-t", "-J", "-o", "-e", "-w", "-x", "-G"), *("--ntasks", "--nodes", "--cpus-per-task"))
)
_MEMORY = re.compile(r"(\d+)([KMGT]?)[Bb]?\Z", re.IGNORECASE)


def converted_script(text: str, name: str) -> tuple[dict[str, Any], list[str]]:
    """The document of a polyaxonfile, and notes on what was not understood. Raises ValueError."""
    script = read_script(text)
    try:
        return _ScriptConverter(script, name).document()
    except _MoreThanCommands:
        document, notes = document_of_script(script, name)
        return document, [*notes, "the script has more than single commands: it is kept as it is, with its directives"]


class _MoreThanCommands(Exception):
    """A script with variables, loops or several launchers, which only bash understands."""


class _ScriptConverter:
    """Converts one script."""

    def __init__(self, script: BatchScript, name: str) -> None:
        self.script, self.name = script, name
        self.given = script.directives
        self.notes = list(script.notes)
        self.modules: list[str] = []
        self.venv: str | None = None
        self.variables: dict[str, str] = {}

    def document(self) -> tuple[dict[str, Any], list[str]]:
        if "array" in self.given:
            raise ValueError("`--array` has no counterpart in one run: write `kind: group` with a matrix")
        lines = self._commands()
        run, framework, replicas = self._run(lines)
        environment = self._environment(max(1, self.tasks), by_node=framework == "pytorch")
        document: dict[str, Any] = {"version": 1, "kind": "experiment"}
        document["name"] = plain_name(self.given.get("job-name") or self.name)
        if framework is not None:
            document["framework"] = framework
            settings = {"resources": environment["resources"]} if "resources" in environment else {}
            workers = replicas if framework == "mpi" else replicas - 1
            environment["replicas"] = {"n_workers": workers, **({"default_worker": settings} if settings else {})}
        if environment:
            document["environment"] = environment
        document["run"] = run
        return document, self.notes

    # The body

    def _commands(self) -> list[str]:
        """The commands of the script, with continued lines joined; modules and the like are taken out."""
        joined = re.sub(r"\\\r?\n\s*", " ", self.script.text)
        lines = (line.strip() for line in joined.splitlines())
        return [line for line in lines if line and not line.startswith("#") and not self._is_setting(line)]

    def _is_setting(self, line: str) -> bool:
        if _ADDRESS.match(line):
            self.notes.append(f"`{line[:80]}` is left out: Phalanx sets the address of the first node")
            return True
        modules, venv, export = _MODULES.match(line), _VENV.match(line), _EXPORT.match(line)
        if modules is not None:
            self.modules += modules[1].split()
        elif venv is not None:
            self.venv = venv[1]
        elif export is not None:
            self.variables[export[1]] = export[2]
        else:
            return line in ("module purge", "module reset")
        return True

    def _run(self, lines: list[str]) -> tuple[dict[str, Any], str | None, int]:
        launched = [line for line in lines if _LAUNCH.match(line) or _TORCH.search(line)]
        if any(_SHELL.search(_RENDEZVOUS.sub("", line)) for line in lines) or len(launched) > 1:
            raise _MoreThanCommands
        framework, count = self._framework(launched[0]) if launched else (None, 1)
        commands = [self._without_launcher(line, framework) if line in launched else line for line in lines]
        if not commands:
            raise ValueError("the script has no command")
        texts = [unrendered(line) for line in commands]
        return {"cmd": texts[0] if len(texts) == 1 else texts}, framework, count

    def _framework(self, line: str) -> tuple[str | None, int]:
        if _TORCH.search(line):
            return ("pytorch", self.nodes) if self.nodes > 1 else (None, 1)
        if self.tasks <= 1:
            return None, 1
        self.notes.append(f"{self.tasks} tasks read as ranks of MPI; write another `framework` if they are not")
        return "mpi", self.tasks

    def _without_launcher(self, line: str, framework: str | None) -> str:
        found = _LAUNCH.match(line)
        command = line
        if found is not None and found[1] == "srun":
            command = _after_options(found[2])
        if framework == "pytorch" and _RENDEZVOUS.search(command):
            self.notes.append("the addresses and node numbers of torchrun are left out: Phalanx sets them")
            command = _RENDEZVOUS.sub("", command)
        return command

    # Sizes

    @property
    def nodes(self) -> int:
        return _number(self.given.get("nodes"), 1)

    @property
    def per_node(self) -> int | None:
        text = self.given.get("ntasks-per-node") or self.given.get("tasks-per-node")
        return _number(text, 1) if text else None

    @property
    def tasks(self) -> int:
        if "ntasks" in self.given:
            return _number(self.given["ntasks"], 1)
        return self.nodes * (self.per_node or 1)

    def _environment(self, tasks: int, *, by_node: bool) -> dict[str, Any]:
        environment: dict[str, Any] = {}
        share = 1 if by_node else max(1, -(-tasks // self.nodes))  # tasks of a node
        resources = self._resources(share, by_node=by_node)
        if resources:
            environment["resources"] = resources
        if "time" in self.given:
            environment["timeout"] = _seconds(self.given["time"])
        if self.variables:
            environment["env_vars"] = dict(self.variables)
        slurm: dict[str, Any] = {key: self.given[key] for key in _OPTIONS if key in self.given}
        kind = self._gpu_type()
        if kind:
            slurm["gpu_type"] = kind
        rest = {key: value or True for key, value in self.given.items() if key not in (*_SIZES, *_OPTIONS)}
        for key in [key for key in rest if key in OURS or key in LEFT_OUT]:
            self.notes.append(f"`--{key}` is left out: {OURS.get(key) or LEFT_OUT[key]}")
            del rest[key]
        if rest:
            slurm["directives"] = rest
        if slurm:
            environment["slurm"] = slurm
        python: dict[str, Any] = {"modules": self.modules} if self.modules else {}
        if self.venv is not None:
            python["venv"] = self.venv
        if python:
            environment["python"] = python
        return environment

    def _resources(self, share: int, *, by_node: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        cpus = _number(self.given.get("cpus-per-task"), 0) * ((self.per_node or 1) if by_node else 1)
        if cpus:
            found["cpu"] = {"requests": cpus}
        memory = _mebibytes(self.given.get("mem", ""))
        per_cpu = _mebibytes(self.given.get("mem-per-cpu", ""))
        if memory or per_cpu:
            found["memory"] = {"limits": memory // share if memory else (per_cpu or 0) * max(1, cpus)}
        gpus = self._gpus_of_node()
        if "gpus-per-task" in self.given:
            gpus = _number(self.given["gpus-per-task"].rpartition(":")[2], 0) * share
        if gpus:
            found["gpu"] = {"limits": max(1, gpus // share)}
        return found

    def _gpu_type(self) -> str:
        """`a100` of `gpu:a100:4`, or of `a100:4`."""
        named = [self.given.get(key, "") for key in ("gpus-per-node", "gpus-per-task", "gpus")]
        gres = next((part.partition(":")[2] for part in self.given.get("gres", "").split(",") if "gpu:" in part), "")
        return next((text.partition(":")[0] for text in (gres, *named) if ":" in text), "")

    def _gpus_of_node(self) -> int:
        gres = next((part for part in self.given.get("gres", "").split(",") if part.startswith("gpu")), "")
        if gres:
            return _number(gres.rpartition(":")[2], 1)
        if "gpus-per-node" in self.given:
            return _number(self.given["gpus-per-node"].rpartition(":")[2], 0)
        return _number(self.given.get("gpus", "").rpartition(":")[2], 0) // max(1, self.nodes)


def _after_options(text: str) -> str:
    """A command after the options of srun."""
    rest = text
    while rest.startswith("-"):
        option, _, rest = rest.partition(" ")
        rest = rest.lstrip()
        if option in _SRUN_VALUES:
            rest = rest.partition(" ")[2].lstrip()
    return rest or shlex.join([text])


def _number(text: str | None, default: int) -> int:
    digits = re.match(r"\d+", text or "")
    return min(int(digits[0]), 100_000) if digits is not None else default


def _mebibytes(text: str) -> int:
    """Megabytes unless a unit says otherwise, as sbatch reads them."""
    found = _MEMORY.match(text)
    if found is None:
        return 0
    scale = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024 * 1024}[found[2].upper()]
    return int(int(found[1]) * scale)


def _seconds(text: str) -> int:
    """A time limit of sbatch: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    days, dash, rest = text.rpartition("-")
    parts = [_number(part, 0) for part in rest.split(":")]
    if dash:
        hours, minutes, seconds = (*parts, 0, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return max(60, ((_number(days, 0) * 24 + hours) * 60 + minutes) * 60 + seconds)
