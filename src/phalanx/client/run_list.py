"""A list of runs that can become a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from phalanx import extras

if TYPE_CHECKING:
    from phalanx.store.records import Run

Item = TypeVar("Item")
_INNER = ("params", "summary", "best")


class RunList(list[Item]):
    """Runs in the order of the query. `record` returns the record of one."""

    def __init__(self, runs: Iterable[Item], record: Callable[[Item], Run]) -> None:
        super().__init__(runs)
        self._record = record

    def frame(self) -> Any:
        """A data frame with one row per run, like MLflow's `search_runs`: the fields of its record, `params.*`,
        `metrics.*` (last values), and `min.*` and `max.*` of the metrics. A run without a value has NaN or None."""
        with extras.needed("pandas", "`frame()`"):
            import pandas as pd

        return pd.DataFrame([row_of(self._record(run)) for run in self])


def row_of(run: Run) -> Mapping[str, Any]:
    row = {name: value for name, value in run._asdict().items() if name not in _INNER}
    row |= {f"params.{name}": value for name, value in run.params.items()}
    row |= {f"metrics.{name}": value for name, value in run.summary.items()}
    row |= {f"min.{name}": best.min for name, best in run.best.items()}
    return row | {f"max.{name}": best.max for name, best in run.best.items()}
