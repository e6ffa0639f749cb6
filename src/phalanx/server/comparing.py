"""/api/v1/compare: runs beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query

from phalanx.scheduler.comparing import beside, code_entries, environment_entries, flattened, read_tree
from phalanx.server.answers import Answer
from phalanx.server.charting import MOST_RUNS, visible_runs
from phalanx.server.context import Caller, Context, Here
from phalanx.server.environments import without_secrets
from phalanx.server.rows import run_row
from phalanx.store import Run

LONGEST_VALUE = 1_000
MOST_ROWS = 10_000

router = APIRouter(prefix="/api/v1", tags=["runs"])


@router.get("/compare")
def compare_runs(
    here: Here,
    caller: Caller,
    *,
    run: Annotated[list[Annotated[str, Query(max_length=100)]], Query(max_length=MOST_RUNS)],
    everything: Annotated[bool, Query(description="also what is the same in all of them")] = False,
) -> Answer:
    """What differs between runs: params, last values of metrics, their files, code and surroundings. Values stand in
    the order of `runs`, null where one has none. Runs that one may not see are left out."""
    runs = visible_runs(here, caller, run)
    rows: list[dict[str, Any]] = []
    for group, columns in _columns(here, runs).items():
        found = (row for row in beside(columns) if everything or row["differs"])
        rows += [{"group": group, **row, "values": [_short(value) for value in row["values"]]} for row in found]
    return Answer({"runs": [run_row(one) for one in runs], "rows": rows[:MOST_ROWS]})


def _columns(here: Context, runs: Sequence[Run]) -> dict[str, list[Mapping[str, Any]]]:
    folders = [here.home.run(run.id).path for run in runs]
    records = [without_secrets(_mapping(read_tree(folder / "records.json"))) for folder in folders]
    return {
        "params": [run.params for run in runs],
        "metrics": [run.summary for run in runs],
        "spec": [flattened(without_secrets(_mapping(read_tree(folder / "spec.yml")))) for folder in folders],
        "code": [code_entries(record) for record in records],
        "environment": [environment_entries(record) for record in records],
    }


def _mapping(tree: Any) -> Mapping[str, Any]:
    return tree if isinstance(tree, dict) else {}


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else None
    return f"{text[:LONGEST_VALUE]}…" if text is not None and len(text) > LONGEST_VALUE else value
