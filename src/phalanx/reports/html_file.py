"""A report as one HTML file: its charts and tables as they are now, no scripts, nothing to load."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phalanx import extras
from phalanx.reports.blocks import ChartBlock, MarkdownText, RunChoice, TableBlock, parts_of
from phalanx.reports.chart_svg import chart_svg, escaped, span_text
from phalanx.reports.lines import NOTHING, RankSeries, lines_of, value_text
from phalanx.reports.records import Report
from phalanx.store import Run

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

DEFAULT_SORT = "-created_at"
DEFAULT_METRICS = 3
DEFAULT_PARAMS = 5
RUN_ID = re.compile(r"[A-Za-z0-9_.-]+")
FIELD = re.compile(r"(params|metric|min|max)\.(.+)", re.DOTALL)
PAGES = re.compile(r"/(runs|compare|models|reports|projects)([/?#]|$)")
STYLE = """
body { max-width: 900px; margin: 32px auto; padding: 0 16px; color: #1c2128; background: #fff;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { margin-bottom: 4px; }
.about { margin-top: 0; color: #5c6470; }
section { margin: 20px 0; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 14px; }
caption { padding: 4px 0; text-align: left; font-weight: 600; }
th, td { padding: 4px 14px 4px 0; border-bottom: 1px solid #e3e6ea; text-align: left; }
.right { text-align: right; font-variant-numeric: tabular-nums; }
pre { padding: 10px 12px; overflow-x: auto; background: #f4f5f7; border-radius: 6px; }
blockquote { margin-left: 0; padding-left: 12px; border-left: 3px solid #d5d9df; color: #5c6470; }
a { color: #2b5bd7; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # lets the file run and load nothing


@dataclass(frozen=True, slots=True)
class RunSource:
    """Where a report finds runs and their series: a home, or a server with its address."""

    runs: Callable[[str, str, int, str | None], Sequence[Run]]  # query, sort, limit, project
    series: Callable[[Run], RankSeries]
    best: Callable[[Run], dict[str, Any]]  # metric -> its summary, with `min` and `max`
    address: str | None


def html_file(report: Report, source: RunSource) -> str:
    """Raises MissingExtra without the extra `reports`; CallError for a query that is wrong."""
    markdown = _markdown(source.address)
    about = f"{report.project} · changed {report.updated_at[:16].replace('T', ' ')} UTC by {report.updated_by}"
    where = f"{source.address}/reports/{report.id}" if source.address else ""
    link = f' · <a href="{escaped(where)}">{escaped(where)}</a>' if where else ""
    sections = []
    for number, part in enumerate(parts_of(report.text)):
        if isinstance(part, MarkdownText):
            sections.append(str(markdown.render(part.text)))
        elif part.faults:
            sections.append("".join(f"<p><em>{escaped(fault)}</em></p>" for fault in part.faults))
        elif isinstance(part, ChartBlock):
            sections.append(_chart(part, report, source, number))
        else:
            sections.append(_table(part, report, source))
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escaped(report.title)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            f"<h1>{escaped(report.title)}</h1>",
            f'<p class="about">{escaped(about)}{link}</p>',
            *(f"<section>{section}</section>" for section in sections),
            "</body>",
            "</html>",
            "",
        ]
    )


def _markdown(address: str | None) -> MarkdownIt:
    """CommonMark with tables. HTML in the text is shown as text; images become their descriptions, and links to this
    server's pages get its address."""
    with extras.needed("reports", "the export of a report"):
        from markdown_it import MarkdownIt

    found = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])

    def image(_: Any, tokens: Sequence[Any], place: int, options: Any, env: Any) -> str:
        return escaped(found.renderer.renderInlineAsText(tokens[place].children or [], options, env))  # type: ignore[attr-defined]

    def link(_: Any, tokens: Sequence[Any], place: int, *__: Any) -> str:
        href = str(tokens[place].attrGet("href") or "")
        if address and PAGES.match(href):
            href = address + href
        return f'<a href="{escaped(href)}" rel="noreferrer">' if re.match(r"https?://", href) else "<a>"

    found.add_render_rule("image", image)
    found.add_render_rule("link_open", link)
    return found


def _chosen(choice: RunChoice, report: Report, source: RunSource) -> Sequence[Run]:
    if not choice.runs:
        sort, project = choice.sort or DEFAULT_SORT, choice.project or report.project
        return source.runs(choice.query or "", sort, choice.limit, project)
    ids = [one for one in choice.runs if RUN_ID.fullmatch(one)]
    found = {run.id: run for run in source.runs(f"id:{'|'.join(ids) or '-'}", DEFAULT_SORT, len(ids) or 1, None)}
    return [found[one] for one in ids if one in found]


def _chart(chart: ChartBlock, report: Report, source: RunSource, number: int) -> str:
    title, runs = chart.title or ", ".join(chart.metrics), _chosen(chart.choice, report, source)
    lines = lines_of(chart, runs, source.series)
    if lines:
        return chart_svg(chart, title, lines, number)
    why = f"None of {len(runs)} runs logged {', '.join(chart.metrics)}." if runs else "No matching runs."
    return f"<p>{escaped(f'{title}: {why}')}</p>"


def _table(table: TableBlock, report: Report, source: RunSource) -> str:
    runs = _chosen(table.choice, report, source)
    columns = table.columns or _default_columns(runs)
    sides = [' class="right"' if FIELD.match(column) or column == "took" else "" for column in columns]
    head = "".join(f"<th{side}>{escaped(_title(one))}</th>" for one, side in zip(columns, sides, strict=True))
    rows = [[_cell(run, column, source) for column in columns] for run in runs]
    body = "".join(
        "<tr>" + "".join(f"<td{side}>{cell}</td>" for cell, side in zip(row, sides, strict=True)) + "</tr>"
        for row in rows
    )
    caption = f"<caption>{escaped(table.title)}</caption>" if table.title else ""
    empty = "" if runs else "<p>No matching runs.</p>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{empty}"


def _default_columns(runs: Sequence[Run]) -> tuple[str, ...]:
    """The name, the status, params that differ, and some metrics."""
    params = sorted({name for run in runs for name in run.params})
    differing = [name for name in params if len({value_text(run.params.get(name)) for run in runs}) > 1]
    metrics = list(dict.fromkeys(name for run in runs for name in run.summary))
    shown = [f"params.{name}" for name in differing[:DEFAULT_PARAMS]]
    return ("name", "status", *shown, *(f"metric.{name}" for name in metrics[:DEFAULT_METRICS]))


def _title(column: str) -> str:
    match = FIELD.fullmatch(column)
    if match is None:
        return column.replace("_", " ")
    return f"{match[1]} {match[2]}" if match[1] in ("min", "max") else match[2]


def _cell(run: Run, column: str, source: RunSource) -> str:
    if column == "name":
        name = escaped(run.name or run.id)
        return f'<a href="{escaped(source.address)}/runs/{run.id}">{name}</a>' if source.address else name
    return escaped(_cell_text(run, column, source))


def _cell_text(run: Run, column: str, source: RunSource) -> str:
    """A dash for what a run does not have."""
    match = FIELD.fullmatch(column)
    if match is not None and match[1] in ("min", "max"):
        return value_text(getattr(source.best(run).get(match[2]), match[1], None))
    if match is not None:
        return value_text((run.params if match[1] == "params" else run.summary).get(match[2]))
    if column == "took":
        if run.started_at is None or run.finished_at is None:
            return NOTHING
        return span_text((run.finished_at - run.started_at).total_seconds())
    if column == "tags":
        return ", ".join(run.tags) or NOTHING
    if column in ("created_at", "updated_at", "started_at", "finished_at"):
        at = getattr(run, column)
        return f"{at:%Y-%m-%d %H:%M}" if at is not None else NOTHING
    is_shown = column in ("status", "user", "id", "project", "reason", "framework", "backend", "group", "kind")
    return value_text(getattr(run, column)) if is_shown else NOTHING
