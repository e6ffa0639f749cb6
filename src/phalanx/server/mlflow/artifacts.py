"""Artifacts of runs, logged models and registered models: MLflow's proxied artifacts, streamed.

A path starts with the run that owns the folder, or with `~models` for the files of a registered model version:
`<run>/artifacts/…`, `<run>/models/<logged model>/…`, `~models/<name>/<version>/…`.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from phalanx import run_paths
from phalanx.artifacts.trees import FOLDER, Tree, TreeEntry
from phalanx.errors import CallError
from phalanx.registry.registry import Registry
from phalanx.server import external_lifecycle
from phalanx.server.auth.credentials import identity_of
from phalanx.server.auth.model_visibility import ModelVisibility
from phalanx.server.context import Context, Here
from phalanx.server.http.bodies import stream_into
from phalanx.server.http.file_responses import file_answer
from phalanx.server.http.paths import entries, new_inside, opened, steps_of
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.mlflow.calls import Call, ReplicaAddress, call
from phalanx.server.mlflow.errors import MlflowError
from phalanx.server.mlflow.replica_prefix import PrefixAddress
from phalanx.store import Artifact, Run

REGISTERED = "~models"
OWNED = (run_paths.ARTIFACTS, run_paths.MODELS)
UNSUPPORTED = "Multipart upload is not supported for the current artifact repository"  # clients search for this text


class ArtifactLocation(NamedTuple):
    """The location of an artifact: in a run's folder, or in that of a registered version, which is read-only."""

    run: Run | None
    root: Path
    path: str


def registered_uri(name: str, number: int) -> str:
    """Names may contain characters that are special in URLs; some clients quote them twice, some do not."""
    return f"mlflow-artifacts:/{REGISTERED}/{quote(name, safe='').replace('%', '=')}/{number}"


def place_of(call: Call, path: str) -> ArtifactLocation:
    """Raises RequestError for an invalid path, and MlflowError for one that the caller may not see."""
    steps = steps_of(path)
    if not steps:
        raise RequestError(400, "an artifact path must start with a run id")
    if steps[0] == REGISTERED:
        return _registered(call, steps)
    run = call.run(steps[0])
    if len(steps) < 2 or steps[1] not in OWNED:
        raise RequestError(400, f"only {' and '.join(OWNED)} of a run's folder are accessible as artifacts")
    return ArtifactLocation(run, call.here.home.run(run.id).path / steps[1], "/".join(steps[2:]))


def _registered(call: Call, steps: tuple[str, ...]) -> ArtifactLocation:
    if len(steps) < 3 or not re.fullmatch(r"\d{1,9}", steps[2]):
        raise RequestError(400, f"a registered model's files are at {REGISTERED}/NAME/VERSION")
    name = unquote(steps[1].replace("=", "%"))
    if ModelVisibility(call.here.store, call.sees()).version(name, int(steps[2])) is None:
        raise RequestError(404, f"there is no {name[:100]}/{steps[2]}")
    try:
        found = Registry(call.here.home, call.here.store).resolve(f"{name}/{int(steps[2])}")
    except CallError as fault:
        raise RequestError(404, str(fault)) from None
    if found.path is None:
        raise RequestError(404, f"the files of {name}/{steps[2]} are at {found.url}")
    return ArtifactLocation(None, found.path, "/".join(steps[3:]))


def path_of(uri: str) -> tuple[str, str] | None:
    """The run and the path in its folder that an artifact address means; None when it is elsewhere."""
    match = re.fullmatch(r"mlflow-artifacts:/(?:/[^/]*/)?([^/]+)/((?:artifacts|models)(?:/.*)?)", uri)
    return (match[1], match[2].rstrip("/")) if match and match[1] != REGISTERED else None


def file_rows(found: list[TreeEntry], below: str) -> list[dict[str, Any]]:
    rows = []
    for entry in found:
        is_folder = entry.kind == FOLDER
        row: dict[str, Any] = {"path": f"{below}/{entry.name}" if below else entry.name, "is_dir": is_folder}
        rows.append(row if is_folder else {**row, "file_size": entry.size})
    return rows


@call("GET", "artifacts/list", reads=True)
def list_of_run(call: Call) -> dict[str, Any]:
    run, path = call.run(), call.text("path", needed=False)
    below = "/".join(steps_of(path))
    root = call.here.home.run(run.id).path / run_paths.ARTIFACTS
    uri = f"mlflow-artifacts:/{run.id}/artifacts"
    return {"root_uri": uri, "files": file_rows(entries(root, below), below)}


# streams ------------------------------------------------------------------------------------------------------------


def download(path: str, request: Request, here: Here, address: PrefixAddress) -> Response:
    place = _seen(here, request, address, path)
    return file_answer(opened(Tree(place.root), place.path), place.path, request.headers.get("range"))


def listing(request: Request, here: Here, address: PrefixAddress, path: str = "") -> Response:
    """The entries of a folder; a file has none."""
    place = _seen(here, request, address, path)
    return JsonResponse({"files": file_rows(entries(place.root, place.path), "")})


async def upload(path: str, request: Request, here: Here, address: PrefixAddress) -> Response:
    place = await run_in_threadpool(_writable, here, request, address, path)
    target = await run_in_threadpool(new_inside, place.root, place.path)
    size = await stream_into(request, target)
    await run_in_threadpool(_keep, here, place, size)
    return JsonResponse({})


def delete(path: str, request: Request, here: Here, address: PrefixAddress) -> Response:
    _remove(_writable(here, request, address, path))
    return JsonResponse({})


def multipart(path: str, _: PrefixAddress) -> Response:
    return JsonResponse({"error_code": "NOT_IMPLEMENTED", "message": f"{UNSUPPORTED}: {path[:100]}"}, 501)


def add_routes(router: APIRouter, prefix: str) -> None:
    for api in ("/api/2.0", "/ajax-api/2.0"):
        base = f"{prefix}{api}/mlflow-artifacts"
        router.add_api_route(f"{base}/artifacts", listing, methods=["GET"])
        router.add_api_route(f"{base}/artifacts/{{path:path}}", download, methods=["GET"])
        router.add_api_route(f"{base}/artifacts/{{path:path}}", upload, methods=["PUT"])
        router.add_api_route(f"{base}/artifacts/{{path:path}}", delete, methods=["DELETE"])
        router.add_api_route(f"{base}/mpu/{{path:path}}", multipart, methods=["POST"])
        router.add_api_route(f"{base}/presigned/{{path:path}}", multipart, methods=["GET"])


def _seen(
    here: Context, request: Request, address: ReplicaAddress | None, path: str, *, to_write: bool = False
) -> ArtifactLocation:
    """Raises RequestError unless the caller may read, or write, there."""
    call = Call(here, identity_of(request.scope), {}, address)
    try:
        if to_write:
            call.check_edits_some()
        place = place_of(call, path)
        if to_write and place.run is not None:
            call.check_writes(place.run)
    except MlflowError as fault:
        raise RequestError(fault.status, fault.message) from None
    return place


def _writable(here: Context, request: Request, address: ReplicaAddress | None, path: str) -> ArtifactLocation:
    place = _seen(here, request, address, path, to_write=True)
    if place.run is None:
        raise RequestError(403, "the files of a registered version are read-only")
    place.root.mkdir(mode=0o700, exist_ok=True)
    return place


def _keep(here: Context, place: ArtifactLocation, size: int) -> None:
    """Record a stored file. The files of a logged model are recorded together, by the model."""
    if place.run is None or place.root.name != run_paths.ARTIFACTS:
        return
    run = here.find(place.run.id)
    path, now = f"artifacts/{place.path}", datetime.now(UTC)
    event = {"kind": "artifact", "path": path, "name": place.path, "type": "file", "size": size}
    with here.run_writers.of(run.id) as writer:
        writer.events(external_lifecycle.place(here, run), {"at": now.timestamp(), **event})
        here.store.put_artifacts(run.id, [Artifact(run.id, path, "file", place.path, size, None, now)])


def _remove(place: ArtifactLocation) -> None:
    """Raises RequestError when nothing exists there. Removes a link itself, never its target."""
    steps = steps_of(place.path)
    if not steps:
        shutil.rmtree(place.root, ignore_errors=True)
        return
    try:
        with Tree(place.root).folder(steps[:-1]) as folder:
            if stat.S_ISDIR(os.stat(steps[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                shutil.rmtree(steps[-1], ignore_errors=True, dir_fd=folder)
            else:
                os.unlink(steps[-1], dir_fd=folder)
    except OSError:
        raise RequestError(404, f"there is no file {place.path[:200]!r}") from None
