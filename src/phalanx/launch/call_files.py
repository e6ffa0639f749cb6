"""Call files: a function and its arguments, pickled for a run.

What can be imported is pickled by reference, with plain pickle. Lambdas, closures, and all that is defined in a script
or notebook (`__main__`) are pickled by value, with cloudpickle.
"""

from __future__ import annotations

import os
import pickle
import pickletools
import site
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import extras
from phalanx.errors import CallError
from phalanx.tracking.calls import sealed_files

COMMAND = "-m phalanx.tracking.calls"  # of Python
PROTOCOL = 4  # Python 3.8
KEY_BYTES = 32
Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]


class MadeCall(NamedTuple):
    """The content of a call file, and what its submitter needs to know of it."""

    data: bytes
    digest: str
    key: bytes


def make_call(function: Callable[..., Any], calls: Sequence[Arguments], folder: Path) -> MadeCall:
    """`folder`: the working folder of the run. Raises CallError for what cannot be pickled, MissingExtra."""
    parts = [function, *((tuple(args), dict(named)) for args, named in calls)]
    pickles = _by_reference(parts)
    by_value = pickles is None
    if pickles is None:
        pickles = _by_value(parts, name_of(function))
    key = os.urandom(KEY_BYTES)
    facts = {
        "name": name_of(function),
        "by_value": by_value,
        "python": list(sys.version_info[:2]),
        "paths": import_paths(sys.path, folder),
    }
    data = sealed_files.encode_call(key, pickles[0], pickles[1:], facts)
    return MadeCall(data, sealed_files.digest_of(data), key)


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function, without that of the function that it is defined in."""
    named = getattr(function, "func", function)  # a functools.partial
    found = getattr(named, "__qualname__", type(named).__qualname__)
    return str(found).rpartition("<locals>.")[2]


def _by_reference(parts: Sequence[Any]) -> list[bytes] | None:
    """None if a part cannot be imported in another process."""
    try:
        found = [pickle.dumps(part, PROTOCOL) for part in parts]
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return None if any(map(_names_main, found)) else found


def _names_main(data: bytes) -> bool:
    """Whether a pickle refers to something of `__main__`, which is another module in the run."""
    return b"__main__" in data and any(argument == "__main__" for _, argument, _ in pickletools.genops(data))


def _by_value(parts: Sequence[Any], name: str) -> list[bytes]:
    purpose = f"{name}, which no module can be imported for (a lambda, a closure, or defined in a script or notebook),"
    with extras.needed("functions", purpose):
        import cloudpickle  # type: ignore[import-untyped]
    try:
        return [cloudpickle.dumps(part, PROTOCOL) for part in parts]
    except Exception as fault:  # objects pickle themselves, and may raise anything
        raise CallError(f"{name} or its arguments cannot be pickled: {fault}") from fault


def import_paths(paths: Sequence[str], folder: Path) -> list[str]:
    """The folders of the import path that Python does not add by itself, relative if they are in the working folder."""
    own = {*map(os.path.realpath, [*sysconfig.get_paths().values(), *site.getsitepackages()])}
    found: dict[str, None] = {}
    for path in map(os.path.abspath, paths):
        if os.path.realpath(path) in own or os.path.realpath(path).startswith(sys.base_prefix + os.sep + "lib"):
            continue
        inside = os.path.relpath(path, folder)
        found[path if inside.startswith("..") else inside] = None
    return list(found)
