"""/api/v1/runs/{run_id}/code: the code that a run was submitted with."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from phalanx.artifacts.code_record import code_tree, read_code
from phalanx.server.context import Here
from phalanx.server.http.documented_content import content
from phalanx.server.http.file_responses import SAFE
from phalanx.server.http.pagination import Limit, Offset
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.routes.pods import packed
from phalanx.server.schemas.projects import CodePage

router = APIRouter(prefix="/api/v1/runs/{run_id}/code", tags=["runs"])


@router.get("", response_model=CodePage)
def show_code(run_id: str, here: Here, *, limit: Limit = 1000, offset: Offset = 0) -> JsonResponse:
    """The git commit and uncommitted changes of a run's code, and a page of the files of its snapshot."""
    about = read_code(here.home.run(here.find(run_id).id)).as_json()
    files = about["files"]
    return JsonResponse({**about, "count": len(files), "files": files[offset : offset + limit]})


@router.get("/archive", response_class=Response, responses=content("application/gzip"))
def get_code_archive(run_id: str, here: Here) -> Response:
    """The snapshot of a run's code as a tar.gz, without links."""
    tree = code_tree(here.home.run(here.find(run_id).id))
    if tree is None:
        raise RequestError(404, f"run {run_id} has no snapshot of its code", "GET …/code has its git commit and diff")
    headers = {name: value for name, value in SAFE.items() if name != "Accept-Ranges"}
    headers["Content-Disposition"] = 'attachment; filename="code.tar.gz"'
    return StreamingResponse(packed(tree), 200, headers, "application/gzip")
