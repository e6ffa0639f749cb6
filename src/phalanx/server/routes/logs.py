"""/api/v1/runs/{id}/logs, …/lines and …/first-error: the merged logs of a run's replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from phalanx.errors import CallError
from phalanx.insight.autopsy import ReplicaFailure
from phalanx.insight.run_failures import read_failures
from phalanx.logs import cursors
from phalanx.logs.cursors import MOST_LOGS, Cursor
from phalanx.logs.first_error import Excerpt
from phalanx.logs.line_pattern import LONGEST_PATTERN, LinePattern
from phalanx.logs.lines import LogLine, coloured_text, plain_text
from phalanx.logs.replica_choice import choose
from phalanx.logs.replica_logs import LogSource, log_sources
from phalanx.logs.search import SearchLimits, search
from phalanx.logs.windows import MergedLogReader, Window
from phalanx.server.context import Context, Here
from phalanx.server.http.documented_content import content
from phalanx.server.http.file_responses import SAFE
from phalanx.server.http.responses import EncodedJsonResponse, JsonResponse, RequestError, encoded
from phalanx.server.schemas.logs import FirstErrorRow, LogList, LogMatches, LogWindow
from phalanx.store import Run

MOST_LINES = 5_000
MOST_SEARCHED = 64 << 20
SEARCH_S = 5.0  # then the client continues with another request
ERROR_BYTES = 8 << 20  # bytes at the end of logs that are searched for an error
FAILURE = ("replica", "rank", "at", "cause", "message")
_LATER = 20  # shown replicas that failed after the first

AttemptNumber = Annotated[int | None, Query(ge=1, le=10**8, description="default: the newest")]
Names = Annotated[
    list[str] | None,
    Query(max_length=MOST_LOGS, description="only these: name (worker-3), role, rank or ranks (0-3); repeatable"),
]
CursorText = Annotated[str | None, Query(max_length=cursors.LONGEST, description="a cursor from an earlier response")]

router = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["logs"])


class LogSelection(NamedTuple):
    """The logs to read, and how many were left out."""

    run: Run
    merged: MergedLogReader
    left_out: int


@router.get("/logs", response_model=LogList)
def list_logs(run_id: str, here: Here, attempt: AttemptNumber = None) -> JsonResponse:
    """The replicas with a log in an attempt, and the log sizes."""
    run = here.find(run_id)
    number = _attempt(run, attempt)
    folder = here.home.run(run.id).path
    merged = MergedLogReader(folder, log_sources(folder), number, is_over=True)
    logs = [{"replica": r.source.name, "rank": r.source.rank, "size": r.size} for r in merged.each if r.is_there]
    return JsonResponse({"attempt": number, "attempts": max(1, run.attempt), "logs": logs})


@router.get("/lines", response_model=LogWindow)
def show_lines(  # noqa: PLR0913 - each is a parameter of the query
    run_id: str,
    here: Here,
    *,
    replica: Names = None,
    attempt: AttemptNumber = None,
    before: CursorText = None,
    after: CursorText = None,
    around: CursorText = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LINES)] = 500,
    fold: Annotated[bool, Query(description="merge identical lines of several replicas")] = False,
    ansi: Annotated[bool, Query(description="keep the escape sequences of colours")] = False,
) -> JsonResponse:
    """Log lines ordered by time: the last ones, or those before, after or around a cursor."""
    given = [text for text in (before, after, around) if text is not None]
    if len(given) > 1:
        raise RequestError(400, "before, after and around are mutually exclusive")
    cursor = cursors.read(given[0]) if given else None

    def make() -> bytes:
        number = attempt or (cursor.attempt if cursor else None)
        chosen = _chosen(here, run_id, replica, number, coloured_text if ansi else plain_text)
        window = _window(chosen.merged, cursor, limit, after=after is not None, around=around is not None, fold=fold)
        return encoded(_window_row(chosen, window))

    question = ("lines", run_id, tuple(replica or ()), attempt, before, after, around, limit, fold, ansi)
    return EncodedJsonResponse(here.recent.get(question, make, run_id=run_id))


def _window(  # noqa: PLR0913 - see `show_lines`
    merged: MergedLogReader, cursor: Cursor | None, limit: int, *, after: bool, around: bool, fold: bool
) -> Window:
    if cursor is None:
        return merged.before(merged.ends(), limit, fold=fold)
    offsets = cursors.offsets_in(merged, cursor, after=after)
    if after:
        return merged.after(offsets, limit, fold=fold)
    if not around:
        return merged.before(offsets, limit, fold=fold)
    earlier = merged.before(offsets, limit // 2, fold=fold)
    later = merged.after(offsets, limit - limit // 2, fold=fold)
    return Window([*earlier.lines, *later.lines], earlier.first, later.last)


def _window_row(chosen: LogSelection, window: Window) -> dict[str, Any]:
    merged, lines = chosen.merged, window.lines
    at_end = not any(log.has_more(offset) for log, offset in zip(merged.each, window.last, strict=True))
    return {
        "attempt": merged.attempt,
        "lines": [_line_row(item.line, replicas=item.replicas) for item in lines],
        "first": cursors.of_offsets(merged, window.first, lines[0].line if lines else None).text(),
        "last": cursors.of_offsets(merged, window.last, lines[-1].line if lines else None).text(),
        "at_start": not any(window.first),
        "at_end": at_end,
        "unfinished": _unfinished(merged, window.last) if at_end else [],
        "left_out": chosen.left_out,
    }


def _line_row(line: LogLine, **more: Any) -> dict[str, Any]:
    return {
        "at": round(line.at, 3),
        "replica": line.replica,
        "rank": line.rank,
        "text": line.text,
        "cursor": cursors.of_line(line).text(),
        **more,
    }


def _unfinished(merged: MergedLogReader, offsets: Sequence[int]) -> list[dict[str, Any]]:
    """The text after the last newline of growing logs, such as a progress bar: it is returned again as a line once it
    is complete."""
    texts = [(log, log.unfinished(offset)) for log, offset in zip(merged.each, offsets, strict=True)]
    return [{"replica": log.source.name, "rank": log.source.rank, "text": text} for log, text in texts if text]


@router.get("/lines/download", response_class=StreamingResponse, responses=content("text/plain", type="string"))
def download_lines(  # noqa: PLR0913 - each is a parameter of the query
    run_id: str,
    here: Here,
    *,
    replica: Names = None,
    attempt: AttemptNumber = None,
    text: Annotated[str | None, Query(min_length=1, max_length=LONGEST_PATTERN, description="only these lines")] = None,
    regex: Annotated[bool, Query(description="`text` is a regular expression, in the syntax of RE2")] = False,
) -> StreamingResponse:
    """All log lines as a text file, ordered by time; each with its time (UTC) and the name of its replica."""
    pattern = None if text is None else LinePattern.of(text, is_regex=regex)
    chosen = _chosen(here, run_id, replica, attempt)
    name = f"{chosen.run.id}.{chosen.merged.attempt}.log"
    headers = {**SAFE, "Content-Disposition": f'attachment; filename="{name}"', "Accept-Ranges": "none"}
    parts = _file_parts(chosen, pattern)
    return StreamingResponse(parts, headers=headers, media_type="text/plain; charset=utf-8")


def _file_parts(chosen: LogSelection, pattern: LinePattern | None) -> Iterator[bytes]:
    """Reads only up to the size that each log had at the start."""
    merged = chosen.merged
    width = max((len(log.source.name) for log in merged.each), default=0)
    offsets = [0] * len(merged.each)
    while True:
        window = merged.after(offsets, MOST_LINES)
        rows = [
            f"{datetime.fromtimestamp(line.at, UTC):%Y-%m-%dT%H:%M:%S.%f} {line.replica.ljust(width)} {text}\n"
            for line, text in ((item.line, plain_text(item.line.text)) for item in window.lines)
            if pattern is None or pattern.matches(text)
        ]
        yield "".join(rows).encode("utf-8", "replace")
        if not window.lines:
            break
        offsets = window.last
    if chosen.left_out:
        yield f"({chosen.left_out:,} more logs left out: select replicas)\n".encode()


@router.get("/lines/search", response_model=LogMatches)
def search_lines(  # noqa: PLR0913 - each is a parameter of the query
    run_id: str,
    here: Here,
    *,
    text: Annotated[str, Query(min_length=1, max_length=LONGEST_PATTERN)],
    regex: Annotated[bool, Query(description="`text` is a regular expression, in the syntax of RE2")] = False,
    replica: Names = None,
    attempt: AttemptNumber = None,
    after: CursorText = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> JsonResponse:
    """Lines that contain a text or match an expression, ignoring case, log by log. `span` is the place of the match in
    `text`; `next` is the cursor to continue from, while there is more to search."""
    pattern = LinePattern.of(text, is_regex=regex)
    cursor = cursors.read(after) if after is not None else None
    chosen = _chosen(here, run_id, replica, attempt or (cursor.attempt if cursor else None))
    start = (cursor.replica, cursor.end) if cursor else None
    found = search(chosen.merged, pattern, start, SearchLimits(limit, MOST_SEARCHED, SEARCH_S))
    following = None
    if found.next is not None:
        name, offset = found.next
        following = Cursor(chosen.merged.attempt, 0, offset, offset, name).text()
    rows = [_line_row(hit.line, span=hit.span) for hit in found.lines]
    return JsonResponse({"found": rows, "next": following, "searched_bytes": found.size, "left_out": chosen.left_out})


@router.get("/first-error", response_model=FirstErrorRow)
def show_first_error(run_id: str, here: Here, attempt: AttemptNumber = None) -> JsonResponse:
    """Who failed first and why, the others that failed, and the first error of its log: as `phalanx logs --errors`
    tells. When no replica failed, the first error that stands in any log."""
    run = here.find(run_id)
    folder, number = here.home.run(run.id), _attempt(run, attempt)
    failures = read_failures(folder, number, here.store.facts(run.id))
    if failures:
        source = [one for one in log_sources(folder.path) if one.name == failures[0].log]
        log = MergedLogReader(folder.path, source, number, is_over=_is_over(run, number))
        excerpt = log.first_error(0, ERROR_BYTES) if source else Excerpt((), None)
        return JsonResponse({"attempt": number, **_failure_row(failures), **_excerpt_row(excerpt)})
    merged = _chosen(here, run_id, None, number).merged
    share = ERROR_BYTES // max(1, len(merged.each))
    excerpts = (merged.first_error(each.number, share, or_end=False) for each in merged.each)
    hits = [hit for hit in excerpts if hit.error is not None]
    first = min(hits, key=lambda hit: hit.lines[hit.error or 0].at, default=Excerpt((), None))
    no_failure = dict.fromkeys(FAILURE)
    return JsonResponse({"attempt": merged.attempt, **no_failure, "later": [], **_excerpt_row(first)})


def _failure_row(failures: Sequence[ReplicaFailure]) -> dict[str, Any]:
    first, *later = failures
    return {
        **{name: getattr(first, name) for name in FAILURE},
        "later": [
            {"replica": other.replica, "after_s": round(other.at - first.at, 3), "message": other.message}
            for other in later[:_LATER]
        ],
    }


def _excerpt_row(excerpt: Excerpt) -> dict[str, Any]:
    return {"lines": [_line_row(line) for line in excerpt.lines], "error": excerpt.error}


def _chosen(
    here: Context,
    run_id: str,
    names: Sequence[str] | None,
    attempt: int | None,
    text: Callable[[str], str] = plain_text,
) -> LogSelection:
    """Raises RequestError."""
    run = here.find(run_id)
    folder = here.home.run(run.id).path
    sources = log_sources(folder)
    wanted = _named(sources, names) if names else sources
    number = _attempt(run, attempt)
    merged = MergedLogReader(folder, wanted[:MOST_LOGS], number, is_over=_is_over(run, number), text=text)
    return LogSelection(run, merged, max(0, len(wanted) - MOST_LOGS))


def _named(sources: Sequence[LogSource], names: Sequence[str]) -> list[LogSource]:
    try:
        return choose(sources, names)
    except CallError as fault:
        raise RequestError(404, str(fault), "GET …/logs lists the replicas with logs") from None


def _is_over(run: Run, attempt: int) -> bool:
    return run.is_done or attempt < run.attempt


def _attempt(run: Run, wanted: int | None) -> int:
    most = max(1, run.attempt)
    if wanted is not None and wanted > most:
        raise RequestError(404, f"run {run.id} has {run.attempt} attempts; there is no attempt {wanted}")
    return wanted or most
