"""Log lines of all replicas, and the first error."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from phalanx.server.schemas.base import ResponseModel, Seconds

CursorText = Annotated[str, Field(description="a position in the logs, for `before`, `after` and `around`")]


class LogSize(ResponseModel):
    replica: str
    rank: int | None
    size: Annotated[int, Field(description="bytes")]


class LogList(ResponseModel):
    attempt: int
    attempts: int
    logs: list[LogSize]


class LogLineRow(ResponseModel):
    at: Seconds
    replica: str
    rank: int | None
    text: str
    cursor: CursorText


class MergedLine(LogLineRow):
    replicas: Annotated[list[str], Field(description="with `fold`, all replicas that wrote this line")]


class UnfinishedLine(ResponseModel):
    """The text after the last newline of a growing log."""

    replica: str
    rank: int | None
    text: str


class LogWindow(ResponseModel):
    attempt: int
    lines: list[MergedLine]
    first: CursorText
    last: CursorText
    at_start: bool
    at_end: bool
    unfinished: list[UnfinishedLine]
    left_out: Annotated[int, Field(description="logs that are not shown, because there are too many")]


class MatchingLine(LogLineRow):
    span: Annotated[list[int], Field(description="where the match begins and ends in the text")]


class LogMatches(ResponseModel):
    found: list[MatchingLine]
    next: Annotated[str | None, Field(description="the cursor to continue from; null at the end")]
    searched_bytes: int
    left_out: int


class LaterFailure(ResponseModel):
    replica: str
    after_s: float
    message: str


class FirstErrorRow(ResponseModel):
    """The replica that failed first; null if none did, and then the first error in any log."""

    attempt: int
    replica: str | None
    rank: int | None
    at: Seconds | None
    cause: str | None
    message: str | None
    later: list[LaterFailure]
    lines: list[LogLineRow]
    error: Annotated[int | None, Field(description="the index of the line with the error")]
