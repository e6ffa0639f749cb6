"""Helpers of submitit's users: what a checkpoint returns, commands as functions, jobs as they complete."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from phalanx.errors import CallError
from phalanx.submitit.job_environment import JobEnvironment
from phalanx.submitit.jobs import FailedJobError, Job


class DelayedSubmission:
    """A call for later. `checkpoint` methods return one; `result` makes the call, once."""

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self._is_done = False
        self._result: Any = None

    def result(self) -> Any:
        if not self._is_done:
            self._result = self.function(*self.args, **self.kwargs)
            self._is_done = True
        return self._result

    def done(self) -> bool:
        return self._is_done


class Checkpointable:
    """A callable that goes on with its present state and the same arguments. Subclasses write `__call__`."""

    def checkpoint(self, *args: Any, **kwargs: Any) -> DelayedSubmission:
        return DelayedSubmission(self, *args, **kwargs)  # type: ignore[arg-type] # subclasses are callable


class FunctionSequence(Checkpointable):
    """Functions that are called one after another, and their results. Those that are done stay done in a checkpoint."""

    def __init__(self, verbose: bool = False) -> None:
        self.verbose = verbose
        self.delayed_functions: list[DelayedSubmission] = []

    def add(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.delayed_functions.append(DelayedSubmission(function, *args, **kwargs))

    def __len__(self) -> int:
        return len(self.delayed_functions)

    def __iter__(self) -> Iterator[DelayedSubmission]:
        return iter(self.delayed_functions)

    def __call__(self) -> list[Any]:
        return [delayed.result() for delayed in self.delayed_functions]


class CommandFunction:
    """A command as a function, which returns what it printed. Raises FailedJobError if it fails."""

    def __init__(
        self,
        command: Sequence[str],
        verbose: bool = True,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        if isinstance(command, str):
            raise TypeError(f"write the command as a list of words, not as a text: {command.split()!r}")
        self.command = list(command)
        self.verbose = verbose
        self.cwd = None if cwd is None else str(cwd)
        self.env = env

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        """Arguments are further words; keyword arguments become `--name=value`."""
        words = [*self.command, *map(str, args), *(f"--{name}={value}" for name, value in kwargs.items())]
        if self.verbose:
            print(f"The following command is sent: {' '.join(words)!r}", flush=True)
        ended = subprocess.run(words, cwd=self.cwd, env=self.env, capture_output=True, text=True, check=False)
        if self.verbose:
            print(ended.stdout, end="", flush=True)
        if ended.returncode:
            raise FailedJobError(f"{' '.join(words)} ended with code {ended.returncode}:\n{ended.stderr}")
        return ended.stdout.strip()


def as_completed(jobs: Sequence[Job], timeout: float | None = None, poll_frequency: float = 0.5) -> Iterator[Job]:
    """The jobs as they end. Raises TimeoutError."""
    deadline = None if timeout is None else time.monotonic() + timeout
    left = list(jobs)
    while left:
        ended = [job for job in left if job.done()]
        yield from ended
        left = [job for job in left if job not in ended]
        if left and deadline is not None and time.monotonic() > deadline:
            raise TimeoutError(f"{len(left)} of {len(jobs)} jobs have not ended after {timeout} s")
        if left and not ended:
            time.sleep(poll_frequency)


class RsyncSnapshot:
    """Copies the code to a folder, and works there within `with`. Files that `.polyaxonignore` or git ignore are left
    out; no rsync is needed."""

    def __init__(
        self,
        snapshot_dir: str | Path,
        root_dir: str | Path | None = None,
        with_submodules: bool = False,
        exclude: Sequence[str] = (),
        include: Sequence[str] = (),
    ) -> None:
        """Raises CallError for patterns of rsync, and for submodules."""
        unknown = {"with_submodules": with_submodules, "exclude": exclude, "include": include}
        if named := [name for name, value in unknown.items() if value]:
            raise CallError(
                f"RsyncSnapshot has no {', '.join(f'`{name}`' for name in named)} here: list what to leave out in "
                "`.polyaxonignore`"
            )
        self.snapshot_dir = Path(snapshot_dir)
        self.root_dir = Path(root_dir or Path.cwd())
        self.original_dir = Path.cwd()

    def __enter__(self) -> Self:
        from phalanx.submission.snapshots import take

        self.original_dir = Path.cwd()
        self.snapshot_dir.mkdir(parents=True, exist_ok=True)
        take(self.root_dir, self.snapshot_dir)
        os.chdir(self.snapshot_dir)
        return self

    def __exit__(self, *_: object) -> None:
        os.chdir(self.original_dir)


@contextmanager
def clean_env(extra_names: Sequence[str] = ()) -> Iterator[None]:
    """Without the variables of Slurm, of Phalanx's runs and of torch.distributed, to submit a job from within a job."""
    prefixes = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "PHALANX_RUN_ID", "PHALANX_RANK", "PHALANX_WORLD_SIZE")
    exact = {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", *extra_names}
    kept = {name: value for name, value in os.environ.items() if name.startswith(prefixes) or name in exact}
    for name in kept:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(kept)


class TorchDistributedEnvironment:
    """The variables of `torch.distributed` with `env://`. With `framework="pytorch"`, Phalanx sets them itself."""

    def __init__(self) -> None:
        place = JobEnvironment()
        self.master_addr = place.hostnames[0]
        known = os.environ.get("MASTER_PORT")
        self.master_port = int(known) if known else random.Random(place.job_id).randint(20_000, 60_000)  # noqa: S311
        self.rank = place.global_rank
        self.world_size = place.num_tasks
        self.local_rank = place.local_rank
        self.local_world_size = place.num_tasks // place.num_nodes

    def export(self, set_cuda_visible_devices: bool = True, overwrite: bool = False) -> Self:
        """Raises RuntimeError if one is set, unless `overwrite`."""
        names = ("master_addr", "master_port", "rank", "world_size", "local_rank", "local_world_size")
        found = {name.upper(): str(getattr(self, name)) for name in names}
        for name in found if not overwrite else ():
            if name in os.environ:
                raise RuntimeError(f"{name} is already set")
        if set_cuda_visible_devices:
            found["CUDA_VISIBLE_DEVICES"] = str(self.local_rank)
        os.environ.update(found)
        return self
