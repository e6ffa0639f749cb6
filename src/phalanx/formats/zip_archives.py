"""Unpacks untrusted archives safely: nothing outside of the folder, no links, no zip bombs."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
import zlib
from pathlib import Path

from phalanx.errors import CallError, SystemFault
from phalanx.formats.foreign_run import ImportLosses
from phalanx.formats.safe_files import SPARE_BYTES, make_folder

MOST_ENTRIES = 1_000_000
BOMB = 200  # compression ratio of a zip bomb
SMALL_BYTES = 1 << 30  # harmless at any compression ratio
_PIECE = 1 << 20


def is_zip(path: Path) -> bool:
    return path.is_file() and zipfile.is_zipfile(path)


def unpack(path: Path, folder: Path, losses: ImportLosses) -> None:
    """Unpack all files with valid names. Raises CallError."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            total = sum(entry.file_size for entry in entries)
            if len(entries) > MOST_ENTRIES or total > max(SMALL_BYTES, BOMB * path.stat().st_size):
                raise CallError(f"{path} claims an implausible uncompressed size: unpack it manually")
            if total + SPARE_BYTES > shutil.disk_usage(folder).free:
                message = f"not enough space in {folder} for the contents of {path} ({total >> 20} MiB)"
                raise SystemFault(message, transient=True)
            for entry in entries:
                _unpack_one(archive, entry, folder, losses)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as fault:
        raise CallError(f"{path} cannot be unpacked: {fault}") from None


def _unpack_one(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path, losses: ImportLosses) -> None:
    steps = entry.filename.split("/")
    if entry.is_dir():
        return
    if any(step in ("", ".", "..") or "\\" in step or "\0" in step for step in steps):
        losses.add("names in the archive that are not relative paths", example=entry.filename)
        return
    if not stat.S_ISREG(entry.external_attr >> 16) and stat.S_IFMT(entry.external_attr >> 16):
        losses.add("links and devices in the archive", example=entry.filename)
        return
    target = folder.joinpath(*steps)
    try:
        make_folder(target.parent)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except (FileExistsError, NotADirectoryError):
        losses.add("duplicate names in the archive", example=entry.filename)
        return
    left = entry.file_size
    with os.fdopen(descriptor, "wb") as copied, archive.open(entry) as stream:
        while left > 0 and (piece := stream.read(min(left, _PIECE))):
            copied.write(piece)
            left -= len(piece)
