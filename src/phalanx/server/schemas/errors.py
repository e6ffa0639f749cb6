"""The body of every error response."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from phalanx.server.schemas.base import ResponseModel


class ErrorText(ResponseModel):
    message: Annotated[str, Field(description="what is wrong, and where")]
    hint: Annotated[str, Field(description="what to do")] | None = None


class InvalidField(ResponseModel):
    """One fault of a request."""

    field: Annotated[str, Field(description="its place in the body, or the name of a parameter: `files[0].text`")]
    message: str
    hint: str | None = None


class SpecFault(ResponseModel):
    """One fault of a submitted file, with its position. Line 0 means the whole file."""

    file: str
    line: int
    column: int
    path: str
    message: str
    suggestion: str | None


class Error(ResponseModel):
    """Every response with a status of 400 or more has this body."""

    error: ErrorText
    fields: Annotated[list[InvalidField], Field(description="all faults of the request")] | None = None
    faults: Annotated[list[SpecFault], Field(description="all faults of the submitted files")] | None = None
    size: Annotated[int, Field(description="the length of the server's copy, after a gap in an upload")] | None = None
    is_over: Annotated[bool, Field(description="the attempt has ended: it may not upload any more")] | None = None
