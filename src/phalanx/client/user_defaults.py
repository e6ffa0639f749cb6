"""Defaults that users set with `phalanx config` or environment variables, and where each value comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from phalanx.client.config import BY_LOGIN, SERVER, choose_server, logins
from phalanx.tracking.user_settings import read_settings

VARIABLES = {"home": "PHALANX_HOME", "server": SERVER, "project": "PHALANX_PROJECT", "backend": "PHALANX_BACKEND"}
BUILT_IN = {"home": "~/.phalanx", "server": None, "project": "default", "backend": "local"}
MEANING = {
    "home": "the folder with all runs of this machine",
    "server": "the server that commands use, instead of the home",
    "project": "the project of new runs",
    "backend": "the backend of files that name none",
}


class Default(NamedTuple):
    """`source`: what sets it. `overridden`: the value of the configuration that an environment variable hides."""

    name: str
    value: str | None
    source: str
    overridden: str | None = None


def default_of(name: str) -> str | None:
    """The value of a variable or the configuration, if any: what a command uses without an option."""
    return os.environ.get(VARIABLES[name]) or read_settings(os.environ).get(name)


def default_backend(named: str | None) -> str | None:
    """The backend to ask for with a file that names this one: that of the configuration if it names none. A server has
    its own. Raises CallError."""
    return None if named or choose_server(os.environ) is not None else default_of("backend")


def defaults(environment: Mapping[str, str]) -> list[Default]:
    """Every default, and where it comes from. Raises CallError if a file cannot be read."""
    kept = read_settings(environment)
    return [_server(environment) if name == "server" else _setting(name, environment, kept) for name in VARIABLES]


def _setting(name: str, environment: Mapping[str, str], kept: Mapping[str, str]) -> Default:
    if environment.get(VARIABLES[name]):
        return Default(name, environment[VARIABLES[name]], VARIABLES[name], kept.get(name))
    return Default(name, kept[name], "config") if name in kept else Default(name, BUILT_IN[name], "built-in")


def _server(environment: Mapping[str, str]) -> Default:
    found, by_login = choose_server(environment), logins(environment).default
    if found is not None:
        return Default("server", found.url, found.by, by_login if found.by != BY_LOGIN else None)
    hidden_by = next((name for name in ("PHALANX_HOME", "PHALANX_RUN_ID") if environment.get(name)), "")
    return Default("server", None, f"{hidden_by} selects the home" if by_login else "built-in", by_login)
