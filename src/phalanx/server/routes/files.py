"""/api/v1/runs/{id}/…: files of a run, for reading and download; and uploads of a client's growing files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from phalanx import run_paths
from phalanx.artifacts.outputs import browse, entry_row
from phalanx.artifacts.trees import Tree, run_tree
from phalanx.server.auth.identities import Identity
from phalanx.server.context import Caller, Context, Here
from phalanx.server.http.bodies import MAX_PIECE, bounded, stream_into
from phalanx.server.http.chunks import append, assemble
from phalanx.server.http.documented_content import BINARY_BODY, FILE
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.file_responses import file_answer
from phalanx.server.http.pagination import MOST, Limit, Offset
from phalanx.server.http.paths import REPLICA_NAME, new_inside, opened, steps_of
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.run_writers import is_ours
from phalanx.server.schemas.files import OutputPage, UploadedFile

OURS = (run_paths.ARTIFACTS, run_paths.MODELS)  # folders of a run that clients put files into
GROWING = (".points", ".events")
_ATTEMPT_FOLDER = run_paths.attempt_folder(r"[a-z]+-\d{1,6}", r"([1-9]\d{0,8})")
_ATTEMPT = re.compile(rf"({_ATTEMPT_FOLDER})/(.+)\Z", re.ASCII)
_SPOOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.(points|events)\Z", re.ASCII)

router = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["files"])


@router.get("/outputs", response_model=OutputPage)
def list_outputs(  # noqa: PLR0913 - each is a parameter of the query
    run_id: str,
    here: Here,
    *,
    path: Annotated[str, Query(max_length=1000)] = "",
    depth: Annotated[int | None, Query(ge=0, le=100, description="maximum depth below the path")] = None,
    limit: Limit = MOST,
    offset: Offset = 0,
) -> JsonResponse:
    """A page of the files in a run's folders `outputs`, `artifacts` and `models`, below a path."""
    run = here.find(run_id)
    entries = browse(here.home.run(run.id).path, path)
    if depth is not None:
        deepest = len(steps_of(path)) + depth
        entries = [entry for entry in entries if entry.path.count("/") < deepest]
    rows = [entry_row(entry) for entry in entries[offset : offset + limit]]
    return JsonResponse({"files": rows, "count": len(entries)})


@router.get("/outputs/{path:path}", response_class=Response, responses=FILE)
def get_output(run_id: str, path: str, request: Request, here: Here) -> Response:
    """One of these files, or a part of it. Always sent as an attachment, never as a page."""
    run = here.find(run_id)
    return file_answer(opened(run_tree(here.home.run(run.id).path), path), path, request.headers.get("range"))


@router.get("/media/{replica}/{attempt}/{path:path}", response_class=Response, responses=FILE)
def get_media(  # noqa: PLR0913 - the parts of a path
    run_id: str, replica: str, attempt: int, path: str, *, request: Request, here: Here
) -> Response:
    """An image that a replica logged; the path is the part after `media/` in its event."""
    folder = attempt_folder(here, run_id, replica, attempt)
    found = opened(Tree(folder, (run_paths.MEDIA,)), f"{run_paths.MEDIA}/{path}")
    return file_answer(found, path, request.headers.get("range"))


@router.get("/logs/{replica}", response_class=Response, responses=FILE)
def get_log(  # noqa: PLR0913 - each is a parameter of the query
    run_id: str,
    replica: str,
    request: Request,
    here: Here,
    *,
    attempt: Annotated[int | None, Query(ge=1, le=10**8)] = None,
    tail: Annotated[int | None, Query(ge=0, le=1 << 40, description="only the last N bytes")] = None,
) -> Response:
    """The log of a replica, of its newest attempt or another one."""
    folder = attempt_folder(here, run_id, replica, attempt or max(1, here.find(run_id).attempt))
    wanted = f"bytes=-{tail}" if tail is not None else request.headers.get("range")
    return file_answer(opened(Tree(folder), run_paths.LOG), f"{replica}.log", wanted, kind="text/plain; charset=utf-8")


def attempt_folder(here: Context, run_id: str, replica: str, attempt: int) -> Path:
    """Raises RequestError when there is none."""
    run = here.find(run_id)
    if not REPLICA_NAME.match(replica):
        raise RequestError(404, f"there is no replica {replica[:100]!r}")
    folder = here.home.run(run.id).path / run_paths.attempt_folder(replica, attempt)
    if not folder.is_dir():
        raise RequestError(404, f"run {run.id} has no replica {replica} in attempt {attempt}")
    return folder


# Uploads ------------------------------------------------------------------------------------------------------------


@router.put(
    "/files/{path:path}",
    response_model=UploadedFile,
    openapi_extra=BINARY_BODY,
    responses=refusals(409, 507),
)
async def put_file(  # noqa: PLR0913 - each is a parameter of the query
    run_id: str,
    path: str,
    request: Request,
    *,
    here: Here,
    identity: Caller,
    offset: Annotated[int, Query(ge=0, le=1 << 50)] = 0,
    whole: Annotated[bool, Query()] = False,
    size: Annotated[
        int | None, Query(ge=0, le=1 << 50, description="size of the whole file, for a chunked upload")
    ] = None,
) -> JsonResponse:
    """Upload a chunk of a file of a client's run at its offset. Bytes that are already there are skipped; a gap is
    answered with the current length. With `whole` the body replaces the file at once; with `size` the file is replaced
    once all chunks are there. A successful response means that the data is in the file."""
    target = await run_in_threadpool(_target, here, run_id, path, identity)
    if whole:
        return JsonResponse({"size": await stream_into(request, target)})
    piece = await bounded(request, MAX_PIECE)
    return await run_in_threadpool(_put, here, run_id, target, offset, piece, size)


def _put(here: Context, run_id: str, target: Path, offset: int, piece: bytes, size: int | None) -> JsonResponse:  # noqa: PLR0913, PLR0917 - see `put_file`
    """Two clients that upload the same file (one was thought dead) must not mix: the length is checked while holding
    the run's writer."""
    with here.run_writers.of(run_id):
        if target.name.endswith(GROWING) and run_paths.attempt_number(target.parent.name) is not None:
            return append(target, offset, piece)
        return assemble(target, offset, piece, size)


def _target(here: Context, run_id: str, path: str, identity: Identity) -> Path:
    """The location of a client's file. Raises RequestError for all other places of the run's folder."""
    folder = here.home.run(here.find(run_id).id).path
    match = _ATTEMPT.match(path)
    if match is None:
        if steps_of(path)[:1] and steps_of(path)[0] in OURS and len(steps_of(path)) > 1:
            return new_inside(folder, path)
        raise _wrong_place(path)
    attempt, number, rest = folder / match[1], int(match[2]), match[3]
    if identity.attempt not in (None, number):
        raise RequestError(403, f"this token may only write to attempt {identity.attempt}")
    if not attempt.is_dir():
        raise RequestError(404, f"run {run_id} has no {match[1]}")
    if rest.startswith(f"{run_paths.MEDIA}/"):
        return new_inside(attempt, rest)
    if not _SPOOL.match(rest) or is_ours(rest):
        raise _wrong_place(path)
    return attempt / rest


def _wrong_place(path: str) -> RequestError:
    hint = f"{run_paths.attempt_folder('NAME', 'N')}/WRITER.points or .events or media/…, artifacts/… and models/… are"
    return RequestError(400, f"clients may not write the file {path[:200]!r}", hint)
