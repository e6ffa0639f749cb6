"""POST /api/v1/runs/submit and /runs/submit-many: submit a file, once or with many params, as `phalanx run` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
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
from phalanx.server.schemas.submissions import (
    LARGEST_FILE,
    MOST_RUNS,
    NewSubmission,
    NewSubmissions,
    SubmittedFile,
    SubmittedRunRow,
    SubmittedRunRows,
)
from phalanx.settings.home_settings import read_home_settings
from phalanx.spec import Spec
from phalanx.store.rows import run_row
from phalanx.submission.batch import SubmissionBatch
from phalanx.submission.builds import pinned
from phalanx.submission.checks import check_project, check_text
from phalanx.submission.dependencies import resolve
from phalanx.submission.model import CodeSource, PreparedRun, Remark, Submission
from phalanx.submission.provenance import record
from phalanx.submission.submit import create, prepare

MOST_FAULTS = 100  # in one response: thousands of runs may have the same one

router = APIRouter(prefix="/api/v1", tags=["runs"])


@router.post(
    "/runs/submit", status_code=201, response_model=SubmittedRunRow, responses=refusals(404, 409, 413, 422, 507)
)
def submit_run(
    request: Request, body: Annotated[NewSubmission, json_body(NewSubmission)], here: Here, caller: Caller
) -> JsonResponse:
    """Submit a run, as `phalanx run` does. All errors of the files are returned at once, as `faults` with their
    positions."""
    project = _permitted_project(body, caller)
    put_code = partial(Uploads(here.home).take, body.code, caller.name) if body.code else None
    remarks: list[Remark] = []
    try:
        submission = read_submission(body, project, here, caller, put_code)
        prepared = prepare(here.home, submission, remarks.append, here.store)
        run = create(here.home, here.store, prepared)
    except SpecErrors as wrong:
        raise _invalid_file(wrong.errors) from None
    request.scope["state"]["about"] = {"run": run.id}
    here.wake()
    answer = {**run_row(run), "waits_for": None, "notes": [remark.as_json() for remark in remarks]}
    return JsonResponse(answer, 201, background=recording(here.home, prepared))


@router.post(
    "/runs/submit-many", status_code=201, response_model=SubmittedRunRows, responses=refusals(404, 409, 413, 422, 507)
)
def submit_runs(
    request: Request, body: Annotated[NewSubmissions, json_body(NewSubmissions)], here: Here, caller: Caller
) -> JsonResponse:
    """Submit many runs, as `phalanx run --many` does: all of them, or none if one has an error or is refused. Each of
    `runs` has `params` of its own, and may have `files`, a `name`, `on`, and `times`; all other fields are for all."""
    project = _permitted_project(body, caller)
    if body.wanted > MOST_RUNS:
        raise RequestError(400, f"a request may queue at most {MOST_RUNS:,} runs, not {body.wanted:,}", "use several")
    remarks: list[Remark] = []
    with (
        closing(SubmissionBatch(here.home, here.store, remarks.append)) as batch,
        Uploads(here.home).shared(body.code or "", caller.name, body.wanted) as put_code,
    ):
        faults = SubmissionFaults()
        for number, variant in enumerate(body.runs):
            if faults.count >= MOST_FAULTS:
                break
            with faults.of(number):
                batch.add(read_submission(body.of(variant), project, here, caller, put_code), variant.times or 1)
        faults.check()
        runs = list(batch.publish())
    request.scope["state"]["about"] = {"run": runs[0].id, "count": str(len(runs))}
    here.wake()
    names = [{"id": run.id, "name": run.name, "status": run.status} for run in runs]
    notes = [remark.as_json() for remark in remarks]
    return JsonResponse({"count": len(names), "runs": names, "notes": notes}, 201)


class SubmissionFaults:
    """The faults of many submissions, reported together."""

    def __init__(self) -> None:
        self.errors: dict[SpecError, None] = {}
        self.calls: dict[str, None] = {}

    @property
    def count(self) -> int:
        return len(self.errors) + len(self.calls)

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        try:
            yield
        except SpecErrors as wrong:
            self.errors.update((one._replace(message=f"{one.message} (runs[{number}])"), None) for one in wrong.errors)
        except CallError as fault:
            self.calls[f"runs[{number}]: {fault}"] = None

    def check(self) -> None:
        """Raises RequestError, CallError."""
        if self.errors:
            raise _invalid_file(list(self.errors)[:MOST_FAULTS])
        if self.calls:
            raise CallError(f"nothing was queued: {'; '.join(self.calls)}")


def _permitted_project(body: NewSubmission, caller: Identity) -> str:
    """The project of the request, once for all of its runs. Raises RequestError, CallError."""
    project = body.project or "default"
    check_project(project)
    require_role(caller, project, Role.EDITOR)
    return project


def _invalid_file(errors: Sequence[SpecError]) -> RequestError:
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    faults = [error.as_json() for error in errors]
    return RequestError(422, f"{errors[0] if errors else 'the file is wrong'}{more}", faults=faults)


def recording(home: Home, prepared: PreparedRun) -> BackgroundTask:
    """The provenance of a new run is recorded while it starts."""

    def work() -> None:
        with suppress(CallError):  # removed meanwhile, or the disk is full: the run itself says so
            record(home, prepared.run, prepared.environment.variables)

    return BackgroundTask(work)


# reading the body ----------------------------------------------------------------------------------------------------


def read_submission(
    body: NewSubmission, project: str, here: Context, caller: Identity, put_code: Callable[[Path], object] | None
) -> Submission:
    """`put_code` creates the run's folder of code; None: it has none. Raises RequestError, CallError, SpecErrors."""
    files = [_content(file) for file in body.files]
    params, git = _params(body), _git(body)
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
