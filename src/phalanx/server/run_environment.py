"""The environment of runs that the server starts: the server's own, without credentials."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from phalanx.plan.document import HIDDEN, is_secret
from phalanx.submission.provenance import has_credentials

# Variables about the server's own data and its credentials for other systems.
_OURS = ("PHALANX_DATABASE", "PHALANX_TOKEN", "PHALANX_SERVER", "NOTIFY_SOCKET")


def environment_for_runs(ours: Mapping[str, str] | None = None) -> dict[str, str]:
    found = dict(os.environ) if ours is None else dict(ours)
    return {
        name: value
        for name, value in found.items()
        if name not in _OURS and not is_secret(name) and not has_credentials(value)
    }


def without_secrets(data: Any, name: str = "") -> Any:
    """The same data with strings hidden that look secret by name or by value."""
    if isinstance(data, dict):
        return {key: without_secrets(value, str(key)) for key, value in data.items()}
    if isinstance(data, list | tuple):
        if len(data) == 2 and isinstance(data[0], str) and isinstance(data[1], str):  # the form of variables in files
            return [data[0], without_secrets(data[1], data[0])]
        return [without_secrets(value, name) for value in data]
    if isinstance(data, str) and data and (is_secret(name) or has_credentials(data)):
        return HIDDEN
    return data
