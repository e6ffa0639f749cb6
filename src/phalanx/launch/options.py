"""The keyword arguments that describe a run, and the polyaxonfile that they stand for."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from phalanx.errors import CallError

Text = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a run needs, in addition to its function or file. All are reserved names of keyword arguments."""

    on: str | None = None  # the backend: local, slurm, kubernetes
    workers: int = 1  # replicas, the first of which is rank 0
    framework: str | None = None
    cpus: float | None = None  # of each worker, like the next two
    memory: str | int | None = None  # "4Gi", or MiB
    gpus: int | None = None
    timeout: str | float | None = None  # "2h", or seconds
    name: str | None = None
    description: str | None = None
    project: str | None = None
    tags: Sequence[str] = ()
    priority: int = 0
    after: Sequence[str] = ()
    env: Mapping[str, Any] | None = None  # environment variables
    python: str | None = None  # the interpreter of the run; default: this one, where the run can reach it
    folder: Text | None = None  # the working folder; default: the current one
    snapshot: bool = False  # work in a copy of the folder
    max_restarts: int | None = None
    spec: Mapping[str, Any] | Text | None = None  # more of a polyaxonfile: a mapping, or the path of a file


NAMES = tuple(field.name for field in fields(RunOptions))
OF_FILES = ("on", "name", "description", "project", "tags", "priority", "after", "timeout", "folder", "snapshot")


def split(
    function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[RunOptions, dict[str, Any]]:
    """The options among keyword arguments, and those of the function. Raises CallError if a name is both, or
    neither."""
    options = {name: value for name, value in named.items() if name in NAMES}
    own = {name: value for name, value in named.items() if name not in NAMES}
    parameters = _parameters(function)
    settled = function.keywords if isinstance(function, functools.partial) else {}
    both = [name for name in options if name in parameters and name not in settled]
    if both:
        first, title = both[0], _title(function)
        raise CallError(
            f"`{first}` is an option of the run and a parameter of {title}(): pass the parameter with "
            f"functools.partial({title}, {first}=…)"
        )
    check_call(function, args, own)
    return RunOptions(**options), own


def check_call(function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raises CallError if the function cannot be called like that."""
    try:
        inspect.signature(function).bind(*args, **named)
    except TypeError as fault:
        parameters = _parameters(function)
        is_open = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        for name in named if not is_open else ():
            if name not in parameters:
                near = get_close_matches(name, [*parameters, *NAMES], 1)
                hint = f": did you mean `{near[0]}`?" if near else f"; options of the run are {', '.join(NAMES)}"
                raise CallError(
                    f"{_title(function)}() has no parameter `{name}`, and the run no such option{hint}"
                ) from None
        raise CallError(f"{_title(function)}() cannot be called like that: {fault}") from None
    except ValueError:  # built-in functions may have no signature
        pass


def read_options(named: Mapping[str, Any], others: Sequence[str] = ()) -> RunOptions:
    """`others`: further names that the call knows. Raises CallError for a keyword argument that is no option."""
    for name in named:
        if name not in NAMES:
            near = get_close_matches(name, [*others, *NAMES], 1)
            hint = f"did you mean `{near[0]}`?" if near else f"they are {', '.join([*others, *NAMES])}"
            raise CallError(f"`{name}` is no option of the runs: {hint}")
    return RunOptions(**named)


def file_options(named: Mapping[str, Any], params: Mapping[str, Any] | None) -> tuple[RunOptions, dict[str, Any]]:
    """The options and the params of a run of a file. Raises CallError if a param is given twice."""
    options = {name: value for name, value in named.items() if name in OF_FILES}
    own = {name: value for name, value in named.items() if name not in OF_FILES}
    twice = sorted(set(own) & set(params or {}))
    if twice:
        raise CallError(f"the param `{twice[0]}` is given twice: as a keyword, and in `params`")
    return RunOptions(**options), {**own, **(params or {})}


def document(
    options: RunOptions, command: str, size: int | None = None, concurrency: int | None = None
) -> dict[str, Any]:
    """The polyaxonfile of a function's run; of a batch of `size` calls, which `{{ call }}` in the command numbers."""
    if not isinstance(options.workers, int) or options.workers < 1:
        raise CallError(f"workers={options.workers!r}: the number of workers is at least 1")
    wanted = {"cpu": options.cpus, "memory": options.memory, "gpu": options.gpus}
    resources = {name: {"requests": value, "limits": value} for name, value in wanted.items() if value is not None}
    environment: dict[str, Any] = {
        "resources": resources or None,
        "timeout": options.timeout,
        "max_restarts": options.max_restarts,
        "env_vars": {name: str(value) for name, value in (options.env or {}).items()} or None,
    }
    framework = options.framework
    if options.workers > 1:
        framework = framework or "plain"
        others = options.workers - (framework != "mpi")  # MPI has no master
        environment["replicas"] = {
            "n_workers": others,
            "default_worker": {"resources": resources} if resources else None,
        }
    made: dict[str, Any] = {
        "version": 1,
        "kind": "experiment" if size is None else "group",
        "framework": framework,
        "environment": _given(environment) or None,
        "run": {"cmd": command},
    }
    if size is not None:
        made["hptuning"] = {"concurrency": concurrency or size, "matrix": {"call": {"values": list(range(size))}}}
    return _given(made)


def _given(fields_: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _given(value) if isinstance(value, Mapping) else value
        for name, value in fields_.items()
        if value is not None
    }


def working_folder(options: RunOptions) -> Path:
    """Raises CallError."""
    folder = Path(options.folder or ".").expanduser().absolute()
    if not folder.is_dir():
        raise CallError(f"folder={str(options.folder)!r}: there is no such folder")
    return folder


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _title(function: Callable[..., Any]) -> str:
    from phalanx.launch.call_files import name_of

    return name_of(function)
