"""Snapshots: copies of a run's code at the time of its submission."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from phalanx.backends import code_archive
from phalanx.backends.code_archive import MAX_BYTES
from phalanx.errors import CallError, path_error
from phalanx.submission.git import git

_ALWAYS_LEFT = (
    ".git/",
    ".venv/",
    "venv/",
    "__pycache__/",
    "*.pyc",
    ".polyaxon/",
    "node_modules/",
    ".DS_Store",
    "*.swp",
)


def files_of(folder: Path) -> list[Path]:
    """The files of the code, relative to the folder: those that git tracks or does not ignore; without git, all files
    that .polyaxonignore and .gitignore do not exclude."""
    listed = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        names = [Path(name) for name in listed.split("\0") if name]
        kept = [name for name in names if (folder / name).is_file()]
        return _less_ignored(folder, kept, (".polyaxonignore",))
    everything = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    return _less_ignored(folder, everything, (".polyaxonignore", ".gitignore"))


def _less_ignored(folder: Path, files: list[Path], ignore_files: tuple[str, ...]) -> list[Path]:
    from pathspec import GitIgnoreSpec

    lines = list(_ALWAYS_LEFT)
    for name in ignore_files:
        if (folder / name).is_file():
            lines += (folder / name).read_text(errors="replace").splitlines()
    rules = GitIgnoreSpec.from_lines(lines)
    homes = {place for place in {above for path in files for above in path.parents} if _is_home(folder / place)}
    return [path for path in files if homes.isdisjoint(path.parents) and not rules.match_file(path.as_posix())]


def _is_home(folder: Path) -> bool:
    """Whether a folder has the runs of a user: they are no code, and the environments of runs may have secrets."""
    return all((folder / name).is_dir() for name in ("runs", "environments", "stops", "resumes"))


def take(folder: Path, target: Path) -> int:
    """Copy the code and return the number of files. Raises CallError if it is larger than `MAX_BYTES`."""
    files = _code_of(folder, MAX_BYTES)
    for path in files:
        (target / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy2(folder / path, target / path, follow_symlinks=True)
    return len(files)


def pack(
    folder: Path, target: BinaryIO, most: int = MAX_BYTES, added: Mapping[str, bytes] = MappingProxyType({})
) -> int:
    """Write the code, and `added` files by name, as a tar.gz and return the number of files. Links are replaced by the
    files they point to. Raises CallError if it is larger than `most`, or cannot be read."""
    files = _code_of(folder, most - sum(map(len, added.values())))
    try:
        code_archive.pack(folder, [path for path in files if str(path) not in added], target, added)
    except OSError as fault:
        raise path_error(f"cannot pack {fault.filename or folder}", fault) from None
    return len(files)


def _code_of(folder: Path, most: int) -> list[Path]:
    files = files_of(folder)
    size = sum((folder / path).stat().st_size for path in files)
    if size > most:
        raise CallError(
            f"the code in {folder} takes {size >> 20} MiB, more than {most >> 20}: "
            "exclude other files in .polyaxonignore, one pattern per line"
        )
    return files
