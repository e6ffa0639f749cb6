"""`BuildJob`: the build of an image, reported by its builder."""

from __future__ import annotations

from typing import Any

from .guards import check_no_op, check_offline
from .job import BaseJob


class BuildJob(BaseJob):
    REQUIRES_OUTPUTS = False

    def __init__(
        self,
        project: str | None = None,
        job_id: Any = None,
        client: Any = None,
        track_logs: bool = True,
        track_code: bool = True,
        **_: Any,
    ) -> None:
        super().__init__(project, job_id, "builds", client, track_logs, track_code)

    @check_no_op
    def create(
        self,
        name: str | None = None,
        backend: str | None = None,
        tags: Any = None,
        description: str | None = None,
        content: Any = None,
    ) -> BuildJob:
        self._begin(name, tags, description, None)
        self.job_id = self._new_id()
        if self.run is not None and backend:
            self.run.labels(backend=backend)
        if self.run is not None and content:
            self.run.text("polyaxonfile", content)
        return self

    @check_offline
    def log_dockerfile(self, dockerfile: str) -> None:
        self._kept().text("dockerfile", dockerfile)
