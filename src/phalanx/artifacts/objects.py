"""Content-addressed files: digests are computed once, and equal files stored once.

<home>/objects/<2 hex digits>/<sha256> is a hard link to a file of that content, and so are all files of runs and models
with that content. Nothing refers to an object by name: one that is the last link to its content is garbage.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from phalanx.artifacts.trees import CHUNK, FILE, OWNED, Progress, Tree, TreeEntry, no_progress, path_parts

RACY_NS = 100_000_000  # a file written this shortly before it was read may change again without a newer time
SAVE_S = 5.0
DRAFT = ".phalanx-"
LEFTOVERS_S = 24 * 3600.0
UNKNOWN = -1


class FileRecord(NamedTuple):
    """The record of a file. While size, time and inode are unchanged, so is its content. `at` is when it was written,
    in seconds: a file that shares an older object has the object's time."""

    size: int
    mtime_ns: int
    inode: int
    digest: str | None
    at: float
    freed: bool = False  # the file is only in remote storage

    def is_of(self, found: TreeEntry) -> bool:
        return (self.size, self.mtime_ns, self.inode) == (found.size, found.mtime_ns, found.inode)


def always() -> bool:
    return True


class Objects:
    def __init__(self, home: Path) -> None:
        self.path = home / "objects"

    def place(self, digest: str) -> Path:
        return self.path / digest[:2] / digest

    def share(self, tree: Tree, found: TreeEntry, digest: str, may_replace: Callable[[], bool] = always) -> TreeEntry:
        """Link a file to the object of its content. Returns the file's record afterwards: unchanged where links do not
        work. `may_replace` is called right before a file is replaced by its equal."""
        place = self.place(digest)
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _inode(place) == found.inode:
                return found
            if not self._is_whole(tree, found, place):
                self._take(tree, found, place)
            elif may_replace():
                self._give(tree, found, place)
            return tree.look(found.path) or found
        except OSError:  # another filesystem, too many links, another user's file: it stays a copy
            return found

    def garbage(self) -> int:
        """Remove objects that no run and no model shares any more. Returns how many bytes were freed."""
        freed = 0
        for folder in _scan(self.path):
            if folder.name.startswith(DRAFT):
                if time.time() - folder.stat(follow_symlinks=False).st_mtime > LEFTOVERS_S:
                    _unlink(folder.path)
                continue
            for entry in _scan(folder.path):
                with suppress(FileNotFoundError):
                    state = entry.stat(follow_symlinks=False)
                    if state.st_nlink == 1 and _unlink(entry.path):
                        freed += state.st_size
        return freed

    @staticmethod
    def _is_whole(tree: Tree, found: TreeEntry, place: Path) -> bool:
        """Whether an object exists and equals the file byte for byte: a disk can damage either."""
        try:
            if place.stat().st_size != found.size:
                return False
            with tree.open(found.path) as ours, place.open("rb") as theirs:
                while chunk := ours.read(CHUNK):
                    if theirs.read(len(chunk)) != chunk:
                        return False
        except FileNotFoundError:
            return False
        return True

    def _take(self, tree: Tree, found: TreeEntry, place: Path) -> None:
        """The file becomes the object."""
        *above, name = path_parts(found.path)
        with self._draft() as draft, tree.folder(tuple(above)) as folder:
            os.link(name, draft, src_dir_fd=folder, follow_symlinks=False)
            state = draft.stat()
            if (state.st_ino, state.st_size, state.st_mtime_ns) == (found.inode, found.size, found.mtime_ns):
                draft.chmod(0o400)
                draft.replace(place)

    def _give(self, tree: Tree, found: TreeEntry, place: Path) -> None:
        """The object replaces the file."""
        *above, name = path_parts(found.path)
        with self._draft() as draft, tree.folder(tuple(above)) as folder:
            os.link(place, draft)
            if os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino == found.inode:
                os.rename(draft, name, dst_dir_fd=folder)

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        draft = self.path / f"{DRAFT}{secrets.token_hex(8)}"
        try:
            yield draft
        finally:
            draft.unlink(missing_ok=True)


class TreeDigester:
    """Reads the files of a tree that changed since they were last read."""

    def __init__(self, objects: Objects | None, progress: Progress = no_progress) -> None:
        self.objects = objects  # None: nothing is shared
        self.progress = progress
        self.seen: dict[tuple[int, int, int], str] = {}  # a file with several links is read once
        self.may_replace: Callable[[], bool] = always

    def digest(
        self,
        tree: Tree,
        walked: Iterable[TreeEntry],
        known: Mapping[str, FileRecord],
        save: Callable[[dict[str, FileRecord]], Any] | None = None,
    ) -> dict[str, FileRecord]:
        """The records of all current files. `save` is called in between, so that a kill does not lose all progress."""
        files = [found for found in walked if found.kind == FILE]
        result = {found.path: known[found.path] for found in files if _is_known(known.get(found.path), found)}
        unread = [found for found in files if found.path not in result]
        total, done, saved_at = sum(found.size for found in unread), 0, time.monotonic()
        for found in unread:
            result[found.path] = self._read(tree, found, done, total)
            done += found.size
            if save is not None and time.monotonic() - saved_at > SAVE_S:
                save({**known, **result})
                saved_at = time.monotonic()
        for found in files:
            result[found.path] = self._shared(tree, found, result[found.path])
        return {path: result[path] for path in sorted(result)}

    def _read(self, tree: Tree, found: TreeEntry, done: int, total: int) -> FileRecord:
        key = (found.inode, found.size, found.mtime_ns)
        age_ns = time.time_ns() - found.mtime_ns
        if 0 <= age_ns < RACY_NS:
            time.sleep((RACY_NS - age_ns) / 1e9)
        digest = self.seen.get(key) or self._digest(tree, found, done, total)
        if digest is not None:
            self.seen[key] = digest
        mtime_ns = UNKNOWN if age_ns < 0 else found.mtime_ns  # a clock that is ahead proves nothing
        return FileRecord(found.size, mtime_ns, found.inode, digest, found.mtime_ns / 1e9)

    def _digest(self, tree: Tree, found: TreeEntry, done: int, total: int) -> str | None:
        """None when it changed meanwhile, or is not readable."""
        try:
            with tree.open(found.path) as stream:
                digest = digest_of(stream, lambda read: self.progress(f"reading {found.path}", done + read, total))
                state = os.fstat(stream.fileno())
        except OSError:
            return None
        same = (state.st_ino, state.st_size, state.st_mtime_ns) == (found.inode, found.size, found.mtime_ns)
        return digest if same else None

    def _shared(self, tree: Tree, found: TreeEntry, kept: FileRecord) -> FileRecord:
        is_ours = not tree.tops or found.path.partition("/")[0] in OWNED
        if self.objects is None or kept.digest is None or not is_ours or not found.size:
            return kept
        now = self.objects.share(tree, found, kept.digest, self.may_replace)
        is_object = _inode(self.objects.place(kept.digest)) == now.inode
        return kept._replace(mtime_ns=now.mtime_ns, inode=now.inode) if is_object else kept


def read_kept(data: Any) -> FileRecord:
    """From JSON. Raises ValueError, KeyError, TypeError for invalid data."""
    digest = data["digest"]
    if digest is not None and not is_digest(digest):
        raise ValueError("not a digest")
    size, mtime_ns, inode = (int(data[name]) for name in ("size", "mtime_ns", "inode"))
    return FileRecord(size, mtime_ns, inode, digest, float(data["at"]), bool(data.get("freed", False)))


def is_digest(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{64}", text) is not None


def digest_of(stream: BinaryIO, say: Callable[[int], Any] = lambda _: None) -> str:
    """The SHA-256 of the rest of a stream."""
    digest, read = hashlib.sha256(), 0
    buffer = bytearray(CHUNK)
    while count := stream.readinto(buffer):  # type: ignore[attr-defined] # every binary file has it
        digest.update(memoryview(buffer)[:count])
        read += count
        say(read)
    return digest.hexdigest()


def digest_of_files(files: Iterable[tuple[str, str | None]]) -> str | None:
    """One digest for a file or a folder, from the paths below it and their digests: for a single file its own, for
    several that of the list which `sha256sum` prints. None when one is unknown."""
    listed = sorted(files)
    if len(listed) == 1 and "/" not in listed[0][0]:
        return listed[0][1]
    if not listed or any(digest is None for _, digest in listed):
        return None
    lines = "".join(f"{digest}  {path}\n" for path, digest in listed)
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def _is_known(kept: FileRecord | None, found: TreeEntry) -> bool:
    return kept is not None and kept.digest is not None and not kept.freed and kept.is_of(found)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _scan(path: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True
