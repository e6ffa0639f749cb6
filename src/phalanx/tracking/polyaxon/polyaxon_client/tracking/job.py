"""`Job`: a run that logs no metrics."""

from __future__ import annotations

from typing import Any

from . import paths
from .base import BaseTracker, PathReader
from .guards import check_no_op


class BaseJob(BaseTracker):
    job_id: Any = None
    job: Any = None

    def __init__(
        self, project: str | None = None, job_id: Any = None, job_type: str | None = None, *others: Any, **options: Any
    ) -> None:
        super().__init__(project, *others, **options)
        self.job_id = job_id if self.run is None else self.run.id
        self.job_type = job_type

    @staticmethod
    def get_job_info() -> Any:
        return paths.read_json("POLYAXON_JOB_INFO")


class Job(PathReader, BaseJob):
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
            self.run.labels(**given)
        if self.run is not None and content:
            self.run.text("polyaxonfile", content)
        return self
