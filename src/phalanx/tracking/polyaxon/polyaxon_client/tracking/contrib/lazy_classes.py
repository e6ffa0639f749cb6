"""Creates the callback classes on first use, as `phalanx.tracking.callbacks` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from phalanx.tracking.callbacks.lazy_classes import ClassPath, find_classes, make_class

from ... import settings
from ...exceptions import PolyaxonClientException
from ..experiment import Experiment


class PolyaxonClass(NamedTuple):
    """A class of Polyaxon: its behaviour, its library, and the path of the base class."""

    mixin: type
    library: str
    places: tuple[ClassPath, ...]


def lazily(module: dict[str, Any], wanted: dict[str, PolyaxonClass]) -> Callable[[str], Any]:
    """A module's `__getattr__`. Without the library it raises what Polyaxon raises at the import."""

    def get(name: str) -> Any:
        if name not in wanted:
            raise AttributeError(f"{module['__name__']} has no `{name}`; it has {', '.join(wanted)}")
        mixin, library, places = wanted[name]
        bases = find_classes(*places)
        if not bases:
            raise PolyaxonClientException(f"{library} is required to use {name}")
        module[name] = made = make_class(module["__name__"], name, mixin, bases[:1])
        return made

    return get


def experiment_or_own(experiment: Any) -> Any:
    """The given experiment; inside of a run that of the run; else None."""
    return Experiment() if experiment is None and settings.IS_MANAGED else experiment
