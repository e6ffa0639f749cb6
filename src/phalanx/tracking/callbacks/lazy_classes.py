"""Classes that need somebody's library are made when they are asked for; until then it is neither needed nor loaded."""

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
        """Whether the training uses that library."""
        return self.module.split(".", maxsplit=1)[0] in sys.modules


def find_classes(*places: ClassPath) -> list[type]:
    """Those of libraries that are in use; else the first that is installed; else none."""
    in_use = [found for place in places if place.is_loaded for found in _load(place)]
    return in_use or next(([found] for place in places for found in _load(place)), [])


def _load(place: ClassPath) -> list[type]:
    """The class, if it is there. A library that is broken is as good as none."""
    try:
        found: Any = import_module(place.module)
        for step in place.name.split("."):
            found = getattr(found, step)
    except (ImportError, AttributeError):
        return []
    return [found] if isinstance(found, type) else []


def make_class(module: str, name: str, mixin: type, bases: list[type]) -> type:
    """The mixin on top of a library's class, under the name by which people, and pickles, find it."""
    return type(name, (mixin, *dict.fromkeys(bases)), {"__module__": module, "__doc__": mixin.__doc__})
