"""/api/v1/compare: a comparison of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query

from phalanx import run_paths
from phalanx.insight.comparison import code_entries, compare, environment_entries, flattened, read_tree, without_params
from phalanx.server.context import Caller, Context, Here
from phalanx.server.http.responses import JsonResponse
from phalanx.server.routes.charts import MOST_RUNS, visible_runs
from phalanx.server.run_environment import without_secrets
from phalanx.server.schemas.comparison import RunComparison
from phalanx.store import Run
from phalanx.store.rows import run_row

LONGEST_VALUE = 1_000
MOST_ROWS = 10_000

router = APIRouter(prefix="/api/v1", tags=["runs"])


@router.get("/compare", response_model=RunComparison)
def compare_runs(
    here: Here,
    caller: Caller,
    *,
    run: Annotated[list[Annotated[str, Query(max_length=100)]], Query(max_length=MOST_RUNS)],
    everything: Annotated[bool, Query(description="include what is equal in all runs")] = False,
) -> JsonResponse:
    """The differences between runs: params, last metric values, file, code and environment. Values are in the order of
    `runs`, null where a run has none. Runs that the caller may not see are omitted."""
    runs = visible_runs(here, caller, run)
    rows: list[dict[str, Any]] = []
    for group, columns in _columns(here, runs).items():
        found = (row for row in compare(columns) if everything or row["differs"])
        rows += [{"group": group, **row, "values": [_short(value) for value in row["values"]]} for row in found]
    return JsonResponse({"runs": [run_row(one) for one in runs], "rows": rows[:MOST_ROWS]})


def _columns(here: Context, runs: Sequence[Run]) -> dict[str, list[Mapping[str, Any]]]:
    folders = [here.home.run(run.id).path for run in runs]
    records = [without_secrets(_mapping(read_tree(folder / run_paths.RECORDS))) for folder in folders]
    specs = [flattened(without_secrets(_mapping(read_tree(folder / run_paths.SPEC)))) for folder in folders]
    return {
        "params": [run.params for run in runs],
        "metrics": [run.summary for run in runs],
        "spec": [without_params(spec, run.params) for spec, run in zip(specs, runs, strict=True)],
        "code": [code_entries(record) for record in records],
        "environment": [
            without_params(environment_entries(record), run.params) for record, run in zip(records, runs, strict=True)
        ],
    }


def _mapping(tree: Any) -> Mapping[str, Any]:
    return tree if isinstance(tree, dict) else {}


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else None
    return f"{text[:LONGEST_VALUE]}…" if text is not None and len(text) > LONGEST_VALUE else value
