"""Code as an archive that goes elsewhere: of the same files always the same bytes."""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

OLDEST = 315_532_800  # seconds: what archives of every kind can say of when a file was changed


def pack(folder: Path, files: Iterable[Path], target: BinaryIO) -> None:
    """Write these files of a folder as a tar.gz, those behind links as files. Who owns a file and when it was changed
    is nobody's business elsewhere. Raises OSError."""
    with (
        gzip.GzipFile(fileobj=target, mode="wb", compresslevel=6, mtime=0, filename="") as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in files:
            with (folder / path).open("rb") as stream:
                state = os.fstat(stream.fileno())
                entry = tarfile.TarInfo(path.as_posix())
                entry.size, entry.mtime = state.st_size, OLDEST
                entry.mode = 0o755 if state.st_mode & stat.S_IXUSR else 0o644
                archive.addfile(entry, stream)
