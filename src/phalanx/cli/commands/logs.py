"""phalanx logs"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.log_lines import LogPrinter, json_line, plain, time_text
from phalanx.cli.render.output import printable
from phalanx.cli.workspace.base import find_run, open_workspace
from phalanx.cli.workspace.log_follower import follow, wait
from phalanx.errors import CallError
from phalanx.logs.line_pattern import LinePattern
from phalanx.logs.lines import LogLine
from phalanx.logs.replica_choice import choose
from phalanx.logs.replica_logs import LogSource
from phalanx.store.kinds import WHOLES

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import RunLogs
    from phalanx.cli.workspace.first_error import FirstError
    from phalanx.store import Run


@click.command("logs")
@click.argument("run")
@click.option(
    "--replica",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only this replica (worker-0), this role (worker), this rank (3) or these ranks (0-3). Repeatable.",
)
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="Only this role, such as worker. Repeatable.")
@click.option("--rank", "ranks", multiple=True, type=int, metavar="N", help="Only this rank. Repeatable.")
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the run finishes.")
@click.option("--attempt", type=click.IntRange(1), help="Attempt of the run. Default: the latest.")
@click.option(
    "--grep",
    "expression",
    metavar="PATTERN",
    help="Only lines that match this regular expression (RE2 syntax), ignoring case; `(?-i)` makes it case-sensitive.",
)
@click.option("--times", "with_times", is_flag=True, help="Prefix each line with its time.")
@click.option("--errors", is_flag=True, help="Only the first error of the replica that failed first, and its cause.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("--no-fold", is_flag=True, help="Don't collapse identical lines.")
@json_option
def command(
    run: str,
    names: tuple[str, ...],
    roles: tuple[str, ...],
    ranks: tuple[int, ...],
    follow: bool,
    attempt: int | None,
    expression: str | None,
    with_times: bool,
    errors: bool,
    tail: int | None,
    no_fold: bool,
    as_json: bool,
) -> None:
    """Print the logs of a run's replicas in order of time.

    RUN is an id, a name (the newest run of that name), or the first characters of an id.

    Identical lines that several replicas write at about the same time are printed once, with the names of the
    replicas. --json prints one object per line. Ctrl-C ends --follow; the run continues.
    """
    if errors and follow:
        raise CallError("--errors and --follow cannot be combined")
    if errors and expression is not None:
        raise CallError("--errors and --grep cannot be combined")
    pattern = None if expression is None else LinePattern.of(expression, is_regex=True)
    with open_workspace(quiet=as_json) as workspace:
        found = find_run(workspace, run)
        refuse_whole(found)
        sources = _chosen(workspace.logs.sources(found), names, roles, ranks)
        refuse_attempt(found, attempt)
        if errors:
            _show_errors(workspace.logs.error(found, sources, attempt or found.attempt), found, as_json=as_json)
            return
        printer = LogPrinter(
            [source.name for source in sources], as_json=as_json, times=with_times, fold=not no_fold and not as_json
        )
        if follow:
            code = _follow(workspace.logs, found, sources, attempt, tail, printer, pattern)
        else:
            code = _print_all(workspace.logs, found, sources, attempt, tail, printer, pattern)
    sys.exit(code)


def _chosen(
    sources: list[LogSource], names: Sequence[str], roles: Sequence[str], ranks: Sequence[int]
) -> list[LogSource]:
    """The replicas that the options select. Raises CallError for a value that selects none."""
    from phalanx.spec.suggestions import did_you_mean

    named = choose(sources, names)
    known = (
        ("--role", roles, [source.role for source in sources]),
        ("--rank", map(str, ranks), [str(source.rank) for source in sources]),
    )
    for option, wanted, there in known:
        for word in wanted:
            if word not in there:
                hint = did_you_mean(word, there) if option != "--rank" else None
                listed = ", ".join(dict.fromkeys(there[:20])) or "none"
                raise CallError(f"{option} {word}: not in this run; " + (hint or f"it has {listed}"))
    chosen = [source for source in named if (not roles or source.role in roles) and (not ranks or source.rank in ranks)]
    if not chosen and sources:
        raise CallError("no replica of the run matches all of --replica, --role and --rank")
    return chosen


def refuse_whole(run: Run) -> None:
    """Raises CallError for a group or pipeline."""
    if run.kind in WHOLES:
        raise CallError(f"a {run.kind} has no logs: its runs do, which `phalanx ps -q group:{run.id}` lists")


def refuse_attempt(run: Run, attempt: int | None) -> None:
    if attempt is not None and attempt > max(run.attempt, 1):
        raise CallError(f"--attempt {attempt}: the latest attempt of the run is {run.attempt}")


# printing ------------------------------------------------------------------------------------------------------------


def _print_all(
    logs: RunLogs,
    run: Run,
    sources: list[LogSource],
    attempt: int | None,
    tail: int | None,
    printer: LogPrinter,
    pattern: LinePattern | None,
) -> int:
    if not run.attempt:
        click.echo(f"run {run.id} has not started: {run.status}: {printable(run.reason)}", err=True)
        return 0
    if attempt is None and run.attempt > 1 and not printer.as_json:
        click.echo(f"attempt {run.attempt}; --attempt {run.attempt - 1} shows the previous one", err=True)
    last = tail if pattern is None else None  # of the lines that match, which may be anywhere
    lines = logs.lines(run, sources, attempt or run.attempt, last, fold=printer.fold is not None)
    printer.show(matching(lines, pattern), tail)
    printer.close()
    return 0


def matching(lines: Iterator[LogLine], pattern: LinePattern | None) -> Iterator[LogLine]:
    return lines if pattern is None else (line for line in lines if pattern.matches(line.text))


# following -----------------------------------------------------------------------------------------------------------


def _follow(
    logs: RunLogs,
    run: Run,
    sources: list[LogSource],
    attempt: int | None,
    tail: int | None,
    printer: LogPrinter,
    pattern: LinePattern | None,
) -> int:
    """Print new lines until the run finishes. Returns the exit code."""
    signals = _collect_signals()
    if not run.attempt:
        click.echo(f"run {run.id} has not started: {run.status}: {printable(run.reason)}", err=True)
    batches = logs.follow(run, sources, attempt, tail, lambda seconds: wait(seconds, signals))
    if pattern is not None:
        batches = (batch._replace(lines=matching(batch.lines, pattern)) for batch in batches)
    follow(batches, printer, signals)
    return 128 + signals[0] if signals else 0


def _collect_signals() -> list[int]:
    """A list that Ctrl-C, TERM and a closed terminal append to, so that they do not interrupt a scheduler pass."""
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda caught, _: received.append(caught))
    return received


# errors --------------------------------------------------------------------------------------------------------------


def _show_errors(found: FirstError, run: Run, *, as_json: bool) -> None:
    if found.failures:
        _print_failure(found, as_json=as_json)
        return
    if not as_json:
        click.echo(f"run {run.id}: {run.status}: {printable(run.reason)}")
        where = "; first error in the logs:" if found.lines else ", and the logs contain no error"
        click.echo(f"no replica failed{where}")
    _print_excerpt(found, as_json=as_json)


def _print_failure(found: FirstError, *, as_json: bool) -> None:
    first, *others = found.failures
    if as_json:
        _print_excerpt(found, as_json=True, cause=first.cause, message=first.message)
        if not found.lines:
            silent = LogLine(first.at, first.replica, first.rank, first.attempt, "")
            click.echo(json_line(silent, is_error=False, cause=first.cause, message=first.message))
        return
    rank = "" if first.rank is None else f" (rank {first.rank})"
    head = f"{first.replica}{rank} failed {_order(found)}, at {time_text(first.at)}, attempt {first.attempt}: "
    click.echo(click.style(printable(head + first.message), fg="red", bold=True))
    for other in others:
        after_s = other.at - first.at
        when = f"{after_s:.1f} s later" if after_s >= 0 else f"{-after_s:.1f} s earlier"
        click.echo(f"  {when} {other.replica}: {printable(other.message)}")
    if found.error is None:
        click.echo("no error in its log" + ("; last lines:" if found.lines else ": it is empty"))
    _print_excerpt(found, as_json=False)


def _order(found: FirstError) -> str:
    """Whether the first of the chosen replicas is also the first of the run."""
    chosen, first = found.failures[0], found.first
    if first is None or chosen == first:
        return "first"
    after_s = chosen.at - first.at
    return f"{abs(after_s):.1f} s {'after' if after_s >= 0 else 'before'} {first.replica}, which failed first"


def _print_excerpt(excerpt: FirstError, *, as_json: bool, **more: Any) -> None:
    for number, line in enumerate(excerpt.lines):
        if as_json:
            click.echo(json_line(line, is_error=number == excerpt.error, **more))
            continue
        mark = click.style(">", fg="red", bold=True) if number == excerpt.error else " "
        click.echo(f"{mark} [{line.replica}] {plain(line.text)}")
