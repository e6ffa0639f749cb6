"""Downloads of outputs, each file verified by its digest; and removal of local copies, and their restoration."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from phalanx.artifacts.objects import FileRecord, Objects, TreeDigester
from phalanx.artifacts.outputs import (
    REMOTE,
    OutputEntry,
    OutputManifest,
    browse,
    expected_digest,
    locked,
    read_manifest,
    update_manifest,
    write_manifest,
)
from phalanx.artifacts.remote import PushTally, RemoteStorage
from phalanx.artifacts.trees import (
    CHUNK,
    FILE,
    FOLDER,
    LINK,
    Progress,
    Tree,
    no_progress,
    path_parts,
    run_tree,
)
from phalanx.atomic_files import draft_of
from phalanx.errors import CallError, SystemFault, disk_fault, os_reason, path_error
from phalanx.home.home import Home
from phalanx.store import DONE

Say = Callable[[int], None]
Pieces = Callable[[Say], Iterator[bytes]]


class DigestMismatch(SystemFault):
    """A file does not match its recorded digest."""

    def __init__(self, message: str) -> None:
        super().__init__(message, transient=False)


class DownloadItem(NamedTuple):
    """A file to copy: its path below the target, empty when it is the target itself; and sources to read it from, tried
    in order while one gives a damaged file."""

    path: str
    name: str  # for messages
    size: int
    at: float | None
    ways: Sequence[tuple[Pieces, str | None]]  # the required digest, if known


class DownloadResult(NamedTuple):
    target: Path
    files: int
    size: int
    unchecked: int  # files without a known digest
    left_out: list[str]  # links that lead outside, pipes and similar


def download(  # noqa: PLR0913 - source, target and options
    home: Home, run_id: str, path: str, target: Path, *, force: bool = False, progress: Progress = no_progress
) -> DownloadResult:
    """Copy a file or a folder of a run: into the target if that is a folder, else to it. Raises CallError, also when
    the target exists and `force` is not given, or when a file is damaged."""
    folder = home.run(run_id).path
    tree, manifest = run_tree(folder), read_manifest(folder)
    if not path_parts(path):
        raise CallError("name a file or folder, such as `outputs`")
    entries = browse(folder, path)
    if entries[0].kind == LINK:
        to = entries[0].leads_to
        if to is None:
            raise CallError(f"`{path}` is a link that leads out of the run's folder, so it is not followed")
        path, entries = to, browse(folder, to)
    top = entries[0].path
    items = [_item(tree, manifest, entry, top) for entry in entries if entry.kind == FILE]
    place = target / top.rpartition("/")[2] if target.is_dir() else target
    return copy_entries(place, entries, items, force=force, progress=progress)


def copy_entries(
    place: Path, entries: Sequence[OutputEntry], items: Sequence[DownloadItem], *, force: bool, progress: Progress
) -> DownloadResult:
    """Copy the first entry and all below it; `items` has their files. Raises CallError."""
    top = entries[0].path
    links = {
        below(entry.path, top): os.path.relpath(entry.leads_to, os.path.dirname(entry.path))
        for entry in entries
        if entry.leads_to is not None and f"{entry.leads_to}/".startswith(f"{top}/")
    }
    folders = [below(entry.path, top) for entry in entries if entry.kind == FOLDER]
    brought = {*folders, *links, *(item.path for item in items)}
    left_out = [entry.path for entry in entries if below(entry.path, top) not in brought]
    unchecked = copy_items(place, items, folders, links, force=force, progress=progress)
    return DownloadResult(place, len(items), sum(item.size for item in items), unchecked, left_out)


def _item(tree: Tree, manifest: OutputManifest, entry: OutputEntry, top: str) -> DownloadItem:
    kept = manifest.files.get(entry.path)
    ways: list[tuple[Pieces, str | None]] = []
    if entry.place != REMOTE:
        found = tree.look(entry.path)
        ways.append((_here(tree, entry.path), expected_digest(kept, found) if found is not None else None))
    if manifest.url is not None and kept is not None and kept.digest is not None:
        ways.append((_there(manifest.url, kept.digest), kept.digest))
    at = entry.at.timestamp() if entry.at is not None else None
    return DownloadItem(below(entry.path, top), entry.path, entry.size, at, ways)


def below(path: str, top: str) -> str:
    return path[len(top) :].removeprefix("/")


def _here(tree: Tree, path: str) -> Pieces:
    def read(say: Say) -> Iterator[bytes]:
        count = 0
        try:
            with tree.open(path) as stream:
                while piece := stream.read(CHUNK):
                    count += len(piece)
                    say(count)
                    yield piece
        except OSError as fault:
            raise DigestMismatch(f"{path} cannot be read: {os_reason(fault)}") from None

    return read


def _there(url: str, digest: str) -> Pieces:
    return lambda say: RemoteStorage(url).read(digest, say)


def copy_items(  # noqa: PLR0913 - the parts of a tree
    target: Path,
    items: Sequence[DownloadItem],
    folders: Sequence[str],
    links: dict[str, str],
    *,
    force: bool,
    progress: Progress,
) -> int:
    """Write files, folders and links below a target. Returns how many files could not be verified. Raises CallError."""
    try:
        _refuse_to_overwrite(target, items, links, force=force)
        for name in folders:
            _make_folder(target, name)
        tally = PushTally("copying", sum(item.size for item in items), progress)
        unchecked = sum(not _write(item, target, tally.part()) for item in items)
        for name, to in links.items():
            with suppress(FileExistsError):
                (target / name).symlink_to(to)
    except OSError as fault:
        raise path_error(f"cannot write {fault.filename or target}", fault) from None
    return unchecked


def _refuse_to_overwrite(target: Path, items: Sequence[DownloadItem], links: dict[str, str], *, force: bool) -> None:
    places = [target / name for name in (*(item.path for item in items), *links)]
    there = [place for place in places if os.path.lexists(place)]
    if there and not force:
        more = f", and {len(there) - 1} more" if len(there) > 1 else ""
        raise CallError(f"{there[0]} already exists{more}: --force replaces")
    if any(path.is_dir() and not path.is_symlink() for path in there):
        raise CallError(f"a folder is where a file would be written, below {target}: remove it first")


def _make_folder(target: Path, name: str) -> None:
    """Ensures that no link in the target redirects a write."""
    for step in ("", *_with_parents(name)):
        folder = target / step
        if step and folder.is_symlink():
            raise CallError(f"{folder} is a link, so nothing is written through it: remove it first")
        folder.mkdir(parents=not step, exist_ok=True)


def _with_parents(name: str) -> Iterator[str]:
    steps = name.split("/") if name else []
    return ("/".join(steps[:count]) for count in range(1, len(steps) + 1))


def _write(item: DownloadItem, target: Path, say: Say) -> bool:
    """True when its digest was verified."""
    place = target / item.path
    if item.path:
        _make_folder(target, item.path.rpartition("/")[0])
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
    faults = []
    for pieces, wanted in item.ways:
        try:
            with draft_of(place) as draft:
                _fill(draft, item, pieces(say), wanted)
        except (CallError, SystemFault) as fault:
            faults.append(str(fault))
        else:
            return wanted is not None
    raise DigestMismatch("; ".join(faults))


def _fill(draft: str, item: DownloadItem, pieces: Iterator[bytes], wanted: str | None) -> None:
    digest = hashlib.sha256()
    with open(draft, "xb") as out:
        for piece in pieces:
            digest.update(piece)
            out.write(piece)
    if wanted is not None and digest.hexdigest() != wanted:
        raise DigestMismatch(f"{item.name} is damaged: its content does not match the recorded one (sha256 {wanted})")
    if item.at is not None:
        os.utime(draft, (item.at, item.at))


def open_output(home: Home, run_id: str, path: str) -> tuple[BinaryIO, OutputEntry]:
    """Open a file of a run, local or in remote storage. Raises CallError."""
    folder = home.run(run_id).path
    entry = browse(folder, path)[0]
    if entry.kind == LINK and entry.leads_to is not None:
        entry = browse(folder, entry.leads_to)[0]
    if entry.kind != FILE:
        why = "leads out of the run's folder" if entry.kind == LINK else f"is a {entry.kind}, not a file"
        raise CallError(f"`{path}` {why}")
    if entry.place == REMOTE:
        manifest = read_manifest(folder)
        assert entry.digest is not None
        return RemoteStorage(manifest.url or "").open(entry.digest), entry
    try:
        return run_tree(folder).open(entry.path), entry
    except OSError as fault:
        raise disk_fault(f"cannot read `{path}`", fault) from None


# removing local copies and restoring them --------------------------------------------------------------------------


def free_local(home: Home, run_id: str, progress: Progress = no_progress) -> int:
    """Remove the local files of a run, after reading every one of them back from remote storage. Returns how many bytes
    they had. Raises CallError."""
    folder = home.run(run_id)
    history = folder.history()
    if not history or history[-1].status not in DONE:
        raise CallError(f"run {run_id} has not ended: its files are in use")
    manifest = update_manifest(home, run_id, TreeDigester(Objects(home.path), progress))
    if manifest.url is None:
        raise CallError(f"run {run_id} was never pushed: `phalanx outputs {run_id} --push URL` first")
    remote = RemoteStorage(manifest.url)
    stored = remote.manifest(run_id) or {}
    here = {path: kept for path, kept in manifest.files.items() if not kept.freed}
    unsent = [path for path, kept in here.items() if stored.get(path) != (kept.size, kept.digest)]
    if unsent:
        raise CallError(
            f"{len(unsent)} files of run {run_id} differ from {remote.url} or are missing there, such as "
            f"{unsent[0]}: `phalanx outputs {run_id} --push {remote.url}` first"
        )
    remote.verify(here.values(), progress)
    tree, freed = run_tree(folder.path), 0
    with locked(folder.path):
        current = read_manifest(folder.path)
        gone = {path: kept for path, kept in here.items() if current.files.get(path) == kept}
        current.files |= {path: kept._replace(freed=True) for path, kept in gone.items()}
        write_manifest(folder.path, current)  # first, so that a kill now loses nothing
        for path, kept in gone.items():
            found = tree.look(path)
            if found is not None and kept.is_of(found):
                tree.unlink(path)
                freed += kept.size
    Objects(home.path).garbage()
    return freed


def restore(home: Home, run_id: str, progress: Progress = no_progress) -> int:
    """Restore the files that are only in remote storage. Returns how many. Raises CallError."""
    folder = home.run(run_id).path
    tree = run_tree(folder)
    with locked(folder):
        manifest = read_manifest(folder)
        missing = {path: kept for path, kept in manifest.files.items() if kept.freed and tree.look(path) is None}
        url = manifest.url or ""
        items = [
            DownloadItem(path, path, kept.size, kept.at, [(_there(url, kept.digest), kept.digest)])
            for path, kept in missing.items()
            if kept.digest is not None
        ]
        links = {p: os.path.relpath(to, os.path.dirname(p)) for p, to in manifest.links.items() if tree.look(p) is None}
        copy_items(folder, items, [], links, force=False, progress=progress)
    update_manifest(home, run_id, TreeDigester(Objects(home.path), progress))
    return len(items)


def download_version(
    place: Path, files: Mapping[str, FileRecord], target: Path, *, force: bool = False, progress: Progress = no_progress
) -> DownloadResult:
    """Copy the files of a model version into a folder. Raises CallError, also when one is damaged."""
    tree = Tree(place)
    walked = list(tree.walk())
    items = [
        DownloadItem(
            found.path,
            found.path,
            found.size,
            found.mtime_ns / 1e9,
            [(_here(tree, found.path), files[found.path].digest if found.path in files else None)],
        )
        for found in walked
        if found.kind == FILE
    ]
    links = {found.path: str(found.target) for found in walked if found.kind == LINK and tree.leads_to(found.path)}
    folders = ["", *(found.path for found in walked if found.kind == FOLDER)]
    unchecked = copy_items(target, items, folders, links, force=force, progress=progress)
    return DownloadResult(target, len(items), sum(item.size for item in items), unchecked, [])
