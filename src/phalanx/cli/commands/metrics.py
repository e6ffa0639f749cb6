"""phalanx metrics"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, printable, table
from phalanx.cli.render.sparklines import sparkline
from phalanx.cli.workspace.base import find_run, open_workspace
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import SeriesReader

SHAPE = 40  # characters of a sparkline
PLOTTED = 144  # columns of dots


@click.command("metrics")
@click.argument("run")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@click.option("--replica", metavar="NAME", help="Only this replica, such as worker-1.")
@click.option("--over-ranks", is_flag=True, help="Show mean, minimum and maximum over the ranks at each step.")
@click.option("--steps", metavar="FIRST:LAST", help="Only these steps; either end may be omitted.")
@click.option(
    "--buckets",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --json or --csv: downsample to at most N buckets, each with minimum and maximum.",
)
@click.option("--plot", "as_plot", is_flag=True, help="Draw a chart of each metric.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all points as CSV.")
@json_option
def command(
    run: str,
    names: tuple[str, ...],
    replica: str | None,
    over_ranks: bool,
    steps: str | None,
    buckets: int | None,
    as_plot: bool,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show the metrics of a run: all, or the named ones. `%` at the start or end is a wildcard, as in `val/%`.

    RUN is an id, a name (the newest run of that name), or the first characters of an id.
    """
    with open_workspace(quiet=as_json or as_csv) as workspace:
        found = find_run(workspace, run)
        series = workspace.series(found)
        chosen = chosen_metrics(series, names, replica)
        span = step_span(steps)
        if as_json:

            def points(name: str) -> dict[str, Any]:
                return _json_points(series, name, replica, span, buckets, over_ranks, in_full=bool(names))

            print_json({"ok": True, "id": found.id, "metrics": metric_rows(series, chosen, points)})
        elif as_csv:
            _print_csv(series, chosen, replica, span, buckets, over_ranks)
        elif not chosen:
            click.echo(f"run {found.id} has no metrics yet")
        elif as_plot or over_ranks:
            _print_plots(series, chosen, replica, span, over_ranks)
        else:
            _print_table(series, chosen, replica, span)


def chosen_metrics(series: SeriesReader, names: Sequence[str], replica: str | None) -> list[str]:
    """Raises CallError for a name without a match."""
    from phalanx.spec.suggestions import did_you_mean

    known = series.names()
    if replica is not None:
        replicas = sorted({one for name in known for one in series.replicas(name)})
        if replica not in replicas:
            raise CallError(
                f"replica `{replica}` logged no metrics; replicas that did: {', '.join(replicas) or 'none'}"
            )
        known = [name for name in known if replica in series.replicas(name)]
    if not names:
        return known
    found: dict[str, None] = {}
    for wanted in names:
        fitting = [name for name in known if _fits(name, wanted)]
        if not fitting:
            hint = did_you_mean(wanted, known)
            raise CallError(f"the run has no metric `{wanted}`" + (f": {hint}" if hint else ""))
        found.update(dict.fromkeys(fitting))
    return list(found)


def _fits(name: str, wanted: str) -> bool:
    if name == wanted:
        return True
    begin, end = wanted.startswith("%"), wanted.endswith("%")
    part = wanted.strip("%")
    if begin and end:
        return part in name
    return (begin and name.endswith(part)) or (end and name.startswith(part))


def step_span(steps: str | None) -> tuple[int | None, int | None]:
    if steps is None:
        return None, None
    first, colon, last = steps.partition(":")
    try:
        ends = [int(end) if end.strip() else None for end in (first, last if colon else first)]
    except ValueError:
        raise CallError(f"--steps {steps!r}: expected FIRST:LAST, such as 100:200 or 100:") from None
    return ends[0], ends[1]


def metric_rows(
    series: SeriesReader, names: Sequence[str], points: Callable[[str], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Metrics with their replicas, their summaries, and what `points` returns for each."""
    summaries = series.summaries(names)
    return [
        {
            "name": name,
            "replicas": series.replicas(name),
            "summary": summaries[name]._asdict() if name in summaries else None,
            **points(name),
        }
        for name in names
    ]


def _print_table(series: SeriesReader, names: list[str], replica: str | None, span: tuple[Any, Any]) -> None:
    rows = [["METRIC", "REPLICA", "POINTS", "STEP", "LAST", "MIN", "MAX", "SHAPE"]]
    summaries = series.summaries(names) if span == (None, None) else {}
    for name in names:
        firsts = series.replicas(name)[:1]
        for one, found in series.buckets(name, SHAPE, replica, *span).items():
            if not found:
                continue
            lows, highs = [b.min for b in found if b.min is not None], [b.max for b in found if b.max is not None]
            summary = summaries.get(name) if one in firsts else None
            end = max(found, key=lambda bucket: (bucket.last_step, bucket.last_time))
            step, last = (end.last_step, end.last) if summary is None else (summary.step, summary.last)
            rows.append(
                [
                    printable(name),
                    one,
                    str(sum(bucket.count for bucket in found)),
                    str(step),
                    f"{last:.6g}",
                    f"{min(lows):.6g}" if lows else "-",
                    f"{max(highs):.6g}" if highs else "-",
                    sparkline([bucket.mean for bucket in found]),
                ]
            )
    print_lines(table(rows))


def _print_plots(
    series: SeriesReader, names: list[str], replica: str | None, span: tuple[Any, Any], over_ranks: bool
) -> None:
    from phalanx.cli.render.plots import plot

    for name in names:
        drawn: dict[str, Any] = series.buckets(name, PLOTTED, replica, *span)
        if over_ranks:
            drawn = {f"{len(drawn)} ranks": series.over_ranks(name, PLOTTED)}
        for one, found in drawn.items():
            click.echo(f"{click.style(printable(name), bold=True)}  {one}")
            print_lines(plot(found))
            click.echo("")


def _print_csv(
    series: SeriesReader,
    names: list[str],
    replica: str | None,
    span: tuple[Any, Any],
    buckets: int | None,
    over_ranks: bool,
) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if over_ranks or buckets:
        fields: tuple[str, ...] | None = None
        for name in names:
            found = stretches(series, name, replica, span, buckets, over_ranks)
            for one, rows in found.items():
                for row in rows:
                    if fields is None:
                        fields = row._fields
                        writer.writerow(["metric", "replica", *fields])
                    writer.writerow([name, one, *row])
        return
    writer.writerow(["metric", "replica", "rank", "attempt", "step", "time", "value"])
    for name in names:
        for line in series.series(name, replica):
            rank = "" if line.rank is None else line.rank
            for step, at, value, attempt in zip(line.steps, line.times, line.values, line.attempts, strict=True):
                if _is_within(step, span):
                    writer.writerow([name, line.replica, rank, attempt, step, repr(at), repr(value)])


def _is_within(step: int, span: tuple[int | None, int | None]) -> bool:
    return (span[0] is None or step >= span[0]) and (span[1] is None or step <= span[1])


def stretches(
    series: SeriesReader, name: str, replica: str | None, span: tuple[Any, Any], buckets: int | None, over_ranks: bool
) -> dict[str, list[Any]]:
    if over_ranks:
        return {"all": [row for row in series.over_ranks(name, buckets) if _is_within(row.first_step, span)]}
    return {one: list(found) for one, found in series.buckets(name, buckets or 1000, replica, *span).items()}


def _json_points(
    series: SeriesReader,
    name: str,
    replica: str | None,
    span: tuple[Any, Any],
    buckets: int | None,
    over_ranks: bool,
    *,
    in_full: bool,
) -> dict[str, Any]:
    if over_ranks or buckets:
        found = stretches(series, name, replica, span, buckets, over_ranks)
        return {"buckets": {one: [bucket._asdict() for bucket in rows] for one, rows in found.items()}}
    return {"series": [_json_line(line, span) for line in series.series(name, replica)]} if in_full else {}


def _json_line(line: Any, span: tuple[int | None, int | None]) -> dict[str, Any]:
    kept = [place for place, step in enumerate(line.steps) if _is_within(step, span)]
    columns = {
        name: [getattr(line, name)[place] for place in kept] for name in ("steps", "times", "values", "attempts")
    }
    return {"replica": line.replica, "rank": line.rank, **columns}
