"""Copies what a replica made in its working folder into the outputs of its run, when it has ended.

Nothing is moved, and nothing is linked: the next program in the folder may overwrite its files in place. File systems
that share blocks between copies do so. No link is followed, in the working folder or in the outputs. Standard library
only, Python 3.8+.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from phalanx.path_patterns import SAVED_MODEL, is_event_file, is_model_file, matches
from phalanx.stored_plan import CollectSettings
from phalanx.working_files import (
    CHANGING,
    COLLECTED,
    EXISTS,
    FULL,
    LARGE,
    LATE,
    LEFT,
    MANY,
    UNREADABLE,
    WorkingFile,
)

SPARE_BYTES = 64 << 20  # of free disk space that copies must leave
_PIECE = 8 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def wanted(files: Sequence[WorkingFile], patterns: Iterable[str] | None) -> set[str]:
    """The paths to keep. Without patterns: models, event files, and the other files in the folders that have one."""
    if patterns is not None:
        chosen = list(patterns)
        return {file.path for file in files if matches(file.path, chosen)}
    known = {file.path for file in files if is_model_file(file.path) or is_event_file(file.path)}
    beside = {os.path.dirname(path) for path in known} - {""}
    below = tuple(f"{os.path.dirname(path)}/" for path in known if path.endswith(f"/{SAVED_MODEL}"))
    rest = (file.path for file in files if os.path.dirname(file.path) in beside or file.path.startswith(below))
    return known.union(rest)


def collect(
    folders: tuple[str, str],
    files: Sequence[WorkingFile],
    settings: CollectSettings,
    copied: Mapping[str, Collection[WorkingFile]],
    is_late: Callable[[], bool],
) -> list[WorkingFile]:
    """Copy the wanted files from the first folder to the second: event files first, then the newest first, within the
    limits. `copied`: what earlier attempts copied, by path. Returns all files with their new states."""
    chosen = wanted(files, settings.patterns)
    left_files, left_bytes = settings.max_files, settings.max_bytes
    states: dict[str, str] = {}
    is_full = False
    for file in sorted(files, key=lambda file: (not is_event_file(file.path), -file.at)):
        if file.path not in chosen or file.state != LEFT:
            continue
        if left_files <= 0:
            state = MANY
        elif file.size > left_bytes:
            state = LARGE
        elif is_full:
            state = FULL
        elif is_late():
            state = LATE
        else:
            state = _copied(folders, file, copied.get(file.path, ()), is_late)
        if state == COLLECTED:
            left_files, left_bytes = left_files - 1, left_bytes - file.size
        is_full = is_full or state == FULL
        states[file.path] = state
    return [file._replace(state=states.get(file.path, file.state)) for file in files]


class _Late(Exception):
    """The time is over."""


def _copied(
    folders: tuple[str, str], file: WorkingFile, before: Collection[WorkingFile], is_late: Callable[[], bool]
) -> str:
    working, outputs = folders
    *above, name = file.path.split("/")
    try:
        with _folder(working, above) as folder:
            source = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return UNREADABLE
    try:
        return _copy(source, outputs, [*above, name], before, is_late)
    except _Late:
        return LATE
    except OSError as fault:
        return FULL if fault.errno in (errno.ENOSPC, errno.EDQUOT) else UNREADABLE
    finally:
        os.close(source)


def _copy(
    source: int, outputs: str, steps: list[str], before: Collection[WorkingFile], is_late: Callable[[], bool]
) -> str:
    *above, name = steps
    state = os.fstat(source)
    if not stat.S_ISREG(state.st_mode):
        return UNREADABLE
    try:
        with _folder(outputs, above, create=True) as folder:
            there = _there(name, folder)
            if there is not None and _is_same(there, state.st_size, state.st_mtime):
                return COLLECTED  # by another replica
            if there is not None and not any(_is_same(there, one.size, one.at) for one in before):
                return EXISTS
            room = os.fstatvfs(folder)
            if room.f_bavail * room.f_frsize < state.st_size + SPARE_BYTES:
                return FULL
            return _write(source, state, folder, name, is_late)
    except OSError as fault:
        if fault.errno in (errno.ELOOP, errno.ENOTDIR):  # the training put a link or a file where a folder would be
            return EXISTS
        raise


def _write(source: int, state: os.stat_result, folder: int, name: str, is_late: Callable[[], bool]) -> str:
    """Write a hidden draft and rename it, so that no reader finds half a file."""
    draft = f".{os.urandom(8).hex()}.draft"
    target = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        try:
            _copy_bytes(source, target, state.st_size, is_late)
            os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))
        finally:
            os.close(target)
        now = os.fstat(source)
        if (now.st_size, now.st_mtime_ns) != (state.st_size, state.st_mtime_ns):
            return CHANGING
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        return COLLECTED
    finally:
        try:
            os.unlink(draft, dir_fd=folder)
        except FileNotFoundError:
            pass


def _copy_bytes(source: int, target: int, size: int, is_late: Callable[[], bool]) -> None:
    """At most `size`: a file may grow for ever."""
    has_kernel_copy = hasattr(os, "copy_file_range")
    while size > 0:
        if is_late():
            raise _Late
        if has_kernel_copy:
            try:
                done = os.copy_file_range(source, target, min(size, _PIECE * 8))
            except OSError as fault:
                if fault.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                has_kernel_copy = False  # other file systems, old kernels
                continue
        else:
            data = os.read(source, min(size, _PIECE))
            done = len(data)
            while data:
                data = data[os.write(target, data) :]
        if done == 0:
            return  # it became shorter
        size -= done


def _there(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_same(there: os.stat_result, size: int, at: float) -> bool:
    return stat.S_ISREG(there.st_mode) and there.st_size == size and abs(there.st_mtime - at) < 1e-3


@contextmanager
def _folder(root: str, steps: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """The descriptor of a folder below another. Raises OSError if a link is on the way."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for step in steps:
            if create:
                try:
                    os.mkdir(step, 0o700, dir_fd=descriptor)
                except FileExistsError:
                    pass
            inner = os.open(step, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)
