"""`Job`: a run that logs no metrics."""

from __future__ import annotations

from typing import Any

from .. import settings
from . import paths
from .base import BaseTracker
from .guards import check_no_op


class BaseJob(BaseTracker):
    job_id: Any = None
    job: Any = None

    def __init__(
        self,
        project: str | None = None,
        job_id: Any = None,
        job_type: str | None = None,
        client: Any = None,
        track_logs: bool = True,
        track_code: bool = True,
        track_env: bool = True,
        outputs_store: Any = None,
    ) -> None:
        super().__init__(project, client, track_logs, track_code, track_env, outputs_store)
        self.job_id = job_id if self.run is None else self.run.id
        self.job_type = job_type

    @staticmethod
    def get_job_info() -> Any:
        return paths.read_json("POLYAXON_JOB_INFO")


class Job(BaseJob):
    def __init__(
        self,
        project: str | None = None,
        job_id: Any = None,
        client: Any = None,
        track_logs: bool = True,
        track_code: bool = True,
        track_env: bool = True,
        outputs_store: Any = None,
        job_type: str = "jobs",
    ) -> None:
        super().__init__(project, job_id, job_type, client, track_logs, track_code, track_env, outputs_store)

    @check_no_op
    def create(
        self,
        name: str | None = None,
        backend: str | None = None,
        tags: Any = None,
        description: str | None = None,
        content: Any = None,
        build_id: Any = None,
        base_outputs_path: str | None = None,
    ) -> Job:
        self._begin(name, tags, description, base_outputs_path)
        self.job_id = self._new_id()
        given = {key: value for key, value in {"backend": backend, "build": build_id}.items() if value is not None}
        if self.run is not None and given:
            self._label(**given)
        if self.run is not None and content:
            self.run.text("polyaxonfile", content)
        return self

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
