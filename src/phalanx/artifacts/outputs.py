"""The outputs of a run, its kept artifacts and models, and the manifest of all of them.

<run>/outputs.json  the manifest: every file's size and digest, and the remote storage that has them, if any
<run>/outputs.lock  held by the process that writes the manifest
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import locks, run_paths
from phalanx.artifacts.objects import FileRecord, Objects, TreeDigester, digest_of_files, read_kept
from phalanx.artifacts.trees import FILE, FOLDER, LINK, OWNED, ROOTS, TreeEntry, path_parts, run_tree
from phalanx.atomic_files import write_atomic
from phalanx.errors import CallError, disk_fault
from phalanx.home.home import Home
from phalanx.store import DONE, Artifact, Store

HERE, REMOTE = "here", "remote"


class OutputEntry(NamedTuple):
    """One line of the tree. A folder's size is that of all files below it."""

    path: str
    kind: str
    size: int
    at: datetime | None
    digest: str | None
    place: str  # HERE or REMOTE
    target: str | None  # of a link, as written
    leads_to: str | None  # of a link: the kind of its target, if that is within the tree


@dataclass(slots=True)
class OutputManifest:
    files: dict[str, FileRecord] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)  # links to something within the tree
    url: str | None = None
    pushed_at: float | None = None

    def below(self, path: str) -> dict[str, FileRecord]:
        """The files of a folder, or the file itself, by their paths below it."""
        if path in self.files:
            return {"": self.files[path]}
        start = f"{path}/" if path else ""
        return {name.removeprefix(start): kept for name, kept in self.files.items() if name.startswith(start)}


def manifest_file(run_folder: Path) -> Path:
    return run_folder / run_paths.OUTPUTS_MANIFEST


def read_manifest(run_folder: Path) -> OutputManifest:
    """The last manifest; empty when it cannot be read, in which case all files are read again."""
    try:
        data = json.loads(manifest_file(run_folder).read_bytes())
        return OutputManifest(
            files={path: read_kept(kept) for path, kept in data["files"].items() if is_listable(path)},
            links={path: to for path, to in data["links"].items() if is_listable(path) and is_listable(to)},
            url=None if data["url"] is None else str(data["url"]),
            pushed_at=None if data["pushed_at"] is None else float(data["pushed_at"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return OutputManifest()


def write_manifest(run_folder: Path, manifest: OutputManifest) -> None:
    data = {
        "version": 1,
        "url": manifest.url,
        "pushed_at": manifest.pushed_at,
        "files": {path: kept._asdict() for path, kept in manifest.files.items()},
        "links": manifest.links,
    }
    write_atomic(manifest_file(run_folder), json.dumps(data, indent=1).encode())


def is_listable(path: str) -> bool:
    """A manifest may come from elsewhere: a path in it must be one that a walk can give."""
    try:
        os.fsencode(path)
        steps = path_parts(path)
    except (CallError, UnicodeEncodeError):
        return False
    return "/".join(steps) == path and len(steps) > 1 and steps[0] in ROOTS


@contextmanager
def locked(run_folder: Path) -> Iterator[None]:
    """One process at a time. Raises CallError."""
    with ExitStack() as held:
        try:
            held.enter_context(locks.locked(run_folder / run_paths.OUTPUTS_LOCK))
        except OSError as fault:
            raise disk_fault(f"cannot work in {run_folder}", fault) from None
        yield


# settling ----------------------------------------------------------------------------------------------------------


def update_manifest(home: Home, run_id: str, settling: TreeDigester | None = None) -> OutputManifest:
    folder = home.run(run_id)
    tree = run_tree(folder.path)
    settling = settling or TreeDigester(Objects(home.path))

    def is_over() -> bool:
        """A resumed run may write a new file at the place where the equal of its old one would be linked."""
        history = folder.history()
        return bool(history) and history[-1].status in DONE

    settling.may_replace = is_over
    with locked(folder.path):
        before = read_manifest(folder.path)

        def save(files: dict[str, FileRecord]) -> None:
            write_manifest(folder.path, OutputManifest(files, before.links, before.url, before.pushed_at))

        walked = list(tree.walk())
        files = settling.digest(tree, walked, before.files, save)
        freed = {path: kept for path, kept in before.files.items() if kept.freed and path not in files}
        links = {found.path: to for found in walked if found.kind == LINK and (to := tree.leads_to(found.path))}
        manifest = OutputManifest({**files, **freed}, {**_freed_links(before), **links}, before.url, before.pushed_at)
        if manifest != before or not manifest_file(folder.path).exists():
            write_manifest(folder.path, manifest)
    return manifest


def _freed_links(manifest: OutputManifest) -> dict[str, str]:
    """Keep links to files that are only in remote storage: they are broken now, and valid again after a restore."""
    freed = [path for path, kept in manifest.files.items() if kept.freed]
    return {path: to for path, to in manifest.links.items() if any(f"{name}/".startswith(f"{to}/") for name in freed)}


def index_outputs(store: Store, run_id: str, manifest: OutputManifest) -> list[Artifact]:
    """Update the store's artifacts from the manifest. Needs no file."""
    known = {artifact.path: artifact for artifact in store.artifacts(run_id)}
    for path in manifest.files:
        made = _unlogged(run_id, path, manifest, known)
        if made is not None:
            known[made.path] = made
    rows = []
    for path, artifact in known.items():
        files = manifest.below(path)
        if files:
            digest = digest_of_files((below, kept.digest) for below, kept in files.items())
            rows.append(artifact._replace(size=sum(kept.size for kept in files.values()), digest=digest))
    store.put_artifacts(run_id, rows)
    return sorted(rows, key=lambda row: row.path)


def _unlogged(run_id: str, path: str, manifest: OutputManifest, known: dict[str, Artifact]) -> Artifact | None:
    """The artifact that a file belongs to, if it was not logged: a model version, or the file itself."""
    steps = path.split("/")
    if steps[0] not in OWNED or any("/".join(steps[:count]) in known for count in range(2, len(steps) + 1)):
        return None
    at = _time(manifest.files[path].at) or datetime.now(UTC)
    if steps[0] == run_paths.MODELS:
        return Artifact(run_id, "/".join(steps[:3]), "model", steps[1], 0, None, at)
    return Artifact(run_id, path, "file", "/".join(steps[1:]), 0, None, at)


# browsing ----------------------------------------------------------------------------------------------------------


def browse(run_folder: Path, path: str = "") -> list[OutputEntry]:
    """The entries at a path and below it, local or in remote storage, each folder before its content. Raises CallError
    when there are none."""
    manifest, tree = read_manifest(run_folder), run_tree(run_folder)
    top = "/".join(path_parts(path))
    if top and top.split("/")[0] not in ROOTS:
        raise CallError(f"`{path}` is not in {', '.join(ROOTS[:-1])} or {ROOTS[-1]}")
    entries: dict[str, OutputEntry] = {}
    itself = tree.look(top) if top else None
    for found in (*([itself] if itself is not None else []), *tree.walk(top)):
        to = (tree.leads_to(found.path) or manifest.links.get(found.path)) if found.kind == LINK else None
        entries[found.path] = _entry(found, manifest.files.get(found.path), to)
    for name, kept in manifest.files.items():
        if kept.freed and name not in entries and (not top or f"{name}/".startswith(f"{top}/")):
            entries[name] = OutputEntry(name, FILE, kept.size, _time(kept.at), kept.digest, REMOTE, None, None)
    _add_folders(entries, top)
    if top and top not in entries:
        raise CallError(f"there is no `{path}`: `phalanx outputs {run_folder.name}` lists all files")
    return [entries[name] for name in sorted(entries, key=lambda name: name.split("/"))]


def _entry(found: TreeEntry, kept: FileRecord | None, leads_to: str | None) -> OutputEntry:
    at, digest = found.mtime_ns / 1e9, None
    if kept is not None and kept.is_of(found):
        at, digest = kept.at, kept.digest
    return OutputEntry(found.path, found.kind, found.size, _time(at), digest, HERE, found.target, leads_to)


def _add_folders(entries: dict[str, OutputEntry], top: str) -> None:
    """Adds the folders of files that are only in remote storage, and every folder's size."""
    sizes: defaultdict[str, int] = defaultdict(int)
    for entry in list(entries.values()):
        for above in _folders_above(entry.path):
            sizes[above] += entry.size if entry.kind == FILE else 0
            if above not in entries and f"{above}/".startswith(f"{top}/" if top else ""):
                entries[above] = OutputEntry(above, FOLDER, 0, None, None, entry.place, None, None)
    for name, size in sizes.items():
        if name in entries:
            entries[name] = entries[name]._replace(size=size)


def _folders_above(path: str) -> Iterable[str]:
    steps = path.split("/")
    return ("/".join(steps[:count]) for count in range(1, len(steps)))


def _time(seconds: float) -> datetime | None:
    with suppress(OverflowError, ValueError, OSError):  # a file can claim any year
        return datetime.fromtimestamp(seconds, UTC)
    return None


def expected_digest(kept: FileRecord | None, found: TreeEntry) -> str | None:
    """The required digest of a file, if known. Training may rewrite outputs; our own files never change: there the same
    file with another time or size is a damaged one."""
    if kept is None or kept.freed:
        return None
    is_ours = found.path.partition("/")[0] in OWNED
    return kept.digest if kept.is_of(found) or (is_ours and kept.inode == found.inode) else None


def entry_row(entry: OutputEntry) -> dict[str, Any]:
    return {**entry._asdict(), "at": entry.at.isoformat() if entry.at is not None else None}
