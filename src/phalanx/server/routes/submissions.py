"""POST /api/v1/runs/submit: submit a file, as `phalanx run` does."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request
from starlette.background import BackgroundTask

from phalanx.errors import CallError, SpecError, SpecErrors
from phalanx.home.home import Home
from phalanx.notifications.permission import refusal
from phalanx.plan.framework_checks import load
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.context import Caller, Context, Here, require_role
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.request_models import json_body
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.routes.snapshots import Uploads
from phalanx.server.run_environment import environment_for_runs
from phalanx.server.schemas.submissions import LARGEST_FILE, NewSubmission, SubmittedFile, SubmittedRunRow
from phalanx.settings.home_settings import read_home_settings
from phalanx.spec import Spec
from phalanx.store.rows import run_row
from phalanx.submission.builds import pinned
from phalanx.submission.checks import check_project, check_text
from phalanx.submission.dependencies import resolve
from phalanx.submission.model import CodeSource, PreparedRun, Remark, Submission
from phalanx.submission.provenance import record
from phalanx.submission.submit import create, prepare

router = APIRouter(prefix="/api/v1", tags=["runs"])


@router.post(
    "/runs/submit", status_code=201, response_model=SubmittedRunRow, responses=refusals(404, 409, 413, 422, 507)
)
def submit_run(
    request: Request, body: Annotated[NewSubmission, json_body(NewSubmission)], here: Here, caller: Caller
) -> JsonResponse:
    """Submit a run, as `phalanx run` does. All errors of the files are returned at once, as `faults` with their
    positions."""
    project = body.project or "default"
    check_project(project)
    require_role(caller, project, Role.EDITOR)
    remarks: list[Remark] = []
    try:
        prepared = prepare(here.home, read_submission(body, project, here, caller), remarks.append, here.store)
        run = create(here.home, here.store, prepared)
    except SpecErrors as wrong:
        faults = [error.as_json() for error in wrong.errors]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise RequestError(
            422, f"{wrong.errors[0] if wrong.errors else 'the file is wrong'}{more}", faults=faults
        ) from None
    request.scope["state"]["about"] = {"run": run.id}
    here.wake()
    answer = {**run_row(run), "waits_for": None, "notes": [remark.as_json() for remark in remarks]}
    return JsonResponse(answer, 201, background=recording(here.home, prepared))


def recording(home: Home, prepared: PreparedRun) -> BackgroundTask:
    """The provenance of a new run is recorded while it starts."""

    def work() -> None:
        with suppress(CallError):  # removed meanwhile, or the disk is full: the run itself says so
            record(home, prepared.run, prepared.environment.variables)

    return BackgroundTask(work)


# reading the body ----------------------------------------------------------------------------------------------------


def read_submission(body: NewSubmission, project: str, here: Context, caller: Identity) -> Submission:
    """Raises RequestError, CallError, SpecErrors."""
    files = [_content(file) for file in body.files]
    params, git = _params(body), _git(body)
    put_code = partial(Uploads(here.home).take, body.code, caller.name) if body.code else None
    loaded, tree = load(files, params)
    _check_notify(loaded, here.home)
    after = (*loaded.after, *(body.after or ()))
    return Submission(
        spec=pinned(loaded, lambda name: here.find_named(name, caller)),
        tree=tree,
        environment=environment_for_runs(),
        code=CodeSource(put=put_code, commit=(git["commit"] or None) if git is not None else None, git=git),
        files=files,
        params=params,
        name=body.name or None,
        description=body.description or None,
        tags=body.tags or [],
        project=project,
        priority=body.priority or 0,
        timeout_s=body.timeout,
        waits_for=resolve(after, lambda name: here.find_named(name, caller)),
        on=body.on or None,
        user=caller.name,
        is_strict=bool(body.strict),
        is_unchecked=bool(body.unchecked),
        may_install=False,
        is_remote=True,
    )


def _check_notify(loaded: Spec, home: Home) -> None:
    """Raises SpecErrors for rules that a file may not bring to a server."""
    ops = loaded.pipeline.ops if loaded.pipeline is not None else ()
    rules = [*loaded.notify, *(rule for op in ops if op.spec is not None for rule in op.spec.notify)]
    if rules:
        settings = read_home_settings(home.path)
        why = [refused for rule in rules if (refused := refusal(rule, settings)) is not None]
        if why:
            place = loaded.places.get("notify", loaded.places[""])
            raise SpecErrors([SpecError(place, "notify", text) for text in why])


def _content(file: SubmittedFile) -> tuple[str, bytes]:
    """Raises RequestError."""
    content = _bytes(file.text)
    if len(content) > LARGEST_FILE:
        raise RequestError(413, f"a file of `files` may have at most {LARGEST_FILE:,} bytes")
    return file.name or "polyaxonfile.yml", content


def _bytes(content: str) -> bytes:
    """Bytes that are not UTF-8 come as lone surrogates: the parser of the file reports their position."""
    try:
        return content.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return content.encode("utf-8", "replace")


def _params(body: NewSubmission) -> dict[str, str]:
    """As strings, as the command line passes them."""
    found = body.params or {}
    if any(not name.strip() or "\n" in name or "\0" in name for name in found):
        raise RequestError(400, "a name in `params` is empty or contains a line break")
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in found.items()
    }
    for name, value in texts.items():
        check_text("params", name + value)
    return texts


def _git(body: NewSubmission) -> dict[str, Any] | None:
    git = body.git
    if git is None:
        return None
    return {
        "commit": git.commit or "",
        "branch": git.branch or "",
        "dirty": bool(git.dirty),
        "diff": git.diff or "",
    }
