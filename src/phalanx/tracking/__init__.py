"""The tracking API for training code: `tracking.log(loss=0.5, step=10)`.

Inside a run every replica finds its files by itself. Outside of a run, the first call creates one in the user's home
(or on a server), so that notebooks and plain scripts are tracked too. Training is never hurt: no call raises, waits
or needs the network; lost values are counted and reported. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from phalanx.tracking import external_folder
from phalanx.tracking.checkpoint_signal import on_checkpoint
from phalanx.tracking.recorder import warn
from phalanx.tracking.run import TrackedRun
from phalanx.tracking.values import clean, error_text, guarded
from phalanx.tracking.writer_identity import WriterIdentity, this_writer

__all__ = [
    "TrackedRun", "artifact", "artifacts", "current", "dataset", "describe", "finish", "histogram", "image", "invalid",
    "labels", "log", "model", "on_checkpoint", "params", "progress", "start", "table", "tags", "text",
]  # fmt: skip

_active: TrackedRun | None = None  # the run of this process, which `tracking.log` and the others write to
_guarded = False


def start(  # noqa: PLR0913,PLR0917 - all that can be said of a run
    name: str | None = None,
    project: str | None = None,
    params: Any = None,
    tags: Iterable[str] = (),
    description: str | None = None,
    server: str | None = None,
) -> TrackedRun:
    """The run that this process belongs to; outside of one, a new run, active until `finish`, the next `start` or
    the end of the process. With `server` (or PHALANX_SERVER) it is stored there. Called again without arguments, it
    returns the active run. Never raises."""
    global _active  # noqa: PLW0603 - one run at a time, as in every tool of this kind
    said = {"name": _text(name), "project": _text(project), "description": _text(description), "server": _text(server)}
    words = _words(tags)
    _active = _found(said, words, is_other=params is not None or bool(words) or any(said.values()))
    if params is not None:
        _active.params(params)
    _guard()
    return _active


def _found(said: Mapping[str, str | None], words: tuple[str, ...], *, is_other: bool) -> TrackedRun:
    writer = this_writer()
    inside = writer.folder if writer is not None else None
    is_off = os.environ.get("PHALANX_TRACKING", "").lower() in ("off", "0", "false", "no")
    run = _active if _active is not None and not _active.is_finished else None
    if run is not None and run.is_child:
        inside = run.folder  # even if the environment changed
    elif run is not None and not run.is_managed and inside in (None, run.folder):
        if not is_other and not is_off:
            return run
        run.finish()
        run, writer = None, this_writer()
        inside = writer.folder if writer is not None else None
    if is_off:
        return nowhere()
    if not inside:
        return _outside(said, words)
    if run is None or run.folder != inside:
        run = _inside(
            writer if writer is not None and writer.folder == inside else WriterIdentity(inside, 0, has_agent=True)
        )
    if said["name"] or said["description"]:
        run.describe(name=said["name"], description=said["description"])
    if words:
        run.tags(*words)
    return run


def _text(value: Any) -> str | None:
    """A name given by the user, as text."""
    with guarded(lambda fault: warn(f"a {type(value).__name__} cannot be used as text: {error_text(fault)}")):
        return None if value is None else clean(str(value)) or None
    return None


def _words(tags: Any) -> tuple[str, ...]:
    with guarded(lambda fault: warn(f"the tags could not be recorded: {error_text(fault)}")):
        return tuple(map(clean, external_folder.parse_tags(tags)))
    return ()


def _inside(writer: WriterIdentity) -> TrackedRun:
    environment = os.environ
    run = TrackedRun(
        environment.get("PHALANX_RUN_ID", ""),
        environment.get("PHALANX_PROJECT", ""),
        writer.folder,
        environment.get("PHALANX_OUTPUTS", ""),
        writer.rank,
        is_managed=True,
        has_agent=writer.has_agent,
    )
    if writer.folder != environment.get("PHALANX_TRACK"):  # the folder may not exist yet
        try:
            external_folder.make_private(writer.folder)
        except OSError:
            pass  # the first write reports it
        run.write_header()
    return run


def _outside(said: Mapping[str, str | None], words: tuple[str, ...]) -> TrackedRun:
    from phalanx.tracking.external import begin

    with guarded(lambda fault: warn(f"this run is not tracked: {error_text(fault)}")):
        return begin(said["name"], said["project"], words, said["description"], said["server"])
    return nowhere()


def nowhere() -> TrackedRun:
    """A run that records nothing."""
    run = TrackedRun("", "", "", os.environ.get("PHALANX_OUTPUTS", "outputs"), 0, is_managed=True)
    run.is_nowhere = True
    return run


def joined(about: tuple[Any, ...], has_agent: bool, is_nowhere: bool) -> TrackedRun:
    """This process's part of a run that another process pickled."""
    global _active  # noqa: PLW0603 - see `start`
    run = _active if _active is not None and not _active.is_finished else None
    if run is None or run.folder != about[2]:
        run = TrackedRun(*about, is_managed=True, has_agent=has_agent)
        run.is_nowhere = is_nowhere
        _active = _active or run
        _guard()
    return run


def current() -> TrackedRun | None:
    """The run started in this process, or None."""
    return _active


def log(metrics: Mapping[str, Any] | None = None, /, step: int | None = None, **values: Any) -> None:
    """Record the values of metrics at a training step."""
    (_active or start()).log(metrics, step, **values)


def _forward(name: str) -> Callable[..., None]:
    method = getattr(TrackedRun, name)

    def forward(*args: Any, **named: Any) -> None:
        getattr(_active or start(), name)(*args, **named)

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
histogram = _forward("histogram")
table = _forward("table")


def finish(status: str = "succeeded", reason: str = "") -> None:
    """Finish the run; a later call starts a new one."""
    global _active  # noqa: PLW0603 - see `start`
    if _active is not None:
        _active.finish(status, reason)
        _active = None


def _guard() -> None:
    """Register the exit and fork hooks, once."""
    global _guarded  # noqa: PLW0603 - see `start`
    if not _guarded:
        _guarded = True
        atexit.register(_at_exit)
        os.register_at_fork(after_in_child=_after_fork)


def _at_exit() -> None:
    if _active is not None:
        _active.finish_at_exit()


def _after_fork() -> None:
    if _active is not None:
        _active.after_fork()
