"""The run object of the tracking API: everything that can be recorded. Standard library only, Python 3.8+."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from phalanx import run_paths
from phalanx.ends import cause_of
from phalanx.tracking import external_folder, saved_files
from phalanx.tracking import values as conversion
from phalanx.tracking.recorder import Recorder, warn
from phalanx.tracking.values import NotANumber, error_text, guarded, named_fault, short_name

PROGRESS_S = 1.0  # at most one line of progress in this time
MOST_PARAMS = 20_000  # in one call
MOST_PARAMS_SIZE = 8 << 20  # characters
MOST_ROWS = 100_000
LARGEST_TABLE = 12 << 20
DESCRIBED = ("name", "description", "framework", "commit")


class TrackedRun(Recorder):
    """See `phalanx.tracking.start`. `log` and its helpers are in the recorder."""

    def params(self, given: Any = None, /, **values: Any) -> None:
        """Record params: numbers, strings, lists; nested mappings become `a.b`. Also `params(args)`."""
        self.note("params", lambda: {"values": self._fitting({**conversion.params_of(given), **values})})

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
            return {"add": [conversion.clean(word) for tag in listed for word in external_folder.parse_tags(str(tag))]}

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
        self.note("describe", lambda: {name: conversion.short_text(str(value)) for name, value in described.items()})

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

    def text(self, name: str, text: Any, step: int | None = None) -> None:
        self.note("text", lambda: {**self._about(name, step), "text": conversion.short_text(str(text))})

    def _about(self, name: Any, step: Any) -> dict[str, Any]:
        return {"name": short_name(conversion.clean(str(name))), "step": self._step(step)}

    def image(self, name: str, image: Any, step: int | None = None, caption: str | None = None) -> None:
        """Record an image: the path of a file, or an object that can `save` itself as PNG."""

        def note() -> dict[str, Any]:
            is_path = isinstance(image, (str, os.PathLike))
            ending = os.path.splitext(os.fsdecode(image))[1].lower()[:10] if is_path else ".png"
            # A pid may have been used before in this folder.
            stamp = f"{os.getpid()}-{int(self._started_at * 1000):x}-{next(self._copies)}"
            inside = f"media/{stamp}{ending if ending[1:].isalnum() else ''}"
            target = os.path.join(self.folder, inside)
            if is_path:
                saved_files.copy_file(os.fsdecode(image), target)
            else:
                saved_files.save_file(image.save, target, ".png")
            words = None if caption is None else conversion.short_text(str(caption))
            return {**self._about(name, step), "path": inside, "caption": words}

        self.note("image", note)

    def histogram(
        self,
        name: str,
        values: Any = None,
        step: int | None = None,
        edges: Iterable[float] | None = None,
        counts: Iterable[int] | None = None,
    ) -> None:
        """Record the distribution of values; or given edges and counts."""

        def note() -> dict[str, Any]:
            if edges is not None and counts is not None:
                bounds, many, odd = conversion.numbers_of(edges), [int(n) for n in conversion.numbers_of(counts)], 0
                if len(bounds) != len(many) + 1:
                    raise NotANumber(f"{len(many)} counts need {len(many) + 1} edges, not {len(bounds)}")
            else:
                bounds, many, odd = conversion.histogram(values)
            return {**self._about(name, step), "edges": bounds, "counts": many, "odd": odd}

        self.note("histogram", note)

    def table(self, name: str, columns: Sequence[Any], rows: Iterable[Sequence[Any]], step: int | None = None) -> None:
        def note() -> dict[str, Any]:
            listed = [list(row) for row in conversion.some_of(rows, MOST_ROWS)]
            return {
                **self._about(name, step),
                "columns": [conversion.short_text(str(column)) for column in columns],
                "rows": conversion.as_json(listed, LARGEST_TABLE),
            }

        self.note("table", note)

    def _copy(self, below: str, source: str, name: str) -> saved_files.CopiedFile:
        run_folder = os.path.dirname(os.path.dirname(os.path.dirname(self.folder)))
        return saved_files.copy_into(run_folder, below, source, name)

    def finish(self, status: str = "succeeded", reason: str = "") -> None:
        """Finish. Inside of a run started by Phalanx this ends the tracking, not the run."""
        if self.is_finished or self.is_nowhere:
            return
        status, reason = _text(status).lower(), _text(reason)
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

    def finish_after(self, fault: BaseException | None) -> None:
        """Finish after an exception, or after None for success."""
        self.finish(*ending(fault))

    def finish_at_exit(self) -> None:
        """Finish at the end of this process. The end of a managed run is detected elsewhere."""
        self.finish()

    def __enter__(self) -> TrackedRun:
        return self

    def __exit__(self, _: Any, fault: Any, __: Any) -> None:
        self.finish_after(fault)


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
