"""`<home>/kubernetes.yml`: the settings of a cluster. Read again on every call, so edits take effect."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from phalanx.backends.kubernetes.target import DataVolume, Settings
from phalanx.errors import path_error

VARIABLE = "PHALANX_KUBERNETES"  # a file to use instead of the home's


def find(home: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings of the home, or of the file that the variable names; without a file, use kubectl's defaults.
    Raises SpecErrors for an invalid file, CallError for an unreadable one."""
    from phalanx.sites import kubernetes_profile

    named = (os.environ if environ is None else environ).get(VARIABLE)
    file = Path(named).expanduser() if named else home / kubernetes_profile.FILE
    try:
        with file.open("rb") as stream:
            data = stream.read(kubernetes_profile.MAX_READ)
    except OSError as fault:
        if named is None and isinstance(fault, FileNotFoundError | NotADirectoryError):
            return Settings()
        said = f", which {VARIABLE} names" if named else ""
        raise path_error(f"cannot read {file}{said}", fault) from None
    return _settings(kubernetes_profile.load(str(file), data), file.parent)


def with_options(
    settings: Settings, *, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None
) -> Settings:
    """Override settings with command-line options."""
    return settings._replace(
        kubeconfig=kubeconfig or settings.kubeconfig,
        context=context or settings.context,
        namespace=namespace or settings.namespace,
    )


def _settings(values: dict[str, Any], folder: Path) -> Settings:
    """Resolve file paths relative to the folder of the file that names them, as in a kubeconfig."""
    if "kubeconfig" in values:
        values["kubeconfig"] = str(folder / Path(values["kubeconfig"]).expanduser())
    if "devices" in values:
        values["devices"] = MappingProxyType({**Settings().devices, **values["devices"]})
    if "stores" in values:
        values["stores"] = MappingProxyType({name: _store(dict(store)) for name, store in values["stores"].items()})
    return Settings(**values)


def _store(values: dict[str, Any]) -> DataVolume:
    is_read_only = values.pop("read_only", False)
    return DataVolume(**values, is_read_only=is_read_only)
