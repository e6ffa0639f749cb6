"""Many runs of one call: the documents and params that they are made from, and their faults, reported together."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import click

from phalanx.cli.options import open_input
from phalanx.cli.render.output import print_json
from phalanx.cli.render.progress import ProgressMeter
from phalanx.errors import CallError, Location, SpecError, SpecErrors, os_reason, path_error

if TYPE_CHECKING:
    from phalanx.launch.file_references import LoadedFiles
    from phalanx.submission.model import Submission

Texts = Sequence[tuple[str, bytes]]
NO_PARAMS = 'write an object of params on each line, such as {"lr": 0.1}'
MOST_FAULTS = 100  # that are shown: thousands of lines may have the same one
LONGEST_LINE = 1 << 20
LARGE_FILE = 1 << 20
MOST_BYTES = 256 << 20  # of a file with documents
_DOCUMENT = re.compile(rb"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_END = re.compile(rb"^\.\.\.[ \t\r]*$", re.MULTILINE)


def documents(name: str, text: bytes) -> list[tuple[str, bytes]]:
    """The YAML documents of a file. Each is behind as many empty lines as are before it in the file, so that errors
    name the right line; in a large file its number is part of its name instead."""
    starts = [match.start() for match in _DOCUMENT.finditer(text)]
    if starts and not _has_content(text[: starts[0]]):
        starts = starts[1:]
    found: list[tuple[str, bytes]] = []
    before = 0
    for begin, end in zip([0, *starts], [*starts, len(text)], strict=True):
        one = _END.sub(b"", text[begin:end])
        if _has_content(_DOCUMENT.sub(b"", one, count=1)):
            is_large = len(text) > LARGE_FILE
            found.append((f"{name} (document {len(found) + 1})", one) if is_large else (name, b"\n" * before + one))
        before += text.count(b"\n", begin, end)
    return found


def _has_content(text: bytes) -> bool:
    """Whether a document has more than comments and directives."""
    lines = (line.strip() for line in text.splitlines())
    return any(line and not line.startswith((b"#", b"%")) for line in lines)


class ParamLine(NamedTuple):
    """Values of params, as on the command line, and where they are from."""

    place: str
    params: dict[str, str]


def param_lines(name: str, faults: Faults) -> Iterator[ParamLine]:
    """The JSON objects of a file, one on each line. Raises CallError if it cannot be read."""
    shown = "standard input" if name == "-" else name
    try:
        with open_input(name) as stream:
            for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b""), 1):
                if line.strip():
                    with faults.of(shown):
                        yield _param_line(Location(shown, number, 1), line)
    except OSError as fault:
        raise path_error(f"cannot read {name}", fault) from None


def _param_line(place: Location, line: bytes) -> ParamLine:
    """Raises SpecErrors."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as fault:
        raise SpecErrors([SpecError(place, "", f"not JSON: {fault}", NO_PARAMS)]) from None
    if not isinstance(values, dict) or not values:
        raise SpecErrors([SpecError(place, "", "not an object with params", NO_PARAMS)])
    params = {name: json.dumps(value, ensure_ascii=False) for name, value in values.items()}
    return ParamLine(f"{place.file}:{place.line}", params)


class ManyFiles:
    """What the runs are made from: the files of each, and params for all or from the lines of a file."""

    def __init__(self, file_sets: Iterable[Texts], params: Mapping[str, str], many: str | None) -> None:
        self.file_sets = list(file_sets) if many is not None else file_sets
        self.params = params
        self.many = many

    def load(self, faults: Faults) -> Iterator[tuple[LoadedFiles, str]]:
        """All that can be loaded, with its place. Raises CallError."""
        from phalanx.launch.file_references import load_files

        lines = param_lines(self.many, faults) if self.many is not None else iter([ParamLine("", {})])
        for line in lines:
            for texts in self.file_sets:
                with faults.of(line.place or texts[-1][0], line.place):
                    yield load_files(texts, {**self.params, **line.params}), line.place or texts[-1][0]


def queue_runs(
    actions: BatchActions,
    source: ManyFiles,
    submission: Callable[[LoadedFiles], Submission],
    times: int,
    *,
    as_json: bool,
) -> None:
    """Check all runs, then queue them and print their ids. Raises SpecErrors or CallError with all faults: of checks
    before anything is queued, of a server beside what it has queued."""
    from phalanx.cli.interrupts import restore_signals

    faults, wanted, queued = Faults(), 0, 0
    batch = actions.batch(quiet=as_json)
    try:
        with ProgressMeter(quiet=as_json) as meter:
            for loaded, place in source.load(faults):
                with faults.of(place, place if source.many else ""):
                    batch.add(submission(loaded), times, place)
                wanted += times
                meter.show_count("checked", wanted)
        faults.report(0, wanted)
        if not wanted:
            raise CallError(f"nothing to queue: {source.many or 'the files'} is empty")
        for run in batch.create(faults):
            queued += 1
            if as_json:
                print_json({"ok": True, "id": run.id, "status": run.status})
            else:
                click.echo(run.id)
    finally:
        batch.close()
        restore_signals()
        if queued:
            actions.leave()
    faults.report(queued, wanted)


class BatchActions(Protocol):
    """Of a workspace."""

    def batch(self, *, quiet: bool) -> Batch:
        """For many runs that one call queues."""

    def leave(self) -> None:
        """Make sure that they continue without this process."""


class QueuedRecord(Protocol):
    """A record of a run, or what a server says of one of many."""

    @property
    def id(self) -> str: ...

    @property
    def status(self) -> str: ...


class Batch(Protocol):
    """Runs to be queued by a workspace."""

    def add(self, submission: Submission, times: int, place: str) -> None:
        """Check a run that is to be queued so many times. Raises SpecErrors, CallError."""

    def create(self, faults: Faults) -> Iterable[QueuedRecord]:
        """Queue all of them; a server says only now what it refuses."""

    def close(self) -> None:
        """Forget what was not queued."""


class Faults:
    """The faults of many submissions, reported together. `place`: the file or line that a submission comes from."""

    def __init__(self) -> None:
        self.errors: dict[SpecError, None] = {}
        self.calls: dict[str, None] = {}
        self.count = 0

    @contextmanager
    def of(self, place: str, line: str = "") -> Iterator[None]:
        """`line`: of the params, if they come from a file."""
        try:
            yield
        except SpecErrors as fault:
            self.count += 1
            if len(self.errors) < MOST_FAULTS:
                self.errors.update(dict.fromkeys(_with_line(error, line) for error in fault.errors))
        except CallError as fault:
            self.count += 1
            if len(self.calls) < MOST_FAULTS:
                self.calls[f"{place}: {fault}"] = None

    def report(self, queued: int, wanted: int) -> None:
        """Raises SpecErrors, CallError."""
        if self.errors:
            raise SpecErrors(self.errors)
        if self.calls:
            count = f"{wanted - queued} of {wanted} runs were not queued" if queued else "nothing was queued"
            more = f"; and {self.count - len(self.calls)} more" if self.count > len(self.calls) >= MOST_FAULTS else ""
            raise CallError(f"{count}: {'; '.join(self.calls)}{more}")


def _with_line(error: SpecError, line: str) -> SpecError:
    return error._replace(message=f"{error.message} (with the params of {line})") if line else error


def split_files(names: Sequence[str], files: Texts) -> Iterator[Texts]:
    """The files of each run: `files`, and one document of those that are named. Raises CallError."""
    texts, faults = [], []
    for name in names:
        try:
            with open_input(name) as stream:
                texts.append((name if name != "-" else "standard input", stream.read(MOST_BYTES + 1)))
        except OSError as fault:
            faults.append(f"{name}: {os_reason(fault)}")
        except ValueError:
            faults.append(f"{name!r}: not a valid file name")
    faults += [f"{name}: larger than {MOST_BYTES >> 20} MiB" for name, text in texts if len(text) > MOST_BYTES]
    if faults:
        raise CallError("cannot read " + "; ".join(faults))
    return ([*files, one] for name, text in texts for one in documents(name, text) or [(name, text)])
