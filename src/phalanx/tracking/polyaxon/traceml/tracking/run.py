"""`Run` of Polyaxon 1.x and 2.x: its calls, recorded by `phalanx.tracking`.

What has no place in a run (clients, connections, the upload of offline runs) is skipped, and said once.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from phalanx import tracking
from phalanx.tracking.notices import warn
from phalanx.tracking.values import guarded, named_fault

_said: set[str] = set()  # by this process


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        warn(text)


def _safe(method: Callable[..., Any]) -> Callable[..., Any]:
    """A call that never raises, and does nothing with POLYAXON_NO_OP."""

    @functools.wraps(method)
    def checked(*args: Any, **named: Any) -> Any:
        if os.environ.get("POLYAXON_NO_OP", "").lower() in ("1", "true"):
            return None
        with guarded(lambda fault: _say_once(f"{method.__name__} was skipped: {named_fault(fault)}")):
            return method(*args, **named)
        return None

    return checked


class _Figure:
    """A figure of matplotlib, as an image that saves itself."""

    def __init__(self, figure: Any) -> None:
        self.figure = figure if hasattr(figure, "savefig") else figure.gcf()

    def save(self, path: Any, *_: Any, **__: Any) -> None:
        self.figure.savefig(path)


class Run:
    """The run that this process belongs to; outside of one, a new run."""

    def __init__(
        self,
        owner: str | None = None,
        project: str | None = None,
        run_uuid: str | None = None,
        client: Any = None,
        *_: Any,
        name: str | None = None,
        description: str | None = None,
        tags: Any = None,
        **__: Any,
    ) -> None:
        self.owner, self.project, self.client = owner, project, client
        self.run = tracking.start()
        self.run_uuid = run_uuid or self.run.id
        if name or description:
            self.run.describe(name=name, description=description)
        if tags:
            self.log_tags(tags)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def skipped(*_: Any, **__: Any) -> None:
            _say_once(f"`{name}` of Polyaxon's tracking has no meaning in Phalanx: skipped")

        return skipped

    # values ------------------------------------------------------------------------------------------------------

    @_safe
    def log_metric(self, name: str, value: Any, step: int | None = None, timestamp: Any = None) -> None:  # noqa: ARG002
        self.run.log({name: value}, step)

    @_safe
    def log_metrics(self, step: int | None = None, timestamp: Any = None, **metrics: Any) -> None:  # noqa: ARG002
        self.run.log(metrics, step)

    @_safe
    def log_inputs(self, reset: bool = False, async_req: bool = True, **inputs: Any) -> None:  # noqa: ARG002
        self.run.params(inputs)

    @_safe
    def log_outputs(self, reset: bool = False, async_req: bool = True, **outputs: Any) -> None:  # noqa: ARG002
        """Numbers become metrics, so that runs are compared by them; everything else becomes labels."""
        is_number = {name: type(value) in (int, float) or hasattr(value, "item") for name, value in outputs.items()}
        numbers = {name: value for name, value in outputs.items() if is_number[name]}
        if numbers:
            self.run.log(numbers)
        if len(numbers) < len(outputs):
            self.run.labels({name: value for name, value in outputs.items() if not is_number[name]})

    @_safe
    def log_meta(self, reset: bool = False, async_req: bool = True, **meta: Any) -> None:  # noqa: ARG002
        self.run.labels(meta)

    @_safe
    def log_tags(self, tags: Any, reset: bool = False, async_req: bool = True) -> None:  # noqa: ARG002
        self.run.tags(*([tags] if isinstance(tags, str) else tags))

    @_safe
    def log_progress(self, value: float) -> None:
        self.run.progress(value, 1.0)

    @_safe
    def log_text(self, name: str, text: str, step: int | None = None, timestamp: Any = None) -> None:  # noqa: ARG002
        self.run.text(name, text, step)

    log_html = log_text

    # files -------------------------------------------------------------------------------------------------------

    @_safe
    def log_artifact(self, path: Any, name: str | None = None, kind: Any = None, *_: Any, **__: Any) -> None:
        """Keep a copy of a file or a folder."""
        self.run.artifact(path, name, str(getattr(kind, "value", kind) or "file"))

    @_safe
    def log_model(self, path: Any, name: str | None = None, framework: str | None = None, *_: Any, **__: Any) -> None:
        """Keep a copy of a model's file or folder, as the next version of that name in the registry."""
        stem = os.path.splitext(os.path.basename(os.path.abspath(os.fsdecode(path))))[0]
        self.run.model(path, name or stem, labels={"framework": framework} if framework else None)

    @_safe
    def log_data_ref(
        self,
        name: str,
        hash: Any = None,  # noqa: A002 - Polyaxon's word for it
        path: Any = None,
        content: Any = None,
        summary: Mapping[str, Any] | None = None,
        *_: Any,
        **__: Any,
    ) -> None:
        uri = path if isinstance(path, str) and "://" in path else None
        digest = hash if hash is not None else content
        about = {"digest": None if digest is None else str(digest), **dict(summary or {})}
        self.run.dataset(name, path=None if uri else path, uri=uri, **about)

    @_safe
    def log_file_ref(self, path: Any, name: str | None = None, *_: Any, **__: Any) -> None:
        """Where something is; nothing is copied."""
        self.run.labels({f"ref.{name or os.path.basename(os.fsdecode(path))}": os.fsdecode(path)})

    log_dir_ref = log_model_ref = log_tensorboard_ref = log_file_ref

    @_safe
    def log_artifact_ref(self, path: Any, kind: Any = None, name: str | None = None, *_: Any, **__: Any) -> None:  # noqa: ARG002
        self.log_file_ref(path, name)

    def get_outputs_path(
        self, rel_path: str | None = None, ensure_path: bool = True, is_dir: bool = False, *_: Any, **__: Any
    ) -> str:
        """A path in the outputs of the run; the folder above it, or with `is_dir` itself, is created."""
        path = os.path.join(self.run.outputs, rel_path) if rel_path else self.run.outputs
        if ensure_path:
            with guarded(lambda fault: _say_once(f"{path} could not be created: {named_fault(fault)}")):
                os.makedirs(path if is_dir or not rel_path else os.path.dirname(path), exist_ok=True)
        return path

    def get_artifacts_path(self, rel_path: str | None = None, ensure_path: bool = False, *_: Any, **named: Any) -> str:
        return self.get_outputs_path(rel_path, ensure_path, bool(named.get("is_dir")))

    def get_tensorboard_path(self, rel_path: str = "tensorboard", *_: Any, **__: Any) -> str:
        """Event files there become metrics while they grow."""
        return self.get_outputs_path(rel_path, is_dir=True)

    # pictures and tables -----------------------------------------------------------------------------------------

    @_safe
    def log_image(self, data: Any, name: str | None = None, step: int | None = None, *_: Any, **__: Any) -> None:
        is_path = isinstance(data, (str, os.PathLike))
        self.run.image(name or (os.path.basename(os.fsdecode(data)) if is_path else "image"), data, step)

    @_safe
    def log_mpl_image(self, data: Any, name: str | None = None, close: bool = True, step: Any = None, *_: Any) -> None:  # noqa: ARG002
        self.run.image(name or "figure", _Figure(data), step)

    @_safe
    def log_histogram(self, name: str, values: Any, *_: Any, step: int | None = None, **__: Any) -> None:
        self.run.histogram(name, values, step)

    @_safe
    def log_np_histogram(
        self, name: str, values: Any, counts: Any, step: int | None = None, *_: Any, **__: Any
    ) -> None:
        """`values` are the edges that numpy returns."""
        self.run.histogram(name, step=step, edges=values, counts=counts)

    @_safe
    def log_curve(self, name: str, x: Any, y: Any, annotation: Any = None, step: int | None = None, *_: Any) -> None:
        self._log_columns(name, {"x": x, "y": y}, step)
        if annotation is not None:
            self.run.text(name, str(annotation), step)

    @_safe
    def log_roc_auc_curve(
        self, name: str, fpr: Any, tpr: Any, auc: Any = None, step: int | None = None, *_: Any, **__: Any
    ) -> None:
        self._log_columns(name, {"fpr": fpr, "tpr": tpr}, step)
        if auc is not None:
            self.run.log({f"{name}/auc": auc}, step)

    @_safe
    def log_pr_curve(
        self,
        name: str,
        precision: Any,
        recall: Any,
        average_precision: Any = None,
        step: Any = None,
        *_: Any,
        **__: Any,
    ) -> None:
        self._log_columns(name, {"precision": precision, "recall": recall}, step)
        if average_precision is not None:
            self.run.log({f"{name}/average_precision": average_precision}, step)

    @_safe
    def log_confusion_matrix(
        self, name: str, x: Any, y: Any, z: Any = None, step: int | None = None, *_: Any, **__: Any
    ) -> None:
        """Columns `x`, one row for each of `y`, values `z`."""
        rows = _listed(z) if z is not None else []
        named = [[label, *_listed(row)] for label, row in zip(_listed(y), rows)]  # noqa: B905 - Python 3.8
        self.run.table(name, ["", *_listed(x)], named, step)

    @_safe
    def log_dataframe(self, df: Any, name: str, content_type: Any = None, step: int | None = None, *_: Any) -> None:  # noqa: ARG002
        self.run.table(name, list(df.columns), df.values.tolist(), step)

    def _log_columns(self, name: str, columns: Mapping[str, Any], step: int | None) -> None:
        rows = zip(*map(_listed, columns.values()))  # noqa: B905 - Python 3.8
        self.run.table(name, list(columns), rows, step)

    # the run itself ----------------------------------------------------------------------------------------------

    @_safe
    def set_name(self, name: str, async_req: bool = True) -> None:  # noqa: ARG002
        self.run.describe(name=name)

    @_safe
    def set_description(self, description: str, async_req: bool = True) -> None:  # noqa: ARG002
        self.run.describe(description=description)

    set_readme = set_description

    @_safe
    def log_status(
        self, status: Any, reason: str | None = None, message: str | None = None, *_: Any, **__: Any
    ) -> None:
        said = ": ".join(filter(None, (str(getattr(status, "value", status)), reason, message)))
        self.run.text("status", said)

    @_safe
    def log_succeeded(self, reason: str | None = None, message: str | None = None) -> None:
        self._end("succeeded", message or reason or "")

    @_safe
    def log_failed(self, reason: str | None = None, message: str | None = None) -> None:
        self._end("failed", message or reason or "")

    @_safe
    def log_stopped(self, reason: str | None = None, message: str | None = None) -> None:
        self._end("stopped", message or reason or "")

    def _end(self, status: str, reason: str) -> None:
        """Inside a run only a note: the scheduler determines how it ends."""
        if self.run.is_managed:
            self.log_status(status, reason)
        else:
            self.run.finish(status, reason)

    @_safe
    def end(self) -> None:
        self.run.finish()

    def log_env(self, *_: Any, **__: Any) -> None:
        """Phalanx records the environment and the commit of a run itself."""

    log_code_ref = log_env

    def get_log_level(self) -> str | None:
        return os.environ.get("POLYAXON_LOG_LEVEL")


def _listed(values: Iterable[Any]) -> list[Any]:
    """Numbers of numpy and torch as plain ones."""
    return list(values.tolist() if hasattr(values, "tolist") else values)


METHODS = tuple(name for name in vars(Run) if not name.startswith("_"))
