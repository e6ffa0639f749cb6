"""`AutoExecutor`: submitit's parameters as options of runs."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from phalanx.errors import CallError
from phalanx.launch.call_files import Arguments
from phalanx.launch.functions import start_batch, start_call
from phalanx.launch.options import RunOptions
from phalanx.submitit.jobs import Job

SHARED = (
    *("name", "timeout_min", "mem_gb", "nodes", "tasks_per_node", "cpus_per_task", "gpus_per_node"),
    *("stderr_to_stdout", "max_num_timeout"),
)
# Of Slurm, as fields of `environment.slurm`
SLURM = ("partition", "account", "qos", "constraint", "reservation")
DIRECTIVES = ("comment", "exclude", "nodelist")  # of sbatch
OWN = ("array_parallelism", "signal_delay_s", "additional_parameters")
SIGNAL_S = 90  # before the end of a job, a callable with a method `checkpoint` gets a signal
OTHERS = ("local_", "debug_")


class AutoExecutor:
    """Submits functions to Slurm, if it is there, or runs them on this machine. `cluster` chooses: `slurm`, `local`."""

    def __init__(self, folder: str | Path, max_num_timeout: int = 3, cluster: str | None = None) -> None:
        if cluster == "debug":
            cluster = "local"
        if cluster not in (None, "slurm", "local"):
            raise ValueError(f"cluster={cluster!r}: expected slurm or local")
        self.folder = Path(folder)
        self.cluster = cluster or ("slurm" if shutil.which("srun") else "local")
        self.parameters: dict[str, Any] = {"max_num_timeout": max_num_timeout}
        self._batch: list[tuple[Job, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] | None = None

    def update_parameters(self, **parameters: Any) -> None:
        """Raises NameError for an unknown parameter, RuntimeError inside of a batch."""
        if self._batch is not None:
            raise RuntimeError("the parameters cannot change within `with executor.batch()`")
        known = [*SHARED, *(f"slurm_{name}" for name in (*SHARED, *SLURM, *DIRECTIVES, *OWN))]
        for name in parameters:
            if name not in known and not name.startswith(OTHERS):
                near = get_close_matches(name, known, 1)
                hint = f": did you mean `{near[0]}`?" if near else f": they are {', '.join(known)}"
                raise NameError(f"`{name}` is no parameter of AutoExecutor{hint}")
        self.parameters.update(parameters)

    def submit(self, function: Callable[..., Any], *args: Any, **named: Any) -> Job:
        """Raises CallError, SpecErrors, MissingExtra."""
        if self._batch is not None:
            job = Job(self.folder, None, self._tasks)
            self._batch.append((job, function, args, named))
            return job
        return Job(self.folder, start_call(function, args, named, self._options(function)), self._tasks)

    def map_array(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> list[Job]:
        """One job for each tuple of arguments, as one array."""
        items: list[Arguments] = [(args, {}) for args in zip(*iterables, strict=False)]
        return self._start(function, items)

    def submit_array(self, functions: Sequence[Callable[[], Any]]) -> list[Job]:
        return self._start(_call, [((function,), {}) for function in functions])

    @contextmanager
    def batch(self, allow_implicit_submissions: bool = False) -> Iterator[None]:  # noqa: ARG002 - submitit's
        """The jobs that are submitted within start as one array at its end; none, if it is left by an exception."""
        if self._batch is not None:
            raise RuntimeError("a batch cannot be within a batch")
        batch: list[tuple[Job, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []
        self._batch = batch
        try:
            yield
        finally:
            self._batch = None
        items: list[Arguments] = [((partial(function, *args, **named),), {}) for _, function, args, named in batch]
        for (job, *_), started in zip(batch, self._start(_call, items), strict=True):
            job.start(started.run)

    def _start(self, function: Callable[..., Any], items: Sequence[Arguments]) -> list[Job]:
        if not items:
            return []
        batch = start_batch(function, items, self._options(function), self._parameter("array_parallelism"))
        return [Job(self.folder, run, self._tasks) for run in batch]

    # parameters ------------------------------------------------------------------------------------------------------

    def _parameter(self, name: str) -> Any:
        """Of this cluster, or of all."""
        own = self.parameters.get(f"{self.cluster}_{name}")
        return self.parameters.get(name) if own is None else own

    @property
    def _tasks(self) -> int:
        return int(self._parameter("nodes") or 1) * int(self._parameter("tasks_per_node") or 1)

    def _options(self, function: Callable[..., Any]) -> RunOptions:
        """Raises CallError for a value that cannot be expressed."""
        per_node = int(self._parameter("tasks_per_node") or 1)
        gpus, memory_gb, minutes = (self._parameter(name) for name in ("gpus_per_node", "mem_gb", "timeout_min"))
        if gpus and gpus % per_node:
            raise CallError(f"gpus_per_node={gpus} cannot be divided among {per_node} tasks of a node")
        slurm: dict[str, Any] = {name: value for name in SLURM if (value := self._parameter(name)) is not None}
        directives = {name: value for name in DIRECTIVES if (value := self._parameter(name)) is not None}
        directives.update(self._parameter("additional_parameters") or {})
        if directives:
            slurm["directives"] = directives
        timeout_s = None if minutes is None else 60 * minutes
        if timeout_s is not None and callable(getattr(function, "checkpoint", None)):
            slurm |= {"segment": timeout_s, "checkpoint": self._parameter("signal_delay_s") or SIGNAL_S}
            timeout_s *= 1 + int(self._parameter("max_num_timeout"))
        if self._tasks > 1:
            slurm["replicas_per_node"] = per_node
        replicas = {"replicas": {"processes": 1}} if self._tasks > 1 and gpus else {}
        environment = {**({"slurm": slurm} if slurm and self.cluster == "slurm" else {}), **replicas}
        return RunOptions(
            on=self.cluster,
            workers=self._tasks,
            cpus=self._parameter("cpus_per_task"),
            gpus=gpus // per_node if gpus else None,
            memory=math.ceil(1024 * memory_gb / per_node) if memory_gb else None,
            timeout=timeout_s,
            name=self._parameter("name"),
            spec={"environment": environment} if environment else None,
        )


def _call(function: Callable[[], Any]) -> Any:
    return function()


class LocalExecutor(AutoExecutor):
    """On this machine."""

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder, cluster="local")


class SlurmExecutor(AutoExecutor):
    """On Slurm. Its parameters have no prefix."""

    def __init__(self, folder: str | Path, max_num_timeout: int = 3) -> None:
        super().__init__(folder, max_num_timeout, cluster="slurm")

    def update_parameters(self, **parameters: Any) -> None:
        plain = {name for name in parameters if name in SHARED or name.startswith("slurm_")}
        renamed = {name if name in plain else f"slurm_{name}": value for name, value in parameters.items()}
        minutes = renamed.pop("slurm_time", None)
        super().update_parameters(**renamed, **({"timeout_min": minutes} if minutes is not None else {}))
