"""Comparison of runs: differing params, metrics, files, code and environments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

LARGEST = 4 << 20  # bytes of a file or of records
MOST_ENTRIES = 5_000  # of one of them
DEEPEST = 30


def compare(columns: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row for each name that any run has."""
    for name in sorted({name for column in columns for name in column}):
        values = [column.get(name) for column in columns]
        differs = any(repr(value) != repr(values[0]) for value in values)
        yield {"name": name, "values": values, "differs": differs}


def read_tree(path: Path) -> Any:
    """A run's `spec.yml` or `records.json`; None when it is missing or cannot be read. Must not be modified: it is
    cached."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return _tree(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=512)
def _tree(path: Path, _mtime_ns: int, size: int) -> Any:
    if size > LARGEST:
        return None
    try:
        data = path.read_bytes()
        return json.loads(data) if path.suffix == ".json" else yaml.load(data, Loader=_LOADER)  # noqa: S506 - safe
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return None


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def flattened(tree: Any) -> dict[str, Any]:
    """All its values by paths such as `environment.worker.count`."""
    found: dict[str, Any] = {}
    _flatten(tree, "", found, DEEPEST)
    return found


def _flatten(tree: Any, path: str, found: dict[str, Any], deep: int) -> None:
    """A list of plain values is one entry: otherwise a shift by one would make all items differ."""
    if len(found) >= MOST_ENTRIES:
        return
    branches: Mapping[Any, Any] = {}
    if isinstance(tree, dict):
        branches = tree
    elif isinstance(tree, list) and any(isinstance(item, dict | list) for item in tree):
        branches = dict(enumerate(tree))
    if branches and deep:
        for name, branch in branches.items():
            _flatten(branch, f"{path}.{name}" if path else str(name), found, deep - 1)
    elif path and tree not in ({}, []):
        found[path] = tree if isinstance(tree, bool | int | float | str | None) else json.dumps(tree, default=str)


def code_entries(records: Mapping[str, Any]) -> dict[str, Any]:
    """The state of the code and the packages at submission."""
    git = dict(found) if isinstance(found := records.get("git"), dict) else {}
    if git.get("diff"):
        git["diff"] = f"uncommitted changes {hashlib.sha256(str(git['diff']).encode()).hexdigest()[:12]}"
    return flattened({**git, "packages": records.get("packages")})


def environment_entries(records: Mapping[str, Any]) -> dict[str, Any]:
    """Machine, Python and variables of the submitter."""
    about = {name: records.get(name) for name in ("phalanx", "host", "system", "python", "seeds")}
    variables = records.get("environment")
    return flattened({**about, **({"variables": variables} if isinstance(variables, dict) else {})})


def without_params(entries: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a file or environment that do not repeat a param under its name: they have rows of their own."""
    return {name: value for name, value in entries.items() if not _repeats(name, value, params)}


def _repeats(name: str, value: Any, params: Mapping[str, Any]) -> bool:
    first, _, rest = name.partition(".")
    if first in ("params", "declarations"):  # of the file; a nested one has a longer path
        return rest.partition(".")[0] in params
    if first != "variables":
        return False
    return any(_is_variable_of(rest, param) and str(value) == _text(params[param]) for param in params)


def _is_variable_of(variable: str, param: str) -> bool:
    """`LR` and `PHALANX_PARAM_LR` for `lr`."""
    own, wanted = variable.lower(), param.lower().replace("-", "_").replace(".", "_")
    return own == wanted or own.endswith(f"_{wanted}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
