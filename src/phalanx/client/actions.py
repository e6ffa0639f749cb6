"""What can be asked of a server to do: runs submitted, stopped, made again, removed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from phalanx.client import rows
from phalanx.client.run_lookup import RunLookup
from phalanx.client.transport import joined
from phalanx.errors import path_error

if TYPE_CHECKING:
    from phalanx.store.records import Run

PIECE = 256 << 10
LONGEST_FILE = 1 << 20
UPLOAD = "code"

Progress = Callable[[str, int, int], None]  # what, bytes done, of how many


class SubmittedRun(NamedTuple):
    """A new run, and what is worth knowing of it."""

    run: Run
    notes: Sequence[Mapping[str, Any]]


class Snapshot(NamedTuple):
    """Code that lies on the server until a run is submitted with it."""

    id: str
    files: int
    size: int
    git: Mapping[str, Any] | None  # of which commit it is, and what was changed since


def silent(_: str, __: int, ___: int) -> None:
    """For whoever does not want to see how far it is."""


class ActionMethods(RunLookup):
    """A part of `Client`."""

    def submit(  # noqa: PLR0913 - all that makes a run
        self,
        files: str | Path | Sequence[str | Path | tuple[str, str]],
        *,
        params: Mapping[str, Any] | None = None,
        folder: str | Path | Snapshot | None = None,
        name: str | None = None,
        description: str | None = None,
        tags: Sequence[str] = (),
        project: str = "default",
        priority: int = 0,
        timeout: str | float | None = None,
        on: str | None = None,
        strict: bool = False,
        unchecked: bool = False,
        progress: Progress = silent,
    ) -> SubmittedRun:
        """A run of a file; of several, later ones are laid over earlier ones. A file is a path, or its name and its
        text. `folder`: its code goes along, less what .polyaxonignore and .gitignore name. `strict` refuses what asks
        for more than the machine has, `unchecked` submits also what a cluster's profile speaks against. Raises
        SpecErrors with all that is wrong with the file, CallError."""
        texts = [_text_of(file) for file in ([files] if isinstance(files, str | Path) else files)]
        code = self.upload_code(folder, progress) if isinstance(folder, str | Path) else folder
        body = {
            "files": [{"name": title, "text": text} for title, text in texts],
            "params": dict(params or {}),
            "name": name,
            "description": description,
            "tags": list(tags),
            "project": project,
            "priority": priority,
            "timeout": timeout,
            "on": on,
            "code": None if code is None else code.id,
            "git": None if code is None else code.git,
            "strict": strict,
            "unchecked": unchecked,
        }
        row = self._wire.send("POST", joined("runs", "submit"), body)
        return SubmittedRun(rows.run_of(row), list(row.get("notes") or ()))

    def upload_code(self, folder: str | Path, progress: Progress = silent) -> Snapshot:
        """A folder's code brought to the server, for one run to be made of it. Raises CallError when it is too large to
        be code."""
        from phalanx.submission.git import git_state
        from phalanx.submission.snapshots import pack

        with tempfile.TemporaryFile(prefix="phalanx-") as packed:
            pack(Path(folder), packed)
            size = packed.tell()
            packed.seek(0)
            told = self._wire.put("POST", joined("snapshots"), _pieces(packed, size, progress), size)
        return Snapshot(str(told["id"]), int(told["files"]), int(told["size"]), git_state(Path(folder)))

    def stop(self, run: str | Run) -> Run:
        """Asks it to end; that it has ended is another matter."""
        return self._act(run, "stop")

    def restart(self, run: str | Run) -> Run:
        """A new run of the same file, with outputs of its own."""
        return self._act(run, "restart")

    def copy(self, run: str | Run) -> Run:
        """A new run of the same file, which begins with a copy of the outputs."""
        return self._act(run, "copy")

    def resume(self, run: str | Run) -> Run:
        """The next attempt of a run that is over."""
        return self._act(run, "resume")

    def delete(self, run: str | Run) -> None:
        """Removes a run that is over, for good."""
        self._wire.send("DELETE", joined("runs", self._id(run)))

    def _act(self, run: str | Run, verb: str) -> Run:
        return rows.run_of(self._wire.send("POST", joined("runs", self._id(run), verb)))


def _text_of(file: str | Path | tuple[str, str]) -> tuple[str, str]:
    if isinstance(file, tuple):
        return file
    try:
        with Path(file).open("rb") as stream:
            data = stream.read(LONGEST_FILE + 1)
    except OSError as fault:
        raise path_error(f"cannot read {file}", fault) from None
    return str(file), data.decode("utf-8", "surrogateescape")


def _pieces(stream: BinaryIO, size: int, progress: Progress) -> Iterator[bytes]:
    done = 0
    while piece := stream.read(PIECE):
        yield piece
        done += len(piece)
        progress(UPLOAD, done, size)
