"""The client of Polyaxon's server, which does not exist here: its calls raise an error with advice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .exceptions import PolyaxonClientException

SECTIONS = (
    "auth",
    "bookmark",
    "build_job",
    "cluster",
    "experiment",
    "experiment_group",
    "experiment_job",
    "job",
    "project",
    "user",
    "version",
)
INSTEAD = {
    "experiment": "`phalanx ps --json`, `phalanx show RUN --json` and `phalanx stop RUN` do it",
    "experiment_group": "`phalanx group show|trials|stop GROUP` and `phalanx.Client().group(…)` do it",
    "project": "`phalanx run -f FILE` starts runs, and `Experiment(project=…).create()` tracks one of your own",
}


class _Section:
    """One part of the server's API: every call raises an error with advice."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, call: str) -> Callable[..., Any]:
        if call.startswith("__"):
            raise AttributeError(call)

        def refuse(*_: Any, **__: Any) -> Any:
            instead = INSTEAD.get(self._name, "remove the call; Phalanx does not need it")
            raise PolyaxonClientException(
                f"`PolyaxonClient.{self._name}.{call}` requires a Polyaxon server, and Phalanx has none: {instead}."
            )

        return refuse


class PolyaxonClient:
    def __init__(self, api_config: Any = None, host: str | None = None, token: str | None = None, **other: Any) -> None:
        self.api_config = api_config
        self.host = host
        self.token = token
        self.settings = other

    def __getattr__(self, name: str) -> Any:
        if name in SECTIONS:
            return _Section(name)
        if name.startswith("set_") or name in ("reset", "reconcile", "unset_health_check"):
            return lambda *_, **__: None
        raise AttributeError(f"PolyaxonClient has no `{name}`; it has {', '.join(SECTIONS)}")
