"""Creates classes that need a third-party library on first use; until then the library is not loaded."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NamedTuple


class ClassPath(NamedTuple):
    """Where a class of a library is."""

    module: str
    name: str

    @property
    def is_loaded(self) -> bool:
        """Whether the training has imported that library."""
        return self.module.split(".", maxsplit=1)[0] in sys.modules


def find_classes(*places: ClassPath) -> list[type]:
    """The classes of imported libraries; else the first that is installed; else none."""
    in_use = [found for place in places if place.is_loaded for found in _load(place)]
    return in_use or next(([found] for place in places for found in _load(place)), [])


def _load(place: ClassPath) -> list[type]:
    """The class, if available. A broken library counts as missing."""
    try:
        found: Any = import_module(place.module)
        for step in place.name.split("."):
            found = getattr(found, step)
    except (ImportError, AttributeError):
        return []
    return [found] if isinstance(found, type) else []


def make_class(module: str, name: str, mixin: type, bases: list[type]) -> type:
    """The mixin on top of a library's class, under its public name, so that pickles find it."""
    return type(name, (mixin, *dict.fromkeys(bases)), {"__module__": module, "__doc__": mixin.__doc__})
