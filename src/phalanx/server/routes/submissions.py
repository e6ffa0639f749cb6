"""POST /api/v1/runs/submit: submit a file, as `phalanx run` does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.background import BackgroundTask

from phalanx.errors import CallError, SpecErrors
from phalanx.home.home import Home
from phalanx.plan.framework_checks import load
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.context import Caller, Context, Here, require_role
from phalanx.server.http import openapi
from phalanx.server.http.bodies import JsonBody, json_object
from phalanx.server.http.fields import LONGEST_TEXT, flag, mapping, string_list, text
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.routes.snapshots import Uploads
from phalanx.server.run_environment import environment_for_runs
from phalanx.spec.quantities import seconds
from phalanx.store.rows import run_row
from phalanx.submission.checks import check_priority, check_project, check_text
from phalanx.submission.dependencies import resolve
from phalanx.submission.model import CodeSource, PreparedRun, Remark, Submission
from phalanx.submission.provenance import record
from phalanx.submission.submit import create, prepare

MOST_FILES = 20
LARGEST_FILE = 1 << 20
MOST_PARAMS = 1000

router = APIRouter(prefix="/api/v1", tags=["runs"])


ORDER = {
    "files": openapi.FILES,
    "params": openapi.ANYTHING,
    "name": openapi.TEXT,
    "description": openapi.TEXT,
    "tags": openapi.TEXTS,
    "project": openapi.TEXT,
    "priority": openapi.WHOLE,
    "timeout": {"anyOf": [openapi.NUMBER, openapi.TEXT]},
    "after": openapi.TEXTS,
    "on": openapi.TEXT,
    "code": openapi.TEXT,
    "strict": openapi.FLAG,
    "unchecked": openapi.FLAG,
    "git": openapi.ANYTHING,
}


@router.post("/runs/submit", status_code=201, openapi_extra=openapi.body(ORDER, "files"))
def submit_run(request: Request, body: JsonBody, here: Here, caller: Caller) -> JsonResponse:
    """Submit a run: `files` (a list of `name` and `text`; later files override earlier ones), `params`, `name`,
    `description`, `tags`, `project`, `priority`, `timeout`, `on`, and `code`, the id of a snapshot. `after` are runs to
    wait for: `RUN`, `RUN:failed` or `RUN:done`. `strict` rejects a
    run that requests more than the machine has; `unchecked` submits even if the site profile predicts a rejection;
    `git` may give commit, branch and diff of the code. All errors of the files are returned at once, as `faults` with
    their positions."""
    wanted = json_object(body)
    project = text(wanted, "project", 500) or "default"
    check_project(project)
    require_role(caller, project, Role.EDITOR)
    remarks: list[Remark] = []
    try:
        prepared = prepare(here.home, read_submission(wanted, project, here, caller), remarks.append, here.store)
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


def read_submission(wanted: Mapping[str, Any], project: str, here: Context, caller: Identity) -> Submission:
    """Raises RequestError, CallError, SpecErrors."""
    files, params, git = _files(wanted), _params(wanted), _git(wanted)
    snapshot = text(wanted, "code", 100)
    put_code = partial(Uploads(here.home).take, snapshot, caller.name) if snapshot else None
    loaded, tree = load(files, params)
    after = (*loaded.after, *string_list(wanted, "after"))
    return Submission(
        spec=loaded,
        tree=tree,
        environment=environment_for_runs(),
        code=CodeSource(put=put_code, commit=(git["commit"] or None) if git is not None else None, git=git),
        files=files,
        params=params,
        name=text(wanted, "name", 500) or None,
        description=text(wanted, "description") or None,
        tags=string_list(wanted, "tags"),
        project=project,
        priority=check_priority(wanted.get("priority") or 0),
        timeout_s=_timeout(wanted),
        waits_for=resolve(after, lambda name: here.find_named(name, caller)),
        on=text(wanted, "on", 100) or None,
        user=caller.name,
        is_strict=flag(wanted, "strict"),
        is_unchecked=flag(wanted, "unchecked"),
        may_install=False,
    )


def _files(wanted: Mapping[str, Any]) -> list[tuple[str, bytes]]:
    listed = wanted.get("files")
    if not isinstance(listed, list) or not 0 < len(listed) <= MOST_FILES:
        raise RequestError(400, f"`files` must be a list of up to {MOST_FILES} files, each with `name` and `text`")
    found = []
    for file in listed:
        if not isinstance(file, dict):
            raise RequestError(400, "an item of `files` must be an object with `name` and `text`")
        content = _bytes(text(file, "text", LARGEST_FILE))
        if len(content) > LARGEST_FILE:
            raise RequestError(413, f"a file of `files` may have at most {LARGEST_FILE:,} bytes")
        found.append((text(file, "name", 500) or "polyaxonfile.yml", content))
    return found


def _bytes(content: str) -> bytes:
    """Bytes that are not UTF-8 come as lone surrogates: the parser of the file reports their position."""
    try:
        return content.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return content.encode("utf-8", "replace")


def _params(wanted: Mapping[str, Any]) -> dict[str, str]:
    """As strings, as the command line passes them."""
    found = mapping(wanted, "params")
    if len(found) > MOST_PARAMS:
        raise RequestError(400, f"`params` may have at most {MOST_PARAMS:,} entries")
    if any(not name.strip() or "\n" in name or "\0" in name for name in found):
        raise RequestError(400, "a name in `params` is empty or contains a line break")
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in found.items()
    }
    for name, value in texts.items():
        check_text("params", name + value)
    return texts


def _timeout(wanted: Mapping[str, Any]) -> float | None:
    found = wanted.get("timeout")
    if found is None or found == "":
        return None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    parsed = seconds(str(found)) if is_number or isinstance(found, str) else None
    if parsed is None:
        raise RequestError(400, '`timeout` must be a number of seconds, or a duration such as "90m" or "1d12h"')
    return parsed


def _git(wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    if wanted.get("git") is None:
        return None
    found = mapping(wanted, "git")
    return {
        "commit": text(found, "commit", 100),
        "branch": text(found, "branch", 500),
        "dirty": flag(found, "dirty"),
        "diff": text(found, "diff", LONGEST_TEXT * 20),
    }
