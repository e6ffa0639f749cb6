"""/api/v1/runs/{id}/preview and …/view: previews of a run's files. None of them runs in the page's origin."""

from __future__ import annotations

from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from phalanx.artifacts.downloads import open_output
from phalanx.artifacts.outputs import HERE
from phalanx.artifacts.previews import HEAD, Preview, Table, preview, read_table
from phalanx.artifacts.trees import run_tree
from phalanx.server.context import Context, Here
from phalanx.server.http.documented_content import FILE
from phalanx.server.http.file_responses import file_answer
from phalanx.server.http.paths import opened
from phalanx.server.http.responses import JsonResponse
from phalanx.server.schemas.files import FilePreview

MOST_ROWS = 200
APART = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
# Scripts run in a sandbox: without origin, network or access to our data.
SCRIPTED = f"sandbox allow-scripts; {APART.removeprefix('sandbox; ')}; script-src 'unsafe-inline'"
PLAIN = "sandbox; default-src 'none'"
HTML, SVG = "text/html; charset=utf-8", "image/svg+xml"
# What asks for a file to show it. Opened as a page of its own it is downloaded: on this server's address it could pass
# for the server's sign-in.
SHOWN_IN = ("iframe", "image", "audio", "video")
# Types are detected by content: a name can be wrong.
BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"\xff\xd8\xff": "image/jpeg",
    b"fLaC": "audio/flac",
    b"OggS": "audio/ogg",
    b"ID3": "audio/mpeg",
    b"\xff\xfb": "audio/mpeg",
    b"\xff\xf3": "audio/mpeg",
    b"\xff\xf2": "audio/mpeg",
}
RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
KINDS = {"text": "text", "JSON": "json", "table": "table", "NumPy array": "array", "safetensors": "array"}

router = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["files"])


@router.get("/preview/{path:path}", response_model=FilePreview)
def show_preview(run_id: str, path: str, here: Here) -> JsonResponse:
    """The type of a file and its beginning, as lines or as a table; `view` is the path at which a browser can show
    it."""
    run = here.find(run_id)
    stream, entry = open_output(here.home, run.id, path)
    with stream:
        media = media_of(stream.read(HEAD), entry.path)
        stream.seek(0)
        found = preview(stream, entry.path, entry.size)
        table = None
        if found.type == "table":
            stream.seek(0)
            table = read_table(stream, entry.path, entry.size, MOST_ROWS)
    address = f"/api/v1/runs/{run.id}/view/{quote(entry.path)}"
    view = address if media is not None and entry.place == HERE else None
    return JsonResponse({**_row(found, table, media), "size": entry.size, "view": view})


def _row(found: Preview, table: Table | None, media: str | None) -> dict[str, Any]:
    if media is not None:
        kind = "html" if media == HTML else media.partition("/")[0]
    else:
        kind = KINDS.get(found.type, "image" if "width" in found.facts else "binary")
    row: dict[str, Any] = {"kind": kind, "title": _title(found, media), "facts": found.facts, "lines": found.lines}
    if table is not None:
        row["table"] = {"columns": table.columns, "rows": table.rows}
    return {**row, "is_cut": found.is_cut if table is None else table.is_cut}


def _title(found: Preview, media: str | None) -> str:
    facts = found.facts
    kind = {HTML: "HTML", SVG: "SVG image"}.get(media or "", found.type)
    if "width" in facts:
        return f"{kind}, {facts['width']} x {facts['height']}"
    if "shape" in facts:
        return f"{kind}, {facts['dtype']} {'x'.join(map(str, facts['shape'])) or 'scalar'}"
    return f"{kind}, {facts['seconds']:g} s" if "seconds" in facts else kind


def media_of(head: bytes, name: str) -> str | None:
    """The media type for showing a file in a browser; None for download only."""
    if head[:4] == b"RIFF":
        return RIFF.get(head[8:12])
    for beginning, media in BEGINNINGS.items():
        if head.startswith(beginning):
            return media
    ending = name.rpartition(".")[2].lower()
    if b"\0" in head:
        return None
    if ending in ("html", "htm"):
        return HTML
    return SVG if ending == "svg" and b"<svg" in head.lower() else None


@router.get("/view/{path:path}", response_class=Response, responses=FILE)
async def show_file(
    run_id: str,
    path: str,
    request: Request,
    here: Here,
    *,
    scripts: Annotated[bool, Query(description="run the scripts of an HTML file in a sandbox")] = False,
) -> Response:
    """A file that a part of a page shows: images and audio; HTML and SVG in a sandbox. Anything else, and a file that
    is opened as a page of its own, is an attachment. Supports `Range`. Scripts of HTML run only for a browser that
    names the part (`Sec-Fetch-Dest`): browsers do so over HTTPS and on this machine."""
    stream, media = await run_in_threadpool(_opened, here, run_id, path)
    answer = file_answer(stream, path, request.headers.get("range"), kind=media)
    part = request.headers.get("sec-fetch-dest")
    if media is not None:
        if part is None or part in SHOWN_IN:
            disposition = answer.headers["Content-Disposition"]
            answer.headers["Content-Disposition"] = disposition.replace("attachment", "inline")
        is_scripted = scripts and part in SHOWN_IN
        policy = (SCRIPTED if is_scripted else APART) if media == HTML else APART if media == SVG else PLAIN
        answer.headers["Content-Security-Policy"] = policy
        answer.headers["Referrer-Policy"] = "no-referrer"
    return answer


def _opened(here: Context, run_id: str, path: str) -> tuple[BinaryIO, str | None]:
    run = here.find(run_id)
    stream = opened(run_tree(here.home.run(run.id).path), path)
    return stream, media_of(stream.read(HEAD), path)
