"""Projects, and the code of runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from phalanx.home.projects import LONGEST_DESCRIPTION
from phalanx.server.http.request_models import RequestModel, Word
from phalanx.server.schemas.base import Page, ResponseModel, Time

Description = Annotated[str, Field(max_length=LONGEST_DESCRIPTION)]


class ProjectRow(ResponseModel):
    name: str
    description: str
    runs: Annotated[int, Field(description="of this project alone")]
    active: Annotated[int, Field(description="of these, runs that have not ended")]
    total: Annotated[int, Field(description="with the runs of nested projects")]
    user: Annotated[str | None, Field(description="who created it; null if it is there only because it has runs")]
    created: Time | None


class ProjectPage(Page):
    projects: list[ProjectRow]


class ProjectDetailsRow(ProjectRow):
    nested: Annotated[list[str], Field(description="the projects inside of it")]
    statuses: Annotated[dict[str, int], Field(description="runs by status, with those of nested projects")]


class RemovedProject(ResponseModel):
    removed: str


class NewProject(RequestModel):
    name: Word
    description: Description = ""


class ProjectChange(RequestModel):
    description: Description


class CodeFileRow(ResponseModel):
    path: str
    size: int


class CodePage(Page):
    """`commit` and `diff` are null if the code was not in a git repository."""

    files: Annotated[list[CodeFileRow], Field(description="of the snapshot; empty without one")]
    has_snapshot: bool
    folder: Annotated[str | None, Field(description="where the code was when the run was submitted")]
    commit: str | None
    branch: str | None
    dirty: bool
    diff: str | None
