"""/api/v1/snapshots: code that is uploaded before the run that needs it.

<home>/uploads/<id>/   code/…  about.json: the uploader. One run takes the folder; otherwise it is removed after a day
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from phalanx.atomic_files import write_atomic
from phalanx.backends.code_archive import MAX_BYTES, Unpacked, unpack
from phalanx.home.home import Home
from phalanx.server.auth.rate_limits import Traffic
from phalanx.server.context import Caller, Here
from phalanx.server.http.bodies import SPARE_BYTES, disk_refusal, stream_into
from phalanx.server.http.documented_content import BINARY_BODY
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.schemas.files import UploadedSnapshot

KEPT_S = 86_400.0
DRAFTS_KEPT_S = 3600.0
MOST_COPIED = 20 << 30  # bytes of code of one request for many runs
MOST_WAITING = 100  # snapshots that no run has used yet
_ID = re.compile(r"[0-9a-f]{32}\Z", re.ASCII)

router = APIRouter(prefix="/api/v1", tags=["runs"])


@router.post(
    "/snapshots",
    status_code=201,
    response_model=UploadedSnapshot,
    openapi_extra=BINARY_BODY,
    responses=refusals(507),
)
async def take_snapshot(request: Request, here: Here, caller: Caller) -> JsonResponse:
    """Upload the code of a run that is submitted next, as a tar.gz of files and folders. Returns the id that `POST
    /runs/submit` takes as `code`, the number of files, and their total size."""
    uploads = Uploads(here.home)
    await run_in_threadpool(uploads.make_room)
    snapshot_id = secrets.token_hex(16)
    packed = uploads.folder / f".{snapshot_id}.tar.gz"
    try:
        await stream_into(request, packed, MAX_BYTES)
        traffic: Traffic = request.app.state.traffic
        async with traffic.costly.entered(request.scope["state"]["key"]):
            kept = await run_in_threadpool(uploads.keep, packed, snapshot_id, caller.name)
    except OSError as fault:
        raise disk_refusal(fault) from None
    finally:
        await run_in_threadpool(packed.unlink, missing_ok=True)
    return JsonResponse({"id": snapshot_id, **kept._asdict()}, 201)


class Uploads:
    def __init__(self, home: Home) -> None:
        self.folder = home.path / "uploads"

    def make_room(self) -> None:
        """Remove unused snapshots. Raises RequestError when too many are left."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        now, waiting = time.time(), 0
        for entry in os.scandir(self.folder):
            try:
                age_s = now - entry.stat(follow_symlinks=False).st_mtime
            except FileNotFoundError:
                continue
            is_draft = entry.name.startswith(".")
            if age_s <= (DRAFTS_KEPT_S if is_draft else KEPT_S):
                waiting += 1
            elif entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)
        if waiting >= MOST_WAITING:
            hint = "submit their runs, or wait: unused snapshots are removed after a day"
            raise RequestError(429, f"{waiting} snapshots are already waiting for their runs", hint)

    def keep(self, packed: Path, snapshot_id: str, who: str) -> Unpacked:
        """Unpack completely or not at all. Raises CallError for a rejected archive, OSError."""
        draft = self.folder / f".{snapshot_id}"
        try:
            draft.mkdir(mode=0o700)
            with packed.open("rb") as stream:
                found = unpack(stream, draft / "code")
            write_atomic(draft / "about.json", json.dumps({"by": who}).encode(), sync=False)
            draft.rename(self.folder / snapshot_id)
            return found
        finally:
            shutil.rmtree(draft, ignore_errors=True)  # exists only after a failure

    def take(self, snapshot_id: str, who: str, target: Path) -> None:
        """Move the code of a snapshot into the folder of a run; if that fails, the snapshot stays. Raises RequestError,
        OSError."""
        claimed = self.claim(snapshot_id, who)
        try:
            (claimed / "code").rename(target)
        except OSError:
            with suppress(OSError):
                claimed.rename(self.folder / snapshot_id)
            raise
        shutil.rmtree(claimed, ignore_errors=True)

    @contextmanager
    def shared(self, snapshot_id: str, who: str, runs: int) -> Iterator[Callable[[Path], object] | None]:
        """What puts a copy of a snapshot into the folder of each of many runs; None without a snapshot. If one of them
        fails, the snapshot stays. Raises RequestError."""
        if not snapshot_id:
            yield None
            return
        claimed = self.claim(snapshot_id, who)
        try:
            self._check_copies(claimed / "code", runs)
            yield lambda target: shutil.copytree(claimed / "code", target, symlinks=True)
        except BaseException:
            with suppress(OSError):
                claimed.rename(self.folder / snapshot_id)
            raise
        shutil.rmtree(claimed, ignore_errors=True)

    def _check_copies(self, code: Path, runs: int) -> None:
        """Raises RequestError if the copies for so many runs are too large."""
        size = runs * sum(path.lstat().st_size for path in code.rglob("*") if path.is_file())
        hint = "submit fewer runs at a time, or exclude files with .polyaxonignore"
        if size > MOST_COPIED:
            most = MOST_COPIED >> 30
            raise RequestError(413, f"the code of {runs:,} runs has {size:,} bytes: more than {most} GiB", hint)
        if size > shutil.disk_usage(self.folder).free - SPARE_BYTES:
            raise RequestError(507, f"the disk of {self.folder} has no room for the code of {runs:,} runs", hint)

    def claim(self, snapshot_id: str, who: str) -> Path:
        """Reserve a snapshot for one run. Raises RequestError."""
        refusal = RequestError(
            404,
            "there is no such snapshot, or it is no longer available",
            "upload the code again with POST /api/v1/snapshots",
        )
        if not _ID.match(snapshot_id):
            raise refusal
        place = self.folder / snapshot_id
        try:
            if json.loads((place / "about.json").read_bytes())["by"] != who:
                raise refusal
            claimed = self.folder / f".{snapshot_id}.claimed"
            place.rename(claimed)
        except (OSError, ValueError, LookupError, TypeError):
            raise refusal from None
        return claimed
