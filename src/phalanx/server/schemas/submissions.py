"""Submissions of files."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from phalanx.errors import CallError
from phalanx.server.http.request_models import LONGEST_TEXT, Entries, RequestModel, Tags, Text, Word, raw_text
from phalanx.server.schemas.base import ResponseModel
from phalanx.server.schemas.runs import RunRow
from phalanx.spec.quantities import seconds
from phalanx.submission.checks import LARGEST_PRIORITY, check_priority

MOST_FILES = 20
LARGEST_FILE = 1 << 20
MOST_PARAMS = 1000
MOST_RUNS = 10_000  # of one request
DURATION = 'must be a number of seconds, or a duration such as "90m" or "1d12h"'


def _duration(found: Any) -> float | None:
    if found is None or found == "":
        return None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    parsed = seconds(str(found)) if is_number or isinstance(found, str) else None
    if parsed is None:
        raise ValueError(DURATION)
    return parsed


Duration = Annotated[
    float | None,
    PlainValidator(_duration),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}], "description": DURATION}),
]


def _priority(found: Any) -> int:
    try:
        return check_priority(found)
    except CallError as fault:
        raise ValueError(str(fault).removeprefix("`priority` ")) from None


Priority = Annotated[
    int,
    PlainValidator(_priority),
    WithJsonSchema({"type": "integer", "minimum": -LARGEST_PRIORITY, "maximum": LARGEST_PRIORITY}),
]


class SubmittedFile(RequestModel):
    name: Word | None = None
    text: raw_text(LARGEST_FILE) = ""  # type: ignore[valid-type]


class GitState(RequestModel):
    commit: Annotated[str, Field(max_length=100)] | None = None
    branch: Word | None = None
    dirty: bool | None = None
    diff: raw_text(LONGEST_TEXT * 20) | None = None  # type: ignore[valid-type]


class NewSubmission(RequestModel):
    files: Annotated[
        list[SubmittedFile],
        Field(min_length=1, max_length=MOST_FILES, description="later files override earlier ones"),
    ]
    params: Annotated[Entries, Field(max_length=MOST_PARAMS)] | None = None
    name: Word | None = None
    description: Text | None = None
    tags: Tags | None = None
    project: Word | None = None
    priority: Priority | None = None
    timeout: Duration = None
    after: Annotated[Tags, Field(description="runs to wait for: `RUN`, `RUN:failed` or `RUN:done`")] | None = None
    on: Annotated[str, Field(max_length=100, description="the backend, or the name of a site")] | None = None
    code: Annotated[str, Field(max_length=100, description="the id of a snapshot")] | None = None
    strict: Annotated[bool, Field(description="refuse a run that requests more than the machine has")] | None = None
    unchecked: Annotated[bool, Field(description="submit even if the site profile predicts a rejection")] | None = None
    git: Annotated[GitState, Field(description="commit, branch and changes of the code")] | None = None


class SubmissionVariant(RequestModel):
    """What one of many runs has of its own: instead of `files`, `name` and `on` of all, and in addition to `params`."""

    files: Annotated[list[SubmittedFile], Field(min_length=1, max_length=MOST_FILES)] | None = None
    params: Annotated[Entries, Field(max_length=MOST_PARAMS)] | None = None
    name: Word | None = None
    on: Annotated[str, Field(max_length=100)] | None = None
    times: Annotated[int, Field(ge=1, le=MOST_RUNS, description="queue it so many times")] | None = None


class NewSubmissions(NewSubmission):
    """Many runs, with what they have in common. `code` is copied for each."""

    runs: Annotated[list[SubmissionVariant], Field(min_length=1, max_length=MOST_RUNS)]

    def of(self, variant: SubmissionVariant) -> NewSubmission:
        """One of the runs."""
        own = {name: value for name in ("files", "name", "on") if (value := getattr(variant, name)) is not None}
        return self.model_copy(update={**own, "params": {**(self.params or {}), **(variant.params or {})}})

    @property
    def wanted(self) -> int:
        return sum(variant.times or 1 for variant in self.runs)


class SubmissionNote(ResponseModel):
    """Something that was read differently from how it was written."""

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    path: str | None = None


class SubmittedRunRow(RunRow):
    waits_for: str | None
    notes: list[SubmissionNote]


class SubmittedNameRow(ResponseModel):
    id: str
    name: str | None
    status: str


class SubmittedRunRows(ResponseModel):
    """The new runs, in the order of the request, and notes on their files."""

    count: int
    runs: list[SubmittedNameRow]
    notes: list[SubmissionNote]
