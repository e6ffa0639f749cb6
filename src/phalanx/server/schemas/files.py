"""Files of a run: lists, previews and uploads."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from phalanx.server.schemas.base import Json, Page, ResponseModel, Time


class OutputRow(ResponseModel):
    path: str
    kind: Annotated[str, Field(description="`file`, `folder` or `link`")]
    size: Annotated[int, Field(description="bytes; of a folder, of all files below it")]
    at: Time | None
    digest: str | None
    place: Annotated[str, Field(description="`here`, or `remote` if only the remote storage has it")]
    target: Annotated[str | None, Field(description="of a link, as written")]
    leads_to: Annotated[str | None, Field(description="of a link: the kind of its target, if it is within the tree")]


class OutputPage(Page):
    files: list[OutputRow]


class TablePreview(ResponseModel):
    columns: list[str]
    rows: list[list[str]]


class FilePreview(ResponseModel):
    kind: str
    title: str
    facts: dict[str, Json]
    lines: list[str]
    table: TablePreview | None = None
    is_cut: bool
    size: int
    view: Annotated[str | None, Field(description="the path at which a browser can show it")]


class UploadedFile(ResponseModel):
    size: Annotated[int, Field(description="the length of the server's copy")]


class UploadedSnapshot(ResponseModel):
    id: Annotated[str, Field(description="for `code` of `POST /api/v1/runs/submit`")]
    files: int
    size: Annotated[int, Field(description="bytes of all files")]
