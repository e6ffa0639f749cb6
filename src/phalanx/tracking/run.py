"""The run object of the tracking API: everything that can be recorded. Standard library only, Python 3.8+."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any

from phalanx import run_paths
from phalanx.ends import cause_of
from phalanx.tracking import external_folder, saved_files
from phalanx.tracking import values as conversion
from phalanx.tracking.environment_marks import MARKS
from phalanx.tracking.media import Media
from phalanx.tracking.notices import plain_name, warn
from phalanx.tracking.run_config import RunConfig, RunSummary, launch_name, launch_params
from phalanx.tracking.values import error_text, guarded, named_fault, short_name

PROGRESS_S = 1.0  # at most one line of progress in this time
MOST_PARAMS = 20_000  # in one call
MOST_PARAMS_SIZE = 8 << 20  # characters
LEVELS = ("INFO", "WARN", "ERROR")
DESCRIBED = ("name", "description", "framework", "commit")


HERE: ContextVar[TrackedRun | None] = ContextVar("phalanx_run", default=None)  # see `current_run`


class TrackedRun(Media):
    """See `phalanx.tracking.start`. `log` and its helpers are in the recorder, images, texts and tables in `Media`."""

    resumed = False  # continues a run that was there before

    def __init__(self, *about: Any, **options: Any) -> None:
        super().__init__(*about, **options)
        self.parent: TrackedRun | None = None  # the run that this one was started in
        self.starter: tuple[int, Any] = (0, None)  # the thread and task that started it
        self.is_entered = False  # the caller is in its `with` block
        self.is_called = False  # it is the run of a call of a tracked function
        self._name: str | None = None
        self._params: dict[Any, Any] = {}  # as they were given
        self._config: RunConfig | None = None
        self._summary: RunSummary | None = None
        self._around: TrackedRun | None = None  # the run of the context of its `with` block
        self._alerted: dict[str, float] = {}  # when each alert may be repeated

    @property
    def name(self) -> str:
        """The name that was given; otherwise the id."""
        if self._name is None and self._is_launched:
            self._name = launch_name(self.run_folder)
        return self._name or self.id

    @name.setter
    def name(self, name: Any) -> None:
        self.describe(name=name)

    @property
    def _is_launched(self) -> bool:
        """Whether Phalanx started it, so that it has a file."""
        return self.is_managed and "PHALANX_OUTSIDE" not in MARKS.environment()

    def set_name(self, name: str | None) -> None:
        """For a name that is recorded already."""
        self._name = name

    @property
    def url(self) -> str | None:
        """The page of the run, if it is stored on a server, or one runs over its home."""
        if not self.id:
            return None
        server = os.environ.get("PHALANX_SERVER") if self.is_managed else None
        server = server or external_folder.server_of(self.run_folder)
        return f"{server.rstrip('/')}/runs/{self.id}" if server else None

    @property
    def config(self) -> RunConfig:
        """The params, also those of the run's file: `run.config.lr`, `run.config["lr"] = 0.1`. Reading one that does
        not exist raises, as for a dict; writing never does."""
        if self._config is None:
            launched = launch_params() if self._is_launched else {}
            self._params = {**launched, **self._params}
            self._config = RunConfig(self.params, self._params)
        return self._config

    @property
    def summary(self) -> RunSummary:
        """Final values: `run.summary["best"] = 0.93`. Reading gives those, or the last value that was logged."""
        if self._summary is None:
            self._summary = RunSummary(self)
        return self._summary

    def params(self, given: Any = None, /, **values: Any) -> None:
        """Record params: numbers, strings, lists; nested mappings become `a.b`. Also `params(args)`."""
        with guarded(partial(self.lost, "params")):
            merged = {**conversion.params_of(given), **values}
            self._params.update(merged)
            self.note("params", lambda: {"values": self._fitting(merged)})

    def _fitting(self, params: Mapping[Any, Any]) -> dict[str, Any]:
        """The params that can be recorded, up to the limits."""
        kept: dict[str, Any] = {}
        spent = 0
        for place, (name, value) in enumerate(conversion.flat(params, ".")):
            work = conversion.Conversion()
            with guarded(lambda fault: self._drop(f"param {name[:100]}: {error_text(fault)}")):  # noqa: B023 - called at once
                kept[short_name(conversion.clean(name))] = work.of(value)
            spent += len(name) + work.most - work.left
            if place >= MOST_PARAMS or spent > MOST_PARAMS_SIZE:
                self._drop(f"more than {MOST_PARAMS:,} params or {MOST_PARAMS_SIZE >> 20} MiB in one call")
                break
        return kept

    def tags(self, *tags: Any) -> None:
        def note() -> dict[str, Any]:
            listed = [tag for given in tags for tag in (given if isinstance(given, (list, tuple, set)) else [given])]
            words = [word for tag in listed for word in external_folder.parse_tags(str(tag))]
            return {"add": [plain_name(conversion.clean(word)) for word in words]}

        self.note("tags", note)

    def labels(self, given: Mapping[str, Any] | None = None, /, **values: Any) -> None:
        """Set labels: a string for each name; None removes one."""

        def note() -> dict[str, Any]:
            merged = {**(given or {}), **values}
            texts = {key: None if text is None else conversion.short_text(str(text)) for key, text in merged.items()}
            return {"values": {short_name(conversion.clean(str(key))): text for key, text in texts.items()}}

        self.note("labels", note)

    def describe(self, /, **values: Any) -> None:
        """Set the name, description, framework or commit of the run."""
        for name in sorted(set(values) - set(DESCRIBED)):
            self._drop(f"describe: unknown field `{name[:100]}`; known are {', '.join(DESCRIBED)}")
        described = {name: value for name, value in values.items() if name in DESCRIBED and value is not None}

        def note() -> dict[str, Any]:
            texts = {name: conversion.short_text(str(value)) for name, value in described.items()}
            if "name" in texts:
                texts["name"] = self._name = plain_name(texts["name"])
            return texts

        if described:
            self.note("describe", note)

    def progress(self, done: float, total: float | None = None, label: str | None = None) -> None:
        """Report the progress of the training, from which the remaining time is estimated."""

        def note() -> dict[str, Any]:
            whole = None if total is None else conversion.number(total)
            return {
                "done": conversion.number(done),
                "total": whole or None,
                "label": None if label is None else conversion.short_text(str(label)),
            }

        is_last = type(done) in (int, float) and type(total) in (int, float) and done == total
        if is_last or time.time() - self._progress_at >= PROGRESS_S:
            self._progress_at = time.time()
            self.note("progress", note)

    def invalid(self, why: Any = "") -> None:
        """Say that the params cannot work together. A search then leaves this point out and tries another one. It does
        not end the program: exit afterwards."""
        self.note("invalid", lambda: {"why": conversion.short_text(str(why))})

    def artifact(self, path: Any, name: str | None = None, type: str = "file") -> None:  # noqa: A002 - people's word for it
        """Keep a copy of a file, or of a folder."""

        def note() -> dict[str, Any]:
            source = os.fsdecode(path)
            copied = self._copy(run_paths.ARTIFACTS, source, name or os.path.basename(os.path.abspath(source)))
            return {
                "path": copied.path,
                "name": name or os.path.basename(copied.path),
                "type": str(type),
                "size": copied.size,
            }

        self.note("artifact", note)

    def artifacts(self, folder: Any, name: str | None = None) -> None:
        """Keep a copy of every file of a folder."""
        if self.is_nowhere:
            return
        with guarded(lambda fault: self._drop(f"artifacts: {error_text(fault)}")):
            base = os.fsdecode(folder)
            for entry in sorted(os.listdir(base)):
                self.artifact(os.path.join(base, entry), f"{name}/{entry}" if name else entry)

    def model(
        self,
        path: Any,
        name: str = "model",
        metrics: Mapping[str, Any] | None = None,
        description: str = "",
        labels: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep a copy of a model's file or folder, as the next version of that name in the model registry."""

        def note() -> dict[str, Any]:
            source = os.fsdecode(path)
            # Replicas may be in containers, where all have the same pids.
            stamp = f"{int(time.time())}-{self.rank}-{os.getpid()}-{next(self._copies)}"
            inside = "" if os.path.isdir(source) else "/" + os.path.basename(source)
            copied = self._copy(
                run_paths.MODELS, source, f"{saved_files.safe_name(str(name).replace('/', '_'))}/{stamp}{inside}"
            )
            return {
                "name": short_name(conversion.clean(str(name))),
                "path": copied.path,
                "size": copied.size,
                "files": copied.files,
                "metrics": conversion.numbers(metrics, lambda why: self._drop(f"model: {why}")),
                "description": conversion.short_text(str(description)),
                "labels": {str(key): conversion.short_text(str(value)) for key, value in (labels or {}).items()},
            }

        self.note("model", note)

    def dataset(
        self, /, name: str, path: Any = None, uri: str | None = None, digest: str | None = None, **info: Any
    ) -> None:
        """Record what the training read, for the lineage of its models. Nothing is copied."""

        def note() -> dict[str, Any]:
            place = None if path is None else os.path.abspath(os.fsdecode(path))
            source = {"uri": uri, "path": place, "digest": digest}
            texts = {key: None if value is None else conversion.short_text(str(value)) for key, value in source.items()}
            return {"name": short_name(conversion.clean(str(name))), **texts, "info": conversion.as_json(info)}

        self.note("dataset", note)

    def alert(self, title: Any, text: Any = "", level: Any = "INFO", wait_duration: Any = 60, **others: Any) -> None:
        """Record something that a person should see: `phalanx events`, `phalanx show` and the page show it. One with
        the same title is recorded again only after `wait_duration` seconds. Levels are INFO, WARN and ERROR."""

        def note() -> dict[str, Any]:
            self._ignore("alert", others, ("title", "text", "level", "wait_duration"))
            word = str(getattr(level, "value", level)).upper()
            words = {"title": short_name(conversion.clean(str(title))), "text": conversion.short_text(str(text))}
            return {**words, "level": word if word in LEVELS else "WARN" if word == "WARNING" else "INFO"}

        with guarded(partial(self.lost, "alert")):
            key, now = str(title), time.monotonic()
            wait_s = float(getattr(wait_duration, "total_seconds", lambda: wait_duration)())
            if key in self._alerted and now < self._alerted[key]:
                return
            self._alerted[key] = now + wait_s
            self.note("alert", note)

    def _copy(self, below: str, source: str, name: str) -> saved_files.CopiedFile:
        return saved_files.copy_into(self.run_folder, below, source, name)

    def finish(self, status: str = "succeeded", reason: str = "", *, exit_code: Any = None, **others: Any) -> None:
        """Finish. Inside of a run started by Phalanx this ends the tracking, not the run. With an `exit_code` other
        than 0 it failed."""
        self._ignore("finish", others, ("status", "reason", "exit_code"))
        if self.is_finished or self.is_nowhere:
            self.is_finished = True
            return
        status, reason = _text(status).lower(), _text(reason)
        if exit_code is not None and _text(exit_code) != "0":
            status, reason = "failed", reason or f"exit code {_text(exit_code)}"
        missing = self._heartbeat.finish() if self._heartbeat is not None else 0
        if missing:
            self._drop("values that were not computed in time", missing)
        self._look_for_files()
        if self.dropped:
            warn(f"{sum(self.dropped.values())} values could not be recorded ({'; '.join(list(self.dropped)[:3])})")
            self.note("dropped", lambda: {"count": sum(self.dropped.values()), "why": dict(self.dropped)})
        is_ours = not self.is_managed and not self.is_child
        if is_ours:
            self.note("finish", lambda: {"status": status, "reason": reason})
        self.is_finished = True
        self._close()
        if is_ours:
            self._end(status, reason)

    def _end(self, status: str, reason: str) -> None:
        cause = cause_of(status)
        word = str(cause) if status in ("succeeded", "stopped", "failed") else f"it ended as `{status[:100]}`"
        try:
            external_folder.write_end(self.folder, cause, reason or word, self._started_at)
        except OSError as fault:
            warn(f"the end of the run could not be recorded: {error_text(fault)}")

    def after_fork(self) -> None:
        super().after_fork()
        self.is_entered = False

    def finish_after(self, fault: BaseException | None) -> None:
        """Finish after an exception, or after None for success."""
        self.finish(*ending(fault))

    def finish_at_exit(self) -> None:
        """Finish at the end of this process. The end of a managed run is detected elsewhere."""
        self.finish()

    def __enter__(self) -> TrackedRun:
        """Inside the block, calls of the module belong to this run, and new runs are its children."""
        self._around = HERE.get()
        HERE.set(self)
        self.is_entered = True
        return self

    def __exit__(self, _: Any, fault: Any, __: Any) -> None:
        self.is_entered = False
        self.finish_after(fault)
        if self._around is not self:
            HERE.set(self._around)


def ending(fault: BaseException | None) -> tuple[str, str]:
    """Status and reason for an exception, or for None."""
    if fault is None:
        return "succeeded", ""
    if not isinstance(fault, SystemExit):
        return "stopped" if isinstance(fault, KeyboardInterrupt) else "failed", named_fault(fault)
    code = fault.code
    if code is None or (isinstance(code, int) and code == 0):
        return "succeeded", ""
    return "failed", f"exit code {int(code)}" if isinstance(code, int) else _text(code)


def _text(value: Any) -> str:
    return str(conversion.result_of(lambda: conversion.clean(str(value))[:400], type(value).__name__))
