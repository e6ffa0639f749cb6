"""Copies the files that a run keeps, under names that stay inside their folder.

Standard library only, Python 3.8+."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from phalanx.atomic_files import draft_of
from phalanx.tracking.external_folder import make_private
from phalanx.tracking.values import NotANumber, error_text

LONGEST_PART = 200  # bytes of one path component: file systems allow 255


class CopiedFile(NamedTuple):
    path: str  # relative to the run's folder
    size: int
    files: int


def safe_name(name: str) -> str:
    """A relative path that cannot leave its folder, made from any name. Raises NotANumber."""
    steps: list[str] = []
    fit = "".join(sign if sign.isprintable() and sign != "\\" else "_" for sign in name)
    for step in fit.split("/"):
        if step in ("", "."):
            continue
        if step == "..":
            raise NotANumber(f"the name {name[:100]!r} is outside its folder")
        cut = step.encode("utf-8", "replace")[:LONGEST_PART].decode("utf-8", "ignore")
        steps.append(
            "_" + cut[1:] if cut.startswith(".") else cut
        )  # names that begin with a dot are reserved for drafts
    if not steps:
        raise NotANumber("a name must not be empty")
    return "/".join(steps)


def copy_into(run_folder: str, below: str, source: str, name: str) -> CopiedFile:
    """Copy a file or a folder below a folder of the run. Each file appears atomically, and an existing file
    is replaced, never changed. Raises OSError, NotANumber."""
    target = f"{below}/{safe_name(name)}"
    size = count = 0
    for file, inside in list(_files_of(source)):  # list all of them first: a folder may be copied into itself
        size += copy_file(
            file, os.path.join(run_folder, target, inside) if inside else os.path.join(run_folder, target)
        )
        count += 1
    if not count:
        raise NotANumber(f"{source} has no files")
    return CopiedFile(target, size, count)


def _files_of(source: str) -> Iterator[tuple[str, str]]:
    """Each file and its relative path; links to files are followed, links to folders are not."""
    if not os.path.isdir(source):
        yield source, ""
        return
    for folder, _, names in os.walk(source):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                yield path, safe_name(os.path.relpath(path, source))


def copy_file(source: str, target: str) -> int:
    """Returns the size. Raises OSError, NotANumber."""
    import shutil  # slow to import

    if os.path.exists(source) and not os.path.isfile(source):  # a device may be endless
        raise NotANumber(f"{source} is not a file")
    try:
        return save_file(lambda draft: shutil.copyfile(source, draft), target)
    except FileNotFoundError as fault:
        raise NotANumber(f"{source} does not exist" if fault.filename == source else error_text(fault)) from None


def save_file(save: Callable[[str], Any], target: str, ending: str = "") -> int:
    """A file that `save` writes; it appears atomically. Returns the size. `ending`: the suffix that a library needs."""
    make_private(os.path.dirname(target))
    with draft_of(target, ending) as draft:
        save(draft)
        os.chmod(draft, 0o600)
        return os.stat(draft).st_size
