"""/api/v1/runs/{run_id}/…: the inputs of a run: its file, plan, environment, records and code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from phalanx import run_paths
from phalanx.errors import CallError, SpecErrors
from phalanx.placeholders import Value, fill
from phalanx.plan.document import MANY, shown
from phalanx.server.context import Context, Here
from phalanx.server.http.documented_content import content
from phalanx.server.http.file_responses import SAFE
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.run_environment import without_secrets
from phalanx.server.schemas.base import Json
from phalanx.server.schemas.replicas import ReplicaInputs
from phalanx.spec.yaml_writer import modern_document, to_yaml
from phalanx.stored_plan import PlanDamaged, PlannedReplica, StoredPlan, decode_plan
from phalanx.submission.clone import spec_of

LARGEST = 64 << 20  # bytes of one of our files that is read whole

router = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["runs"])


@router.get("/spec", response_class=Response, responses=content("text/yaml", type="object"))
def show_spec(run_id: str, here: Here) -> Response:
    """The file of the run, in its modern form. Values that look secret are hidden."""
    run = here.find(run_id)
    try:
        document = modern_document(spec_of(here.home, run))
    except (CallError, SpecErrors) as fault:
        raise RequestError(404, str(fault)) from None
    return text_answer(to_yaml(without_secrets(document)), "text/yaml; charset=utf-8")


@router.get("/plan", response_model=dict[str, Json])
def show_plan(run_id: str, here: Here) -> JsonResponse:
    """The planned replicas, ranks, resources and environments. Values that look secret are hidden."""
    return JsonResponse(without_secrets(plan_of(here, run_id)))


@router.get("/records", response_model=dict[str, Json])
def show_records(run_id: str, here: Here) -> JsonResponse:
    """What is needed to reproduce the run: packages, Python, machine, git and environment."""
    return JsonResponse(without_secrets(records_of(here, run_id)))


@router.get("/code-diff", response_class=Response, responses=content("text/plain", type="string"))
def show_code_diff(run_id: str, here: Here) -> Response:
    """The uncommitted changes of its code, as a git diff; empty when there were none."""
    git = records_of(here, run_id).get("git")
    diff = git.get("diff") if isinstance(git, dict) else None
    return text_answer(str(diff or ""), "text/plain; charset=utf-8")


@router.get("/environment/{replica}", response_model=ReplicaInputs)
def show_environment(run_id: str, replica: str, here: Here) -> JsonResponse:
    """The command and the variables of one replica. Values that are known only on the machine are in angle brackets;
    values that look secret are hidden."""
    run = here.find(run_id)
    try:
        plan = decode_plan(plan_of(here, run_id))
    except PlanDamaged as fault:
        raise RequestError(404, f"cannot read the plan of run {run_id}: {fault}") from None
    if replica not in plan.by_name:
        raise RequestError(404, f"run {run_id} has no replica {replica[:100]!r}")
    answer = _environment(plan, plan.by_name[replica])
    return JsonResponse({**answer, "folder": _shown(here.home.run(run.id).working())})


def _shown(folder: Path | None) -> str | None:
    return None if folder is None else str(folder)


def _environment(plan: StoredPlan, replica: PlannedReplica) -> dict[str, Any]:
    members: dict[str, list[str]] = {}
    for one in plan.replicas:
        members.setdefault(one.role, []).append(one.name)
    few = {role: names if len(names) <= MANY else [f"{names[0]}…{names[-1]}"] for role, names in members.items()}

    def text(value: Value) -> str:
        return fill(value, few, shown)

    values = {**replica.defaults, **plan.environment, **replica.environment}
    variables = {name: text(value) for name, value in sorted(values.items())}
    return {"argv": [text(word) for word in replica.argv], "variables": without_secrets(variables)}


def plan_of(here: Context, run_id: str) -> dict[str, Any]:
    """The document itself. Raises RequestError when there is none."""
    return _document(here, run_id, run_paths.PLAN, "no plan: it was tracked, not started, by Phalanx")


def records_of(here: Context, run_id: str) -> dict[str, Any]:
    """Raises RequestError when there are none."""
    return _document(here, run_id, run_paths.RECORDS, "no record of its environment")


def _document(here: Context, run_id: str, name: str, missing: str) -> dict[str, Any]:
    run = here.find(run_id)
    try:
        with (here.home.run(run.id).path / name).open("rb") as stream:
            found = json.loads(stream.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RequestError(404, f"run {run.id} has {missing}")
    return found


def text_answer(text: str, kind: str) -> Response:
    headers = {**SAFE, "Cache-Control": "no-store"}
    del headers["Accept-Ranges"]
    return Response(text.encode("utf-8", "replace"), headers=headers, media_type=kind)
