"""Safe access to files below a folder: nothing leads out of it.

Training code may put anything there: links to elsewhere, pipes without a writer, misleading names. Each part of a path
is opened separately and no link is followed, so a tree that changes meanwhile is safe too.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from phalanx import run_paths
from phalanx.errors import CallError

FILE, FOLDER, LINK, OTHER = "file", "folder", "link", "other"
ROOTS = (run_paths.OUTPUTS, run_paths.ARTIFACTS, run_paths.MODELS)  # of a run's folder
OWNED = (run_paths.ARTIFACTS, run_paths.MODELS)  # Phalanx puts the files there, and they are never changed in place
CHUNK = 1 << 20
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Progress = Callable[[str, int, int], None]  # action, bytes done, bytes in total


def no_progress(what: str, done: int, total: int) -> None:
    """Ignores progress."""


class TreeEntry(NamedTuple):
    path: str  # relative to the tree, with `/`
    kind: str
    size: int
    mtime_ns: int
    inode: int
    target: str | None = None  # of a link, as written

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def path_parts(path: str) -> tuple[str, ...]:
    """The parts of a path that stays below its start. Raises CallError for any other."""
    steps = tuple(step for step in path.split("/") if step not in ("", "."))
    if path.startswith("/") or ".." in steps or "\0" in path:
        raise CallError(f"`{path}` is not a path below the run's folder: write it as it is listed")
    return steps


class Tree:
    """The entries below a folder; with `tops` only those in these. A path that leads outside raises CallError, every
    other failure OSError."""

    def __init__(self, root: Path, tops: tuple[str, ...] = ()) -> None:
        self.root = root
        self.tops = tops

    @contextmanager
    def folder(self, steps: tuple[str, ...]) -> Iterator[int]:
        """The descriptor of a folder."""
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for step in steps:
                inner = os.open(step, _FOLDER_FLAGS, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def look(self, path: str) -> TreeEntry | None:
        """The entry at a path; None when there is none."""
        *above, name = path_parts(path) or (".",)
        try:
            with self.folder(tuple(above)) as folder:
                return _found("/".join([*above, name]), name, folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as fault:
            if fault.errno in (errno.ELOOP, errno.ENAMETOOLONG):  # a link is part of the path; no file has such a name
                return None
            raise

    def walk(self, path: str = "") -> Iterator[TreeEntry]:
        """All entries below a folder, by name, each folder before its content."""
        waiting = self.entries(path)[::-1]
        while waiting:
            found = waiting.pop()
            yield found
            if found.kind == FOLDER:
                waiting += self.entries(found.path)[::-1]

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading. Raises OSError for anything else."""
        *above, name = path_parts(path)
        with self.folder(tuple(above)) as folder:
            descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a file")
        return os.fdopen(descriptor, "rb")

    def unlink(self, path: str) -> None:
        *above, name = path_parts(path)
        with self.folder(tuple(above)) as folder:
            os.unlink(name, dir_fd=folder)

    def leads_to(self, path: str) -> str | None:
        """The target of a link, if it is within the tree."""
        base = os.path.realpath(self.root)
        inside = os.path.relpath(os.path.realpath(os.path.join(base, path)), base)
        steps = inside.split("/")
        if steps[0] in ("..", ".") or (self.tops and steps[0] not in self.tops):
            return None
        found = self.look(inside)
        return inside if found is not None and found.kind in (FILE, FOLDER) else None

    def entries(self, path: str) -> list[TreeEntry]:
        """The entries of a folder, by name; none when it cannot be read."""
        steps = path_parts(path)
        try:
            with self.folder(steps) as folder:
                names = sorted(os.listdir(folder))
                if not steps and self.tops:
                    names = [name for name in self.tops if name in names]
                found = [_found("/".join([*steps, name]), name, folder) for name in names]
        except OSError:  # removed meanwhile, or not readable
            return []
        return [entry for entry in found if entry is not None and not self._is_draft(entry.path)]

    def _is_draft(self, path: str) -> bool:
        """Among our own files, names that start with a dot are incomplete files."""
        top, _, rest = path.partition("/")
        return top in OWNED and top in self.tops and "/." in f"/{rest}"


def run_tree(run_folder: Path) -> Tree:
    return Tree(run_folder, ROOTS)


def _found(path: str, name: str, folder: int) -> TreeEntry | None:
    try:
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
        kind = _kind(state.st_mode)
        target = os.readlink(name, dir_fd=folder) if kind == LINK else None
    except FileNotFoundError:
        return None
    return TreeEntry(path, kind, state.st_size if kind == FILE else 0, state.st_mtime_ns, state.st_ino, target)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFREG: FILE, stat.S_IFDIR: FOLDER, stat.S_IFLNK: LINK}
    return kinds.get(stat.S_IFMT(mode), OTHER)
