"""`Group`: experiments that a script creates and groups itself."""

from __future__ import annotations

import os
from typing import Any

from .. import settings
from .base import BaseTracker
from .experiment import Experiment
from .guards import check_no_op, check_offline


class Group(BaseTracker):
    """Its experiments are runs of the group: `phalanx ps -q group:NAME` lists them. The group itself records nothing.
    Inside of a trial it is the group of the trial."""

    REQUIRES_OUTPUTS = False
    group_id: Any = None
    group: Any = None
    base_outputs_path: str | None = None
    tags: Any = None

    def __init__(self, project: str | None = None, group_id: Any = None, *others: Any, **options: Any) -> None:
        super().__init__(project, *others, **options)
        self.group_id = os.environ.get("PHALANX_GROUP_ID") if group_id is None and settings.IS_MANAGED else group_id

    @check_no_op
    def create(
        self,
        name: str | None = None,
        tags: Any = None,
        description: str | None = None,  # noqa: ARG002
        content: Any = None,  # noqa: ARG002
        base_outputs_path: str | None = None,
        config: Any = None,  # noqa: ARG002
    ) -> Group:
        """What its experiments share. `config` is the name of `content` in 0.4."""
        self.group_id = name or self.group_id or self._new_id()
        self.tags = tags
        self.base_outputs_path = base_outputs_path
        self.last_status = "running"  # as in Polyaxon, it has started
        return self

    @check_offline
    def log_status(self, status: str, message: str | None = None, traceback: str | None = None) -> None:
        """Inside a run it is recorded there; otherwise only `last_status` has it."""
        if self.run is None:
            self.last_status = status
        else:
            super().log_status(status, message, traceback)

    @check_no_op
    def create_experiment(
        self,
        name: str | None = None,
        framework: str | None = None,
        tags: Any = None,
        description: str | None = None,
        content: Any = None,
        config: Any = None,
    ) -> Any:
        experiment = Experiment(
            self.project,
            group_id=self.group_id,
            client=self.client,
            track_logs=self.track_logs,
            track_code=self.track_code,
            track_env=self.track_env,
            outputs_store=self.outputs_store,
        )
        experiment.create(
            name, framework, None, tags, description, content or config, base_outputs_path=self.base_outputs_path
        )
        if self.tags:
            experiment.log_tags(self.tags)
        return experiment
