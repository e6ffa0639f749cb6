"""Actions on a server: submit, stop, restart, resume and delete runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypedDict, Unpack

from phalanx.client import rows
from phalanx.client.run_lookup import RunLookup
from phalanx.client.transport import joined
from phalanx.errors import path_error

if TYPE_CHECKING:
    from phalanx.store.records import Run
    from phalanx.submission.model import Submission

PIECE = 256 << 10
LONGEST_FILE = 1 << 20
UPLOAD = "code"
VARYING = ("files", "name", "on")  # what each of many runs may have of its own, beside params

Progress = Callable[[str, int, int], None]  # what, bytes done, bytes in total


class SubmittedRun(NamedTuple):
    """A new run, and notes on its file."""

    run: Run
    notes: Sequence[Mapping[str, Any]]


class SubmittedName(NamedTuple):
    """One of many new runs."""

    id: str
    name: str | None
    status: str


class SubmittedRuns(NamedTuple):
    """Many new runs, in the order in which they were given, and notes on their files."""

    runs: Sequence[SubmittedName]
    notes: Sequence[Mapping[str, Any]]


class SubmitOptions(TypedDict, total=False):
    """Options of `Client.submit` that many runs have in common."""

    params: Mapping[str, Any]
    name: str
    description: str
    tags: Sequence[str]
    project: str
    priority: int
    timeout: str | float
    after: Sequence[str]
    on: str
    strict: bool
    unchecked: bool


class Snapshot(NamedTuple):
    """Uploaded code, stored on the server until a run is submitted with it."""

    id: str
    files: int
    size: int
    git: Mapping[str, Any] | None  # its commit and uncommitted changes


def silent(_: str, __: int, ___: int) -> None:
    """The default progress callback: does nothing."""


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
        after: Sequence[str] = (),
        on: str | None = None,
        strict: bool = False,
        unchecked: bool = False,
        progress: Progress = silent,
    ) -> SubmittedRun:
        """Submit a run of a file, or of several, where later files override earlier ones. A file is a path, or a tuple
        of name and text. `folder`: code to upload, except files matched by .polyaxonignore and .gitignore. `after`:
        runs to wait for, as `RUN`, `RUN:failed` or `RUN:done`. `strict` refuses a run that requests more than the
        machine has; `unchecked` submits even if the site profile predicts a rejection. Raises SpecErrors with all
        errors of the file, CallError."""
        body = {
            "files": _file_rows(files),
            "params": dict(params or {}),
            "name": name,
            "description": description,
            "tags": list(tags),
            "project": project,
            "priority": priority,
            "timeout": timeout,
            "after": list(after),
            "on": on,
            "strict": strict,
            "unchecked": unchecked,
        }
        return self._submit(body, self.upload_code(folder, progress) if isinstance(folder, str | Path) else folder)

    def submit_many(
        self,
        files: str | Path | Sequence[str | Path | tuple[str, str]],
        each: Sequence[Mapping[str, Any]],
        *,
        folder: str | Path | Snapshot | None = None,
        progress: Progress = silent,
        **options: Unpack[SubmitOptions],
    ) -> SubmittedRuns:
        """Submit one run of the files for each mapping of params, all of them or none, in one request. Each run gets
        its own copy of the code in `folder`. The other options are those of `submit`. At most 10,000 runs. Raises
        SpecErrors with all errors, CallError."""
        code = self.upload_code(folder, progress) if isinstance(folder, str | Path) else folder
        return self._submit_many(
            {"files": _file_rows(files), **options}, [{"params": dict(params)} for params in each], code
        )

    def send(self, submission: Submission, code: Snapshot | None) -> SubmittedRun:
        """Submit a run that this machine has read, with code that was uploaded. Raises as `submit` does."""
        return self._submit(_body_of(submission), code)

    def send_many(self, submissions: Sequence[tuple[Submission, int]], code: Snapshot | None) -> SubmittedRuns:
        """The same for many that differ in files, params, name and backend; each so many times. Raises as `submit_many`
        does."""
        bodies = [_body_of(submission) for submission, _ in submissions]
        shared = bodies[0]
        runs = [
            {"times": times, **{name: body[name] for name in VARYING if body[name] != shared[name]}}
            for body, (_, times) in zip(bodies, submissions, strict=True)
        ]
        if len(runs) > 1:  # params of a run are added to those of all
            runs = [{**run, "params": body["params"]} for run, body in zip(runs, bodies, strict=True)]
            shared = {**shared, "params": {}}
        return self._submit_many(shared, runs, code)

    def _submit(self, body: Mapping[str, Any], code: Snapshot | None) -> SubmittedRun:
        row = self._wire.send("POST", joined("runs", "submit"), {**body, **_code_fields(code)})
        return SubmittedRun(rows.run_of(row), list(row.get("notes") or ()))

    def _submit_many(
        self, shared: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], code: Snapshot | None
    ) -> SubmittedRuns:
        body = {**shared, **_code_fields(code), "runs": list(runs)}
        found = self._wire.send_long("POST", joined("runs", "submit-many"), body)
        made = [SubmittedName(row["id"], row.get("name"), row["status"]) for row in found["runs"]]
        return SubmittedRuns(made, list(found.get("notes") or ()))

    def upload_code(
        self, folder: str | Path, progress: Progress = silent, added: Mapping[str, bytes] = MappingProxyType({})
    ) -> Snapshot:
        """Upload the code of a folder, for one run, and further files by name. Raises CallError if it is too large
        to be code."""
        from phalanx.submission.git import git_state
        from phalanx.submission.snapshots import pack

        with tempfile.TemporaryFile(prefix="phalanx-") as packed:
            pack(Path(folder), packed, added=added)
            size = packed.tell()
            packed.seek(0)
            row = self._wire.put("POST", joined("snapshots"), _pieces(packed, size, progress), size)
        return Snapshot(str(row["id"]), int(row["files"]), int(row["size"]), git_state(Path(folder)))

    def stop(self, run: str | Run) -> Run:
        """Request the stop of a run. Returns before the run has ended."""
        return self._act(run, "stop")

    def set_priority(self, run: str | Run, priority: int) -> Run:
        """Change the priority of a run that has not ended. Higher priorities leave the queue first."""
        return rows.run_of(self._wire.send("POST", joined("runs", self._id(run), "priority"), {"priority": priority}))

    def restart(self, run: str | Run) -> Run:
        """Submit the same file as a new run with empty outputs."""
        return self._act(run, "restart")

    def copy(self, run: str | Run) -> Run:
        """Submit the same file as a new run that starts from a copy of the outputs."""
        return self._act(run, "copy")

    def resume(self, run: str | Run) -> Run:
        """Start the next attempt of a finished run."""
        return self._act(run, "resume")

    def delete(self, run: str | Run) -> None:
        """Permanently delete a finished run."""
        self._wire.send("DELETE", joined("runs", self._id(run)))

    def archive(self, run: str | Run) -> Run:
        """Leave a finished run, or a group with its trials, out of lists."""
        return self._act(run, "archive")

    def unarchive(self, run: str | Run) -> Run:
        return self._act(run, "unarchive")

    def star(self, run: str | Run) -> None:
        """Mark a run for yourself: the query `starred:true` finds it."""
        self._wire.send("PUT", joined("runs", self._id(run), "star"))

    def unstar(self, run: str | Run) -> None:
        self._wire.send("DELETE", joined("runs", self._id(run), "star"))

    def tag(self, run: str | Run, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Run:
        """Add and remove tags; the others stay."""
        body = {"add": list(add), "remove": list(remove)}
        return rows.run_of(self._wire.send("POST", joined("runs", self._id(run), "tags"), body))

    def rename(self, run: str | Run, name: str) -> Run:
        return rows.run_of(self._wire.send("PATCH", joined("runs", self._id(run)), {"name": name}))

    def describe(self, run: str | Run, description: str) -> Run:
        """Replace the note of a run, which is Markdown."""
        return rows.run_of(self._wire.send("PATCH", joined("runs", self._id(run)), {"description": description}))

    def _act(self, run: str | Run, verb: str) -> Run:
        return rows.run_of(self._wire.send("POST", joined("runs", self._id(run), verb)))


def _body_of(submission: Submission) -> dict[str, Any]:
    return {
        "files": [{"name": name, "text": data.decode("utf-8", "surrogateescape")} for name, data in submission.files],
        "params": dict(submission.params),
        "name": submission.name,
        "description": submission.description,
        "tags": list(submission.tags),
        "project": submission.project,
        "priority": submission.priority,
        "timeout": submission.timeout_s,
        "after": list(submission.after),
        "on": submission.on,
        "strict": submission.is_strict,
        "unchecked": submission.is_unchecked,
    }


def _code_fields(code: Snapshot | None) -> dict[str, Any]:
    return {} if code is None else {"code": code.id, "git": code.git}


def _file_rows(files: str | Path | Sequence[str | Path | tuple[str, str]]) -> list[dict[str, str]]:
    texts = [_text_of(file) for file in ([files] if isinstance(files, str | Path) else files)]
    return [{"name": title, "text": text} for title, text in texts]


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
