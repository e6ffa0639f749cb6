"""/api/v1/models/{name}/versions/{number}/…: the files of a model version, one by one or all at once.

The registry has its own copy of them: they outlive the run that made them.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi import Path as PathPart
from starlette.responses import Response, StreamingResponse

from phalanx.artifacts.objects import FileRecord
from phalanx.artifacts.trees import FILE, FOLDER, LINK, Tree, TreeEntry
from phalanx.errors import CallError
from phalanx.registry.registry import Registry
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.auth.model_visibility import ModelVisibility
from phalanx.server.context import Caller, Context, Here
from phalanx.server.http.documented_content import FILE as FILE_CONTENT
from phalanx.server.http.documented_content import content
from phalanx.server.http.file_responses import SAFE, file_answer
from phalanx.server.http.paths import opened
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.schemas.model_files import VersionFiles
from phalanx.store.model_index import ModelVersion

CHUNK = 1 << 18
BLOCK = 512  # of a tar archive

Name = Annotated[str, PathPart(max_length=200)]
Number = Annotated[int, PathPart(ge=1, le=10**9)]

DOWNLOAD = {**FILE_CONTENT, 200: content("*/*", description="The file, or all files as a tar.")[200]}

router = APIRouter(prefix="/api/v1/models/{name}/versions/{number}", tags=["models"])


@router.get("/files", response_model=VersionFiles)
def list_version_files(name: Name, number: Number, here: Here, caller: Caller) -> JsonResponse:
    """The files, folders and links of a version, by path, with the digests of files."""
    version, tree = _found(here, caller, name, number)
    records = Registry(here.home, here.store).files(version)
    rows = [_row(entry, records.get(entry.path)) for entry in tree.walk() if _is_inside(tree, entry)]
    return JsonResponse({"files": rows})


@router.get("/files/{path:path}", response_class=Response, responses=FILE_CONTENT)
def fetch_version_file(  # noqa: PLR0913 - the parts of its path
    name: Name, number: Number, path: str, *, request: Request, here: Here, caller: Caller
) -> Response:
    """One file of a version, or part of it with `Range`."""
    _, tree = _found(here, caller, name, number)
    return file_answer(opened(tree, path), path, request.headers.get("range"))


@router.get("/download", response_class=Response, responses=DOWNLOAD)
def download_version(name: Name, number: Number, request: Request, here: Here, caller: Caller) -> Response:
    """All files of a version: the file itself, or a tar archive of several."""
    _, tree = _found(here, caller, name, number)
    files = [entry for entry in tree.walk() if entry.kind == FILE]
    if len(files) == 1:
        return file_answer(opened(tree, files[0].path), files[0].path, request.headers.get("range"))
    title = quote(f"{name}-{number}.tar", safe="")
    headers = {**SAFE, "Content-Disposition": f"attachment; filename*=UTF-8''{title}", "Accept-Ranges": "none"}
    return StreamingResponse(_archive(tree, files), headers=headers, media_type="application/x-tar")


def _archive(tree: Tree, files: list[TreeEntry]) -> Iterator[bytes]:
    """A tar archive, made while it is sent. Of a file that changed meanwhile, as much as was announced."""
    for entry in files:
        info = tarfile.TarInfo(entry.path)
        info.size = entry.size or 0
        yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        left = info.size
        with suppress(OSError), tree.open(entry.path) as stream:
            while left and (data := stream.read(min(CHUNK, left))):
                left -= len(data)
                yield data
        yield bytes(left + -info.size % BLOCK)
    yield bytes(2 * BLOCK)


def _found(here: Context, caller: Identity, name: str, number: int) -> tuple[ModelVersion, Tree]:
    """The version, and its files. Raises RequestError."""
    version = ModelVisibility(here.store, caller.projects(Role.VIEWER)).version(name, number)
    if version is None:
        hint = "GET /api/v1/models/NAME lists the versions"
        raise RequestError(404, f"there is no version {number} of a model {name[:100]!r}", hint)
    try:
        found = Registry(here.home, here.store).resolve(version.title)
    except CallError as fault:
        raise RequestError(404, str(fault)) from None
    if found.path is None:
        raise RequestError(404, f"{version.title} has no files on the server", f"they are at {str(found.url)[:500]}")
    return version, Tree(found.path)


def _is_inside(tree: Tree, entry: TreeEntry) -> bool:
    return entry.kind in (FILE, FOLDER) or (entry.kind == LINK and tree.leads_to(entry.path) is not None)


def _row(entry: TreeEntry, kept: FileRecord | None) -> dict[str, Any]:
    return {
        "path": entry.path,
        "kind": entry.kind,
        "size": entry.size,
        "at": entry.mtime_ns / 1e9,
        "digest": kept.digest if kept is not None else None,
        "target": entry.target,
    }
