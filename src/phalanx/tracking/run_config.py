"""`run.config` and `run.summary`: params and final values, used like dicts. Standard library only, Python 3.8+."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any, MutableMapping  # noqa: UP035 - Python 3.8

from phalanx import run_paths
from phalanx.atomic_files import read_json
from phalanx.spool import MOMENT, NAME_NUMBER, NAMES, POINTS, VALUE, Reader
from phalanx.tracking.values import guarded, number, params_of, result_of


class RunConfig(MutableMapping[str, Any]):
    """The values as they were given. `record` adds more of them."""

    def __init__(self, record: Callable[..., None], values: dict[str, Any]) -> None:
        object.__setattr__(self, "_record", record)
        object.__setattr__(self, "_values", values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"the run has no param {name!r}")
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __setattr__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        """Only here: what was recorded stays."""
        self._values.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def update(self, given: Any = None, /, allow_val_change: Any = None, **values: Any) -> None:  # noqa: ARG002 - W&B's argument
        """From a mapping, a namespace or a dataclass. Never raises."""
        self._record(given, **values)

    def setdefaults(self, given: Any) -> None:
        """Only what is missing."""
        with guarded(lambda _: None):
            self.update({name: value for name, value in params_of(given).items() if name not in self._values})

    def as_dict(self) -> dict[str, Any]:
        return dict(self._values)

    def __repr__(self) -> str:
        return f"RunConfig({self._values!r})"


def launch_params() -> dict[str, Any]:
    """The params of the run's file."""
    found = result_of(lambda: json.loads(os.environ.get("PHALANX_PARAMS") or "{}"), {})
    return found if isinstance(found, dict) else {}


def launch_name(run_folder: str) -> str | None:
    """The name with which the run was submitted, or that of its file; None if it has none."""
    document = read_json(os.path.join(run_folder, run_paths.RUN))  # not visible in a pod
    name = document.get("name") if isinstance(document, dict) else None
    return str(name or os.environ.get("PHALANX_RUN_NAME") or "") or None


class RunSummary(MutableMapping[str, Any]):
    """A number is logged as a metric of one point, a text becomes a label. A final value for a metric that has points
    is logged as `summary/NAME`."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._values: dict[str, Any] = {}

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def update(self, given: Any = None, /, **values: Any) -> None:
        """Never raises."""
        for name, value in {**result_of(lambda: dict(given or {}), {}), **values}.items():
            with guarded(lambda fault: self._run.lost("summary", fault)):
                self._set(str(name), value)

    def _set(self, name: str, value: Any) -> None:
        is_own = name in self._values
        self._values[name] = value
        found = result_of(lambda: None if isinstance(value, str) else number(value), None)
        if found is None:
            self._run.labels({name: value})
        elif not is_own and self._run.has_logged(name):
            self._values.pop(name)
            self._values[f"summary/{name}"] = value
            self._run.log({f"summary/{name}": found})
        else:
            self._run.log({name: found})

    def __getitem__(self, name: str) -> Any:
        for key in (f"summary/{name}", name):
            if key in self._values:
                return self._values[key]
        return self._logged()[name]

    def __delitem__(self, name: str) -> None:
        """Only here: what was recorded stays."""
        self._values.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._logged(), **self._values})

    def __len__(self) -> int:
        return len({**self._logged(), **self._values})

    def _logged(self) -> dict[str, float]:
        """The last values that this process logged, read from its files: `log` keeps nothing in memory."""
        return dict(result_of(self._read, {}))

    def _read(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for path in self._run.point_files():
            names: dict[int, str] = {}
            for record in Reader(path).poll():
                if record.kind == NAMES:
                    place = NAME_NUMBER.unpack_from(record.payload)[0]
                    names[place] = record.payload[NAME_NUMBER.size :].decode("utf-8", "replace")
                elif record.kind == POINTS:
                    for place, value in VALUE.iter_unpack(record.payload[MOMENT.size :]):
                        found[names.get(place, "")] = value
        return found

    def __repr__(self) -> str:
        return f"RunSummary({self._values!r})"
