"""Functions that read a run's environment. Outside of a run they raise; with POLYAXON_NO_OP they return None."""

from __future__ import annotations

import json
import os
from typing import Any

from .. import settings
from ..logger import logger
from .is_managed import ensure_is_managed


def read_text(*names: str) -> str | None:
    """The first of some variables that is set."""
    if settings.NO_OP:
        return None
    ensure_is_managed()
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def read_json(*names: str) -> Any:
    text = read_text(*names)
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        logger.warning("%s is not valid JSON; Phalanx did not set it", names[0])
        return None


def get_data_paths() -> dict[str, str] | None:
    """The folders of the data stores in the file, by name."""
    paths: dict[str, str] | None = read_json("POLYAXON_RUN_DATA_PATHS", "POLYAXON_DATA_PATHS")
    return paths


def get_outputs_path() -> str | None:
    """The folder of the run's outputs."""
    return read_text("POLYAXON_RUN_OUTPUTS_PATH", "POLYAXON_OUTPUTS_PATH")


def get_base_outputs_path() -> str | None:
    return None if settings.NO_OP else os.environ.get("POLYAXON_BASE_OUTPUTS_PATH")


def get_outputs_refs_paths() -> dict[str, list[str]] | None:
    """The outputs of the earlier runs that the file refers to: `{"jobs": […], "experiments": […]}`."""
    paths: dict[str, list[str]] | None = read_json("POLYAXON_REFS_OUTPUTS_PATHS")
    return paths


def get_log_level() -> str | None:
    return read_text("POLYAXON_LOG_LEVEL")
