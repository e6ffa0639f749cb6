"""The functions of `phalanx.tracking`, on the run of this process."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Mapping
from typing import Any, Callable, TypeVar, overload  # noqa: UP035 - Python 3.8

from phalanx.tracking import external_folder
from phalanx.tracking.checkpoint_signal import on_checkpoint
from phalanx.tracking.current_run import ProcessRuns
from phalanx.tracking.environment_marks import MARKS
from phalanx.tracking.notices import warn
from phalanx.tracking.run import HERE, TrackedRun
from phalanx.tracking.run_request import RunRequest
from phalanx.tracking.values import error_text, guarded
from phalanx.tracking.writer_identity import WriterIdentity, this_writer

__all__ = [
    "TrackedRun", "alert", "artifact", "artifacts", "audio", "current", "dataset", "describe", "figure", "finish",
    "histogram", "image", "invalid", "labels", "log", "log_image", "model", "on_checkpoint", "params", "points",
    "progress", "start", "table", "tags", "text", "track", "video",
]  # fmt: skip

Function = TypeVar("Function", bound=Callable[..., Any])

_runs = ProcessRuns()
_guarded = False


def start(  # noqa: PLR0913,PLR0917 - all that can be said of a run
    name: str | None = None,
    project: str | None = None,
    params: Any = None,
    tags: Iterable[str] = (),
    description: str | None = None,
    server: str | None = None,
    *,
    id: str | None = None,  # noqa: A002 - people's word for it
    resume: Any = None,
    group: str | None = None,
    config: Any = None,
    notes: str | None = None,
    nested: bool = False,
    **others: Any,
) -> TrackedRun:
    """The run that this process belongs to; outside of one, a new run, active until `finish`, the next `start` or
    the end of the process. With `server` (or PHALANX_SERVER) it is stored there. Called again without arguments, it
    returns the active run. Threads and asyncio tasks that call it with arguments have separate runs.

    `id` continues the run with that id, if there is one, as its next attempt; `resume` is `allow`, `must` or `never`.
    `config` is another word for `params`, `notes` for `description`. With `nested`, or inside the `with` block of
    another run, the new run is a child of that run. Never raises; unknown arguments are noted."""
    given = {"name": name, "project": project, "params": params, "tags": tags, "description": description}
    given.update({"server": server, "id": id, "resume": resume, "group": group, "config": config, "notes": notes})
    wanted = RunRequest.read({**given, "nested": nested}, others)
    _guard()
    run = _found(wanted)
    for values in wanted.params or ():
        run.config.update(values)
    return run


def _found(wanted: RunRequest) -> TrackedRun:
    run = _runs.current()
    if run is not None and run.is_nowhere and not run.is_finished and not wanted.is_other:
        return run  # with its config
    if os.environ.get("PHALANX_TRACKING", "").lower() in ("off", "0", "false", "no"):
        return _added(nowhere(), is_shared=False)
    same = wanted.id and next((run for run in _runs.unfinished if run.id == wanted.id and not run.is_finished), None)
    if same:
        return _described(same, wanted)
    writer = this_writer(MARKS.environment())
    if run is not None and not run.is_finished and not run.is_nowhere:
        if wanted.is_nested or (wanted.is_other and run.is_entered and _runs.is_here(run)):
            return _outside(wanted, run)
        if run.is_child or (not wanted.is_other and _is_part(run, writer)):
            return _described(run, wanted)
        if not run.is_managed and _runs.is_ours(run):
            run.finish()
    if writer is None:
        return _outside(wanted)
    launched = _inside(writer)
    return _outside(wanted, launched) if wanted.is_nested else _described(launched, wanted)


def _is_part(run: TrackedRun, writer: WriterIdentity | None) -> bool:
    """Whether the run is the one that the environment names, or one of our own."""
    return not run.is_managed or writer is None or writer.folder == run.folder


def _described(run: TrackedRun, wanted: RunRequest) -> TrackedRun:
    """A run that is there already, with what `start` says of it."""
    if wanted.name or wanted.description:
        run.describe(name=wanted.name, description=wanted.description)
    if wanted.tags:
        run.tags(*wanted.tags)
    if wanted.group:
        run.labels(group=wanted.group)
    return run


def _added(run: TrackedRun, *, is_shared: bool) -> TrackedRun:
    if _runs.add(run, is_shared=is_shared):
        run.mark_environment()
    return run


def _inside(writer: WriterIdentity) -> TrackedRun:
    """The run that this process is a part of. All threads share it."""
    environment = MARKS.environment()
    is_joined = "PHALANX_OUTSIDE" in environment  # another tracked process started this one
    with _runs.lock:
        for known in _runs.unfinished:
            if known.folder == writer.folder and known.is_managed and not known.is_finished:
                HERE.set(known)
                return known
        run = TrackedRun(
            external_folder.run_id_of(writer.folder) if is_joined else environment.get("PHALANX_RUN_ID", ""),
            environment.get("PHALANX_PROJECT", ""),
            writer.folder,
            environment.get("PHALANX_OUTPUTS", ""),
            writer.rank,
            is_managed=True,
            has_agent=writer.has_agent,
        )
        _added(run, is_shared=True)
    if writer.folder != environment.get("PHALANX_TRACK"):  # the folder may not exist yet
        try:
            external_folder.make_private(writer.folder)
        except OSError:
            pass  # the first write reports it
        run.write_header()
    return run


def _outside(wanted: RunRequest, parent: TrackedRun | None = None, *, is_shared: bool = False) -> TrackedRun:
    from phalanx.tracking.external import begin

    with guarded(lambda fault: warn(f"this run is not tracked: {error_text(fault)}")):
        return _added(begin(wanted, parent), is_shared=is_shared)
    run = nowhere()
    run.parent = parent
    return _added(run, is_shared=is_shared)


def nowhere() -> TrackedRun:
    """A run that records nothing."""
    run = TrackedRun("", "", "", os.environ.get("PHALANX_OUTPUTS", "outputs"), 0, is_managed=True)
    run.is_nowhere = True
    return run


def joined(about: tuple[Any, ...], has_agent: bool, is_nowhere: bool) -> TrackedRun:
    """This process's part of a run that another process pickled."""
    for known in _runs.unfinished:
        if known.folder == about[2] and not known.is_finished:
            return known
    run = TrackedRun(*about, is_managed=True, has_agent=has_agent)
    run.is_nowhere = is_nowhere
    _guard()
    if _runs.current() is None:
        _runs.add(run, is_shared=True)
    else:
        _runs.unfinished.append(run)
    return run


def current() -> TrackedRun | None:
    """The run of this thread or task, or else of this process; None if there is none."""
    return _runs.current()


def log(metrics: Mapping[str, Any] | None = None, /, step: int | None = None, **values: Any) -> None:
    """Record the values of metrics at a training step."""
    run = HERE.get()
    if run is None or run.is_finished:
        run = _current()
    run.log(metrics, step, **values)


def _current() -> TrackedRun:
    """The run that a call without one belongs to. If there is none, it is started for the whole process."""
    run = _runs.current()
    if run is not None:
        return run
    _guard()
    with _runs.lock:
        run = _runs.current()
        if run is not None:
            return run
        if this_writer(MARKS.environment()) is not None or os.environ.get("PHALANX_TRACKING"):
            return start()
        return _outside(RunRequest(), is_shared=True)


def _forward(name: str) -> Callable[..., None]:
    method = getattr(TrackedRun, name)

    def forward(*args: Any, **named: Any) -> None:
        getattr(_current(), name)(*args, **named)

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = method.__doc__
    forward.__wrapped__ = method  # type: ignore[attr-defined] # so that help() shows its arguments
    return forward


params = _forward("params")
tags = _forward("tags")
labels = _forward("labels")
describe = _forward("describe")
progress = _forward("progress")
invalid = _forward("invalid")
artifact = _forward("artifact")
artifacts = _forward("artifacts")
model = _forward("model")
dataset = _forward("dataset")
text = _forward("text")
image = _forward("image")
log_image = image
figure = _forward("figure")
audio = _forward("audio")
video = _forward("video")
histogram = _forward("histogram")
table = _forward("table")
points = _forward("points")
alert = _forward("alert")


def finish(status: str = "succeeded", reason: str = "", **others: Any) -> None:
    """Finish the run; a later call starts a new one."""
    run = _runs.current()
    if run is not None:
        run.finish(status, reason, **others)
        _runs.forget(run)


@overload
def track(function: Function, /) -> Function: ...
@overload
def track(**about: Any) -> Callable[[Function], Function]: ...
def track(function: Any = None, /, **about: Any) -> Any:
    """Decorate a function so that each call is a run: `@tracking.track` or `@tracking.track(project="vision")`, with
    the arguments of `start`. Its arguments are the params, and a dict of numbers that it returns is logged. After an
    exception, which is passed on, the run has failed. Inside of another run, each call is a child of that run."""
    from phalanx.tracking.tracked_function import tracked

    def decorate(function: Any) -> Any:
        return tracked(function, lambda name: _run_of_call({"name": name, **about}))

    return decorate if function is None else decorate(function)


def _run_of_call(about: dict[str, Any]) -> tuple[TrackedRun, bool]:
    """The run of a call of a tracked function, and whether it ends with the call. In a run that Phalanx started, the
    first call is that run; later ones, and calls inside of others, are its children."""
    around = _runs.current()
    if around is None or around.is_finished:
        around = None if this_writer(MARKS.environment()) is None else start()
    if around is None or not around.is_managed or around.is_called:
        return start(**{**about, "nested": around is not None}), True
    around.is_called = True
    del about["name"]
    return start(**{**about, "nested": False}), False


def _guard() -> None:
    """Register the exit and fork hooks, once."""
    global _guarded  # noqa: PLW0603 - as the hooks, once per process
    if not _guarded:
        _guarded = True
        atexit.register(_at_exit)
        os.register_at_fork(after_in_child=_after_fork)


def _at_exit() -> None:
    for run in reversed(_runs.unfinished):  # children first
        run.finish_at_exit()


def _after_fork() -> None:
    MARKS.after_fork()
    _runs.after_fork()
