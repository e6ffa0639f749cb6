"""The outputs of an op that has succeeded: values that its template declares, from what its run wrote.

The value of an output is the first of: its entry in `outputs.json` among the outputs of the run; the param of that name
that the program recorded; the last value of the metric of that name; the path of the file or folder of that name among
the outputs. Of a group, they are those of its best trial.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.atomic_files import read_json
from phalanx.home.home import Home
from phalanx.spec.model import Variable, thaw
from phalanx.spec.params import type_fault
from phalanx.spec.templates import is_template
from phalanx.store import Run, Store
from phalanx.store.kinds import GROUP

MOST_BYTES = 1 << 20
_ABSENT = object()


class OpOutputs(NamedTuple):
    values: Mapping[str, Any]
    missing: Mapping[str, str]  # declared outputs without a value, and why


def outputs_of(home: Home, store: Store, run: Run, declared: Iterable[Variable]) -> OpOutputs:
    """The outputs of a run, or group, that has succeeded."""
    variables = list(declared)
    if not variables:
        return OpOutputs({}, {})
    run_id: str | None = run.id
    if run.kind == GROUP:
        best = (store.facts(run.id).get("search") or {}).get("best")
        run_id = best["run"] if best else None
    if run_id is None:
        return OpOutputs({}, {one.name: "its group has no best trial: set `hptuning.metric`" for one in variables})
    values: dict[str, Any] = {}
    missing: dict[str, str] = {}
    source = _Source(home, store, run_id)
    for variable in variables:
        value = source.value(variable)
        if value is _ABSENT and variable.is_optional:
            value = thaw(variable.default)
        fault = None if value is _ABSENT or value is None else type_fault(variable, value)
        if value is _ABSENT:
            missing[variable.name] = (
                f"it recorded no param and no metric of that name, has no file of that name among its outputs, and no "
                f"entry in {run_paths.OUTPUT_VALUES}"
            )
        elif fault is not None:
            missing[variable.name] = f"{fault}, but it is {str(value)[:100]!r}"
        elif is_template(json.dumps(value, default=str)):
            missing[variable.name] = f"its value looks like a template: {str(value)[:100]!r}"
        else:
            values[variable.name] = value
    return OpOutputs(values, missing)


class _Source:
    """What a run wrote. Everything is read once."""

    def __init__(self, home: Home, store: Store, run_id: str) -> None:
        self.outputs = home.run(run_id).path / run_paths.OUTPUTS
        self.written = _written(self.outputs / run_paths.OUTPUT_VALUES)
        self.params = store.find(run_id).params
        self.metrics = store.summaries(run_id)

    def value(self, variable: Variable) -> Any:
        name = variable.name
        if name in self.written:
            return self._as_declared(variable, self.written[name])
        if name in self.params:
            return self._as_declared(variable, self.params[name])
        if name in self.metrics:
            last = self.metrics[name].last
            return int(last) if variable.type == "int" and float(last).is_integer() else last
        found = self._file(name)
        return _ABSENT if found is None else str(found)

    def _as_declared(self, variable: Variable, value: Any) -> Any:
        """A relative path is one among the outputs."""
        is_path = variable.type == "path" and isinstance(value, str)
        return str(self.outputs / value) if is_path and not Path(value).is_absolute() else value

    def _file(self, name: str) -> Path | None:
        """The file or folder of that name; a file may have one suffix."""
        path = self.outputs / name
        if path.exists():
            return path
        found = sorted(one for one in self.outputs.glob(f"{name}.*") if one.stem == name)
        return found[0] if len(found) == 1 else None


def _written(path: Path) -> Mapping[str, Any]:
    try:
        found = read_json(path) if path.stat().st_size <= MOST_BYTES else None
    except OSError:
        return {}
    return found if isinstance(found, dict) else {}
