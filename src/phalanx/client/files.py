"""Files of a run on a server: listing, previews, verified downloads, and uploads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from phalanx.client.actions import Progress, silent
from phalanx.client.rows import record, time_of
from phalanx.client.run_lookup import RunLookup
from phalanx.client.transport import API, NotFound, RequestRefused, ServerUnreachable, joined
from phalanx.errors import CallError, SystemFault, path_error

if TYPE_CHECKING:
    from phalanx.artifacts.downloads import DownloadItem, DownloadResult
    from phalanx.artifacts.outputs import OutputEntry
    from phalanx.store.model_index import ModelVersion
    from phalanx.store.records import Run

PIECE = 4 << 20  # bytes per upload request
READ = 256 << 10
TRIES = 5  # a download resumes where its connection broke


class FileMethods(RunLookup):
    """A part of `Client`."""

    def outputs(self, run: str | Run, path: str = "") -> list[OutputEntry]:
        """The files and folders at a path of a run's `outputs`, `artifacts` and `models`, and below it."""
        from phalanx.artifacts.outputs import OutputEntry

        found = self._wire.rows(joined("runs", self._id(run), "outputs"), "files", path=path or None)
        return [
            record(OutputEntry, row, at=time_of(row.get("at")), place=str(row.get("place") or "here")) for row in found
        ]

    def preview(self, run: str | Run, path: str) -> dict[str, Any]:
        """The preview of a file: its type and first lines."""
        return dict(self._wire.get(self._address(run, "preview", path)))

    def read(self, run: str | Run, path: str) -> bytes:
        """The content of a file."""
        return b"".join(self._fetch(self._address(run, "outputs", path), lambda _: None))

    def download(
        self, run: str | Run, path: str, to: str | Path = ".", *, force: bool = False, progress: Progress = silent
    ) -> DownloadResult:
        """Download a file or folder: into the target if that is a folder, else to it. Verifies every file whose digest
        the server knows. Raises CallError, also if a target exists and `force` is not set."""
        run_id, target = self._id(run), Path(to)
        entries = self._entries(run_id, path)
        place = target / entries[0].path.rpartition("/")[2] if target.is_dir() else target
        return self._bring(run_id, entries, place, force=force, progress=progress)

    def download_version(
        self, version: ModelVersion, to: str | Path, *, force: bool = False, progress: Progress = silent
    ) -> DownloadResult:
        """Download the files of a model version to a folder, also after its run was deleted. Raises CallError."""
        if version.files is None:
            raise CallError(f"{version.title} has no files on the server: download them from {version.source}")
        address = _version_address(version)
        try:
            rows = self._wire.get(address)["files"]
        except NotFound:
            if version.run_id is None:
                raise
            return self._download_from_run(version.run_id, version, to, force=force, progress=progress)
        from phalanx.artifacts.downloads import DownloadItem, DownloadResult, copy_items
        from phalanx.artifacts.trees import path_parts

        for row in rows:
            path_parts(str(row["path"]))  # raises CallError for one that leaves the folder
        items = [
            DownloadItem(
                row["path"],
                row["path"],
                row["size"],
                row["at"],
                [(partial(self._fetch, f"{address}/{quote(row['path'], safe='/')}"), row["digest"])],
            )
            for row in rows
            if row["kind"] == "file"
        ]
        folders = ["", *(row["path"] for row in rows if row["kind"] == "folder")]
        links = {row["path"]: row["target"] for row in rows if row["kind"] == "link"}
        unchecked = copy_items(Path(to), items, folders, links, force=force, progress=progress)
        return DownloadResult(Path(to), len(items), sum(item.size for item in items), unchecked, [])

    def has_version_files(self, version: ModelVersion) -> bool:
        """Whether the server has the files of a model version."""
        try:
            return bool(self._wire.get(_version_address(version))["files"])
        except NotFound:
            return False

    def _download_from_run(
        self, run_id: str, version: ModelVersion, to: str | Path, *, force: bool, progress: Progress
    ) -> DownloadResult:
        """From an older server, which has the files of a version only as those of its run."""
        entries = self._entries(run_id, version.source)
        is_folder = entries[0].kind == "folder"
        place = Path(to) if is_folder else Path(to) / entries[0].path.rpartition("/")[2]
        return self._bring(run_id, entries, place, force=force, progress=progress)

    def _entries(self, run_id: str, path: str) -> list[OutputEntry]:
        """The entries to download. A link at the top is followed if it stays in the run's folder."""
        if not path.strip("/"):
            raise CallError("name a file or folder, such as `outputs`")
        entries = self.outputs(run_id, path)
        if entries and entries[0].kind == "link":
            if entries[0].leads_to is None:
                raise CallError(f"`{path}` is a link that leaves the run's folder: it is not followed")
            entries = self.outputs(run_id, entries[0].leads_to)
        if not entries:
            raise CallError(f"there is no `{path}`: `phalanx outputs {run_id}` lists the files")
        return entries

    def _bring(
        self, run_id: str, entries: Sequence[OutputEntry], place: Path, *, force: bool, progress: Progress
    ) -> DownloadResult:
        from phalanx.artifacts.downloads import copy_entries
        from phalanx.artifacts.outputs import REMOTE

        top = entries[0].path
        items = [self._item(run_id, entry, top) for entry in entries if entry.kind == "file" and entry.place != REMOTE]
        return copy_entries(place, entries, items, force=force, progress=progress)

    def upload(self, run: str | Run, source: str | Path, path: str, progress: Progress = silent) -> int:
        """Upload a file to a run that Phalanx only tracks, below `artifacts/` or `models/`. Returns its size."""
        address = self._address(run, "files", path)
        try:
            with Path(source).open("rb") as stream:
                size, done = os.fstat(stream.fileno()).st_size, 0
                while done < size or not size:
                    piece = stream.read(PIECE)
                    self._wire.put("PUT", address, piece, offset=done, size=size)
                    done += len(piece)
                    progress(path, done, size)
                    if not piece:
                        break
        except OSError as fault:
            raise path_error(f"cannot read {source}", fault) from None
        return done

    def _item(self, run_id: str, entry: OutputEntry, top: str) -> DownloadItem:
        from phalanx.artifacts.downloads import DownloadItem, below

        address = self._address(run_id, "outputs", entry.path)
        at = entry.at.timestamp() if entry.at is not None else None
        ways = [(lambda say: self._fetch(address, say), entry.digest)]
        return DownloadItem(below(entry.path, top), entry.path, entry.size, at, ways)

    def _address(self, run: str | Run, what: str, path: str) -> str:
        return f"{API}/runs/{quote(self._id(run), safe='')}/{what}/{quote(path.strip('/'), safe='/')}"

    def _fetch(self, address: str, say: Callable[[int], None]) -> Iterator[bytes]:
        """Download a file in pieces. Resumes after a broken connection, but never mixes two versions of a file."""
        import httpx

        count, mark, left = 0, None, TRIES
        while True:
            headers = {"Accept-Encoding": "identity"}
            if count:
                headers["Range"] = f"bytes={count}-"
            try:
                with self._wire.stream(address, headers) as response:
                    if count and (response.status_code != 206 or response.headers.get("etag") != mark):
                        raise SystemFault("the file changed during the download: try again", transient=True)
                    mark = response.headers.get("etag")
                    for piece in response.iter_bytes(READ):
                        count += len(piece)
                        left = TRIES
                        say(count)
                        yield piece
                    return
            except RequestRefused as fault:
                if fault.status == 416 and count:
                    raise SystemFault("the file changed during the download: try again", transient=True) from None
                raise
            except (httpx.HTTPError, ServerUnreachable) as fault:
                left -= 1
                if not left:
                    raise (self._wire.failed(fault) if isinstance(fault, httpx.HTTPError) else fault) from None


def _version_address(version: ModelVersion) -> str:
    return joined("models", version.model, "versions", str(version.number), "files")
