"""POST /api/v1/runs/submit: submit a file, as `phalanx run` does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import category

from fastapi import APIRouter
from starlette.background import BackgroundTask

from phalanx import plan
from phalanx.errors import CallError, SpecErrors
from phalanx.home.atomic_files import write_atomic
from phalanx.home.home import Home
from phalanx.plan.framework_checks import load
from phalanx.server.auth.identities import ALL, Identity, Role
from phalanx.server.context import Caller, Context, Here, require_role
from phalanx.server.http import openapi
from phalanx.server.http.bodies import JsonBody, json_object
from phalanx.server.http.fields import LONGEST_TEXT, flag, mapping, string_list, text
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.routes.snapshots import SnapshotClaim, Uploads
from phalanx.server.rows import run_row
from phalanx.server.run_environment import environment_for_runs
from phalanx.spec import Spec
from phalanx.spec.quantities import seconds
from phalanx.spec.tree import Node
from phalanx.store import Run
from phalanx.submission import virtualenvs
from phalanx.submission.checks import SLURM, capacity_excess, check_runnable, check_site, ignored_fields, runs_locally
from phalanx.submission.provenance import collect
from phalanx.submission.submit import submit

MOST_FILES = 20
LARGEST_FILE = 1 << 20
MOST_PARAMS = 1000
LARGEST_PRIORITY = 1_000_000

router = APIRouter(prefix="/api/v1", tags=["runs"])


class SubmitRequest(NamedTuple):
    """A submission."""

    files: Sequence[tuple[str, bytes]]
    params: Mapping[str, str]
    wishes: Mapping[str, Any]
    code: str | None
    git: Mapping[str, Any] | None  # git state of the code, from the sender
    is_strict: bool
    is_unchecked: bool

    @property
    def project(self) -> str:
        return str(self.wishes["project"])


ORDER = {
    "files": openapi.FILES,
    "params": openapi.ANYTHING,
    "name": openapi.TEXT,
    "description": openapi.TEXT,
    "tags": openapi.TEXTS,
    "project": openapi.TEXT,
    "priority": openapi.WHOLE,
    "timeout": {"anyOf": [openapi.NUMBER, openapi.TEXT]},
    "on": openapi.TEXT,
    "code": openapi.TEXT,
    "strict": openapi.FLAG,
    "unchecked": openapi.FLAG,
    "git": openapi.ANYTHING,
}


@router.post("/runs/submit", status_code=201, openapi_extra=openapi.body(ORDER, "files"))
def submit_run(body: JsonBody, here: Here, caller: Caller) -> JsonResponse:
    """Submit a run: `files` (a list of `name` and `text`; later files override earlier ones), `params`, `name`,
    `description`, `tags`, `project`, `priority`, `timeout`, `on`, and `code`, the id of a snapshot. `strict` rejects a
    run that requests more than the machine has; `unchecked` submits even if the site profile predicts a rejection;
    `git` may give commit, branch and diff of the code. All errors of the files are returned at once, as `faults` with
    their positions."""
    order = read_order(json_object(body))
    require_role(caller, order.project, Role.EDITOR)
    try:
        run, notes, environment = start(here, caller, order)
    except SpecErrors as wrong:
        faults = [error.as_json() for error in wrong.errors]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise RequestError(
            422, f"{wrong.errors[0] if wrong.errors else 'the file is wrong'}{more}", faults=faults
        ) from None
    records = BackgroundTask(keep_records, here.home, run, environment, order.git)
    return JsonResponse({**run_row(run), "waits_for": None, "notes": notes}, 201, background=records)


def start(here: Context, caller: Identity, order: SubmitRequest) -> tuple[Run, list[dict[str, Any]], Mapping[str, str]]:
    """The run, its warnings, and its environment. Raises SpecErrors, CallError, RequestError."""
    loaded, tree = load(order.files, order.params)
    on = order.wishes["on"]
    environment = environment_for_runs()
    check_runnable(here.home.path, loaded, on, environment)
    notes = _judged(here.home, loaded, tree, order, environment)
    venv = None
    if runs_locally(loaded, on):
        inside = _existing(loaded, environment)
        if inside is not None:
            environment, venv = inside, inside.get("VIRTUAL_ENV")
        notes += [{"message": line} for line in ignored_fields(loaded)]
    else:
        _refuse_build(loaded, elsewhere=True)
    claim = Uploads(here.home).claim(order.code, caller.name) if order.code is not None else None
    try:
        run, made = submit(
            here.home,
            here.store,
            loaded,
            working=Path("/"),
            environment=environment,
            wishes={**order.wishes, "user": caller.name, "venv": venv},
            put_code=claim.take if claim is not None else _empty,
        )
    finally:
        _settle(claim)
    here.wake()
    return run, [*(note.as_json() for note in (*loaded.notes, *made.notes)), *notes], environment


def _empty(folder: Path) -> None:
    folder.mkdir(mode=0o700)


def _settle(claim: SnapshotClaim | None) -> None:
    if claim is not None:
        claim.settle()


def _judged(
    home: Home, loaded: Spec, tree: Node, order: SubmitRequest, environment: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The warnings. Raises SpecErrors for what the site would reject, CallError."""
    on = order.wishes["on"]
    if runs_locally(loaded, on):
        beyond = capacity_excess(loaded)
        if beyond and order.is_strict:
            raise CallError(f"the run requests more than this machine has: {beyond}; without `strict` it runs anyway")
        return [{"message": f"requests more than this machine has: {beyond}"}] if beyond else []
    if order.is_unchecked or (on or loaded.backend) != SLURM:
        return []
    verdict = check_site([("", plan.make(loaded, "trial"))], tree, None, home.path, environment)
    if verdict.errors:
        raise SpecErrors(verdict.errors)
    return [note.as_json() for note in verdict.notes]


def _existing(loaded: Spec, environment: Mapping[str, str]) -> dict[str, str] | None:
    """The environment with the Python that the file names. Raises CallError."""
    _refuse_build(loaded, elsewhere=False)
    return virtualenvs.existing_python(loaded.environment.python, environment)


def _refuse_build(loaded: Spec, *, elsewhere: bool) -> None:
    """Installing packages takes minutes, too long for a request. Raises CallError."""
    python = loaded.environment.python
    if elsewhere and python.build_on != "login":
        return
    if virtualenvs.VirtualenvSpec.by(loaded, with_steps=elsewhere) is not None:
        raise CallError(
            "the server does not install packages: name an existing environment with `environment.python.venv` or "
            "`conda`, or use `phalanx run` on the server's machine"
        )


def keep_records(home: Home, run: Run, environment: Mapping[str, str], git: Mapping[str, Any] | None = None) -> None:
    """Write the records that are needed to reproduce the run, while it starts."""
    folder = home.run(run.id).path
    records = collect(folder / "code", environment, run.params, {"git": git})
    with suppress(OSError):  # removed meanwhile, or the disk is full: the run itself reports it
        write_atomic(folder / "records.json", json.dumps(records, indent=1).encode())


# parsing the request -------------------------------------------------------------------------------------------------


def read_order(wanted: Mapping[str, Any]) -> SubmitRequest:
    """Raises RequestError, CallError."""
    project = text(wanted, "project", 500) or "default"
    if project == ALL:
        raise RequestError(400, f"`{ALL}` means all projects and cannot be a project name")
    wishes: dict[str, Any] = {
        "name": text(wanted, "name", 500) or None,
        "description": text(wanted, "description") or None,
        "tags": string_list(wanted, "tags"),
        "project": project,
        "priority": _priority(wanted),
        "timeout_s": _timeout(wanted),
        "on": text(wanted, "on", 100) or None,
        "commit": None,
    }
    git = _git(wanted)
    if git is not None:
        wishes["commit"] = git["commit"] or None
    for name in ("name", "project", "on", "commit"):
        _refuse_odd(name, wishes[name] or "", "Cc")
    _refuse_odd("tags", "".join(wishes["tags"]), "Cc")
    _refuse_odd("description", wishes["description"] or "")
    return SubmitRequest(
        files=_files(wanted),
        params=_params(wanted),
        wishes=wishes,
        code=text(wanted, "code", 100) or None,
        git=git,
        is_strict=flag(wanted, "strict"),
        is_unchecked=flag(wanted, "unchecked"),
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
        _refuse_odd("params", name + value)
    return texts


def _refuse_odd(name: str, value: str, *kinds: str) -> None:
    """Characters that no file and no variable can contain. Raises RequestError."""
    if any(sign == "\0" or category(sign) in ("Cs", *kinds) for sign in value):
        raise RequestError(400, f"`{name}` contains control characters or lone surrogates")


def _priority(wanted: Mapping[str, Any]) -> int:
    found = wanted.get("priority") or 0
    if not isinstance(found, int) or isinstance(found, bool) or abs(found) > LARGEST_PRIORITY:
        raise RequestError(400, f"`priority` must be an integer of up to {LARGEST_PRIORITY:,}")
    return found


def _timeout(wanted: Mapping[str, Any]) -> float | None:
    found = wanted.get("timeout")
    if found is None or found == "":
        return None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    timeout = seconds(str(found)) if is_number or isinstance(found, str) else None
    if timeout is None or timeout <= 0:
        raise RequestError(400, '`timeout` must be a number of seconds, or a duration such as "90m" or "1d12h"')
    return timeout


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
