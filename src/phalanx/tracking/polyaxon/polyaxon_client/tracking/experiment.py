"""`Experiment`: the class that nearly every script of Polyaxon 0.x uses."""

from __future__ import annotations

import json
import os
from typing import Any

from .. import settings
from . import paths
from .base import BaseTracker, PathReader
from .guards import check_no_op, check_offline


class Experiment(PathReader, BaseTracker):
    experiment_id: Any = None
    group_id: Any = None
    experiment: Any = None

    def __init__(
        self, project: str | None = None, experiment_id: Any = None, group_id: Any = None, *others: Any, **options: Any
    ) -> None:
        super().__init__(project, *others, **options)
        self.experiment_id = experiment_id if self.run is None else self.run.id
        self.group_id = os.environ.get("PHALANX_GROUP_ID") if group_id is None and settings.IS_MANAGED else group_id

    @check_no_op
    def create(
        self,
        name: str | None = None,
        framework: str | None = None,
        backend: str | None = None,
        tags: Any = None,
        description: str | None = None,
        content: Any = None,
        build_id: Any = None,
        base_outputs_path: str | None = None,
        config: Any = None,
    ) -> Experiment:
        """Create a run; inside of one, use that one. `config` is the name of `content` in 0.4."""
        is_own = self.run is not None  # the run of this process, which stays in its group
        self._begin(name, tags, description, base_outputs_path, None if self.group_id is None else str(self.group_id))
        self.experiment_id = self._new_id()
        if framework:
            self.log_framework(framework)
        labels = {"backend": backend, "build": build_id, "group": self.group_id if is_own else None}
        given = {key: value for key, value in labels.items() if value is not None}
        if self.run is not None and given:
            self.run.labels(**given)
        if self.run is not None and (content or config):
            self.run.text("polyaxonfile", content or config)
        return self

    @check_offline
    def log_metrics(self, **metrics: Any) -> None:
        """A whole-number `step` is the step of the other metrics, as in Polyaxon's dashboard."""
        run = self._kept()
        step: Any = metrics.get("step")
        if len(metrics) > 1 and _is_step(step):
            run.log({name: value for name, value in metrics.items() if name != "step"}, step=int(step))
        else:
            run.log(metrics)

    @check_offline
    def log_framework(self, framework: str) -> None:
        self._kept().describe(framework=framework)

    @staticmethod
    def get_cluster_def() -> Any:
        """`{"master": ["host:port"], "worker": […], …}`."""
        return paths.read_json("POLYAXON_CLUSTER")

    @staticmethod
    def get_task_info() -> Any:
        """`{"type": "worker", "index": 0}`."""
        return paths.read_json("POLYAXON_TASK_INFO")

    @classmethod
    def get_tf_config(cls, envvar: str | None = "TF_CONFIG") -> Any:
        """TensorFlow's description of the cluster, which is also set as a variable of that name."""
        if settings.NO_OP:
            return None
        config = {
            "cluster": cls.get_cluster_def(),
            "task": cls.get_task_info(),
            "model_dir": paths.get_outputs_path(),
            "environment": "cloud",
        }
        if envvar:
            os.environ[envvar] = json.dumps(config)
        return config

    @staticmethod
    def get_experiment_info() -> Any:
        return paths.read_json("POLYAXON_EXPERIMENT_INFO")

    @staticmethod
    def get_params() -> Any:
        return paths.read_json("POLYAXON_PARAMS", "POLYAXON_DECLARATIONS")

    @classmethod
    def get_declarations(cls) -> Any:
        return cls.get_params()


def _is_step(value: Any) -> bool:
    try:
        return value is not None and not isinstance(value, bool) and int(value) == value
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return False
