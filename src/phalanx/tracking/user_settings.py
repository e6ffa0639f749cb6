"""Settings of the user: $XDG_CONFIG_HOME/phalanx/config.json. Standard library only, Python 3.8+.

Environment variables and options of commands take precedence over them. `phalanx config` changes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from phalanx.atomic_files import read_json

SETTINGS = ("home", "project", "backend")


def settings_folder(environment: Mapping[str, str]) -> str:
    base = environment.get("XDG_CONFIG_HOME")
    return os.path.join(base if base and os.path.isabs(base) else os.path.expanduser("~/.config"), "phalanx")


def settings_file(environment: Mapping[str, str]) -> str:
    return os.path.join(settings_folder(environment), "config.json")


def read_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The known settings; without those that cannot be read: a damaged file must not stop training."""
    try:
        found = read_json(settings_file(environment))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: found[name] for name in SETTINGS if isinstance(found.get(name), str) and found[name]}


def default_home() -> str:
    named = os.environ.get("PHALANX_HOME") or read_settings(os.environ).get("home")
    return os.path.abspath(os.path.expanduser(named)) if named else os.path.expanduser("~/.phalanx")
