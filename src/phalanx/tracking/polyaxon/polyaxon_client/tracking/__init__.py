from __future__ import annotations

from .build import BuildJob
from .experiment import Experiment
from .group import Group
from .job import Job
from .paths import get_base_outputs_path, get_data_paths, get_log_level, get_outputs_path, get_outputs_refs_paths

__all__ = [
    "BuildJob",
    "Experiment",
    "Group",
    "Job",
    "get_base_outputs_path",
    "get_data_paths",
    "get_log_level",
    "get_outputs_path",
    "get_outputs_refs_paths",
]
