"""phalanx logs"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from phalanx.cli.files import json_option
from phalanx.cli.loglines import (
    LONGEST_LINE,
    Excerpt,
    Fold,
    Folded,
    Line,
    Times,
    first_error,
    folded,
    merged,
    names_text,
    split_lines,
    unfolded,
)
from phalanx.cli.output import answering, printable
from phalanx.errors import CallError
from phalanx.naming import named

if TYPE_CHECKING:
    from phalanx.scheduler.home import Home, RunFolder
    from phalanx.scheduler.serving import Attendant
    from phalanx.store import Run, Store

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_yellow")
_CHUNK = 1 << 18
_HOLD_S = 0.3  # how long a fresh line waits for those of other replicas that were written before it
_UNNOTED_S = 1.0  # after so long no agent will say any more when a line was written
_STRANGE_S = 5.0  # what is so far in the future was written by a clock that was set since
_SAID_AT_ONCE = 500
_STYLE = re.compile(r"\x1b\[[0-9;]*[mK]")  # a program's own colours: nothing to read, nothing to obey


class Voice(NamedTuple):
    """A replica that may have a log."""

    name: str
    role: str
    rank: int | None


@click.command("logs")
@click.argument("run")
@click.option("--replica", "names", multiple=True, metavar="NAME", help="Only this one, such as worker-0. Repeatable.")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="Only this role, such as worker. Repeatable.")
@click.option("--rank", "ranks", multiple=True, type=int, metavar="N", help="Only this rank. Repeatable.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run is over.")
@click.option("--attempt", type=click.IntRange(1), help="Which start of the run. Without it: the newest.")
@click.option("--times", "with_times", is_flag=True, help="Before each line, when it was written.")
@click.option("--errors", is_flag=True, help="Only the first error of the replica that failed first, and why it ended.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("--no-fold", is_flag=True, help="The same line of many replicas as often as it was said.")
@json_option
def command(
    run: str,
    names: tuple[str, ...],
    roles: tuple[str, ...],
    ranks: tuple[int, ...],
    follow: bool,
    attempt: int | None,
    with_times: bool,
    errors: bool,
    tail: int | None,
    no_fold: bool,
    as_json: bool,
) -> None:
    """Print what the replicas of a run wrote, in the order of time. RUN is its id, the beginning of it, or its name.

    A line that many replicas say at about the same time stands there once, with all their names. --json prints one
    object per line of the logs. Ctrl-C ends --follow; the run goes on.
    """
    with answering(as_json=as_json):
        from phalanx.cli.homes import open_home
        from phalanx.scheduler.serving import settle

        if errors and follow:
            raise CallError("--errors looks at what was written, --follow waits for more: take one of them")
        home, store = open_home()
        with store:
            settle(home, store)
            found = store.find(run)
            folder = home.run(found.id)
            voices = _chosen(_voices(folder), names, roles, ranks)
            _refuse_attempt(found, attempt)
            if errors:
                _show_errors(folder, found, voices, attempt or found.attempt, as_json=as_json)
                return
            printer = Printer(
                [voice.name for voice in voices], as_json=as_json, times=with_times, fold=not no_fold and not as_json
            )
            if follow:
                code = _follow(home, store, found, voices, attempt, tail, printer)
            else:
                code = _print_all(folder, found, voices, attempt, tail, printer)
    sys.exit(code)


def _voices(folder: RunFolder) -> list[Voice]:
    """The replicas that run something, by rank; those that left a folder when the plan cannot be read."""
    try:
        planned = json.loads(folder.plan_file.read_bytes())["replicas"]
    except (OSError, ValueError, KeyError):
        base = folder.path / "replicas"
        found = sorted(path.name for path in base.iterdir()) if base.is_dir() else []
        return [Voice(name, name.rpartition("-")[0], None) for name in found]
    return [Voice(named(r), r["role"], r["rank"]) for r in planned if r["argv"]]


def _chosen(voices: list[Voice], names: Sequence[str], roles: Sequence[str], ranks: Sequence[int]) -> list[Voice]:
    """Those whom the options name; a word that names nobody is a mistake. Raises CallError."""
    from phalanx.spec.suggest import did_you_mean

    known = (
        ("--replica", names, [voice.name for voice in voices]),
        ("--role", roles, [voice.role for voice in voices]),
        ("--rank", map(str, ranks), [str(voice.rank) for voice in voices]),
    )
    for option, wanted, there in known:
        for word in wanted:
            if word not in there:
                hint = did_you_mean(word, there) if option != "--rank" else None
                listed = ", ".join(dict.fromkeys(there[:20])) or "none"
                raise CallError(f"{option} {word}: the run has no such; " + (hint or f"it has {listed}"))
    chosen = [
        voice
        for voice in voices
        if (not names or voice.name in names)
        and (not roles or voice.role in roles)
        and (not ranks or voice.rank in ranks)
    ]
    if not chosen and voices:
        raise CallError("no replica of the run fits all of --replica, --role and --rank")
    return chosen


def _refuse_attempt(run: Run, attempt: int | None) -> None:
    if attempt is not None and attempt > max(run.attempt, 1):
        raise CallError(f"--attempt {attempt}: the run has had {run.attempt}")


# reading -------------------------------------------------------------------------------------------------------------


class Log:
    """The log of one replica in one attempt. Reads a little at a time, however long it is."""

    def __init__(self, folder: Path, voice: Voice, attempt: int, tail: int | None = None) -> None:
        self.folder = folder / "replicas" / voice.name / f"attempt-{attempt}"
        self.voice = voice
        self.attempt = attempt
        self.offset = 0 if tail is None else tail_start(self.folder / "log", tail)
        self.last_at = float("-inf")
        self.times = Times(_Notes(self.folder / "spool", self.offset))

    def lines(self, until: float | None = None) -> Iterator[Line]:
        """The lines that came since the last look. With `until` only whole ones, and only those that were written
        before that time: an older one of another replica may still come."""
        try:
            stream = (self.folder / "log").open("rb")
        except OSError:
            return
        self.times.refresh()
        with stream:
            facts = os.fstat(stream.fileno())
            stream.seek(self.offset)
            chunks = _chunks(stream, facts.st_size - self.offset)
            for piece, end in split_lines(chunks, self.offset, whole=until is None):
                at = self.times.at(end)
                patience_s = 0.0 if at is not None else _UNNOTED_S
                at = max(self.last_at, facts.st_mtime if at is None else at)  # clocks may be set back
                if until is not None and until - patience_s < at < until + _STRANGE_S:
                    return
                self.offset, self.last_at = end, at
                text = piece.decode("utf-8", "replace")
                yield Line(at, self.voice.name, self.voice.rank, self.attempt, text.removesuffix("\r"))

    def end(self) -> dict[str, Any] | None:
        """How the replica ended; None when it has not, or nobody wrote it down."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "end.json").read_bytes())
        except (OSError, ValueError):
            return None
        return found


def _chunks(stream: Any, count: int) -> Iterator[bytes]:
    """Up to that many bytes: a log that grows faster than we print must not keep us for ever."""
    while count > 0 and (data := stream.read(min(_CHUNK, count))):
        count -= len(data)
        yield data


def tail_start(path: Path, lines: int) -> int:
    """Where the last so many lines of a file begin, found from its end; an endless line counts by its pieces."""
    try:
        stream = path.open("rb")
    except OSError:
        return 0
    with stream:
        position = stream.seek(0, os.SEEK_END)
        stop = max(0, position - (lines + 1) * LONGEST_LINE)
        left = lines + 1  # the newline of the line before them is the first that is not passed
        size = position
        while position > stop:
            start = max(stop, position - _CHUNK)
            stream.seek(start)
            block = stream.read(position - start)
            if position == size and not block.endswith(b"\n"):
                left -= 1  # an unfinished line is one too
            while (found := block.rfind(b"\n")) != -1:
                left -= 1
                if left <= 0:
                    return start + found + 1
                block = block[:found]
            position = start
        return stop


class _Notes:
    """What the agent noted of its log, from about where the log is read. Gives what is new at each call."""

    def __init__(self, path: Path, log_offset: int) -> None:
        from phalanx.spool import Reader

        self.reader = Reader(path, _spool_start(path, log_offset) if log_offset else 0)

    def __call__(self) -> Iterator[tuple[float, int]]:
        for record in self.reader.poll():
            note = _note(record.payload)
            if note is not None:
                yield note


def _note(payload: bytes) -> tuple[float, int] | None:
    if b'"log"' not in payload:
        return None
    try:
        data = json.loads(payload)
        return float(data["at"]), int(data["log"])
    except (ValueError, KeyError, TypeError):
        return None


def _spool_start(path: Path, log_offset: int) -> int:
    """A place in the spool before the note that covers a place in the log, found from the end."""
    from phalanx.spool import split

    try:
        stream = path.open("rb")
    except OSError:
        return 0
    with stream:
        size = stream.seek(0, os.SEEK_END)
        back = 1 << 16
        while back < size:
            stream.seek(size - back)
            records, _, _ = split(stream.read(1 << 16))
            first = next((note for record in records if (note := _note(record.payload)) is not None), None)
            if first is not None and first[1] < log_offset:
                return size - back
            back *= 2
    return 0


# printing ------------------------------------------------------------------------------------------------------------


class Printer:
    """Lines for people, with the names of their replicas, or one JSON object for each."""

    def __init__(self, names: Sequence[str], *, as_json: bool, times: bool, fold: bool) -> None:
        self.colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
        self.width = max((len(name) for name in names), default=0) + 2
        self.alone = len(names) == 1
        self.as_json = as_json
        self.times = times
        self.fold = Fold() if fold and not self.alone else None

    def show(self, lines: Iterable[Line], tail: int | None = None) -> None:
        """Print lines; of these, with `tail`, only the last ones."""
        told = self._told(lines)
        if tail is not None:
            told = iter(deque(self._told_to_the_end(lines), maxlen=tail))
        self._print(told)

    def close(self, before: float = float("inf")) -> None:
        """Print what still waited for its like."""
        if self.fold is not None:
            self._print(self.fold.close(before))

    def _told(self, lines: Iterable[Line]) -> Iterator[Folded]:
        if self.fold is None:
            yield from unfolded(lines)
        else:
            for line in lines:
                yield from self.fold.feed(line)

    def _told_to_the_end(self, lines: Iterable[Line]) -> Iterator[Folded]:
        return unfolded(lines) if self.fold is None else folded(lines)

    def _print(self, told: Iterator[Folded]) -> None:
        """Many at a time: a terminal's library takes longer for a line than we do."""
        waiting: list[str] = []
        for item in told:
            waiting.append(json_line(item.line) if self.as_json else self._text(item))
            if len(waiting) >= _SAID_AT_ONCE:
                click.echo("\n".join(waiting))
                waiting.clear()
        if waiting:
            click.echo("\n".join(waiting))

    def _text(self, item: Folded) -> str:
        text = plain(item.line.text)
        if not self.alone:
            text = f"{self._label(item.replicas)} {text}"
        return f"{time_text(item.line.at)} {text}" if self.times else text

    def _label(self, replicas: Sequence[str]) -> str:
        if len(replicas) == 1:
            return click.style(f"[{replicas[0]}]".ljust(self.width), fg=self.colours.get(replicas[0]))
        return click.style(f"[{names_text(replicas)} x{len(replicas)}]", bold=True)


def plain(text: str) -> str:
    """A line as it would stand on a terminal in the end, without anything that a terminal would obey."""
    if text.isprintable():
        return text
    text = _STYLE.sub("", text).rstrip()
    return printable(text.rpartition("\r")[2].expandtabs())  # a progress bar: what it wrote over is gone


def json_line(line: Line, **more: Any) -> str:
    """ASCII alone, because what a program printed may hold whatever a terminal obeys."""
    return json.dumps(
        {
            "at": datetime.fromtimestamp(line.at, UTC).isoformat(),
            "replica": line.replica,
            "rank": line.rank,
            "attempt": line.attempt,
            "line": line.text,
            **more,
        }
    )


def time_text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().isoformat(sep=" ", timespec="milliseconds")[:23]


def _print_all(
    folder: RunFolder, run: Run, voices: list[Voice], attempt: int | None, tail: int | None, printer: Printer
) -> int:
    if not run.attempt:
        click.echo(f"run {run.id} has not started: {run.status}: {printable(run.reason)}", err=True)
        return 0
    if attempt is None and run.attempt > 1 and not printer.as_json:
        click.echo(f"attempt {run.attempt}; --attempt {run.attempt - 1} shows the one before", err=True)
    logs = [Log(folder.path, voice, attempt or run.attempt, tail) for voice in voices]
    printer.show(merged(log.lines() for log in logs), tail)
    printer.close()
    return 0


# following -----------------------------------------------------------------------------------------------------------


def _follow(
    home: Home,
    store: Store,
    run: Run,
    voices: list[Voice],
    attempt: int | None,
    tail: int | None,
    printer: Printer,
) -> int:
    """Print what comes until the run is over, and schedule while nobody else does. Answers the exit code."""
    from phalanx.scheduler.serving import TURN_S, Attendant

    attendant = Attendant(home, store)
    told = _leave_when_told()
    logs: list[Log] = []
    if not run.attempt:
        click.echo(f"run {run.id} has not started: {run.status}: {printable(run.reason)}", err=True)
    try:
        while not told:
            attendant.turn()
            run = store.find(run.id)
            wanted = attempt or run.attempt
            if wanted and (not logs or logs[0].attempt != wanted):
                printer.show(merged(log.lines() for log in logs))
                logs = [Log(home.run(run.id).path, voice, wanted, tail) for voice in voices]
            over = run.is_done or run.attempt > wanted
            until = None if over else time.time() - _HOLD_S
            printer.show(_attended((log.lines(until) for log in logs), attendant), tail if logs else None)
            tail = None if logs else tail
            printer.close(float("inf") if until is None else until - _HOLD_S)
            if over:
                return 0
            time.sleep(TURN_S)
    finally:
        attendant.leave()
    return 128 + told[0]


def _attended(logs: Iterable[Iterator[Line]], attendant: Attendant) -> Iterator[Line]:
    """The lines of logs. Runs are looked after between two of them: there may be a gigabyte to print."""
    from phalanx.scheduler.serving import TURN_S

    next_turn = time.monotonic() + TURN_S
    for line in merged(logs):
        yield line
        if time.monotonic() >= next_turn:
            attendant.turn()
            next_turn = time.monotonic() + TURN_S


def _leave_when_told() -> list[int]:
    """The list is filled by Ctrl-C, TERM or a closed terminal: a turn of the scheduler is not cut in two."""
    told: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda caught, _: told.append(caught))
    return told


# errors --------------------------------------------------------------------------------------------------------------


class Failure(NamedTuple):
    """A replica that ended badly."""

    log: Log
    at: float
    cause: str
    message: str


def _show_errors(folder: RunFolder, run: Run, voices: list[Voice], attempt: int, *, as_json: bool) -> None:
    logs = [Log(folder.path, voice, attempt) for voice in voices] if attempt else []
    failures = _failures(logs)
    if failures:
        _print_failure(failures, first_error(failures[0].log.lines()), as_json=as_json)
        return
    hits = [hit for log in logs if (hit := first_error(log.lines())).error is not None]
    first = min(hits, key=lambda hit: hit.lines[hit.error or 0].at, default=None)
    if not as_json:
        click.echo(f"run {run.id}: {run.status}: {printable(run.reason)}")
        click.echo("no replica failed" + (": the first error in the logs is" if first else ", and no log has an error"))
    if first is not None:
        _print_excerpt(first, as_json=as_json)


def _failures(logs: Iterable[Log]) -> list[Failure]:
    """Those that ended badly, the first one first: the others died of it. One that was told to end did not fail."""
    ends = [(log, end) for log in logs if (end := log.end()) is not None]
    failed = [
        Failure(log, float(end["ended_at"]), str(end["cause"]), str(end["message"]))
        for log, end in ends
        if end["cause"] not in ("finished", "stopped")
    ]
    return sorted(failed, key=lambda failure: failure.at)


def _print_failure(failures: Sequence[Failure], excerpt: Excerpt, *, as_json: bool) -> None:
    first, *later = failures
    if as_json:
        _print_excerpt(excerpt, as_json=True, cause=first.cause, message=first.message)
        if not excerpt.lines:
            voice = first.log.voice
            silent = Line(first.at, voice.name, voice.rank, first.log.attempt, "")
            click.echo(json_line(silent, is_error=False, cause=first.cause, message=first.message))
        return
    rank = "" if first.log.voice.rank is None else f" (rank {first.log.voice.rank})"
    head = f"{first.log.voice.name}{rank} failed first, at {time_text(first.at)}, attempt {first.log.attempt}: "
    click.echo(click.style(printable(head + first.message), fg="red", bold=True))
    for failure in later:
        since = failure.at - first.at
        click.echo(f"  {since:.1f} s later {failure.log.voice.name}: {printable(failure.message)}")
    if excerpt.error is None:
        click.echo("its log names no error" + ("; it ends with" if excerpt.lines else ": it is empty"))
    _print_excerpt(excerpt, as_json=False)


def _print_excerpt(excerpt: Excerpt, *, as_json: bool, **more: Any) -> None:
    for number, line in enumerate(excerpt.lines):
        if as_json:
            click.echo(json_line(line, is_error=number == excerpt.error, **more))
            continue
        mark = click.style(">", fg="red", bold=True) if number == excerpt.error else " "
        click.echo(f"{mark} [{line.replica}] {plain(line.text)}")
