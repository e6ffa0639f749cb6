"""The helper of Polyaxon before 0.5: functions instead of an experiment. Scripts and images of that time import it."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

_OWNERS = {
    "get_cluster_def": "Experiment",
    "get_declarations": "Experiment",
    "get_experiment_info": "Experiment",
    "get_params": "Experiment",
    "get_task_info": "Experiment",
    "get_tf_config": "Experiment",
    "get_job_info": "Job",
    "get_data_paths": "",
    "get_log_level": "",
    "get_outputs_path": "",
    "get_outputs_refs_paths": "",
}


def __getattr__(name: str) -> Any:
    if name in _OWNERS:
        tracking = import_module("polyaxon_client.tracking")
        return getattr(getattr(tracking, _OWNERS[name]) if _OWNERS[name] else tracking, name)
    if name == "experiment":
        return _experiment()
    raise AttributeError(f"polyaxon_helper has no `{name}`; it has experiment, send_metrics, {', '.join(_OWNERS)}")


@lru_cache(maxsize=1)
def _experiment() -> Any:
    """The experiment of this run; None outside of one."""
    exceptions = import_module("polyaxon_client.exceptions")
    try:
        return import_module("polyaxon_client.tracking").Experiment()
    except exceptions.PolyaxonClientException:
        return None


def send_metrics(**metrics: Any) -> None:
    """Outside of a run nothing is sent; training continues."""
    experiment = _experiment()
    if experiment is not None:
        experiment.log_metrics(**metrics)
