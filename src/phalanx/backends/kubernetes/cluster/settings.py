"""`<home>/kubernetes.yml`: what one has said about a cluster. Read anew for every call, so that an edit counts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from phalanx.backends.kubernetes.target import DataVolume, Settings
from phalanx.errors import path_error

VARIABLE = "PHALANX_KUBERNETES"  # another file than the home's


def find(home: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """What the home, or the file that the variable names, says; without one, as kubectl has it. Raises SpecErrors for
    a wrong file, CallError for one that cannot be read."""
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
    """With what the command line says over it."""
    return settings._replace(
        kubeconfig=kubeconfig or settings.kubeconfig,
        context=context or settings.context,
        namespace=namespace or settings.namespace,
    )


def _settings(values: dict[str, Any], folder: Path) -> Settings:
    """Paths of files are meant from the folder of the file that names them, as in a kubeconfig."""
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
