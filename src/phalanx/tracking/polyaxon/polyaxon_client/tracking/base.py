"""The common base of experiments, jobs and groups: Polyaxon's calls, recorded by `phalanx.tracking`."""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any, NoReturn

from phalanx import tracking

from .. import settings
from ..client import PolyaxonClient
from ..exceptions import PolyaxonClientException
from . import paths
from .environment import code_reference, run_environment
from .guards import check_no_op, check_offline, say_once
from .paths import get_base_outputs_path, get_outputs_path, read_json
from .stores import OutputsStore

FINAL = ("succeeded", "failed", "stopped")


def _finish_previous() -> None:
    """Finish the previous experiment when a process creates another one: it has one run at a time."""
    previous = tracking.current()
    if previous is not None and not previous.is_managed:
        previous.finish()


class BaseTracker:
    REQUIRES_OUTPUTS = True
    run: Any = None  # of phalanx.tracking; None until there is one
    last_status: str | None = None
    outputs_store: Any = None
    user: str | None = None
    username: str | None = None
    project_name: str | None = None
    _entity_data: Any = None

    def __init__(
        self,
        project: str | None = None,
        client: Any = None,
        track_logs: bool = True,
        track_code: bool = True,
        track_env: bool = True,
        outputs_store: Any = None,
    ) -> None:
        """Subclasses add arguments of their own after `project`. Raises PolyaxonClientException outside of a run, when
        no project is named."""
        self.project = project
        self.client = client
        self.track_logs = track_logs
        self.track_code = track_code
        self.track_env = track_env
        self.outputs_store = outputs_store
        self._has_own_store = outputs_store is not None
        if settings.NO_OP:
            return
        if project is None and not settings.IS_MANAGED:
            raise PolyaxonClientException("Please provide a valid project.")
        if client is None and not settings.IS_OFFLINE:
            self.client = PolyaxonClient()
        if settings.IS_MANAGED:
            self._adopt(tracking.start())
        self._name_project()

    @check_no_op
    def _adopt(self, run: Any) -> None:
        """Record everything that follows in this run."""
        self.run = run
        self.last_status = "running"
        if self.project is None:
            self.project = run.project
        if self.outputs_store is None and self.REQUIRES_OUTPUTS:
            path = get_outputs_path() if settings.IS_MANAGED else run.outputs
            self.set_outputs_store(outputs_path=path or run.outputs)

    def _name_project(self) -> None:
        user, _, name = (self.project or "default").replace(".", "/").rpartition("/")
        self.user = self.username = user or os.environ.get("USER") or None
        self.project_name = name

    def _kept(self) -> Any:
        """The run that records. Before `create()`, one that records nothing, with a warning."""
        if self.run is None:
            say_once(f"a {type(self).__name__} records nothing before its `create()`")
        return self.run or tracking.nowhere()

    @check_no_op
    def _begin(
        self, name: str | None, tags: Any, description: str | None, base_outputs_path: str | None, group: Any = None
    ) -> None:
        """The common part of `create()`."""
        if settings.IS_OFFLINE:
            self.last_status = "created"
        elif self.run is None:
            _finish_previous()
            self._adopt(tracking.start(name=name, project=self.project_name, description=description, group=group))
        else:
            self.run.describe(name=name, description=description)
        path = base_outputs_path or get_base_outputs_path()
        if path and not settings.IS_MANAGED and (self.outputs_store is None or not self._has_own_store):
            parts = [str(part) for part in (self.username, self.project_name, self._new_id()) if part]
            self.set_outputs_store(outputs_path=os.path.join(path, *parts))
        if tags:
            self.log_tags(tags)
        if self.track_code:
            self.log_code_ref()

    def _new_id(self) -> Any:
        return int(time.time()) if self.run is None else self.run.id

    @check_no_op
    def get_notebook_job_info(self) -> Any:
        return read_json("POLYAXON_NOTEBOOK_INFO")

    @property
    def is_notebook_job(self) -> bool | None:
        return None if settings.NO_OP else settings.IS_MANAGED and "POLYAXON_NOTEBOOK_INFO" in os.environ

    @check_no_op
    def get_entity_data(self) -> None:
        run = self._kept()
        self._entity_data = self.run and {"id": run.id, "project": run.project, "last_status": self.last_status}

    get_data = get_entity_data  # the name of 0.4.0

    # statuses ------------------------------------------------------------------------------------------------------

    @check_offline
    def log_status(self, status: str, message: str | None = None, traceback: str | None = None) -> None:
        """Inside a run the scheduler owns the status: there it is only recorded as an event."""
        run = self._kept()
        self.last_status = status
        if status in FINAL and not run.is_managed:
            run.finish(status, "\n".join(part for part in (message, traceback) if part))
        elif message or traceback or status != "running":
            run.text("status", ": ".join(part for part in (status, message, traceback) if part))

    @check_offline
    def start(self) -> None:
        self.log_status("running")

    @check_offline
    def end(self, status: str, message: str | None = None, traceback: str | None = None) -> None:
        if self.last_status not in FINAL:
            self.log_status(status, message, traceback)

    @check_offline
    def log_succeeded(self) -> None:
        self.end("succeeded")

    @check_offline
    def log_stopped(self) -> None:
        self.end("stopped")

    @check_offline
    def log_failed(self, message: str | None = None, traceback: str | None = None) -> None:
        self.end("failed", message, traceback)

    succeeded = log_succeeded  # the names of 0.4
    stop = log_stopped
    failed = log_failed

    # files ---------------------------------------------------------------------------------------------------------

    @check_no_op
    def set_outputs_store(
        self, outputs_store: Any = None, outputs_path: str | None = None, set_env_vars: bool = False
    ) -> None:
        if outputs_store is None and outputs_path is None:
            raise PolyaxonClientException("An Store instance or and outputs path is required.")
        self.outputs_store = outputs_store or OutputsStore(self.run, outputs_path)
        if set_env_vars:
            self.outputs_store.set_env_vars()

    @check_no_op
    def log_artifact(self, file_path: str) -> None:
        self._store().upload_file(file_path)

    @check_no_op
    def log_artifacts(self, dir_path: str) -> None:
        self._store().upload_dir(dir_path)

    @check_no_op
    def log_output(self, filename: str, **_: Any) -> None:
        self.log_artifact(filename)

    @check_no_op
    def log_outputs(self, dirname: str, **_: Any) -> None:
        self.log_artifacts(dirname)

    def _store(self) -> Any:
        if self.outputs_store is None:
            self._kept()  # warns before `create()`
        return OutputsStore(self.run) if self.outputs_store is None else self.outputs_store

    # what is known of the run --------------------------------------------------------------------------------------

    @check_offline
    def log_params(self, reset: bool = False, **params: Any) -> None:
        run = self._kept()
        if reset:
            run.note("params", lambda: {"values": {}, "reset": True})
        run.params(params)

    @check_offline
    def log_tags(self, tags: Any, reset: bool = False) -> None:
        run = self._kept()
        words = [word.strip() for tag in ([tags] if isinstance(tags, str) else tags or ()) for word in tag.split(",")]
        if reset:
            run.note("tags", lambda: {"set": []})
        run.tags(*filter(None, words))

    @check_offline
    def log_data_ref(self, data: Any, data_name: str = "data", reset: bool = False) -> None:  # noqa: ARG002
        """Record a digest of the data's text, as Polyaxon does, so that old and new runs compare."""
        text = str(data)
        digest = hashlib.md5(text.encode("utf-8", "replace")).hexdigest()[: settings.HASH_LENGTH]  # noqa: S324
        self._kept().dataset(str(data_name), uri=text if isinstance(data, str) else None, digest=digest)

    @check_offline
    def log_run_env(self) -> None:
        self._kept().text("run_env", run_environment())

    @check_offline
    def log_code_ref(self) -> None:
        run, code = self._kept(), code_reference()
        if code:
            run.describe(commit=code.pop("commit"))
            run.labels({f"git.{name}": value for name, value in code.items()})

    @check_offline
    def log_backend(self, backend: str) -> None:
        self._kept().labels(backend=backend)

    @check_offline
    def log_build(self, build_id: Any = None) -> None:
        self._kept().labels(build=build_id)

    @check_offline
    def set_name(self, name: str) -> None:
        self._kept().describe(name=name)

    @check_offline
    def set_description(self, description: str) -> None:
        self._kept().describe(description=description)

    @check_offline
    def send_logs(self, log_line: Any) -> None:
        """Add lines to the run's log; what is printed is already there."""
        self._kept().text("logs", log_line if isinstance(log_line, str) else "\n".join(map(str, log_line)))

    def __getattr__(self, name: str) -> NoReturn:
        known = sorted(word for word in dir(type(self)) if not word.startswith("_") and word not in ("run",))
        raise AttributeError(
            f"`{name}` is not in the {type(self).__name__} of Polyaxon 0.x, which has {', '.join(known)};"
            " `from phalanx import tracking` has more"
        )


class PathReader:
    """The paths and the log level of a run, which experiments and jobs read."""

    run: Any

    @check_no_op
    def get_outputs_path(self) -> Any:
        is_own = self.run is not None and not settings.IS_MANAGED
        return self.run.outputs if is_own else paths.get_outputs_path()

    @check_no_op
    def get_log_level(self) -> Any:
        return paths.get_log_level()

    @staticmethod
    def get_data_paths() -> Any:
        return paths.get_data_paths()

    @staticmethod
    def get_outputs_refs_paths() -> Any:
        return paths.get_outputs_refs_paths()
