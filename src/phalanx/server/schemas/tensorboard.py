"""TensorBoard over chosen runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from phalanx.boards.board import MOST_RUNS
from phalanx.server.http.request_models import RequestModel, Word
from phalanx.server.schemas.base import ResponseModel


class BoardRequest(RequestModel):
    """Either `runs` or a `query`."""

    runs: Annotated[list[Word], Field(max_length=MOST_RUNS, description="ids of runs and groups")] = Field(
        default_factory=list
    )
    query: Annotated[str, Field(max_length=2_000, description="as in `phalanx ps -q`")] = ""


class BoardAddress(ResponseModel):
    url: Annotated[str | None, Field(description="on the server's machine; null for callers on other machines")]
    command: Annotated[str, Field(description="shows the same runs on the machine where it is called")]
