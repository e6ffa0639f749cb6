"""/api/v1/pods/{id}/{attempt}/…: uploads of the agents of a run in pods, and the code that they download.

Only the active attempt itself may call these, with its own token. It may write what an agent on a shared filesystem
would write into the run's folder, and nothing else.
"""

from __future__ import annotations

import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from phalanx import backends, run_paths
from phalanx.agent.stdout_courier import is_growing
from phalanx.artifacts.trees import CHUNK, FILE, FOLDER, ROOTS, Tree
from phalanx.backends.contract import LOCAL_BACKENDS
from phalanx.frames import is_file
from phalanx.server.context import Context, Here
from phalanx.server.http.bodies import MAX_FILE, MAX_PIECE, bounded, disk_refusal, stream_into
from phalanx.server.http.chunks import append, assemble
from phalanx.server.http.documented_content import BINARY_BODY, content
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.file_responses import SAFE
from phalanx.server.http.paths import new_inside, steps_of
from phalanx.server.http.response_cache import CachedResponse
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.run_writers import is_ours
from phalanx.server.schemas.files import UploadedFile
from phalanx.store import Run
from phalanx.store.statuses import DONE, Status
from phalanx.stored_plan import PlanDamaged, read_plan

WAITING = (Status.CREATED, Status.RESUMING, Status.WARNING)  # between two attempts
WORDS = (run_paths.AGENT, run_paths.END)
MAX_WORD = 1 << 20  # bytes of an agent's report about itself
MEMBERS_KEPT_S = 60.0
PACKED_WITH = 1  # zlib's fastest level: the transfer is within a cluster, to every pod of a run at once
BLOCK = tarfile.BLOCKSIZE
_members: CachedResponse[frozenset[str]] = CachedResponse(256)

router = APIRouter(prefix="/api/v1/pods/{run_id}/{attempt}", tags=["pods"])
Attempt = Annotated[int, Path(ge=1, le=10**9)]


class PodUpload(NamedTuple):
    path: FilePath
    grows: bool
    most: int = MAX_FILE  # bytes


@router.put(
    "/files/{path:path}",
    response_model=UploadedFile,
    openapi_extra=BINARY_BODY,
    responses=refusals(409, 507),
)
async def put_pod_file(  # noqa: PLR0913 - each is a parameter of the query
    run_id: str,
    attempt: Attempt,
    path: str,
    request: Request,
    *,
    here: Here,
    offset: Annotated[int, Query(ge=0, le=1 << 50)] = 0,
    whole: Annotated[bool, Query(description="the body is the whole file")] = False,
    size: Annotated[
        int | None, Query(ge=0, le=1 << 50, description="size of the whole file, for a chunked upload")
    ] = None,
) -> JsonResponse:
    """Upload a chunk of an agent's file: `REPLICA/NAME`, or `outputs/…`, `artifacts/…`, `models/…`. Logs and spools
    grow: bytes that are already there are skipped, and a gap is answered (409) with the current length. All other files
    appear complete: at once with `whole`, or once all chunks of `size` bytes are there. A successful response means
    that the data is in the file."""
    target = await run_in_threadpool(_target, here, run_id, attempt, path)
    if target.grows and (whole or size is not None):
        raise RequestError(400, f"{path[:200]!r} grows: upload it in chunks, each with its offset")
    if size is not None and size > target.most:
        raise RequestError(413, f"{path[:200]!r} exceeds the limit of {target.most:,} bytes")
    is_at_once = whole and offset == 0 and size in (None, _length(request))
    if is_at_once:
        return JsonResponse({"size": await stream_into(request, target.path, target.most)})
    piece = await bounded(request, MAX_PIECE)
    return await run_in_threadpool(_put, here, run_id, attempt, target, offset=offset, piece=piece, size=size)


@router.get("/code", response_class=Response, responses={**content("application/gzip"), **refusals(409)})
def get_code(run_id: str, attempt: Attempt, here: Here) -> Response:
    """The run's submitted code as a tar.gz: every request returns the same bytes."""
    folder = here.home.run(_present(here, run_id, attempt).id).path / run_paths.CODE
    if folder.is_symlink() or not folder.is_dir():
        raise RequestError(404, f"run {run_id} was submitted without code", "the code is in its image or on a volume")
    headers = {name: value for name, value in SAFE.items() if name != "Accept-Ranges"}
    headers["Content-Disposition"] = 'attachment; filename="code.tar.gz"'
    return StreamingResponse(packed(Tree(folder)), 200, headers, "application/gzip")


def _length(request: Request) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 30 else None


def _present(here: Context, run_id: str, attempt: int) -> Run:
    """The run, if this attempt of it is active in pods. Raises RequestError."""
    run = here.find(run_id)
    if run.backend in LOCAL_BACKENDS or backends.find(run.backend).shares_files:
        raise RequestError(409, f"run {run_id} does not run in pods: its files are on the machine where it runs")
    if run.attempt != attempt or run.status in WAITING or run.status in DONE:
        raise RequestError(
            409, f"attempt {attempt} of run {run_id} has ended", "no more uploads are accepted", is_over=True
        )
    return run


def _put(  # noqa: PLR0913 - see `put_pod_file`
    here: Context, run_id: str, attempt: int, target: PodUpload, *, offset: int, piece: bytes, size: int | None
) -> JsonResponse:
    """Holds the run's writer, so that concurrent uploads do not mix and no attempt ends meanwhile."""
    with here.run_writers.of(run_id):
        _present(here, run_id, attempt)
        if target.grows:
            return append(target.path, offset, piece)
        return assemble(target.path, offset, piece, size)


# Locations of files -------------------------------------------------------------------------------------------------


def _target(here: Context, run_id: str, attempt: int, path: str) -> PodUpload:
    """Raises RequestError for all other places of the run's folder, and everything outside it."""
    folder = here.home.run(_present(here, run_id, attempt).id).path
    first, _, rest = path.partition("/")
    if first in ROOTS and steps_of(rest):
        return PodUpload(_inside(folder, path), grows=False)
    if first not in members_of(folder):
        raise RequestError(
            404, f"run {run_id} has no replica {first[:100]!r}", "allowed are REPLICA/NAME and outputs/…"
        )
    if not is_file(rest) or is_ours(rest):
        hint = "allowed are log, spool, agent.log, agent.json, end.json, NAME.points, NAME.events and media/NAME"
        raise RequestError(400, f"agents may not write the file {path[:200]!r}", hint)
    target = _inside(folder, f"{run_paths.attempt_folder(first, attempt)}/{rest}")
    return PodUpload(target, grows=is_growing(rest), most=MAX_WORD if rest in WORDS else MAX_FILE)


def _inside(folder: FilePath, path: str) -> FilePath:
    """Like `new_inside`, but an error about one file must not look like one about the attempt, for which 403 and 409
    stand here."""
    try:
        return new_inside(folder, path)
    except RequestError as refusal:
        raise RequestError(400, refusal.message, refusal.hint) from None


def members_of(run_folder: FilePath) -> frozenset[str]:
    """The names of all processes of the run's plan. Raises RequestError when the plan cannot be read."""
    return _members.get(run_folder, MEMBERS_KEPT_S, lambda: _read_members(run_folder))


def _read_members(run_folder: FilePath) -> frozenset[str]:
    try:
        return frozenset(replica.name for replica in read_plan(run_folder).replicas)
    except OSError as fault:
        raise disk_refusal(fault) from None
    except PlanDamaged:
        raise RequestError(503, "cannot read the plan of this run") from None


# Code ---------------------------------------------------------------------------------------------------------------


def packed(tree: Tree) -> Iterator[bytes]:
    """The files and folders of a tree as a tar.gz stream. Owners and modification times are omitted, as are links.
    Raises OSError when a file changes meanwhile: the response is aborted."""
    packer = zlib.compressobj(PACKED_WITH, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    for piece in _archive(tree):
        data = packer.compress(piece)
        if data:
            yield data
    yield packer.flush()


def _archive(tree: Tree) -> Iterator[bytes]:
    for found in tree.walk():
        entry = tarfile.TarInfo(found.path)
        if found.kind == FOLDER:
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            yield entry.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
        elif found.kind == FILE:
            yield from _file(tree, entry)
    yield bytes(2 * BLOCK)


def _file(tree: Tree, entry: tarfile.TarInfo) -> Iterator[bytes]:
    with tree.open(entry.name) as stream:
        state = os.fstat(stream.fileno())
        entry.size = left = state.st_size
        entry.mode = 0o755 if state.st_mode & stat.S_IXUSR else 0o644
        yield entry.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
        while left:
            piece = stream.read(min(CHUNK, left))
            if not piece:
                raise OSError("a file was truncated while it was sent")
            left -= len(piece)
            yield piece
    yield bytes(-entry.size % BLOCK)
